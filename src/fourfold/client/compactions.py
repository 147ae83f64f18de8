"""Requests to compact a state stream by key, and their responses, without I/O."""

from __future__ import annotations

import time
from typing import Final

from fourfold.client import responses
from fourfold.client.requests import Address, Call, to_json
from fourfold.client.responses import Response
from fourfold.client.stream_records import offset_of
from fourfold.models.streams.compaction_result import CompactionResult
from fourfold.wire.streams import COMPACT_TIMEOUT_MAX_MS, CompactResult

_HEADERS: Final = {"content-type": "application/json"}


class Compaction:
    """A compaction that the server continues with each request, until it is complete."""

    def __init__(self, address: Address, name: str, horizon: str, timeout_s: float | None) -> None:
        self._url = f"{address.stream(name)}/_compact"
        self._name = name
        self._end = None if timeout_s is None else time.monotonic() + timeout_s
        self._horizon = horizon
        self._result: CompactionResult | None = None

    @property
    def is_done(self) -> bool:
        """True after the last response."""
        if self._result is None:
            return False
        return self._result.complete or (self._end is not None and time.monotonic() >= self._end)

    @property
    def result(self) -> CompactionResult:
        """Result of all requests, as a local stream returns it."""
        assert self._result is not None
        return self._result

    def next_call(self) -> Call:
        """Build the next request."""
        timeout_ms = COMPACT_TIMEOUT_MAX_MS
        if self._end is not None:
            left_ms = round(1000 * (self._end - time.monotonic()))
            timeout_ms = max(1, min(timeout_ms, left_ms))
        body = to_json({"horizon": self._horizon, "timeout_ms": timeout_ms})
        operation = f"compact {self._name!r}"
        return Call("POST", self._url, operation, _HEADERS, {}, body, live=True, bounded=True)

    def receive(self, response: Response) -> None:
        """Add a response."""
        result = responses.decode(response, CompactResult, "a compaction")
        before = self._result
        # The server counts from its first request on; one that was restarted begins again.
        self._result = CompactionResult(
            result.complete,
            offset_of(result.horizon),
            offset_of(result.first_offset),
            max(result.copied, 0 if before is None else before.copied),
            max(result.removed, 0 if before is None else before.removed),
        )
        self._horizon = result.horizon

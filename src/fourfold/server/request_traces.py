"""Spans of requests: one for each, with a child for each transaction that it was written in.

A request is part of the trace that its header `traceparent` names, as the W3C specifies, and is
recorded if the caller records that trace. Other requests begin a trace of their own, and a share of
them is recorded. Spans have the route, never the names in it, and no contents.

Finished spans wait in a bounded queue. A span that finds it full is dropped, so a slow receiver
delays no request.
"""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from fourfold.kernel import commit_traces
from fourfold.kernel.commit_traces import Commits
from fourfold.otlp.spans import SpanRecord
from fourfold.server.routes import Route

SPANS_WAITING_MAX: Final = 8_192
"""Finished spans that wait to be sent."""
TRACE_STATE_CHARS_MAX: Final = 512
"""Length of a `tracestate` header that is passed on; a longer one is left out."""
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500


class RequestTrace:
    """The span of a request that is being answered."""

    __slots__ = ("commits", "parent_id", "span_id", "started_ns", "trace_id", "trace_state")

    def __init__(self, trace_id: bytes, parent_id: bytes, trace_state: str) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.trace_state = trace_state
        self.span_id = _random_id(8)
        self.started_ns = time.time_ns()
        self.commits: Commits = []
        """Transactions that the request was written in."""


class Tracer:
    """Records the requests of one server.

    Args:
        share: Share of the requests without `traceparent` that are recorded.
    """

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._finished: deque[SpanRecord] = deque()
        self.dropped = 0
        """Spans that were not recorded because too many waited."""

    def start(self) -> None:
        """Let databases of this process remember commits for requests that are recorded."""
        commit_traces.armed.add(self)

    def stop(self) -> None:
        """End the recording of commits for this tracer."""
        commit_traces.armed.discard(self)

    def begin(self, headers: Mapping[str, str]) -> RequestTrace | None:
        """Return the trace of a request, or None if it is not recorded."""
        parent = headers.get("traceparent")
        match = None if parent is None else _TRACEPARENT.fullmatch(parent.strip())
        if match is None:
            if self._share < 1 and random.random() >= self._share:  # noqa: S311 - no secret
                return None
            return RequestTrace(_random_id(16), b"", "")
        trace_id, parent_id, flags = match.groups()
        if not int(flags, 16) & 1:
            return None
        state = headers.get("tracestate", "")
        if len(state) > TRACE_STATE_CHARS_MAX:
            state = ""
        return RequestTrace(bytes.fromhex(trace_id), bytes.fromhex(parent_id), state)

    def end(self, trace: RequestTrace, route: Route, *, status: int, error: str = "") -> None:
        """Record the span of a request that was answered, and those of its commits."""
        if len(self._finished) + 1 + len(trace.commits) > SPANS_WAITING_MAX:
            self.dropped += 1 + len(trace.commits)
            return
        ended_ns = time.time_ns()
        for commit in trace.commits:
            self._finished.append(
                SpanRecord(
                    "commit",
                    "internal",
                    trace.trace_id,
                    _random_id(8),
                    trace.span_id,
                    trace.trace_state,
                    commit.ended_ns - int(commit.seconds * 1e9),
                    commit.ended_ns,
                    {
                        "db.system.name": "sqlite",
                        "fourfold.group.size": commit.group_size,
                        "fourfold.fsync.duration": commit.commit_s,
                    },
                )
            )
        attributes: dict[str, str | float] = {
            "http.request.method": route.method,
            "http.route": route.path,
            "http.response.status_code": status,
            "fourfold.operation": route.operation,
            "fourfold.model": route.model,
        }
        if error or status >= _CLIENT_ERROR:
            attributes["error.type"] = error or str(status)
        self._finished.append(
            SpanRecord(
                f"{route.method} {route.path}",
                "server",
                trace.trace_id,
                trace.span_id,
                trace.parent_id,
                trace.trace_state,
                trace.started_ns,
                ended_ns,
                attributes,
                is_error=status >= _SERVER_ERROR,
            )
        )

    def take(self, count: int) -> list[SpanRecord]:
        """Remove and return the oldest finished spans, at most `count`."""
        finished = self._finished
        return [finished.popleft() for _ in range(min(count, len(finished)))]

    @property
    def waiting(self) -> int:
        """Number of finished spans that wait to be sent."""
        return len(self._finished)


def _random_id(size: int) -> bytes:
    return random.randbytes(size)  # noqa: S311 - no secret

"""Compaction by key of a state stream over HTTP.

    {name}/_compact    POST a horizon: remove the history before it, and keep the state

A request works for a limited time, in a worker; the client repeats it until `complete` is true.
"""

from __future__ import annotations

from typing import Final

from fourfold.errors import CorruptData, MissingDependency, NotFound, Refused, StreamGone
from fourfold.models.streams import Streams
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.stream_reads import STREAM
from fourfold.server.stream_rules import COMPACT
from fourfold.server.workers import Workers
from fourfold.wire.streams import CompactBody, CompactResult

BODY_MAX: Final = 4 * 1024


class StreamCompaction:
    """Handler of compactions by key."""

    def __init__(self, streams: Streams, workers: Workers) -> None:
        self._streams = streams
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of this handler."""
        return bind(_ROUTES, self)

    async def compact(self, _request: Request, name: str, body: CompactBody) -> Reply:
        """Remove the history of a state stream before a horizon."""
        result = await self._workers.write(
            self._streams.compact,
            name,
            body.horizon,
            since=body.since,
            timeout_s=body.timeout_ms / 1000,
        )
        return Reply(
            CompactResult(
                complete=result.complete,
                horizon=str(result.horizon),
                first_offset=str(result.first_offset),
                copied=result.copied,
                removed=result.removed,
            )
        )


_ROUTES: Final = (
    Route(
        *("POST", f"{STREAM}{COMPACT}", StreamCompaction.compact),
        operation="compact",
        summary="Remove the history of a state stream, and keep its state.",
        scope="admin",
        resource="name",
        body=CompactBody,
        body_max=BODY_MAX,
        ok={200: Ok("What was done; repeat the request until it is complete.", CompactResult)},
        errors=(NotFound, StreamGone, Refused, CorruptData, MissingDependency),
    ),
)

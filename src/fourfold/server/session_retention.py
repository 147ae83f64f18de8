"""Retention of sessions over HTTP: each request examines a bounded part of them."""

from __future__ import annotations

from typing import Final

import msgspec

from fourfold.server.open_sessions import OpenSessions
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.sessions import SESSIONS, session_route
from fourfold.server.workers import Workers
from fourfold.wire.sessions import RetentionQuery, RetentionRecord, RetentionRequest

_EXAMINED: Final = 1_000
"""Sessions that a request examines; the next one continues there."""


class SessionRetention:
    """The handler of retention."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def apply_retention(
        self, _request: Request, query: RetentionQuery, body: RetentionRequest
    ) -> Reply:
        """Delete sessions that are old, or not among the newest; the next part of them."""
        sessions = await self._opened.get()

        def work() -> RetentionRecord:
            report = sessions.apply_retention(
                query.prefix,
                max_age_s=body.max_age_s,
                keep_latest=body.keep_latest,
                dry_run=body.dry_run,
                after=body.after,
                limit=_EXAMINED,
            )
            return RetentionRecord(**msgspec.structs.asdict(report))

        return Reply(await self._workers.write(work), headers={"cache-control": "no-store"})


_ROUTES: Final = (
    session_route(
        *("POST", f"{SESSIONS}/retention", SessionRetention.apply_retention),
        operation="apply_session_retention",
        summary="Delete sessions that are old, or not among the newest; repeat with `after`.",
        scope="write",
        resource="prefix",
        query=RetentionQuery,
        body=RetentionRequest,
        ok={200: Ok("What this part of the retention deleted.", RetentionRecord)},
    ),
)

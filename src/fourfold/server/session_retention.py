"""Retention of sessions over HTTP: each request examines a bounded part of them."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from fourfold.errors import NotFound
from fourfold.models.sessions.records import StoredRetention
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.sessions import SESSIONS, session_route
from fourfold.server.workers import Workers
from fourfold.wire.sessions import (
    PolicyList,
    PolicyRecord,
    PolicyRequest,
    RetentionQuery,
    RetentionRecord,
    RetentionRequest,
)

_NO_STORE: Final = {"cache-control": "no-store"}
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

    async def list_policies(self, _request: Request, query: RetentionQuery) -> Reply:
        """Return the stored policies whose prefixes begin with a text."""
        stored = await self._workers.run((await self._opened.get()).list_retentions)
        items = [_record(policy) for policy in stored if policy.prefix.startswith(query.prefix)]
        return Reply(PolicyList(items=items), headers=_NO_STORE)

    async def put_policy(
        self, _request: Request, query: RetentionQuery, body: PolicyRequest
    ) -> Reply:
        """Store a policy."""
        sessions = await self._opened.get()

        def work() -> PolicyRecord:
            return _record(
                sessions.set_retention(
                    query.prefix, max_age_s=body.max_age_s, keep_latest=body.keep_latest
                )
            )

        return Reply(await self._workers.write(work), headers=_NO_STORE)

    async def delete_policy(self, _request: Request, query: RetentionQuery) -> Response:
        """Delete a policy."""
        sessions = await self._opened.get()
        await self._workers.write(partial(sessions.delete_retention, query.prefix))
        return Response(204, dict(_NO_STORE))

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

        return Reply(await self._workers.write(work), headers=_NO_STORE)


def _record(policy: StoredRetention) -> PolicyRecord:
    return PolicyRecord(**msgspec.structs.asdict(policy))


_ROUTES: Final = (
    session_route(
        *("GET", f"{SESSIONS}/retention", SessionRetention.list_policies),
        operation="list_session_retentions",
        summary="List stored retention policies of sessions.",
        scope="read",
        resource="prefix",
        query=RetentionQuery,
        no_past="policies say what is deleted from now on; they have no log entries",
        ok={200: Ok("The policies whose prefixes begin with `prefix`.", PolicyList)},
    ),
    session_route(
        *("PUT", f"{SESSIONS}/retention", SessionRetention.put_policy),
        operation="put_session_retention",
        summary="Store a retention policy for the sessions under a prefix.",
        scope="write",
        resource="prefix",
        query=RetentionQuery,
        body=PolicyRequest,
        ok={200: Ok("The policy.", PolicyRecord)},
    ),
    session_route(
        *("DELETE", f"{SESSIONS}/retention", SessionRetention.delete_policy),
        operation="delete_session_retention",
        summary="Delete the stored retention policy of a prefix.",
        scope="write",
        resource="prefix",
        query=RetentionQuery,
        ok={204: Ok("It is deleted.")},
        errors=(NotFound,),
    ),
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

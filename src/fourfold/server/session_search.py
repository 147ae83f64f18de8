"""Search over what sessions say. It indexes new events first, and runs in workers."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import UNSET, structs

from fourfold.errors import Busy, NotFound
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.hits import SessionHit
from fourfold.models.sessions.request import At
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.points import parse_store_time
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.session_values import parse_point
from fourfold.server.sessions import SESSIONS, session_route, verb
from fourfold.server.workers import Workers
from fourfold.wire.sessions import (
    SessionHitPageRecord,
    SessionHitRecord,
    SessionSearchQuery,
    SessionsSearchQuery,
)

_INDEXED: Final = 2_000
"""Events that a search indexes; more are left to the upkeep of the server."""


class SessionSearchRoutes:
    """Handlers of searches."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def search_sessions(self, _request: Request, query: SessionsSearchQuery) -> Reply:
        """Return a page of hits in all sessions of a prefix."""
        at = await parse_store_time(self._opened.store, self._workers, query.at)
        sessions = await self._opened.get()
        return Reply(await self._workers.run(_search, sessions, None, query, at), is_large=True)

    async def search_session(self, _request: Request, sid: str, query: SessionSearchQuery) -> Reply:
        """Return a page of hits in one session."""
        sessions = await self._opened.get()
        at = parse_point(query.at)
        return Reply(await self._workers.run(_search, sessions, sid, query, at), is_large=True)


def _search(
    sessions: Sessions,
    sid: str | None,
    query: SessionSearchQuery | SessionsSearchQuery,
    at: At | datetime,
) -> SessionHitPageRecord:
    from fourfold.models.sessions import search  # noqa: PLC0415 - few servers are searched

    request = search.check_search(
        query.q,
        sid=sid,
        prefix=query.prefix if isinstance(query, SessionsSearchQuery) else "",
        at=at,
        kinds=query.kind or None,
        order=query.order,
    )
    after = None if query.cursor is UNSET else query.cursor
    # Bad input is refused before anything is written to the index.
    cursor = search.check_page(sessions, request, query.limit, after)
    progress = sessions.index_texts(_INDEXED)
    if progress.left:
        raise Busy(
            f"{progress.left} events are not in the index of words yet",
            hint="Try again: the server indexes them in the background.",
        )
    page = search.search(sessions, request, query.limit, cursor)
    return SessionHitPageRecord(items=list(map(_record, page)), next_cursor=page.next)


def _record(hit: SessionHit) -> SessionHitRecord:
    fields = structs.asdict(hit)
    return SessionHitRecord(**{**fields, "highlights": list(hit.highlights)})


_ROUTES: Final = (
    session_route(
        *("GET", f"{SESSIONS}/search", SessionSearchRoutes.search_sessions),
        operation="search_sessions",
        summary="Search the words of messages, calls, summaries, errors and ends of turns.",
        scope="read",
        resource="prefix",
        query=SessionsSearchQuery,
        ok={200: Ok("A page of hits.", SessionHitPageRecord)},
        errors=(Busy, NotFound),
    ),
    session_route(
        *("GET", verb("search"), SessionSearchRoutes.search_session),
        operation="search_session",
        summary="Search the words of one session, now or at any event.",
        scope="read",
        query=SessionSearchQuery,
        ok={200: Ok("A page of hits.", SessionHitPageRecord)},
        errors=(Busy, NotFound),
    ),
)

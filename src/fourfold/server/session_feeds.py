"""Live sessions: a feed of server-sent events for each reader, and transient items for them.

A reader is a position in the log, so it costs no memory however slow it is, and misses no event.
Transient items, such as tokens, are not stored: each reader has a short queue for them, and a `gap`
says that some were dropped. They have no id, so a reader that reconnects continues after the last
event.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from msgspec import UnsetType

from fourfold import limits
from fourfold.content import from_json
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Event, SessionFeed, Sessions, Transient
from fourfold.server import event_stream
from fourfold.server.event_stream import (
    END,
    GAP,
    SSE_KEEP_ALIVE_S,
    SSE_S,
    event_response,
    last_event_id,
)
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.session_values import event_record, raw
from fourfold.server.sessions import SESSIONS, session_route, verb
from fourfold.server.workers import Workers
from fourfold.wire.documents import SEQ_MAX
from fourfold.wire.pages import EventHeaders
from fourfold.wire.sessions import (
    LiveQuery,
    LiveSessionsQuery,
    SessionEnd,
    SessionGap,
    TransientEvent,
    TransientItems,
)

TRANSIENT_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes of a request with transient items."""


class SessionFeeds:
    """Handlers of live sessions."""

    def __init__(
        self,
        workers: Workers,
        opened: OpenSessions,
        *,
        keep_alive_s: float = SSE_KEEP_ALIVE_S,
        lifetime_s: float = SSE_S,
    ) -> None:
        self._workers = workers
        self._opened = opened
        self._keep_alive_s = keep_alive_s
        self._lifetime_s = lifetime_s
        self._feeds: set[SessionFeed] = set()
        self._stopping = False

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed; readers reconnect and continue."""
        self._stopping = True
        for feed in tuple(self._feeds):
            feed.close()

    async def follow(self, request: Request, sid: str, query: LiveQuery) -> Response:
        """Return a feed of the events of a session."""
        after = _parse_after(last_event_id(request, query.after))
        sessions = await self._opened.get()
        # Opened before the response starts: what is sent to its reader from then on arrives.
        feed = await self._workers.run(
            sessions.follow, sid, after=after, bound=limits.TRANSIENT_ITEMS_MAX
        )
        return event_response(
            partial(self._follow, feed),
            keep_alive_s=self._keep_alive_s,
            lifetime_s=self._lifetime_s,
        )

    async def follow_all(self, request: Request, query: LiveSessionsQuery) -> Response:
        """Return a feed of the events of all sessions, in the order of their commits."""
        after = _parse_after(last_event_id(request, query.after))
        sessions = await self._opened.get()
        feed = await self._workers.run(
            partial(sessions.follow_all, after=after, bound=limits.TRANSIENT_ITEMS_MAX)
        )
        return event_response(
            partial(self._follow, feed, query.prefix),
            keep_alive_s=self._keep_alive_s,
            lifetime_s=self._lifetime_s,
        )

    @asynccontextmanager
    async def _follow(
        self, feed: SessionFeed, prefix: str = ""
    ) -> AsyncIterator[event_stream.Feed]:
        self._feeds.add(feed)
        try:
            yield event_stream.Feed(
                partial(_next_event, feed, prefix),
                lambda: str(feed.cursor),
                lambda: self._stopping,
            )
        finally:
            self._feeds.discard(feed)
            feed.close()

    async def send_transients(self, _request: Request, sid: str, body: TransientItems) -> Reply:
        """Deliver items to the current readers of a session, best effort."""
        items = [from_json(item) for item in body.items]
        await self._workers.run(_send, await self._opened.get(), sid, items)
        return Reply(status=204, headers={"cache-control": "no-store"})


def _send(sessions: Sessions, sid: str, items: list[object]) -> None:
    for item in items:
        sessions.notify_transient(sid, item)


async def _next_event(
    feed: SessionFeed, prefix: str, timeout_s: float
) -> event_stream.FeedEvent | None:
    """Return the next event or item of a feed; None if nothing happens in time."""
    deadline = time.monotonic() + timeout_s
    try:
        item = await feed.next_async(timeout_s)
        while isinstance(item, Event | Transient) and not item.session.startswith(prefix):
            # Other sessions may be busy: the feed reports its position in time nevertheless.
            left = deadline - time.monotonic()
            item = await feed.next_async(left) if left > 0 else None
    except NotFound:
        return event_stream.FeedEvent(END, SessionEnd(reason="the session is deleted"))
    if item is None:
        return None
    if isinstance(item, Event):
        return event_stream.FeedEvent("event", event_record(item), str(feed.cursor))
    if isinstance(item, Transient):
        return event_stream.FeedEvent(
            "transient",
            TransientEvent(session=item.session, item=raw(item.item), after=item.event_id),
        )
    gap = SessionGap(after=item.last_delivered_event_id, dropped=item.dropped)
    return event_stream.FeedEvent(GAP, gap, str(gap.after))


def _parse_after(after: str | int | UnsetType) -> int | None:
    """Return the event after which a feed starts, or None for the newest."""
    if isinstance(after, UnsetType):
        return None
    text = str(after)
    if not (text.isascii() and text.isdecimal() and int(text) <= SEQ_MAX):
        raise InvalidInput(f"Last-Event-ID: must be an event id, got {text!r:.80}")
    return int(text)


_ROUTES: Final = (
    session_route(
        *("GET", f"{SESSIONS}/live", SessionFeeds.follow_all),
        operation="follow_sessions",
        summary="Follow all sessions as server-sent events; an id is a position of the store.",
        scope="read",
        resource="prefix",
        query=LiveSessionsQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
    ),
    session_route(
        *("GET", verb("live"), SessionFeeds.follow),
        operation="follow_session",
        summary="Follow a session as server-sent events: event, transient, gap and end.",
        scope="read",
        query=LiveQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
    session_route(
        *("POST", verb("transients"), SessionFeeds.send_transients),
        operation="send_transients",
        summary="Deliver transient items to the current readers of a session; nothing is stored.",
        scope="write",
        body=TransientItems,
        body_max=TRANSIENT_BYTES_MAX,
        ok={204: Ok("They were delivered, or dropped by slow readers.")},
        errors=(NotFound,),
    ),
)

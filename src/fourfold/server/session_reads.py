"""Reads of sessions: events, views, entities, heads, lineage and payloads.

All of them run in workers. The first page of a list fixes the event that all its pages show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from fourfold import limits
from fourfold.content import content_id, decode, encode, from_json
from fourfold.errors import InvalidInput, NotFound, PayloadMissing
from fourfold.models.sessions import Event, Head, Sessions, SessionView
from fourfold.server import cursors
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.points import parse_store_time
from fourfold.server.ranges import ImmutableContent, content_response, iter_pieces
from fourfold.server.request import Headers, Reply, Request, Response
from fourfold.server.routes import JSON, Ok, Route, bind
from fourfold.server.session_values import (
    NO_HEAD,
    collect,
    edge_record,
    event_record,
    head_record,
    parse_point,
    raw,
    size_of,
    view_record,
)
from fourfold.server.sessions import SESSIONS, session_route, verb
from fourfold.server.workers import Workers
from fourfold.wire.documents import BlobContentHeaders, BlobHeaders
from fourfold.wire.sessions import (
    AtQuery,
    EntitiesQuery,
    EntityPage,
    EventPage,
    EventRecord,
    EventsQuery,
    EventTagHeaders,
    HeadDifference,
    HeadIds,
    HeadPage,
    HeadRecord,
    HeadsQuery,
    LineageQuery,
    LineageRecord,
    PayloadQuery,
    PayloadRecord,
    ViewRecord,
)

PAYLOADS: Final = f"{SESSIONS}/payloads"
Covers = Callable[[str], bool]
"""`Request.covers`: whether the key of a request is for a session."""
_CACHEABLE: Final[Headers] = {"cache-control": "private, max-age=60"}


class SessionReads:
    """Handlers that read sessions and payloads."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def _page(self, read: Callable[..., Struct], *arguments: Any) -> Reply:
        value = await self._workers.run(read, await self._opened.get(), *arguments)
        return Reply(value, is_large=True)

    async def list_events(self, _request: Request, sid: str, query: EventsQuery) -> Reply:
        """Return a page of events."""
        return await self._page(_events, sid, query)

    async def get_view(self, _request: Request, sid: str, query: AtQuery) -> Reply:
        """Return the state of a session."""
        sessions = await self._opened.get()
        record: ViewRecord = await self._workers.run(_view, sessions, sid, query)
        # An event never changes, but a time is another event once more of them are there.
        is_fixed = query.at is not UNSET and "T" not in query.at.upper()
        return Reply(
            record,
            headers=_CACHEABLE if is_fixed else {},
            etag=str(record.event_id),
            is_large=True,
        )

    async def list_messages(self, _request: Request, sid: str, query: EntitiesQuery) -> Reply:
        """Return a page of messages."""
        return await self._page(_entities, "messages", sid, query)

    async def list_turns(self, _request: Request, sid: str, query: EntitiesQuery) -> Reply:
        """Return a page of turns."""
        return await self._page(_entities, "turns", sid, query)

    async def list_steps(self, _request: Request, sid: str, query: EntitiesQuery) -> Reply:
        """Return a page of steps."""
        return await self._page(_entities, "steps", sid, query)

    async def list_evals(self, _request: Request, sid: str, query: EntitiesQuery) -> Reply:
        """Return a page of evals."""
        return await self._page(_entities, "evals", sid, query)

    async def list_heads(self, _request: Request, sid: str, query: HeadsQuery) -> Reply:
        """Return a page of heads."""
        sessions = await self._opened.get()
        page: HeadPage = await self._workers.run(_heads, sessions, sid, query)
        return Reply(page, etag=page.current_head or NO_HEAD, is_large=True)

    async def get_head(self, request: Request, head: str) -> Reply:
        """Return a head by its id."""
        info = await self._workers.run(_get_head, await self._opened.get(), head, request.covers)
        return Reply(head_record(info), etag=info.id, headers=_CACHEABLE)

    async def get_lineage(self, request: Request, sid: str, query: LineageQuery) -> Reply:
        """Return the heads and edges of the sessions that are connected to one."""
        at = await parse_store_time(self._opened.store, self._workers, query.at)
        return await self._page(_lineage, sid, query, at, request.covers)

    async def list_ancestors(self, request: Request, head: str) -> Reply:
        """Return the heads that a head derives from."""
        return await self._page(_relatives, "ancestors", head, request.covers)

    async def list_descendants(self, request: Request, head: str) -> Reply:
        """Return the heads that derive from a head."""
        return await self._page(_relatives, "descendants", head, request.covers)

    async def compare_heads(self, request: Request, head: str, other: str) -> Reply:
        """Return what differs between two heads."""
        sessions = await self._opened.get()
        difference = await self._workers.run(_compare, sessions, head, other, request.covers)
        return Reply(difference, is_large=True)

    # Payloads

    async def create_payload(self, _request: Request, query: PayloadQuery, body: Any) -> Reply:
        """Store a value as a payload."""
        return await self._store_payload(from_json(body), query)

    async def put_payload(self, request: Request, hash: str, query: PayloadQuery) -> Reply:  # noqa: A002
        """Store canonical bytes under their hash."""
        if content_id(request.body) != hash:
            raise InvalidInput(
                f"body: must have the hash of the path, got {content_id(request.body)}",
                hint="Send the bytes of fourfold.content.encode(value) as they are.",
            )
        return await self._store_payload(await self._workers.run(decode, request.body), query)

    async def _store_payload(self, value: Any, query: PayloadQuery) -> Reply:
        sessions = await self._opened.get()
        ref = await self._workers.write(sessions.intern_payload, value, query.kind)
        record = PayloadRecord(id=ref.id, kind=ref.kind, size=ref.size)
        return Reply(record, 201, location=f"{PAYLOADS}/{ref.id}")

    async def get_payload(self, request: Request, hash: str) -> Response:  # noqa: A002
        """Return the canonical bytes of a payload, or a range of them."""
        sessions = await self._opened.get()
        size = await self._workers.run(sessions.payload_size, hash)
        read = partial(sessions.payload_bytes, hash)
        return content_response(
            request,
            ImmutableContent(hash, size, JSON),
            lambda part: iter_pieces(part, read, self._workers),
        )


def _events(sessions: Sessions, sid: str, query: EventsQuery) -> EventPage:
    until = None if query.until is UNSET else query.until
    key = None if query.key is UNSET else query.key
    listed = cursors.digest_of("events", sid, query.after, until, key)
    cursor = cursors.parse(query.cursor, listed, int)
    if cursor is None:
        newest = sessions.info(sid).events
        after, last = query.after, newest if until is None else min(until, newest)
    else:
        after, last = cursor.after, cursor.at

    def read(first: int, end: int) -> Sequence[Event]:
        return sessions.events(sid, after=first, until=end)

    if key is not None:
        # A request has consecutive events.
        ids = [event.id for event in sessions.events_of_key(sid, key)]
        after, last = max(after, ids[0] - 1 if ids else last), min(last, ids[-1] if ids else 0)
    items, after = collect(read, after, last, query.limit, _sized_event)
    more = cursors.format_cursor(listed, last, after) if after < last else None
    return EventPage(items=items, next_cursor=more)


def _sized_event(event: Event) -> tuple[EventRecord, int]:
    record = event_record(event)
    return record, size_of(record.data)


def _view(sessions: Sessions, sid: str, query: AtQuery) -> ViewRecord:
    view = sessions.view_at(sid, parse_point(query.at))
    kept_after = 0
    if view.compact_from_event_id is not None:
        before = sessions.view_at(sid, view.compact_from_event_id - 1)
        kept_after = before.counters.message
    return view_record(view, sessions.open(sid).created_at, kept_after)


def _entities(sessions: Sessions, name: str, sid: str, query: EntitiesQuery) -> EntityPage:
    at = None if query.at is UNSET else query.at
    listed = cursors.digest_of(name, sid, at, query.after)
    cursor = cursors.parse(query.cursor, listed, int)
    view, after = _resume(sessions, sid, at, cursor, query.after)
    entities = getattr(view, name)
    items, after = collect(
        lambda first, end: entities[first:end], after, len(entities), query.limit, _sized_entity
    )
    event_id = view.counters.event
    more = cursors.format_cursor(listed, event_id, after) if after < len(entities) else None
    return EntityPage(items=items, event_id=event_id, next_cursor=more)


def _sized_entity(entity: dict[str, Any]) -> tuple[Raw, int]:
    data = encode(entity)
    return Raw(data), len(data)


def _heads(sessions: Sessions, sid: str, query: HeadsQuery) -> HeadPage:
    at = None if query.at is UNSET else query.at
    listed = cursors.digest_of("heads", sid, at)
    cursor = cursors.parse(query.cursor, listed, int)
    view, after = _resume(sessions, sid, at, cursor, 0)
    heads = view.heads
    items, after = collect(
        lambda first, end: heads[first:end], after, len(heads), query.limit, _sized_head
    )
    event_id = view.counters.event
    more = cursors.format_cursor(listed, event_id, after) if after < len(heads) else None
    return HeadPage(
        items=items, event_id=event_id, current_head=view.current_head, next_cursor=more
    )


def _sized_head(head: Head) -> tuple[HeadRecord, int]:
    record = head_record(head)
    return record, sum(map(size_of, (record.vars_ref, record.final_ref, record.extra)))


def _resume(
    sessions: Sessions, sid: str, at: str | None, cursor: cursors.PageCursor[int] | None, after: int
) -> tuple[SessionView, int]:
    """Return the view that the pages of a list show, and the index where this one starts."""
    if cursor is None:
        return sessions.view_at(sid, parse_point(at)), after
    return sessions.view_at(sid, cursor.at), cursor.after


def _get_head(sessions: Sessions, head_id: str, covers: Covers) -> Head:
    """Return a head of a session that a key is for."""
    head = sessions.head(head_id)
    if not covers(head.session):
        raise NotFound(f"there is no head {head_id}")
    return head


def _lineage(
    sessions: Sessions, sid: str, query: LineageQuery, at: datetime | None, covers: Covers
) -> LineageRecord:
    graph = sessions.lineage_graph(sid, limit=query.limit, at=at)
    heads = [head for head in graph.heads if covers(head.session)]
    # A key for some sessions does not show which others there are.
    edges = [edge for edge in graph.edges if covers(edge.from_session) and covers(edge.to_session)]
    return LineageRecord(
        heads=[head_record(head) for head in heads],
        edges=[edge_record(edge) for edge in edges],
        complete=graph.complete,
    )


def _relatives(sessions: Sessions, relation: str, head: str, covers: Covers) -> HeadIds:
    """Return the ids of related heads of the sessions that a key is for."""
    _get_head(sessions, head, covers)
    ids: list[str] = getattr(sessions, relation)(head)
    return HeadIds(items=_covered(sessions, ids, covers))


def _covered(sessions: Sessions, ids: list[str], covers: Covers) -> list[str]:
    """Return the heads of the sessions that a key covers."""
    return ids if covers("") else [id_ for id_ in ids if _is_covered(sessions, id_, covers)]


def _is_covered(sessions: Sessions, head_id: str, covers: Covers) -> bool:
    try:
        return covers(sessions.head(head_id).session)
    except NotFound:
        # An edge may refer to a head of another store: only a key for all sessions shows it.
        return False


def _compare(sessions: Sessions, one: str, other: str, covers: Covers) -> HeadDifference:
    for head in (one, other):
        _get_head(sessions, head, covers)
    comparison = sessions.compare_heads(one, other)
    common = [] if comparison.common is None else _covered(sessions, [comparison.common], covers)
    return HeadDifference(
        one=comparison.one,
        other=comparison.other,
        common=common[0] if common else None,
        added=comparison.added,
        removed=comparison.removed,
        changed=comparison.changed,
        new_messages=[raw(message) for message in comparison.new_messages[: limits.PAGE_ITEMS_MAX]],
        gone_messages=[
            raw(message) for message in comparison.gone_messages[: limits.PAGE_ITEMS_MAX]
        ],
    )


def _entity_route(handler: Any, name: str) -> Route:
    return session_route(
        *("GET", verb(name), handler),
        operation=f"list_{name}",
        summary=f"List the {name} of a session by their ids.",
        scope="read",
        query=EntitiesQuery,
        ok={200: Ok(f"A page of {name}.", EntityPage)},
        errors=(NotFound,),
    )


_ROUTES: Final = (
    session_route(
        *("GET", verb("events"), SessionReads.list_events),
        operation="list_events",
        no_past="`until` is the last event; a view at a time has its id",
        summary="List the events of a session, oldest first.",
        scope="read",
        query=EventsQuery,
        ok={200: Ok("A page of events.", EventPage)},
        errors=(NotFound,),
    ),
    session_route(
        *("GET", verb("view"), SessionReads.get_view),
        operation="get_view",
        summary="Get the state of a session, now or at any event.",
        scope="read",
        query=AtQuery,
        ok={
            200: Ok("The state.", ViewRecord, EventTagHeaders),
            304: Ok("The client has this state already.", headers=EventTagHeaders),
        },
        errors=(NotFound,),
    ),
    _entity_route(SessionReads.list_messages, "messages"),
    _entity_route(SessionReads.list_turns, "turns"),
    _entity_route(SessionReads.list_steps, "steps"),
    _entity_route(SessionReads.list_evals, "evals"),
    session_route(
        *("GET", verb("heads"), SessionReads.list_heads),
        operation="list_heads",
        summary="List the heads of a session, oldest first.",
        scope="read",
        query=HeadsQuery,
        ok={
            200: Ok("A page of heads.", HeadPage, EventTagHeaders),
            304: Ok("The client has these heads already.", headers=EventTagHeaders),
        },
        errors=(NotFound,),
    ),
    session_route(
        *("GET", f"{SESSIONS}/head/{{head}}", SessionReads.get_head),
        operation="get_head",
        no_past="a head never changes",
        summary="Get a head by its id.",
        scope="read",
        resource="any",
        ok={
            200: Ok("The head.", HeadRecord, EventTagHeaders),
            304: Ok("The client has it already.", headers=EventTagHeaders),
        },
        errors=(NotFound,),
    ),
    session_route(
        *("GET", verb("lineage"), SessionReads.get_lineage),
        operation="get_lineage",
        summary="Get the heads and edges of all sessions connected to one, now or at a time.",
        scope="read",
        query=LineageQuery,
        ok={200: Ok("The graph.", LineageRecord)},
        errors=(NotFound,),
    ),
    session_route(
        *("GET", f"{SESSIONS}/ancestors/{{head}}", SessionReads.list_ancestors),
        operation="list_ancestors",
        no_past="the lineage of a session has its past",
        summary="List the heads that a head derives from, nearest first.",
        scope="read",
        resource="any",
        ok={200: Ok("Ids of heads.", HeadIds)},
        errors=(NotFound,),
    ),
    session_route(
        *("GET", f"{SESSIONS}/descendants/{{head}}", SessionReads.list_descendants),
        operation="list_descendants",
        no_past="the lineage of a session has its past",
        summary="List the heads that derive from a head, nearest first.",
        scope="read",
        resource="any",
        ok={200: Ok("Ids of heads.", HeadIds)},
        errors=(NotFound,),
    ),
    session_route(
        *("GET", f"{SESSIONS}/compare/{{head}}/{{other}}", SessionReads.compare_heads),
        operation="compare_heads",
        no_past="heads never change",
        summary="Compare two heads: their variables, their transcripts, and where they diverged.",
        scope="read",
        resource="any",
        ok={200: Ok("What differs.", HeadDifference)},
        errors=(NotFound,),
    ),
    session_route(
        *("POST", PAYLOADS, SessionReads.create_payload),
        operation="create_payload",
        summary="Store a value as a payload; idempotent.",
        scope="write",
        resource="any",
        query=PayloadQuery,
        body=Any,
        ok={201: Ok("It is stored.", PayloadRecord)},
    ),
    session_route(
        *("PUT", f"{PAYLOADS}/{{hash}}", SessionReads.put_payload),
        operation="put_payload",
        summary="Store canonical bytes as a payload under their hash; idempotent.",
        scope="write",
        resource="any",
        query=PayloadQuery,
        body=bytes,
        ok={201: Ok("It is stored.", PayloadRecord)},
    ),
    session_route(
        *("GET", f"{PAYLOADS}/{{hash}}", SessionReads.get_payload),
        operation="get_payload",
        no_past="the bytes of a hash never change",
        summary="Get the canonical bytes of a payload, or a range of them.",
        scope="read",
        resource="any",
        headers=BlobHeaders,
        ok={
            200: Ok("The payload.", "any", BlobContentHeaders),
            206: Ok("A part of the payload.", "any", BlobContentHeaders),
            304: Ok("The client has it already.", headers=BlobContentHeaders),
            416: Ok("The payload has no such bytes.", headers=BlobContentHeaders),
        },
        errors=(PayloadMissing,),
    ),
)

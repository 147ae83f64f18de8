"""Sessions over HTTP: create, list, append, publish heads, fork and delete.

The id of a session may contain slashes, so it is the last part of a path, after the verb:
`/v1/sessions/events/{sid}`. The session itself is `/v1/session/{sid}`. The version of a session is
the id of its newest event, and that of its heads is the current head: If-Match makes an append or a
head conditional on them.

A request with an Idempotency-Key runs in a transaction that also stores what it wrote, so that a
repeated one returns the same. It waits for its own commit; others share commits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UnsetType

from fourfold import limits
from fourfold.content import from_json
from fourfold.content.filters import Filter, decode_filter, parse_filter
from fourfold.errors import (
    AlreadyClaimed,
    AlreadyExists,
    Forbidden,
    HeadMoved,
    InvalidInput,
    LeaseLost,
    NotFound,
    PayloadMissing,
    PreconditionFailed,
    Refused,
    ReplayMismatch,
)
from fourfold.kernel.idempotency import IdempotentRequest, digest_of, run_once
from fourfold.models.sessions import UNSET as NOT_GIVEN
from fourfold.models.sessions import Session, Sessions, SqliteLog
from fourfold.models.sessions.leases import check_epoch
from fourfold.models.sessions.listing import ListingOptions, check_order, scan_sessions
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import Claim, Epoch, Unset
from fourfold.models.sessions.request import At, check_session_id, check_time, fresh_id
from fourfold.server import conditions, cursors
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.points import digest_text, parse_at, parse_store_time
from fourfold.server.request import Headers, Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.session_values import (
    NO_HEAD,
    event_record,
    head_record,
    lease_record,
    parse_events,
    parse_point,
    session_record,
)
from fourfold.server.workers import Workers
from fourfold.wire.documents import SEQ_MAX
from fourfold.wire.pages import IdempotencyHeaders
from fourfold.wire.sessions import (
    AppendedEvents,
    AppendRequest,
    AtQuery,
    ClaimRequest,
    EpochHeaders,
    EventAppendHeaders,
    EventRecord,
    EventTagHeaders,
    ForkRequest,
    HeadHeaders,
    HeadRecord,
    HeadRequest,
    LeasePage,
    LeaseRecord,
    LeasesQuery,
    ReleaseQuery,
    RenewRequest,
    ResumptionRecord,
    SessionLease,
    SessionPage,
    SessionRecord,
    SessionsQuery,
)

T = TypeVar("T")
SESSIONS: Final = "/v1/sessions"
SESSION: Final = "/v1/session/{sid:name}"
_SCAN_SESSIONS: Final = 10_000
"""Sessions that a request examines for matches; the next page continues there."""
_NO_STORE: Final[Headers] = {"cache-control": "no-store"}


def verb(name: str) -> str:
    """Return the path of a verb, which is before the id."""
    return f"{SESSIONS}/{name}/{{sid:name}}"


class SessionRoutes:
    """Handlers of sessions, and of everything that writes to them."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    # Sessions

    async def list_sessions(self, _request: Request, query: SessionsQuery) -> Reply:
        """Return a page of sessions."""
        at = await parse_store_time(self._opened.store, self._workers, query.at)
        page = await self._workers.run(_list_sessions, await self._opened.get(), query, at)
        return Reply(page, is_large=True)

    async def create_session(self, request: Request, body: dict[str, Any]) -> Reply:
        """Create a session with the id in the body, or with a new one."""
        fields = from_json(body)
        _check_new(request, fields)
        return await self._create(request, fields)

    async def put_session(self, request: Request, sid: str, body: dict[str, Any]) -> Reply:
        """Create the session of the path."""
        fields = from_json(body)
        if fields.setdefault("id", sid) != sid:
            raise InvalidInput(f"id: must be that of the path, {sid!r:.100}, or absent")
        return await self._create(request, fields)

    async def _create(self, request: Request, fields: dict[str, Any]) -> Reply:
        sessions = await self._opened.get()
        return await self._new_session(request, sessions, lambda: sessions.create(fields))

    async def fork_session(self, request: Request, sid: str, body: ForkRequest) -> Reply:
        """Create a session that continues from a point of another one."""
        fields = from_json(body.session)
        _check_new(request, fields)
        sessions = await self._opened.get()

        def fork() -> Session:
            return sessions.fork(sid, fields, at=parse_point(body.at))

        return await self._new_session(request, sessions, fork)

    async def _new_session(
        self, request: Request, sessions: Sessions, create: Callable[[], Session]
    ) -> Reply:
        def write() -> bytes:
            session = create()
            return msgspec.json.encode((session.created, session.id))

        stored, replayed = await self._once(request, write)
        created, sid = msgspec.json.decode(stored, type=tuple[bool, str])
        record = await self._workers.run(_record, sessions, sid)
        return Reply(
            record,
            201 if created else 200,
            headers=_written(replayed),
            etag=str(record.events),
            location=f"/v1/session/{sid}" if created else None,
        )

    async def get_session(self, _request: Request, sid: str, query: AtQuery) -> Reply:
        """Return a session."""
        sessions = await self._opened.get()
        record = await self._workers.run(_record, sessions, sid, parse_point(query.at))
        return Reply(record, etag=str(record.events))

    async def delete_session(self, request: Request, sid: str) -> Reply:
        """Delete a session."""
        sessions = await self._opened.get()

        def delete() -> bytes:
            sessions.delete_session(sid)
            return b""

        _, replayed = await self._once(request, delete)
        return Reply(status=204, headers=_written(replayed))

    # Events and heads

    async def append_events(self, request: Request, sid: str, body: AppendRequest) -> Reply:
        """Append events, all or none."""
        last, epoch = _expected_event(request), _parse_epoch(request, sid)
        sessions = await self._opened.get()
        if not body.events:
            await sessions.append_events_async(
                sid, [], expected_last_id=last, key=body.key, epoch=epoch
            )
            return Reply(AppendedEvents(events=[]), headers=_NO_STORE)
        if len(request.body) <= limits.HTTP_LOOP_BYTES and not _is_idempotent(request):
            appended = await sessions.append_events_async(
                sid, parse_events(body.events), expected_last_id=last, key=body.key, epoch=epoch
            )
            return _appended([event_record(event) for event in appended], False)

        def append() -> bytes:
            events = sessions.append_events(
                sid, parse_events(body.events), expected_last_id=last, key=body.key, epoch=epoch
            )
            return msgspec.json.encode((events[0].id, events[-1].id))

        stored, replayed = await self._once_owned(request, append, sid, epoch)
        first, last = msgspec.json.decode(stored, type=tuple[int, int])
        return _appended(await self._workers.run(_events, sessions, sid, first, last), replayed)

    async def publish_head(self, request: Request, sid: str, body: HeadRequest) -> Reply:
        """Publish a head."""
        expected, epoch = _expected_head(request), _parse_epoch(request, sid)
        sessions = await self._opened.get()

        def publish() -> bytes:
            head = sessions.publish_head(
                sid,
                from_json(body.head),
                expected_basis=expected,
                to_event_id=body.to_event_id,
                key=body.key,
                events=parse_events(body.events),
                epoch=epoch,
            )
            return head.id.encode()

        stored, replayed = await self._once_owned(request, publish, sid, epoch)
        head = await self._workers.run(sessions.head, stored.decode())
        return Reply(head_record(head), 201, headers=_written(replayed), etag=head.id)

    async def append_edge(self, request: Request, sid: str, body: dict[str, Any]) -> Reply:
        """Append a lineage edge."""
        epoch = _parse_epoch(request, sid)
        sessions = await self._opened.get()

        def append() -> bytes:
            event = sessions.append_lineage_edge(sid, from_json(body), epoch=epoch)
            return msgspec.json.encode(event.id)

        stored, replayed = await self._once_owned(request, append, sid, epoch)
        event_id = msgspec.json.decode(stored, type=int)
        [record] = await self._workers.run(_events, sessions, sid, event_id, event_id)
        return Reply(record, headers=_written(replayed))

    # Leases

    async def list_leases(self, _request: Request, query: LeasesQuery) -> Reply:
        """Return a page of leases."""
        return Reply(await self._workers.run(_list_leases, await self._opened.get(), query))

    async def get_lease(self, _request: Request, sid: str) -> Reply:
        """Return the lease of a session, if it has one."""
        sessions = await self._opened.get()
        return Reply(await self._workers.run(_lease, sessions, sid), headers=_NO_STORE)

    async def claim_session(self, request: Request, sid: str, body: ClaimRequest) -> Reply:
        """Claim the right to write a session."""
        sessions = await self._opened.get()

        def claim() -> bytes:
            granted = sessions.claim(sid, body.holder, body.ttl_s, steal=body.steal)
            return msgspec.json.encode(lease_record(granted))

        stored, replayed = await self._once(request, claim)
        lease = msgspec.json.decode(stored, type=LeaseRecord)
        return Reply(lease, 201, headers=_written(replayed))

    async def renew_lease(self, _request: Request, sid: str, body: RenewRequest) -> Reply:
        """Let a lease last longer."""
        sessions = await self._opened.get()
        claim = await sessions.renew_async(sid, body.epoch, body.ttl_s)
        return Reply(lease_record(claim), headers=_NO_STORE)

    async def release_lease(self, _request: Request, sid: str, query: ReleaseQuery) -> Reply:
        """End a lease."""
        await (await self._opened.get()).release_async(sid, query.epoch)
        return Reply(status=204, headers=_NO_STORE)

    async def _once_owned(
        self, request: Request, work: Callable[[], bytes], sid: str, epoch: Epoch | None
    ) -> tuple[bytes, bool]:
        """Do the same as `_once`; a repeated request needs the lease of its epoch, too."""
        stored, replayed = await self._once(request, work)
        if replayed and epoch is not None:
            await self._workers.run(_check_lease, await self._opened.get(), sid, epoch)
        return stored, replayed

    async def _once(self, request: Request, work: Callable[[], bytes]) -> tuple[bytes, bool]:
        """Return what `work` wrote, or what it wrote before with the same Idempotency-Key, and
        True if it is the latter.
        """
        key = conditions.parse_idempotency_key(request)
        if key is None:
            return await self._workers.write(work), False
        log = (await self._opened.get()).log
        assert isinstance(log, SqliteLog)
        parts = (request.method, request.path, request.query, request.header("if-match") or "")
        digest = digest_of(*(part.encode() for part in parts), request.body)
        identity = IdempotentRequest(request.key_id, key, digest)
        return await self._workers.write(run_once, log.database, identity, work)


def _record(sessions: Sessions, sid: str, at: At = None) -> SessionRecord:
    return session_record(sessions.info(sid, at))


def _events(sessions: Sessions, sid: str, first: int, last: int) -> list[EventRecord]:
    events = sessions.events(sid, after=first - 1, until=last)
    return [event_record(event) for event in events]


def _check_lease(sessions: Sessions, sid: str, epoch: Epoch) -> None:
    """Raise LeaseLost if the lease of this epoch is not the current one."""
    claim = epoch if isinstance(epoch, Claim) else Claim(sid, epoch, "", "")
    with sessions.log.read() as reading:
        check_epoch(reading, existing(reading, claim.session), claim.epoch)


def _lease(sessions: Sessions, sid: str) -> SessionLease:
    claim = sessions.find_lease(sid)
    return SessionLease(
        lease=None if claim is None else lease_record(claim),
        resumptions=[
            ResumptionRecord(
                after=resumption.after,
                epoch=resumption.epoch,
                holder=resumption.holder,
                at=resumption.at,
            )
            for resumption in sessions.resumptions(sid)
        ],
    )


def _list_leases(sessions: Sessions, query: LeasesQuery) -> LeasePage:
    listed = cursors.digest_of("leases", query.prefix)
    cursor = cursors.parse(query.cursor, listed, str)
    first = None if isinstance(query.after, UnsetType) else query.after
    after = first if cursor is None else cursor.after
    claims = sessions.list_leases(after=after, limit=query.limit, prefix=query.prefix)
    more = len(claims) == query.limit
    return LeasePage(
        items=[*map(lease_record, claims)],
        next_cursor=cursors.format_cursor(listed, 0, claims[-1].session) if more else None,
    )


def _check_new(request: Request, fields: dict[str, Any]) -> None:
    """Give a new session an id in the prefix of the key, or raise Forbidden if its id is not.

    An id that is not text is refused later.
    """
    prefix = "" if request.grant is None else request.grant.prefix
    sid = fields.setdefault("id", f"{prefix}{fresh_id()}")
    if isinstance(sid, str) and not request.covers(sid):
        raise Forbidden(
            f"key {request.key_id}: not allowed to write {sid!r:.200}", details={"prefix": prefix}
        )


def _list_sessions(sessions: Sessions, query: SessionsQuery, at: datetime | None) -> SessionPage:
    where = _parse_where(query)
    listing = _parse_listing(query, at)
    listed = cursors.digest_of(
        *("sessions", query.prefix, None if where is None else str(where)),
        *(query.order, query.deleted, digest_text(query.at)),
        *(listing.status, listing.kind, listing.since),
    )
    cursor = cursors.parse(query.cursor, listed, str)
    if cursor is not None:
        after, _, second = cursor.after.partition(" ")
        listing = listing._replace(after=after, after_updated=second or None)
    items: list[SessionRecord] = []
    left = query.limit if where is None and not listing.is_filtered else _SCAN_SESSIONS
    more = True
    while more and left > 0 and len(items) < query.limit:
        size = min(left, limits.PAGE_ITEMS_MAX)
        listing = listing._replace(limit=query.limit - len(items))
        with sessions.log.read() as reading:
            matches, last, more, updated = scan_sessions(reading, listing, where, size)
        listing = listing._replace(after=last, after_updated=updated)
        items += map(session_record, matches)
        left -= size
    if not more or listing.after is None:
        return SessionPage(items=items)
    position = f"{listing.after} {listing.after_updated or ''}".rstrip()
    return SessionPage(items=items, next_cursor=cursors.format_cursor(listed, 0, position))


def _parse_listing(query: SessionsQuery, at: datetime | None) -> ListingOptions:
    listing = ListingOptions(
        _parse_after(query),
        query.limit,
        deleted=query.deleted == "true",
        prefix=query.prefix,
        newest_first=query.order.startswith("-"),
        at=None if at is None else check_time(at),
        order="updated" if query.order.endswith("updated") else "created",
        status=None if isinstance(query.status, UnsetType) else query.status or None,
        kind=None if isinstance(query.kind, UnsetType) else query.kind,
        since=_parse_update(query.since),
        after_updated=_parse_update(query.after_updated_at),
    )
    check_order(listing)
    return listing


def _parse_update(text: str | UnsetType) -> str | None:
    time = parse_at(text)
    return check_time(time) if isinstance(time, datetime) else None


def _parse_where(query: SessionsQuery) -> Filter | None:
    """Return the filter of a list; an empty status is a filter, too."""
    where = None if isinstance(query.where, UnsetType) else decode_filter(query.where)
    if isinstance(query.status, UnsetType) or query.status:
        return where
    status = {"status": None}
    return parse_filter(status if where is None else {"$and": [where.where, status]})


def _parse_after(query: SessionsQuery) -> str | None:
    if isinstance(query.after, UnsetType):
        return None
    if not query.after.startswith(query.prefix):
        # A key may not know about the sessions without its prefix.
        raise NotFound(f"unknown session {query.after!r}")
    return query.after


def _appended(records: list[EventRecord], replayed: bool) -> Reply:
    return Reply(
        AppendedEvents(events=records),
        headers=_written(replayed),
        etag=str(records[-1].id),
        is_large=len(records) > 1,
    )


def _written(replayed: bool) -> Headers:
    """Return the headers of a response to a write."""
    return {**_NO_STORE, "idempotency-replayed": "true"} if replayed else _NO_STORE


def _is_idempotent(request: Request) -> bool:
    return conditions.parse_idempotency_key(request) is not None


def _expected_event(request: Request) -> int | Unset:
    """Return the id of the newest event that If-Match states."""
    version = conditions.parse_if_match(request)
    if version is None or version == conditions.ANY:
        return NOT_GIVEN
    if not version.isdecimal() or len(version) > len(str(SEQ_MAX)):
        raise PreconditionFailed(f"the session never had the ETag {version!r:.80}")
    return min(int(version), SEQ_MAX)


def _expected_head(request: Request) -> str | Unset | None:
    """Return the current head that If-Match states; None if it states that there is none."""
    version = conditions.parse_if_match(request)
    if version is None or version == conditions.ANY:
        return NOT_GIVEN
    if version == NO_HEAD:
        return None
    if version.startswith("W/"):
        raise HeadMoved(f"the session never had the ETag {version!r:.80}")
    return version


def _parse_epoch(request: Request, sid: str) -> Epoch | None:
    """Return the epoch of the header Fourfold-Epoch, or None without it.

    It is that of a lease of the session, or of the one in the header Fourfold-Lease.
    """
    text, lease_of = request.header("fourfold-epoch"), request.header("fourfold-lease")
    if text is None:
        if lease_of is not None:
            raise InvalidInput("fourfold-lease: requires fourfold-epoch, got none")
        return None
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text[:20]) <= SEQ_MAX:
        raise InvalidInput(f"fourfold-epoch must be the epoch of a lease, got {text!r:.80}")
    if lease_of is None or lease_of == sid:
        return int(text)
    if not request.covers(check_session_id(lease_of)):
        raise Forbidden(f"key {request.key_id}: not allowed to use a lease of {lease_of!r:.200}")
    return Claim(lease_of, int(text), "", "")


WRITE_ERRORS: Final = (NotFound, PayloadMissing, PreconditionFailed, ReplayMismatch)
OWNER_ERRORS: Final = (LeaseLost, Refused)


def session_route(method: str, path: str, handler: Any, **options: Any) -> Route:
    """Return a route of sessions; a key must be for the session in its path."""
    return Route(method, path, handler, model="sessions", **{"resource": "sid", **options})


_ROUTES: Final = (
    session_route(
        *("GET", SESSIONS, SessionRoutes.list_sessions),
        operation="list_sessions",
        summary="List sessions by creation or by their newest events, now or at a time.",
        scope="read",
        resource="prefix",
        query=SessionsQuery,
        ok={200: Ok("A page of sessions.", SessionPage)},
        errors=(NotFound,),
    ),
    session_route(
        *("POST", SESSIONS, SessionRoutes.create_session),
        operation="create_session",
        summary="Create a session with the fields in the body; without an id, it gets one.",
        scope="write",
        resource="any",
        headers=IdempotencyHeaders,
        body=dict[str, Any],
        ok={
            200: Ok("It exists, and is unchanged.", SessionRecord, EventTagHeaders),
            201: Ok("It was created.", SessionRecord, EventTagHeaders),
        },
        errors=(AlreadyExists, *WRITE_ERRORS),
    ),
    session_route(
        *("GET", SESSION, SessionRoutes.get_session),
        operation="get_session",
        summary="Get a session: its status, and the id of its newest event, now or at a point.",
        scope="read",
        query=AtQuery,
        ok={
            200: Ok("The session.", SessionRecord, EventTagHeaders),
            304: Ok("The client has this version already.", headers=EventTagHeaders),
        },
        errors=(NotFound,),
    ),
    session_route(
        *("PUT", SESSION, SessionRoutes.put_session),
        operation="put_session",
        summary="Create a session with the fields in the body; an existing one stays as it is.",
        scope="write",
        headers=IdempotencyHeaders,
        body=dict[str, Any],
        ok={
            200: Ok("It exists, and is unchanged.", SessionRecord, EventTagHeaders),
            201: Ok("It was created.", SessionRecord, EventTagHeaders),
        },
        errors=(AlreadyExists, *WRITE_ERRORS),
    ),
    session_route(
        *("DELETE", SESSION, SessionRoutes.delete_session),
        operation="delete_session",
        summary="Delete a session; its id is never used again.",
        scope="write",
        headers=IdempotencyHeaders,
        ok={204: Ok("It is deleted.", headers=EventTagHeaders)},
        errors=(NotFound, ReplayMismatch),
    ),
    session_route(
        *("POST", verb("events"), SessionRoutes.append_events),
        operation="append_events",
        summary="Append events with consecutive ids, or none of them.",
        scope="write",
        headers=EventAppendHeaders,
        body=AppendRequest,
        ok={200: Ok("Appended.", AppendedEvents, EventTagHeaders)},
        errors=(*WRITE_ERRORS, *OWNER_ERRORS),
    ),
    session_route(
        *("POST", verb("heads"), SessionRoutes.publish_head),
        operation="publish_head",
        summary="Publish a head that covers the events since the current one.",
        scope="write",
        headers=HeadHeaders,
        body=HeadRequest,
        ok={201: Ok("Published.", HeadRecord, EventTagHeaders)},
        errors=(HeadMoved, *WRITE_ERRORS, *OWNER_ERRORS),
    ),
    session_route(
        *("POST", verb("lineage"), SessionRoutes.append_edge),
        operation="append_lineage_edge",
        summary="Append a lineage edge to the log of a session; an existing one stays as it is.",
        scope="write",
        headers=EpochHeaders,
        body=dict[str, Any],
        ok={200: Ok("The event of the edge.", EventRecord, EventTagHeaders)},
        errors=(*WRITE_ERRORS, *OWNER_ERRORS),
    ),
    session_route(
        *("POST", verb("forks"), SessionRoutes.fork_session),
        operation="fork_session",
        summary="Create a session that continues from a point of another one.",
        scope="write",
        headers=IdempotencyHeaders,
        body=ForkRequest,
        ok={201: Ok("It was created.", SessionRecord, EventTagHeaders)},
        errors=(AlreadyExists, *WRITE_ERRORS),
    ),
    session_route(
        *("GET", f"{SESSIONS}/leases", SessionRoutes.list_leases),
        operation="list_session_leases",
        summary="List the leases of sessions that were not released, by session id.",
        scope="read",
        resource="prefix",
        query=LeasesQuery,
        no_past="leases say who writes now; they have no log entries",
        ok={200: Ok("A page of leases.", LeasePage)},
    ),
    session_route(
        *("GET", verb("lease"), SessionRoutes.get_lease),
        operation="get_session_lease",
        summary="Get the lease of a session, expired or not, and claims while a turn was running.",
        scope="read",
        no_past="leases say who writes now; they have no log entries",
        ok={200: Ok("The lease, if it was not released.", SessionLease)},
        errors=(NotFound,),
    ),
    session_route(
        *("POST", verb("lease"), SessionRoutes.claim_session),
        operation="claim_session",
        summary="Claim the right to write a session for a time, with a new epoch.",
        scope="write",
        headers=IdempotencyHeaders,
        body=ClaimRequest,
        ok={201: Ok("Claimed.", LeaseRecord, EventTagHeaders)},
        errors=(NotFound, AlreadyClaimed, ReplayMismatch),
    ),
    session_route(
        *("PUT", verb("lease"), SessionRoutes.renew_lease),
        operation="renew_session_lease",
        summary="Let a lease last longer.",
        scope="write",
        body=RenewRequest,
        ok={200: Ok("Renewed.", LeaseRecord)},
        errors=(NotFound, LeaseLost),
    ),
    session_route(
        *("DELETE", verb("lease"), SessionRoutes.release_lease),
        operation="release_session_lease",
        summary="End a lease.",
        scope="write",
        query=ReleaseQuery,
        ok={204: Ok("It is released.")},
        errors=(NotFound, LeaseLost),
    ),
)

"""Writing: what a checked request does inside its transaction.

Everything that can be refused is refused before the first write, so a bad request costs those that
share its transaction nothing. Then, together: payloads, events, what is derived from them (heads,
edges, now and then a snapshot of the folded state).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.blobs import BlobStore
from fourfold.content import InternedPayload, PayloadRef, decode, parse_content_id
from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    PayloadMissing,
    PreconditionFailed,
    ReplayMismatch,
)
from fourfold.models.sessions.fold import FoldState
from fourfold.models.sessions.heads import check_basis, check_boundary, head_content
from fourfold.models.sessions.leases import check_writer
from fourfold.models.sessions.log import (
    INDEXED,
    SECOND_CHARS,
    HeadRow,
    LineageEdgeRow,
    LogReader,
    LogWriter,
    SessionRow,
)
from fourfold.models.sessions.reader import Slot, Slots, existing, state_at
from fourfold.models.sessions.records import (
    ENTITY_OF,
    UNSET,
    Event,
    Head,
    LineageEdge,
    Unset,
    edge_of,
    head_of,
)
from fourfold.models.sessions.request import Alike, EventDraft, encoded
from fourfold.models.sessions.stamps import EventBatch, event_of, stamp, stamp_one, state_text

SESSION_SNAPSHOT_EVENTS_MIN: Final = 32
"""A head stores a snapshot of the view after this many events since the last snapshot."""

_slot = tuple.__new__
_PLAIN = frozenset(ENTITY_OF)
"""Events from which nothing is derived, and which are most of a log."""


class EventAppend(NamedTuple):
    """A request to append events, checked. `files` is where the largest payloads go."""

    sid: str
    drafts: Sequence[EventDraft]
    at: str
    now: int
    expected_last_id: int | Unset = UNSET
    key: str | None = None
    files: BlobStore | None = None
    payloads: Sequence[InternedPayload] = ()
    epoch: int | None = None
    lease_of: str | None = None
    """The session whose lease `epoch` is, if it is another one."""

    @property
    def size(self) -> int:
        """Approximate number of bytes that are written."""
        if type(self.drafts) is Alike:
            return self.drafts.size
        return sum([draft.size for draft in self.drafts])


class Publish(NamedTuple):
    """A request to publish a head, checked. `given` is what the caller wants in it, `covered` the
    events to append before it.
    """

    append: EventAppend
    given: Mapping[str, Any]
    expected_basis: str | Unset | None
    to_event_id: int | None
    covered: EventAppend | None = None

    @property
    def whole(self) -> EventAppend:
        """All drafts and payloads of the request."""
        if self.covered is None:
            return self.append
        return self.covered._replace(drafts=[*self.covered.drafts, *self.append.drafts])


def append(writing: LogWriter, slots: Slots, request: EventAppend) -> Sequence[Event]:
    """Append the events, all or none; those of an earlier request with the same key as they are."""
    slot = slots.inside(writing, request.sid)
    state = slot.state
    if request.epoch is not None or state.session is not None:
        check_writer(writing, slot.row, state, request.epoch, request.lease_of)
    if request.key is not None:
        replayed = _replayed(writing, slot.row, request)
        if replayed is not None:
            return replayed
    last = state.counters.event
    if request.expected_last_id is not UNSET and request.expected_last_id != last:
        raise PreconditionFailed(
            f"the last event of session {request.sid!r} is {last}, not {request.expected_last_id}",
            hint="Read the events that came since, and decide again.",
            details={"session": request.sid, "expected": request.expected_last_id, "last": last},
        )
    drafts = request.drafts
    if not drafts:
        return []
    if type(drafts) is Alike and len(drafts.bodies) == 1:
        return [_write_one(writing, slots, slot, request, drafts)]
    return _write(writing, slots, slot, request)


def create(writing: LogWriter, slots: Slots, request: EventAppend) -> tuple[SessionRow, bool]:
    """Return the session, and True if it is new; a new one begins with the request's events."""
    row = writing.session(request.sid)
    if row is not None:
        if row.deleted_at is not None:
            raise AlreadyExists(
                f"session {request.sid!r} was deleted at {row.deleted_at}; its id is used up",
                hint="Create the session under another id.",
            )
        return row, False
    _check_refs(writing, request)
    key = writing.insert_session(request.sid, request.at)
    row = SessionRow(key, request.sid, request.at)
    slot = Slot(row, FoldState(), 0)
    if request.drafts:
        _write(writing, slots, slot, request)
    else:
        slots.move(writing, request.sid, slot)
    return row, True


def publish_head(writing: LogWriter, slots: Slots, publish: Publish) -> Head:
    """Publish a head over the events since the current one."""
    slot = slots.inside(writing, publish.append.sid)
    check_writer(writing, slot.row, slot.state, publish.append.epoch, publish.append.lease_of)
    return add_head(writing, slots, publish)


def add_head(writing: LogWriter, slots: Slots, publish: Publish) -> Head:
    """Publish a head like `publish_head`, whichever worker owns the session."""
    request, fields = publish.append, publish.given
    slot = slots.inside(writing, request.sid)
    if request.key is not None:
        rows = writing.events_of_request(slot.row.key, request.key)
        if rows:
            return _published_before(request, fields, [event_of(request.sid, r) for r in rows])
    check_basis(request.sid, slot.state, publish.expected_basis)
    if publish.covered is not None:
        _write(writing, slots, slot, publish.covered)
        slot = slots.inside(writing, request.sid)
    boundary = check_boundary(request.sid, slot.state, publish.to_event_id)
    at_boundary = slot.state
    if boundary != slot.state.counters.event:
        at_boundary = state_at(writing, slot.row, boundary).state
    content = head_content(request.sid, slot.state, at_boundary, boundary, fields)
    draft = encoded("head/published", {"head": content})
    [event] = _write(writing, slots, slot, request._replace(drafts=[draft]))
    return head_of(event.data["head"])


def append_edge(writing: LogWriter, slots: Slots, request: EventAppend) -> Event:
    """Add an edge to a session's log; one that is there already stays as it is."""
    slot = slots.inside(writing, request.sid)
    check_writer(writing, slot.row, slot.state, request.epoch, request.lease_of)
    return add_edge(writing, slots, request)


def add_edge(writing: LogWriter, slots: Slots, request: EventAppend) -> Event:
    """Add an edge like `append_edge`, whichever worker owns the session."""
    content = decode(request.drafts[0].body.encode())["edge"]
    slot = slots.inside(writing, request.sid)
    event_id = writing.edge(slot.row.key, content["id"])
    if event_id is not None:
        [row] = writing.events(slot.row.key, event_id - 1, event_id, 1)
        return event_of(request.sid, row)
    for side in ("from", "to"):
        _check_end(writing, content[f"{side}_session"], content[f"{side}_head"])
    [event] = _write(writing, slots, slot, request)
    return event


def delete(writing: LogWriter, slots: Slots, sid: str, at: str) -> None:
    """Mark a session as deleted; its events stay until they are collected."""
    row = existing(writing, sid)
    writing.mark_session(row._replace(deleted_at=at))
    slots.leave(writing, sid)


def _write(writing: LogWriter, slots: Slots, slot: Slot, request: EventAppend) -> EventBatch:
    appended, state = stamp(
        request.sid,
        slot.state,
        request.drafts,
        at=request.at,
        position=slots.position(writing) + 1,
        key=request.key,
    )
    if not appended.alike:
        _check_refs(writing, request)
        for payload in request.payloads:
            put_payload(writing, payload, request.now, request.files)
    keep(writing, slots, slot, appended, state)
    return appended


def _write_one(
    writing: LogWriter, slots: Slots, slot: Slot, request: EventAppend, drafts: Alike
) -> Event:
    """Append one event from which nothing is derived, like `_write`; most requests are such."""
    session, state, _, _ = slot
    position = slots.position(writing) + 1
    row, state = stamp_one(
        request.sid, state, drafts, at=request.at, position=position, key=request.key
    )
    writing.insert_event(session.key, row)
    _store_state(writing, slots, slot, state, position, request.at)
    return event_of(request.sid, row)


def keep(
    writing: LogWriter, slots: Slots, slot: Slot, appended: EventBatch, state: FoldState
) -> Slot:
    """Write stamped events and what is derived from them; the session after them."""
    row = slot.row
    writing.insert_events(row.key, appended)
    if not appended.alike and not _PLAIN.issuperset(appended.types):
        _derive(writing, row, appended)
    last = appended.position + len(appended) - 1
    if not appended.alike and not INDEXED.isdisjoint(appended.types):
        writing.index_session(row.key)
        slot = slot._replace(second=appended.at[:SECOND_CHARS])
    at_head = appended.types[-1] == "head/published"
    return _store_state(writing, slots, slot, state, last, appended.at, at_head=at_head)


def _store_state(  # noqa: PLR0917 - the state, and its event
    writing: LogWriter,
    slots: Slots,
    slot: Slot,
    state: FoldState,
    position: int,
    at: str,
    *,
    at_head: bool = False,
) -> Slot:
    """Store the state of the session after its last event, which was written `at` a time.

    It is written if there are many events since the last time, or some events and now a head.
    """
    row, _, snapshot_at, indexed = slot
    second = at[:SECOND_CHARS]
    if second != indexed:
        writing.index_session(row.key, second)
    last = state.counters.event
    since = last - snapshot_at
    if since >= limits.SESSION_SNAPSHOT_EVENTS_MAX or (
        at_head and since >= SESSION_SNAPSHOT_EVENTS_MIN
    ):
        snapshot_at = last
        writing.insert_snapshot(row.key, snapshot_at, state_text(state))
    after = _slot(Slot, (row, state, snapshot_at, second))
    slots.move(writing, row.id, after, position)
    return after


def put_payload(
    writing: LogWriter, payload: InternedPayload, now: int, files: BlobStore | None
) -> None:
    """Store a payload in this transaction. The bytes of a large one are a file, which was written
    before; but a collection may have removed it since, and does so in transactions only.
    """
    if not is_file(payload, files):
        writing.put_payload(payload, now, is_file=False)
        return
    assert files is not None
    if not files.has(payload.ref.id):
        files.put(payload.data)
    writing.put_payload(payload, now, is_file=True)


def is_file(payload: InternedPayload, files: BlobStore | None) -> bool:
    """Return True if the bytes of a payload are stored in a file."""
    return files is not None and payload.ref.size > limits.SESSION_PAYLOAD_ROW_BYTES_MAX


def _derive(writing: LogWriter, row: SessionRow, events: Sequence[Event]) -> None:
    for event in events:
        if event.type == "head/published":
            writing.insert_head(row.key, head_row(event, head_of(event.data["head"])))
        elif event.type == "lineage/edge-added":
            writing.insert_edge(row.key, edge_row(event, edge_of(event.data["edge"])))


def head_row(event: Event, head: Head) -> HeadRow:
    """Return the row of a head that an event published."""
    return HeadRow(head.id, event.id, head.basis)


def edge_row(event: Event, edge: LineageEdge) -> LineageEdgeRow:
    """Return the row of an edge that an event added."""
    return LineageEdgeRow(
        edge.id, event.id, edge.from_session, edge.to_session, edge.from_head, edge.to_head
    )


def _check_refs(reading: LogReader, request: EventAppend) -> None:
    """Refuse references to payloads that are not stored."""
    for draft in request.drafts:
        if draft.refs:
            coming = {payload.ref.id for payload in request.payloads}
            for ref in draft.refs:
                if ref.id not in coming:
                    check_ref(reading, ref)


def check_ref(reading: LogReader, ref: PayloadRef) -> None:
    """Raise PayloadMissing unless the store has the payload, with the size of the reference."""
    size = reading.payload_size(bytes.fromhex(parse_content_id(ref.id)))
    if size is None:
        raise PayloadMissing(f"payload {ref.id} is not in this store", details={"payload": ref.id})
    if size != ref.size:
        raise InvalidInput(f"payload {ref.id} has {size} bytes, but its reference has {ref.size}")


def _replayed(reading: LogReader, row: SessionRow, request: EventAppend) -> list[Event] | None:
    assert request.key is not None
    rows = reading.events_of_request(row.key, request.key)
    if not rows:
        return None
    # The id of a replaced entity is a column and not in the body.
    requested = [(draft.type, draft.body) for draft in request.drafts]
    same = requested == [(row.type, row.body) for row in rows] and all(
        draft.put in {None, row.entity_id} for draft, row in zip(request.drafts, rows, strict=True)
    )
    if not same:
        raise _mismatch(request)
    return [event_of(request.sid, event_row) for event_row in rows]


def _published_before(request: EventAppend, fields: Mapping[str, Any], events: list[Event]) -> Head:
    if len(events) != 1 or events[0].type != "head/published":
        raise _mismatch(request)
    head = events[0].data["head"]
    if any(head.get(name) != value for name, value in fields.items()):
        raise _mismatch(request)
    return head_of(head)


def _mismatch(request: EventAppend) -> ReplayMismatch:
    return ReplayMismatch(
        f"another request of session {request.sid!r} came under the key {request.key!r} before",
        hint="Give each new request a key of its own.",
    )


def _check_end(reading: LogReader, sid: str, head_id: str | None) -> None:
    """Raise unless an end of an edge in this store is a head of that session."""
    row = reading.session(sid)
    if row is None or head_id is None:
        return
    stored = reading.head(head_id)
    if stored is None or stored[0] != row.key:
        raise NotFound(f"session {sid!r} has no head {head_id}")

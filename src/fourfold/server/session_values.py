"""Values of sessions as responses have them, and those of requests as the model has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Raw, UnsetType

from fourfold import limits
from fourfold.content import encode, from_json, is_content_id
from fourfold.models.sessions import Event, Head, LineageEdge, SessionInfo, SessionView
from fourfold.models.sessions.records import Claim
from fourfold.models.sessions.request import At
from fourfold.server.points import parse_at
from fourfold.wire.sessions import (
    EdgeRecord,
    EventCounters,
    EventRecord,
    HeadRecord,
    LeaseRecord,
    SessionRecord,
    ViewRecord,
)

T = TypeVar("T")
R = TypeVar("R")
Record: TypeAlias = Callable[[T], tuple[R, int]]
_SLICE: Final = 32
"""Items that are read at once: they may be large, and a page ends by its size too."""
NULL: Final = Raw(b"null")
NO_HEAD: Final = "none"
"""ETag of the heads of a session without a head."""


def raw(value: Any) -> Raw:
    """Return a value as canonical JSON."""
    return NULL if value is None else Raw(encode(value))


def parse_events(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of a request, with tags as values."""
    return [from_json(event) for event in events]


def parse_point(at: str | int | UnsetType | None) -> At:
    """Return the point that a request names: an event id, a head, a time, or None for now."""
    if isinstance(at, str) and is_content_id(at):
        return at
    return parse_at(at)


def lease_record(claim: Claim) -> LeaseRecord:
    """Return a lease as a response has it."""
    return LeaseRecord(
        session=claim.session,
        epoch=claim.epoch,
        holder=claim.holder,
        expires_at=claim.expires_at,
    )


def session_record(info: SessionInfo) -> SessionRecord:
    """Return a session as a response has it."""
    return SessionRecord(
        id=info.id,
        created_at=info.created_at,
        updated_at=info.updated_at,
        events=info.events,
        status=info.status,
        turn_status=info.turn_status,
        deleted_at=info.deleted_at,
        kind=info.kind,
    )


def event_record(event: Event) -> EventRecord:
    """Return an event as a response has it."""
    return EventRecord(
        session=event.session,
        id=event.id,
        type=event.type,
        at=event.at,
        entity_id=event.entity_id,
        key=event.key,
        position=event.position,
        digest=event.digest.hex(),
        data=raw(event.data),
    )


def head_record(head: Head) -> HeadRecord:
    """Return a head as a response has it."""
    return HeadRecord(
        id=head.id,
        session=head.session,
        basis=head.basis,
        event_range=list(head.event_range),
        events_digest=head.events_digest,
        kind=head.kind,
        turn_id=head.turn_id,
        vars_ref=raw(head.vars_ref),
        final_ref=raw(head.final_ref),
        compact_from_event_id=head.compact_from_event_id,
        extra=raw(head.extra),
        version=head.version,
    )


def edge_record(edge: LineageEdge) -> EdgeRecord:
    """Return an edge as a response has it."""
    return EdgeRecord(
        id=edge.id,
        type=edge.type,
        from_session=edge.from_session,
        to_session=edge.to_session,
        from_head=edge.from_head,
        to_head=edge.to_head,
        extra=raw(edge.extra),
        version=edge.version,
    )


def view_record(view: SessionView, created_at: str, kept_after: int) -> ViewRecord:
    """Return a view as a response has it; `kept_after` is the last message that does not count."""
    state = view.state
    counters = state.counters
    return ViewRecord(
        id=view.id,
        created_at=created_at,
        event_id=counters.event,
        session=raw(state.session),
        counters=EventCounters(
            event=counters.event,
            message=counters.message,
            turn=counters.turn,
            step=counters.step,
            eval=counters.eval,
        ),
        current_head=state.current_head,
        covered=state.covered,
        vars_ref=raw(state.vars_ref),
        compact_from_event_id=state.compact_from_event_id,
        kept_after=kept_after,
        error=raw(state.error),
        digest=state.digest.hex(),
    )


def collect(
    read: Callable[[int, int], Sequence[T]], first: int, last: int, limit: int, record: Record[T, R]
) -> tuple[list[R], int]:
    """Return the records of a page, and the index after the last of them.

    A page has at most `limit` items and ends after one that exceeds its size in bytes.

    Args:
        read: Returns the items from an index to below another one.
        first: Index of the first item.
        last: Index after the last item of the list.
        limit: Maximum number of items.
        record: Returns the record of an item, and its size in bytes.
    """
    records: list[R] = []
    left = limits.PAGE_BYTES
    while first < last and len(records) < limit and left > 0:
        until = min(last, first + min(_SLICE, limit - len(records)))
        for item in read(first, until):
            value, size = record(item)
            records.append(value)
            first, left = first + 1, left - size
            if left <= 0:
                break
    return records, first


def size_of(value: Raw) -> int:
    """Return the bytes of a value."""
    return memoryview(value).nbytes

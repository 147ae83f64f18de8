"""Numbers for drafts: event ids, entity ids and digests. Pure, and the same for every store.

The digest of an event is the SHA-256 of the digest before it, the canonical bytes of
`[event id, type, at, entity id or null, request key or null]`, and the canonical bytes of its body.
The first one stands on a digest of the session's id. So each digest covers the whole log before it,
and one that two stores agree on says that they agree on all of it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from fourfold.content import decode, encode
from fourfold.errors import ContentError, CorruptData, InvalidInput, NotFound
from fourfold.models.sessions.fold import ENTITY_OF, MINTING, Counters, State, advance
from fourfold.models.sessions.records import Event
from fourfold.models.sessions.request import Draft

ENTITY_CODES = {"message": 1, "turn": 2, "step": 3, "eval": 4}


class Row(NamedTuple):
    """An event as a log keeps it."""

    position: int
    event_id: int
    type: str
    at: str
    entity: int | None
    entity_id: int | None
    request_key: str | None
    body: str
    digest: bytes


def stamp(
    sid: str, state: State, drafts: Sequence[Draft], *, at: str, position: int, key: str | None
) -> tuple[list[Row], list[Event], State]:
    """The rows that follow on `state`, the first at `position`, and the state after them."""
    rows, events = [], []
    digest = state.digest or first_digest(sid)
    event_id = state.counters.event
    known: dict[str, int] = {}
    for draft in drafts:
        event_id += 1
        kind = draft.type
        entity = ENTITY_OF.get(kind)
        code = entity_id = None
        if entity is not None:
            code = ENTITY_CODES[entity]
            greatest = known.get(entity)
            if greatest is None:
                greatest = getattr(state.counters, entity)
            if kind in MINTING:
                entity_id = known[entity] = greatest + 1
            else:
                entity_id = _replaced(sid, draft, entity, greatest)
        digest = next_digest(digest, header_of(event_id, kind, at, entity_id, key), draft.body)
        row = Row(position, event_id, kind, at, code, entity_id, key, draft.body, digest)
        position += 1
        event = event_of(sid, row)
        if kind == "session/compacted":
            _check_boundary(event)
        rows.append(row)
        events.append(event)
    return rows, events, advance(state, *events)


def header_of(event_id: int, kind: str, at: str, entity_id: int | None, key: str | None) -> str:
    """The canonical text of what an event has besides its body. Types and times are plain names,
    so only a key needs encoding.
    """
    about = "null" if entity_id is None else entity_id
    request = "null" if key is None else encode(key).decode()
    return f'[{event_id},"{kind}","{at}",{about},{request}]'


def next_digest(before: bytes, header: str, body: str) -> bytes:
    return hashlib.sha256(before + (header + body).encode()).digest()


def first_digest(sid: str) -> bytes:
    return hashlib.sha256(encode(["fourfold session", 1, sid])).digest()


def position_check(row: Row) -> int:
    """What proves an event's position, which no digest covers: it differs from store to store."""
    return zlib.crc32(b"%d " % row.position + row.digest)


def entity_code(kind: str) -> int | None:
    entity = ENTITY_OF.get(kind)
    return None if entity is None else ENTITY_CODES[entity]


def event_of(sid: str, row: Row) -> Event:
    """The event that a row holds; what it carries is decoded later, if anybody asks."""
    return Event(
        sid,
        row.event_id,
        row.type,
        partial(_data, sid, row),
        at=row.at,
        entity_id=row.entity_id,
        key=row.request_key,
        position=row.position,
        digest=row.digest,
    )


def _data(sid: str, row: Row) -> dict[str, Any]:
    try:
        data: dict[str, Any] = decode(row.body.encode())
        entity = ENTITY_OF.get(row.type)
        if entity is not None:
            data[entity]["id"] = row.entity_id
    except (ContentError, TypeError, KeyError) as error:
        raise CorruptData(f"event {row.event_id} of session {sid!r} is damaged: {error}") from error
    return data


def state_text(state: State) -> str:
    """A state as a snapshot keeps it."""
    fields = msgspec.structs.asdict(state)
    fields["counters"] = msgspec.structs.asdict(state.counters)
    return encode(fields).decode()


def state_of(text: str) -> State:
    fields = decode(text.encode())
    return State(**{**fields, "counters": Counters(**fields["counters"])})


def _replaced(sid: str, draft: Draft, entity: str, known: int) -> int:
    assert draft.put is not None
    if draft.put > known:
        raise NotFound(
            f"session {sid!r} has no {entity} {draft.put}; the newest is {known}",
            hint=f"Start it with {entity}/started, which assigns its id.",
        )
    return draft.put


def _check_boundary(event: Event) -> None:
    boundary = event.data.get("compact_from_event_id")
    if boundary is not None and boundary > event.id:
        raise InvalidInput(
            f"compact_from_event_id is {boundary}, but the compaction itself is event {event.id}",
            hint="Leave it out: then the transcript starts anew with the compaction.",
        )

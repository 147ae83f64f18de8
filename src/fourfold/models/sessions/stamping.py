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
from typing import Any, NamedTuple

import msgspec

from fourfold.content import decode, encode
from fourfold.errors import ContentError, CorruptData, InvalidInput, NotFound
from fourfold.models.sessions.fold import (
    EFFECTIVE,
    MINTING,
    Counters,
    State,
    advance,
    counted,
)
from fourfold.models.sessions.records import ENTITY_OF, Event, EventRow
from fourfold.models.sessions.request import Draft

ENTITY_CODES = {"message": 1, "turn": 2, "step": 3, "eval": 4}
COUNTED = Counters.__struct_fields__
_ABOUT = {kind: (name, ENTITY_CODES[name], kind in MINTING) for kind, name in ENTITY_OF.items()}
"""Of each type: its entity, the code of that, and whether the event brings a new one."""


sha256 = hashlib.sha256


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


_row = tuple.__new__


def stamp(
    sid: str, state: State, drafts: Sequence[Draft], *, at: str, position: int, key: str | None
) -> tuple[list[Row], list[Event], State]:
    """The rows that follow on `state`, the first at `position`, and the state after them."""
    rows: list[Row] = []
    events: list[Event] = []
    digest = state.digest or first_digest(sid)
    event_id = state.counters.event
    counts = dict(zip(COUNTED, msgspec.structs.astuple(state.counters), strict=True))
    request = "null" if key is None else encode(key).decode()
    plain = True
    of_row = Event.of_row
    for draft in drafts:
        event_id += 1
        kind, body = draft[0], draft[1]
        code = entity_id = None
        about: int | str = "null"
        known = _ABOUT.get(kind)
        if known is not None:
            entity, code, minted = known
            entity_id = counts[entity]
            if minted:
                entity_id = counts[entity] = entity_id + 1
            else:
                entity_id = _replaced(sid, draft, entity, entity_id)
            about = entity_id
        text = f'[{event_id},"{kind}","{at}",{about},{request}]{body}'
        digest = sha256(digest + text.encode()).digest()
        row = _row(Row, (position, event_id, kind, at, code, entity_id, key, body, digest))
        position += 1
        event = of_row(sid, row, decoded)
        if kind in EFFECTIVE:
            plain = False
            if kind == "session/compacted":
                _check_boundary(event)
        rows.append(row)
        events.append(event)
    if not plain:
        return rows, events, advance(state, *events)
    counts["event"] = event_id
    return rows, events, counted(state, counts, digest)


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
    return Event.of_row(sid, row, decoded)


def decoded(sid: str, row: EventRow) -> dict[str, Any]:
    """What the row of an event carries."""
    try:
        data: dict[str, Any] = decode(row[7].encode())
        entity = ENTITY_OF.get(row[2])
        if entity is not None:
            data[entity]["id"] = row[5]
    except (ContentError, TypeError, KeyError) as error:
        raise CorruptData(f"event {row[1]} of session {sid!r} is damaged: {error}") from error
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

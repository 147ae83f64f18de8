"""Numbers for drafts: event ids, entity ids and digests. Pure, and the same in every store.

The digest of an event is the SHA-256 of the digest before it, the canonical bytes of
`[event id, type, at, entity id or null, request key or null]`, and the canonical bytes of its body.
The first one stands on a digest of the session's id. So each digest covers the whole log before it,
and one that two stores agree on says that they agree on all of it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

import msgspec
from msgspec.structs import replace

from fourfold.content import decode, encode
from fourfold.errors import ContentError, CorruptData, InvalidInput, NotFound
from fourfold.models.sessions.fold import (
    EFFECTIVE,
    MINTING,
    Counters,
    FoldState,
    advance,
    counted,
)
from fourfold.models.sessions.records import ENTITY_OF, Event, EventRow
from fourfold.models.sessions.request import Alike, EventDraft

ENTITY_CODES = {"message": 1, "turn": 2, "step": 3, "eval": 4}
COUNTED = Counters.__struct_fields__
_ABOUT = {kind: (name, ENTITY_CODES[name], kind in MINTING) for kind, name in ENTITY_OF.items()}
"""By event type: its entity, the code of that, and True if the event creates one."""


sha256 = hashlib.sha256
_POSITION = b"%d "


class StoredEvent(NamedTuple):
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


class EventBatch(Sequence[Event]):
    """The events of one request with their numbers, as columns; objects on first use."""

    __slots__ = (
        "_events",
        "alike",
        "at",
        "bodies",
        "codes",
        "digests",
        "entity_ids",
        "event_id",
        "key",
        "position",
        "sid",
        "types",
    )

    def __init__(
        self,
        sid: str,
        first: tuple[int, int, str, str | None],
        columns: tuple[
            Sequence[str],
            Sequence[int | None],
            Sequence[int | None],
            Sequence[str],
            Sequence[bytes],
        ],
        *,
        alike: bool = False,
    ) -> None:
        self.sid = sid
        self.position, self.event_id, self.at, self.key = first
        self.types, self.codes, self.entity_ids, self.bodies, self.digests = columns
        self.alike = alike
        """True if all are new entities of one type, whose ids are consecutive."""
        self._events: list[Event] | None = None

    def rows(self) -> list[StoredEvent]:
        """Return the rows of the events."""
        position, event_id, at, key = self.position, self.event_id, self.at, self.key
        columns = (self.types, self.codes, self.entity_ids, self.bodies, self.digests)
        return [
            _row(
                StoredEvent,
                (position + n, event_id + n, kind, at, code, entity_id, key, body, digest),
            )
            for n, (kind, code, entity_id, body, digest) in enumerate(zip(*columns, strict=True))
        ]

    def position_checks(self) -> list[int]:
        """Return the `position_check` of each row."""
        positions = range(self.position, self.position + len(self.digests))
        before = map(zlib.crc32, map(_POSITION.__mod__, positions))
        return list(map(zlib.crc32, self.digests, before))

    def _made(self) -> list[Event]:
        if self._events is None:
            self._events = [event_of(self.sid, row) for row in self.rows()]
        return self._events

    def __len__(self) -> int:
        return len(self.digests)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        return self._made()[at]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple, EventBatch)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._made())


def stamp(
    sid: str,
    state: FoldState,
    drafts: Sequence[EventDraft],
    *,
    at: str,
    position: int,
    key: str | None,
) -> tuple[EventBatch, FoldState]:
    """Return the events that follow `state`, the first at `position`, and the state after them."""
    first = (position, state.counters.event + 1, at, key)
    if type(drafts) is Alike:
        return _stamp_alike(sid, state, drafts, first)
    digest = state.digest or first_digest(sid)
    event_id = state.counters.event
    counts = dict(zip(COUNTED, msgspec.structs.astuple(state.counters), strict=True))
    request = "null" if key is None else encode(key).decode()
    codes: list[int | None] = []
    entity_ids: list[int | None] = []
    digests: list[bytes] = []
    for draft in drafts:
        event_id += 1
        code = entity_id = None
        about: int | str = "null"
        kind = _ABOUT.get(draft.type)
        if kind is not None:
            entity, code, minted = kind
            entity_id = counts[entity]
            if minted:
                entity_id = counts[entity] = entity_id + 1
            else:
                entity_id = _replaced(sid, draft, entity, entity_id)
            about = entity_id
        text = f'[{event_id},"{draft.type}","{at}",{about},{request}]{draft.body}'
        digest = sha256(digest + text.encode()).digest()
        codes.append(code)
        entity_ids.append(entity_id)
        digests.append(digest)
    types = [draft.type for draft in drafts]
    columns = (types, codes, entity_ids, [draft.body for draft in drafts], digests)
    appended = EventBatch(sid, first, columns)
    if not EFFECTIVE.isdisjoint(types):
        for event in appended:
            if event.type == "session/compacted":
                _check_boundary(event)
        # Decoded apart from what the caller receives, who may change it.
        return appended, advance(state, *(event_of(sid, row) for row in appended.rows()))
    counts["event"] = event_id
    return appended, counted(state, counts, digest)


def stamp_one(
    sid: str, state: FoldState, drafts: Alike, *, at: str, position: int, key: str | None
) -> tuple[StoredEvent, FoldState]:
    """Return the row of the only draft of a request, and the state after it."""
    kind, body = drafts.type, drafts.bodies[0]
    entity, code, _ = _ABOUT[kind]
    counters = state.counters
    event_id = counters.event + 1
    number = getattr(counters, entity) + 1
    request = "null" if key is None else encode(key).decode()
    header = f'[{event_id},"{kind}","{at}",{number},{request}]{body}'
    digest = sha256((state.digest or first_digest(sid)) + header.encode()).digest()
    row = _row(StoredEvent, (position, event_id, kind, at, code, number, key, body, digest))
    after = replace(counters, **{"event": event_id, entity: number})
    return row, replace(state, counters=after, digest=digest)


def _stamp_alike(
    sid: str, state: FoldState, drafts: Alike, first: tuple[int, int, str, str | None]
) -> tuple[EventBatch, FoldState]:
    """Stamp events of one type that all add an entity, like `stamp`."""
    _, event_id, at, key = first
    entity, code, _ = _ABOUT[drafts.type]
    number = next_number = getattr(state.counters, entity) + 1
    digest = state.digest or first_digest(sid)
    digests: list[bytes] = []
    keep = digests.append
    between = f',"{drafts.type}","{at}",'
    suffix = ",null]" if key is None else f",{encode(key).decode()}]"
    for body in drafts.bodies:
        header = f"[{event_id}{between}{next_number}{suffix}{body}"
        digest = sha256(digest + header.encode()).digest()
        keep(digest)
        event_id += 1
        next_number += 1
    count = len(digests)
    ids = range(number, next_number)
    columns = ([drafts.type] * count, [code] * count, ids, drafts.bodies, digests)
    counts = {"event": event_id - 1, entity: next_number - 1}
    after = replace(state, counters=replace(state.counters, **counts), digest=digest)
    return EventBatch(sid, first, columns, alike=True), after


def header_of(event_id: int, kind: str, at: str, entity_id: int | None, key: str | None) -> str:
    """Return the canonical text of an event without its body.

    Types and times are plain names, so only a key needs encoding.
    """
    about = "null" if entity_id is None else entity_id
    request = "null" if key is None else _encode_key(key)
    return f'[{event_id},"{kind}","{at}",{about},{request}]'


@lru_cache(maxsize=16, typed=True)
def _encode_key(key: str) -> str:
    """Return the canonical text of a request key, which the events of a request share."""
    return encode(key).decode()


def next_digest(before: bytes, header: str, body: str) -> bytes:
    """Return the digest of an event, which covers the digest before it."""
    return hashlib.sha256(before + (header + body).encode()).digest()


def first_digest(sid: str) -> bytes:
    """Return the digest that the first event of a session follows."""
    return hashlib.sha256(encode(["fourfold session", 1, sid])).digest()


def position_check(row: StoredEvent) -> int:
    """Return the checksum of the position of an event.

    No digest covers the position, because it differs between stores.
    """
    return zlib.crc32(row.digest, zlib.crc32(_POSITION % row.position))


def entity_code(kind: str) -> int | None:
    """Return the number of the kind of entity of an event type, or None."""
    entity = ENTITY_OF.get(kind)
    return None if entity is None else ENTITY_CODES[entity]


def event_of(sid: str, row: StoredEvent) -> Event:
    """Return the event of a row; its data is decoded on first use."""
    return Event.of_row(sid, row, decoded)


def decoded(sid: str, row: EventRow) -> dict[str, Any]:
    """Return the data of the row of an event."""
    try:
        data: dict[str, Any] = decode(row[7].encode())
        entity = ENTITY_OF.get(row[2])
        if entity is not None:
            data[entity]["id"] = row[5]
    except (ContentError, TypeError, KeyError) as error:
        raise CorruptData(f"event {row[1]} of session {sid!r} is damaged: {error}") from error
    return data


def state_text(state: FoldState) -> str:
    """Return a state as a snapshot stores it."""
    fields = msgspec.structs.asdict(state)
    fields["counters"] = msgspec.structs.asdict(state.counters)
    return encode(fields).decode()


def state_of(text: str) -> FoldState:
    """Return the state that a snapshot holds."""
    fields = decode(text.encode())
    return FoldState(**{**fields, "counters": Counters(**fields["counters"])})


def _replaced(sid: str, draft: EventDraft, entity: str, newest: int) -> int:
    assert draft.put is not None
    if draft.put > newest:
        raise NotFound(
            f"session {sid!r} has no {entity} {draft.put}; the newest is {newest}",
            hint=f"Start it with {entity}/started, which assigns its id.",
        )
    return draft.put


def _check_boundary(event: Event) -> None:
    boundary = event.data.get("compact_from_event_id")
    if boundary is not None and boundary > event.id:
        raise InvalidInput(
            f"compact_from_event_id is {boundary}, but the compaction itself is event {event.id}",
            hint="Leave it out: then the transcript starts with the compaction.",
        )

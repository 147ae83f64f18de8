"""Events of requests, checked before anything is written.

An event is a plain dict: its `type`, and its content. It becomes a Draft: everything that is known
before the store assigns numbers, already encoded. A value without a canonical form, a missing part
or an invalid name is refused here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from operator import contains
from typing import Any, Final, NamedTuple, TypeAlias, overload

from fourfold import limits
from fourfold.content import (
    Inline,
    InternedPayload,
    PayloadRef,
    decide,
    encode,
    encode_each,
    encode_flat,
    find_refs,
)
from fourfold.errors import ContentError, InvalidInput
from fourfold.models.sessions.fold import HELD, MINTING
from fourfold.models.sessions.records import ENTITY_OF

At: TypeAlias = int | str | datetime | None
"""A point of a session: an event id, the id of a head, a time, or None for now."""
SESSION_EVENT_TYPE_CHARS_MAX: Final = 100

_TYPE = re.compile(r"[a-z][a-z0-9_.-]*(?:/[a-z0-9][a-z0-9_.-]*)+")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]*")
_STAMPED = frozenset({"id", "at", "position", "digest", "key"})
_TRANSIENT = ("delta/", "subscribe/")
_OWN_CALL = {
    "head/published": "publish_head",
    "lineage/edge-added": "append_lineage_edge",
}
_REF_MARK = b'"~ref"'
_TEXTS = frozenset({str})
_DICTS = frozenset({dict})


@dataclass(frozen=True, slots=True)
class Payload:
    """A value in an event that may be large.

    Up to 512 canonical bytes it is stored inside the event, and beyond that as a payload of its
    own, together with the event. It is a field of the event or of its entity, as in `{"type":
    "message/appended", "message": {"content": Payload(text)}}`.
    """

    value: Any
    kind: str = "message"


_PAYLOADS = frozenset({Payload, InternedPayload})
"""Payload of an event: a value, or one that the caller has already encoded."""


class EventDraft(NamedTuple):
    """An event before it has its numbers. `put` is the id of the entity that it replaces."""

    type: str
    body: str
    put: int | None = None
    refs: tuple[PayloadRef, ...] = ()
    payloads: tuple[InternedPayload, ...] = ()
    size: int = 0


_draft = tuple.__new__
_NEW = {kind: ENTITY_OF[kind] for kind in MINTING - {"session/compacted"}}
"""Events that add an entity and have no other content."""


class Alike(Sequence[EventDraft]):
    """Drafts of one type that add entities, without references and payloads, as in most requests.

    They are texts, and are processed together.
    """

    __slots__ = ("bodies", "size", "type")

    def __init__(self, kind: str, bodies: list[str], size: int) -> None:
        self.type = kind
        self.bodies = bodies
        self.size = size

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> EventDraft: ...
    @overload
    def __getitem__(self, at: slice) -> list[EventDraft]: ...
    def __getitem__(self, at: int | slice) -> EventDraft | list[EventDraft]:
        if isinstance(at, slice):
            return [EventDraft(self.type, body) for body in self.bodies[at]]
        return EventDraft(self.type, self.bodies[at])


def drafts_of(sid: str, events: Iterable[Mapping[str, Any]] | Alike) -> Sequence[EventDraft]:
    """Return the drafts of the events of one request; an adapter may pass canonical texts."""
    if isinstance(events, Alike):
        return events
    if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
        raise InvalidInput(f"the events to append are a list, not {type(events).__name__}")
    listed = list(events)
    if len(listed) > limits.SESSION_BATCH_EVENTS_MAX:
        raise InvalidInput(
            f"{len(listed)} events at once are more than {limits.SESSION_BATCH_EVENTS_MAX}",
            hint="Append them in several batches.",
        )
    alike = _alike(listed)
    if alike is not None:
        return alike
    if len(listed) == 1:
        return [draft_of(sid, listed[0])]
    drafts: list[EventDraft] = []
    try:
        for event in listed:
            # The length of the list tells which one was refused.
            drafts.append(draft_of(sid, event))  # noqa: PERF401
    except InvalidInput as error:
        raise type(error)(
            f"event {len(drafts)} of {len(listed)}: {error.message}", hint=error.hint
        ) from error
    return drafts


def drafts_of_one(sid: str, event: Mapping[str, Any]) -> Sequence[EventDraft]:
    """Return the draft of the only event of a request."""
    return _alone(event) or [draft_of(sid, event)]


def draft_of(sid: str, event: Mapping[str, Any]) -> EventDraft:
    """Check and encode one event."""
    if not isinstance(event, Mapping):
        raise InvalidInput(
            f"an event is a dict, not {type(event).__name__}",
            hint='As in {"type": "message/appended", "message": {...}}.',
        )
    data = dict(event)
    kind = check_type(data.pop("type", None))
    if kind in _OWN_CALL:
        raise InvalidInput(f"{kind} events come from {_OWN_CALL[kind]}(), not from appending")
    if not _STAMPED.isdisjoint(data):
        raise InvalidInput(
            f"the event has {min(_STAMPED & data.keys())!r}, which only the store assigns",
            hint="Put it into the entity, or under another name.",
        )
    for name in HELD.get(kind, ()):
        if name not in data:
            raise InvalidInput(f"a {kind} event carries {name!r}, and this one does not")
    put = _prepare(sid, kind, data)
    return encoded(kind, data, put)


def _alone(event: Mapping[str, Any]) -> Alike | None:
    """Return a simple event that adds an entity, as most do; None if it needs a full check."""
    if type(event) is not dict or len(event) != 2:
        return None
    kind: Any = event.get("type")
    entity = _NEW.get(kind) if type(kind) is str else None
    if entity is None:
        return None
    content = event.get(entity)
    if type(content) is not dict or "id" in content:
        return None
    data = encode_flat(content)
    if data is None or len(data) > limits.SESSION_EVENT_BYTES_MAX - 100:
        return None
    return Alike(kind, [f'{{"{entity}":{data.decode()}}}'], len(data))


def _alike(events: list[Any]) -> Alike | None:
    """Return simple events of one type, encoded together; None if one needs a full check."""
    if not _DICTS.issuperset(map(type, events)):
        return None
    try:
        kinds = [event["type"] for event in events]
        entity = _NEW[kinds[0]]
        helds = [event[entity] for event in events]
    except (IndexError, KeyError, TypeError):
        return None
    if not (
        _TEXTS.issuperset(map(type, kinds))
        and kinds.count(kinds[0]) == len(events)
        # Each has the two that were just asked for.
        and sum(map(len, events)) == 2 * len(events)
        and _DICTS.issuperset(map(type, helds))
        and True not in map(contains, helds, repeat("id"))
    ):
        return None
    encoded_entities = encode_each(helds)
    if (
        encoded_entities is None
        or max(map(len, encoded_entities)) > limits.SESSION_EVENT_BYTES_MAX - 100
    ):
        return None
    bodies = [f'{{"{entity}":{data.decode()}}}' for data in encoded_entities]
    return Alike(kinds[0], bodies, sum(map(len, encoded_entities)))


def encoded(kind: str, data: dict[str, Any], put: int | None = None) -> EventDraft:
    """Return a draft of data that is otherwise known to be valid."""
    payloads = intern_payloads(data)
    for name, value in data.items():
        if type(value) is dict and not _PAYLOADS.isdisjoint(map(type, value.values())):
            # What lies deeper than the event itself may belong to the caller.
            data[name] = copy = value.copy()
            payloads += intern_payloads(copy)
    body = encode(data)
    if len(body) > limits.SESSION_EVENT_BYTES_MAX:
        raise InvalidInput(
            f"a {kind} event of {len(body)} bytes is larger than {limits.SESSION_EVENT_BYTES_MAX}",
            hint="Wrap its large values in Payload(value, kind).",
        )
    refs: tuple[PayloadRef, ...] = ()
    # Looking for one character is many times faster than for several, and most bodies have none.
    if b"~" in body and _REF_MARK in body:
        refs = tuple(find_refs(data))
    size = len(body)
    if payloads:
        size += sum(len(payload.data) for payload in payloads)
    return _draft(EventDraft, (kind, body.decode(), put, refs, tuple(payloads), size))


def _prepare(sid: str, kind: str, data: dict[str, Any]) -> int | None:
    """Remove ids from the entity, since they are separate columns; return the replaced id."""
    if kind == "session/started":
        data["session"] = _session_entity(sid, data["session"])
        return None
    entity = ENTITY_OF.get(kind)
    if entity is None:
        return None
    original = data[entity]
    if type(original) is not dict:
        raise InvalidInput(f"the {entity} of a {kind} event is a dict, not {_named(original)}")
    data[entity] = content = original.copy()
    number: Any = content.pop("id", None)
    if kind == "session/compacted":
        boundary = data.get("compact_from_event_id")
        if boundary is not None and not _is_id(boundary):
            raise InvalidInput(f"compact_from_event_id is {boundary!r}, not the id of an event")
    if kind in MINTING:
        return None
    if not _is_id(number):
        raise InvalidInput(f"a {kind} event names the {entity} by its id, not by {number!r}")
    return int(number)


def _session_entity(sid: str, session: Any) -> dict[str, Any]:
    if type(session) is not dict:
        raise InvalidInput(
            f"the session of a session/started event is a dict, not {_named(session)}"
        )
    if session.get("id", sid) != sid:
        raise InvalidInput(f"the session's id is {session['id']!r}, but it is the log of {sid!r}")
    return {"status": "running", **session, "id": sid}


def intern_payloads(holder: dict[str, Any]) -> list[InternedPayload]:
    """Replace payloads by their references, and return those to store."""
    payloads: list[InternedPayload] = []
    if _PAYLOADS.isdisjoint(map(type, holder.values())):
        return payloads
    for name, value in holder.items():
        if type(value) in _PAYLOADS:
            decision = decide(value.value, value.kind) if type(value) is Payload else value
            if isinstance(decision, Inline):
                holder[name] = decision.value
            else:
                payloads.append(decision)
                holder[name] = decision.ref
    return payloads


def check_type(kind: Any) -> str:
    """Return the type of an event; raise InvalidInput if it is not valid."""
    if type(kind) is str and kind in HELD:
        return kind
    if (
        type(kind) is not str
        or len(kind) > SESSION_EVENT_TYPE_CHARS_MAX
        or not _TYPE.fullmatch(kind)
    ):
        raise InvalidInput(
            f"{repr(kind)[:100]} is not the type of an event",
            hint="A type is two or more lower-case names with a slash between, as `turn/started`.",
        )
    if kind.startswith(_TRANSIENT):
        raise InvalidInput(
            f"{kind} is a transient item, which is not kept",
            hint="Send it with notify_transient().",
        )
    return kind


def check_session_id(sid: Any) -> str:
    """Return the id of a session; raise InvalidInput if it is not valid."""
    if (
        type(sid) is not str
        or len(sid) > limits.SESSION_ID_CHARS_MAX
        or not _SESSION_ID.fullmatch(sid)
    ):
        raise InvalidInput(
            f"{repr(sid)[:100]} cannot be the id of a session",
            hint=f"Use 1 to {limits.SESSION_ID_CHARS_MAX} letters, digits and . _ : @ / + = -; "
            "begin with a letter or digit.",
        )
    return sid


def check_key(key: Any) -> str | None:
    """Return an idempotency key; raise InvalidInput if it is not a text of limited length."""
    if key is None:
        return None
    if type(key) is not str or not 0 < len(key) <= limits.SESSION_KEY_CHARS_MAX:
        raise InvalidInput(
            f"{repr(key)[:100]} cannot be the key of a request",
            hint=f"A key is a text of 1 to {limits.SESSION_KEY_CHARS_MAX} characters.",
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ContentError("the key of a request has a lone surrogate in it") from None
    return key


def check_count(value: Any, name: str, *, least: int = 0) -> int:
    """Return a number that a caller passed: an event id, a position or a limit."""
    if type(value) is not int or not least <= value < 2**63:
        raise InvalidInput(
            f"{name} must be a whole number from {least} on, got {repr(value)[:100]}"
        )
    return value


def check_time(at: datetime) -> str:
    """Return a time as events have it; a datetime without a zone is refused."""
    if at.tzinfo is None:
        raise InvalidInput(
            f"at must have a time zone, got {at.isoformat()!r}", hint="Use datetime.now(UTC)."
        )
    try:
        text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    except OverflowError:
        raise InvalidInput(f"at is out of range, got {at.isoformat()!r}") from None
    return text.replace("+00:00", "Z")


def fresh_id() -> str:
    """Return a new id for a session."""
    return f"s-{uuid.uuid4()}"


def _is_id(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63


def _named(value: Any) -> str:
    return type(value).__name__

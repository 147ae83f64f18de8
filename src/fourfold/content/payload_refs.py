"""Payloads: which ones are stored in their event, and which as blobs with a reference.

The rule counts canonical bytes and nothing else: up to `limits.PAYLOAD_INLINE_BYTES_MAX` stay
inline, one more and the payload is interned. Nothing is stored here; `decide` says what to store.

    decide(value, kind) ──► Inline(value)          put the value into the event
                        └─► Interned(ref, data)    store `data`, then put `ref` into the event

A PayloadRef is a payload already decided upon, so `decide` leaves it as it is. A dict that looks
like a reference is a dict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from fourfold import limits
from fourfold.content.canonical import decode, encode
from fourfold.content.hashes import content_id
from fourfold.content.refs import PayloadRef, check_kind
from fourfold.errors import ContentError, CorruptData


@dataclass(frozen=True, slots=True)
class Inline:
    """A payload that is small enough to be stored in place."""

    value: Any


@dataclass(frozen=True, slots=True)
class InternedPayload:
    """A payload to be stored: write `data` first, then the value that contains `ref`."""

    ref: PayloadRef
    data: bytes


Decision: TypeAlias = Inline | InternedPayload


def decide(value: object, kind: str) -> Decision:
    """Decide whether a payload is stored inline; raise ContentError if it cannot be encoded."""
    check_kind(kind)
    data = encode(value)
    if len(data) <= limits.PAYLOAD_INLINE_BYTES_MAX:
        return Inline(value)
    return InternedPayload(PayloadRef(content_id(data), kind, len(data)), data)


def is_ref(value: object) -> bool:
    """Return True for a PayloadRef, and False for a dict that looks like one."""
    return type(value) is PayloadRef


def read_payload(ref: PayloadRef, data: bytes) -> Any:
    """Return the payload of `ref` from its stored bytes; raise CorruptData if they differ."""
    if len(data) != ref.size or content_id(data) != ref.id:
        raise CorruptData(f"the stored bytes of payload {ref.id} are not the ones it names")
    try:
        return decode(data)
    except ContentError as error:
        raise CorruptData(f"payload {ref.id} is not canonical content: {error.message}") from error


def find_refs(value: object) -> list[PayloadRef]:
    """Return the distinct references anywhere in `value`, sorted."""
    refs: set[PayloadRef] = set()
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is PayloadRef:
            refs.add(item)
            continue
        if not isinstance(item, (dict, list, tuple, set, frozenset)) or id(item) in seen:
            continue
        # Shared parts are looked at once, and a value that contains itself comes to an end.
        seen.add(id(item))
        waiting.extend(item.values() if isinstance(item, dict) else item)
    return sorted(refs)

"""Items of a memory: their ids, and the documents that store them.

An item is a JSON object under a namespace, which is a path of labels, and a key. Its document has
the value, the times, and what the indexes of a memory need:

    {"namespace": ["users", "ada"], "key": "food", "value": {"likes": "leek soup"},
     "created_at": "2026-11-18T15:00:00.000000Z", "updated_at": "2026-11-18T15:00:00.000000Z",
     "scope": ["ns...", "ns..."], "text": ["leek soup"]}

`scope` has one word for each beginning of the namespace: a full-text query that requires the word
finds only items below it, by the same index. `text` has the strings that a search reads. Items that
expire have `ttl_s` and `expires_at`, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from fourfold.content.json_pointer import ABSENT, lookup, parse_pointer
from fourfold.content.namespaces import Namespace, encode_namespace
from fourfold.errors import InvalidInput
from fourfold.models.documents.indexes.vector import check_vector
from fourfold.models.documents.records import Document

TTL_S_MAX: Final = 100 * 365 * 86_400.0
"""Longest time to live."""
REFRESH_SHARE: Final = 0.1
"""Share of its time to live that an item must have used before a read extends it.

A refresh is a commit, so an item has at most ten of them in one time to live, however often it is
read.
"""


class MemoryItem(msgspec.Struct, frozen=True):
    """An item of a memory. It belongs to the caller."""

    namespace: Namespace
    key: str
    value: Document
    created_at: datetime
    """Time of the first `put`; later ones keep it."""
    updated_at: datetime
    """Time of the last `put`."""
    expires_at: datetime | None
    """Time after which the item is not found any more; None if it does not expire."""
    seq: int
    """Seq of the last change."""


class MemoryHit(msgspec.Struct, frozen=True):
    """An item that a search found."""

    item: MemoryItem
    score: float | None
    """Relevance by BM25, the cosine of two vectors, or both ranks combined; None without both."""
    snippets: tuple[str, ...] = ()
    """Parts of the texts around the first matches."""


class MemoryVersion(msgspec.Struct, frozen=True):
    """A value of an item in its history."""

    seq: int
    time: str
    """Time of the commit, as UTC text."""
    value: Document | None
    """The value; None if the item was forgotten or expired."""


class MemoryVersionPage(msgspec.Struct, frozen=True):
    """A page of the history of an item. Pass `next` as `after` for the next one."""

    items: list[MemoryVersion]
    next: int | None


class MemoryChange(msgspec.Struct, frozen=True):
    """An item that differs between two points."""

    namespace: Namespace
    key: str
    before: Document | None
    """The value at the first point; None if there was none."""
    after: Document | None


class MemoryPut(msgspec.Struct, frozen=True):
    """One change of `Memory.put_many`: a value to store, or None to forget the item."""

    namespace: str | Sequence[str]
    key: str
    value: Mapping[str, Any] | None
    ttl_s: float | None = None
    text: Sequence[str] | bool = True
    """True to search all strings of the value, False for none, or JSON Pointers to search."""
    strings: Sequence[str] | None = None
    """The strings that a search reads, instead of `text`."""
    vector: Sequence[float] | None = None
    """The embedding of the value, for searches by vector."""


def check_ttl(ttl_s: object) -> float | None:
    """Return a time to live in seconds, or None; raise InvalidInput for other values."""
    if ttl_s is None:
        return None
    if (
        type(ttl_s) not in (int, float)
        or not math.isfinite(ttl_s)  # type: ignore[arg-type]
        or not 0 < ttl_s <= TTL_S_MAX  # type: ignore[operator]
    ):
        raise InvalidInput(f"ttl_s must be a positive number of seconds, got {ttl_s!r:.100}")
    return float(ttl_s)  # type: ignore[arg-type]


@lru_cache(maxsize=4_096)
def scope_word(prefix: Namespace) -> str:
    """Return the word that the items below a namespace share."""
    digest = hashlib.blake2b(encode_namespace(prefix).encode(), digest_size=12)
    return f"ns{digest.hexdigest()}"


def format_time(time: datetime) -> str:
    """Return a time as documents store it: UTC text that sorts as the times do."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def without_times(document: Document) -> Document:
    """Return what a put stores, without the times at which it does."""
    times = {"created_at", "updated_at", "expires_at"}
    return {name: value for name, value in document.items() if name not in times}


def strings_of(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from strings_of(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings_of(member)


def make_document(
    change: MemoryPut, namespace: Namespace, now: datetime, created_at: str | None
) -> Document:
    """Return the document of a new value; `created_at` is that of the item if it exists."""
    if not isinstance(change.value, Mapping):
        raise InvalidInput(
            f"the value of {change.key!r:.60} must be an object, got {change.value!r:.60}",
            hint='Wrap it: {"text": ...}.',
        )
    ttl_s = check_ttl(change.ttl_s)
    time = format_time(now)
    document: Document = {
        "namespace": list(namespace),
        "key": change.key,
        "value": dict(change.value),
        "created_at": created_at or time,
        "updated_at": time,
        "scope": [scope_word(namespace[: size + 1]) for size in range(len(namespace))],
        "text": _text_of(change),
    }
    if change.vector is not None:
        check_vector(change.vector)
        document["vector"] = [float(number) for number in change.vector]
    if ttl_s is not None:
        document["ttl_s"] = ttl_s
        document["expires_at"] = format_time(now + timedelta(seconds=ttl_s))
    return document


def _text_of(change: MemoryPut) -> list[str]:
    if change.strings is not None:
        return list(change.strings)
    if isinstance(change.text, bool):
        return list(strings_of(change.value)) if change.text else []
    if not isinstance(change.text, list | tuple):
        raise InvalidInput(f"text must be True, False or JSON Pointers, got {change.text!r:.100}")
    values = (lookup(change.value, parse_pointer(pointer)) for pointer in change.text)
    return [text for value in values if value is not ABSENT for text in strings_of(value)]


def to_item(document: Document, seq: int) -> MemoryItem:
    """Return the item of a document."""
    expires_at = document.get("expires_at")
    return MemoryItem(
        tuple(document["namespace"]),
        document["key"],
        document["value"],
        datetime.fromisoformat(document["created_at"]),
        datetime.fromisoformat(document["updated_at"]),
        None if expires_at is None else datetime.fromisoformat(expires_at),
        seq,
    )


def is_alive(document: Document | None, now: datetime) -> bool:
    """Return True if a document exists and has not expired at a time."""
    if document is None:
        return False
    expires_at = document.get("expires_at")
    return expires_at is None or expires_at > format_time(now)


def find_refresh(document: Document, now: datetime) -> str | None:
    """Return the later `expires_at` that a read gives to an item, or None to leave it."""
    ttl_s = document.get("ttl_s")
    if ttl_s is None:
        return None
    left_s = (datetime.fromisoformat(document["expires_at"]) - now).total_seconds()
    if left_s > ttl_s * (1 - REFRESH_SHARE):
        return None
    return format_time(now + timedelta(seconds=ttl_s))

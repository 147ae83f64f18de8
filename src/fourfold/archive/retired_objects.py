"""Objects that nothing needs any more: named in a list before anything stops speaking of them, and
deleted after a time of grace.

Whoever replaces a manifest so that it leaves objects out puts down their keys first, as an object
of its own, and lets the new manifest name that list and the time. So it is known in the object
store itself what may go, and when; a node that was lost with its disk leaves nothing behind. A
reader that has looked at the manifest before has the time of grace to finish.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.retry import Retries
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.errors import CorruptData
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore


class Leaving(NamedTuple):
    """An object that is not needed any more."""

    key: str
    size_bytes: int


class Retirement(msgspec.Struct, frozen=True):
    """A list of objects that leave, as a manifest names it."""

    key: str
    sha256: str
    at_ms: int
    objects: int
    bytes: int


class RetiredObject(NamedTuple):
    """An object that may be deleted."""

    key: str
    database: str
    size_bytes: int
    retired_at_ms: int | None
    """None for what a crash left behind: no manifest ever spoke of it."""


_LIST = msgspec.json.Decoder(tuple[Leaving, ...])


def retire(
    objects: ObjectStore, folder: str, leaving: Iterable[Leaving], now_ms: int, retries: Retries
) -> tuple[Retirement, ...]:
    """Put down what leaves, below a folder; nothing for no objects."""
    listed = tuple(sorted(set(leaving)))
    if not listed:
        return ()
    data = msgspec.json.encode(listed)
    digest = hashlib.sha256(data).hexdigest()
    key = f"{folder}retired/{now_ms:013d}-{digest[:16]}.json"
    put_once(objects, upload_of(key, data), retries)
    size = sum(each.size_bytes for each in listed)
    return (Retirement(key, digest, now_ms, len(listed), size),)


def listed(objects: ObjectStore, retirement: Retirement, retries: Retries) -> tuple[Leaving, ...]:
    """The objects of a list."""
    data = get_checked(objects, retirement.key, retirement.sha256, retries)
    try:
        return _LIST.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{retirement.key}: is no list of objects: {error}") from error


def over(retired: tuple[Retirement, ...], now_ms: int, grace_s: float) -> list[Retirement]:
    """The lists whose time of grace is over."""
    return [each for each in retired if each.at_ms <= now_ms - int(1000 * grace_s)]


def delete(objects: ObjectStore, found: list[RetiredObject]) -> None:
    for at in range(0, len(found), limits.ARCHIVE_COLLECT_OBJECTS):
        some = found[at : at + limits.ARCHIVE_COLLECT_OBJECTS]
        objects.delete_many([each.key for each in some])
        if failpoints.armed:
            failpoints.hit("archive.collect.deleted")

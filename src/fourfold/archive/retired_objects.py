"""Retired objects: listed before a manifest drops them, and deleted after a grace period.

A process that replaces a manifest without some objects first writes their keys as a list object,
and the new manifest refers to that list and its time. So the object store itself records what may
be deleted and when, even if the node loses its disk. A reader of the old manifest has the grace
period to finish.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.errors import CorruptData
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries


class UnusedObject(NamedTuple):
    """An object that is no longer needed."""

    key: str
    size_bytes: int


class Retirement(msgspec.Struct, frozen=True):
    """A list of retired objects, as a manifest refers to it."""

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
    """None for an object left by a crash, which no manifest refers to."""


_LIST = msgspec.json.Decoder(tuple[UnusedObject, ...])


def retire(
    objects: ObjectStore,
    folder: str,
    leaving: Iterable[UnusedObject],
    now_ms: int,
    retries: Retries,
) -> tuple[Retirement, ...]:
    """Write a list of objects to retire below a folder; nothing for no objects."""
    listed = tuple(sorted(set(leaving)))
    if not listed:
        return ()
    data = msgspec.json.encode(listed)
    digest = hashlib.sha256(data).hexdigest()
    key = f"{folder}retired/{now_ms:013d}-{digest[:16]}.json"
    put_once(objects, upload_of(key, data), retries)
    size = sum(entry.size_bytes for entry in listed)
    return (Retirement(key, digest, now_ms, len(listed), size),)


def listed(
    objects: ObjectStore, retirement: Retirement, retries: Retries
) -> tuple[UnusedObject, ...]:
    """Return the objects of a list."""
    data = get_checked(objects, retirement.key, retirement.sha256, retries)
    try:
        return _LIST.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{retirement.key} is not a list of objects: {error}") from error


def over(retired: tuple[Retirement, ...], now_ms: int, grace_s: float) -> list[Retirement]:
    """Return the lists whose grace period is over."""
    return [info for info in retired if info.at_ms <= now_ms - int(1000 * grace_s)]


def delete(objects: ObjectStore, found: list[RetiredObject]) -> None:
    for at in range(0, len(found), limits.ARCHIVE_COLLECT_OBJECTS):
        some = found[at : at + limits.ARCHIVE_COLLECT_OBJECTS]
        objects.delete_many([entry.key for entry in some])
        if failpoints.armed:
            failpoints.hit("archive.collect.deleted")

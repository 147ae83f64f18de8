"""Objects that nothing in use refers to, and their deletion."""

from __future__ import annotations

from typing import NamedTuple

from fourfold import limits
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore


class RetiredObject(NamedTuple):
    """An object that may be deleted."""

    key: str
    database: str
    size_bytes: int
    retired_at_ms: int | None
    """None for an object left by a crash, which nothing refers to."""


def delete(objects: ObjectStore, found: list[RetiredObject]) -> None:
    """Delete objects, a few at a time."""
    for at in range(0, len(found), limits.ARCHIVE_COLLECT_OBJECTS):
        some = found[at : at + limits.ARCHIVE_COLLECT_OBJECTS]
        objects.delete_many([entry.key for entry in some])
        if failpoints.armed:
            failpoints.hit("archive.collect.deleted")

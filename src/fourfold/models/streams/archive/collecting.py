"""Deleting objects that no manifest speaks of any more.

An object is retired when the manifest that leaves it out is up: its segment was given up by
retention, or its stream was deleted. Readers may have looked at the manifest before, so it is
deleted only after a time of grace.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.kernel import Database, faults
from fourfold.models.streams.archive.records import SQL, Retired
from fourfold.objects import ObjectStore


def collect(
    database: Database, objects: ObjectStore, cache: DiskCache, before_ms: int, *, dry_run: bool
) -> list[Retired]:
    """Delete what was retired before a time; what it was, or would be."""
    collected: list[Retired] = []
    while True:
        limit = -1 if dry_run else limits.ARCHIVE_COLLECT_OBJECTS
        with database.read() as snapshot:
            rows = snapshot.all(SQL.deletable, (before_ms, limit))
        found = [Retired._make(row) for row in rows]
        collected += found
        if dry_run or not found:
            return collected
        objects.delete_many([each.key for each in found])
        if faults.armed:
            faults.hit("archive.collect.deleted")
        for each in found:
            cache.drop(segment_of(each.key))
        forgotten = [(each.key,) for each in found]
        database.transact(lambda txn: txn.execute_many(SQL.forget_object, forgotten))  # noqa: B023


def segment_of(key: str) -> str:
    """The segment that an object is."""
    _, folder, _, file = key.split("/")
    return f"{folder}/{file.removesuffix('.parquet')}"

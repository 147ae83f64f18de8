"""Deleting objects that no manifest speaks of any more.

An object is retired when the manifest that leaves it out is up: its segment was given up by
retention, or compacted, its run was merged, or its stream was deleted. Readers may have looked at
the manifest before, so it is deleted only after a time of grace.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.kernel import Database, Transaction, failpoints
from fourfold.models.streams.archive.indexes.records import SQL as INDEXES
from fourfold.models.streams.archive.records import SQL, RetiredSegment
from fourfold.objects import ObjectStore


def collect(
    database: Database, objects: ObjectStore, cache: DiskCache, before_ms: int, *, dry_run: bool
) -> list[RetiredSegment]:
    """Delete what was retired before a time; what it was, or would be."""
    collected: list[RetiredSegment] = []
    while True:
        limit = -1 if dry_run else limits.ARCHIVE_COLLECT_OBJECTS
        with database.read() as snapshot:
            rows = snapshot.all(SQL.deletable, (before_ms, limit))
        found = [RetiredSegment._make(row) for row in rows]
        collected += found
        if dry_run or not found:
            return collected
        objects.delete_many([each.key for each in found])
        if failpoints.armed:
            failpoints.hit("archive.collect.deleted")
        for each in found:
            cache.drop(segment_of(each.key))
        database.transact(lambda txn: _forget(txn, found))  # noqa: B023


def _forget(txn: Transaction, found: list[RetiredSegment]) -> None:
    keys = [(each.key,) for each in found]
    txn.execute_many(SQL.forget_object, keys)
    txn.execute_many(INDEXES.forget_run, keys)


def give_up(txn: Transaction, key: str, stream: str, size: int, now_ms: int) -> None:
    """An object that was to be uploaded is retired, unless something speaks of it: the same one may
    have been made before.
    """
    txn.execute(SQL.object_is_named, (key,))
    if not txn.value(SQL.is_named, (key, segment_of(key))):
        txn.execute(SQL.retire_object, (key, stream, size, now_ms))


def segment_of(key: str) -> str:
    """What an object is called here: a segment, or a run of an index."""
    folder, file = key.split("/")[1::2]
    return f"{folder}/{file.removesuffix('.parquet')}"

"""Delete objects that no manifest refers to any more.

An object is retired when a manifest without it is published: its segment was removed by retention
or compacted, its run was merged, or its stream was deleted. A reader may still use an older
manifest, so the object is deleted after a grace period.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.archive.manifest import COMPANION_SUFFIX
from fourfold.kernel import Database, Transaction, failpoints
from fourfold.models.streams.archive.indexes.records import SQL as INDEXES
from fourfold.models.streams.archive.records import SQL, RetiredSegment
from fourfold.objects import ObjectStore


def collect(
    database: Database, objects: ObjectStore, cache: DiskCache, before_ms: int, *, dry_run: bool
) -> list[RetiredSegment]:
    """Delete objects retired before a time; return them, also with `dry_run`."""
    collected: list[RetiredSegment] = []
    while True:
        limit = -1 if dry_run else limits.ARCHIVE_COLLECT_OBJECTS
        with database.read() as snapshot:
            rows = snapshot.all(SQL.deletable, (before_ms, limit))
        found = [RetiredSegment._make(row) for row in rows]
        collected += found
        if dry_run or not found:
            return collected
        objects.delete_many([entry.key for entry in found])
        if failpoints.armed:
            failpoints.hit("archive.collect.deleted")
        for entry in found:
            cache.drop(segment_of(entry.key))
        database.transact(lambda txn: _forget(txn, found))  # noqa: B023


def _forget(txn: Transaction, found: list[RetiredSegment]) -> None:
    keys = [(row.key,) for row in found]
    txn.execute_many(SQL.forget_object, keys)
    txn.execute_many(INDEXES.forget_run, keys)


def give_up(txn: Transaction, key: str, stream: str, size: int, now_ms: int) -> None:
    """Retire an object that was to be uploaded, unless something refers to it."""
    txn.execute(SQL.object_is_named, (key,))
    if not txn.value(SQL.is_named, (key, segment_of(key))):
        txn.execute(SQL.retire_object, (key, stream, size, now_ms))


def segment_of(key: str) -> str:
    """Return the local id of an object: a segment, a run of an index, or a companion."""
    folder, file = key.split("/")[1::2]
    return f"{folder}/{file.removesuffix('.parquet').removesuffix(COMPANION_SUFFIX)}"

"""Deletion of objects of archive tables that no version in use refers to.

A file that a commit removed is deleted after the grace period, so that a reader of an older version
can finish. So is an object that no commit refers to: it was left by an interrupted publication.
Logs get a checkpoint, and entries before it are deleted after the same time. Restore points do not
need old versions of a table: all their rows are in the newest. Segments of streams are deleted by
the archive of the streams.

A publication of another node that is paused may have uploaded an object, or found a large value,
and be about to refer to it. The caller commits to the catalog between `plan` and `delete`, so that
no such publication can become visible afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from fourfold.archive.catalog_rows import CATALOG
from fourfold.archive.delta_actions import Snapshot
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.retired_objects import RetiredObject, delete
from fourfold.archive.table_layout import STREAM_RECORDS
from fourfold.archive.table_publisher import CHECKPOINT_COMMITS, TableArchive
from fourfold.kernel import failpoints

LOG_FOLDER: Final = "_delta_log/"


class TableSweep:
    """Deletes unreferenced objects of all tables and of the catalog.

    The caller holds the lock of the store and has refreshed the catalog.
    """

    def __init__(self, archive: TableArchive, *, grace_s: float, now_ms: int) -> None:
        self._archive = archive
        self._grace_s = grace_s
        self._now = datetime.fromtimestamp(now_ms / 1000, UTC)
        self._limit_ms = int(now_ms - 1000 * grace_s)

    def plan(self) -> list[RetiredObject]:
        """Return the objects that can be deleted."""
        return [
            entry
            for name, log, snapshot in self._logs()
            if name != STREAM_RECORDS
            for entry in self._unreferenced(name, log, snapshot)
        ]

    def delete(self, planned: list[RetiredObject]) -> None:
        """Delete objects, and the log entries that no reader needs any more."""
        if planned:
            self._archive.retries.run(lambda: delete(self._archive.objects, planned))
            if failpoints.armed:
                failpoints.hit("archive.tables.swept")
        changed = {entry.database for entry in planned}
        for name, log, snapshot in self._logs():
            age = snapshot.version - log.checkpoint_version()
            if name in changed or age >= CHECKPOINT_COMMITS:
                log.checkpoint(snapshot, forget_removed_before_ms=self._limit_ms)
                log.truncate(snapshot.version, grace_s=self._grace_s, now=self._now)

    def _logs(self) -> Iterator[tuple[str, DeltaLog, Snapshot]]:
        """Yield the tables and the catalog, each with its log and the state in use."""
        archive, state = self._archive, self._archive.catalog.state
        for name in sorted(state.tables):
            yield name, archive.log(name), archive.expected(name)
        yield CATALOG, DeltaLog(archive.objects, CATALOG, archive.retries), state.snapshot

    def _unreferenced(
        self, name: str, log: DeltaLog, snapshot: Snapshot
    ) -> Iterator[RetiredObject]:
        limit = self._now - timedelta(seconds=self._grace_s)
        prefix = log.key("")
        for info in self._archive.objects.list(prefix):
            path = info.key[len(prefix) :]
            if path.startswith(LOG_FOLDER) or path in snapshot.files:
                continue
            removed = snapshot.removed.get(path)
            at_ms = None if removed is None else removed.deletion_timestamp or 0
            # An object without a commit may belong to a publication that is still running.
            if info.modified <= limit and (at_ms is None or at_ms <= self._limit_ms):
                yield RetiredObject(info.key, name, info.size, at_ms)

"""Maintenance of the archive tables of a store: compaction, removal of points, and deletion.

Each step is one commit of the catalog by the publisher of the archive. A store that is not the
publisher gets PublisherFenced, and changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from fourfold.archive.catalog_rows import TABLES_ROW
from fourfold.archive.node_record import archive_lock, compaction_lock, read_record
from fourfold.archive.restore_points import PointInfo
from fourfold.archive.retired_objects import RetiredObject
from fourfold.archive.table_compaction import (
    COMPACT_FILES_MAX,
    CompactedTable,
    compact_tables,
    due_compaction,
)
from fourfold.archive.table_publisher import TablePublication
from fourfold.archive.table_purge import PurgedTable, purge_tables
from fourfold.archive.table_sweep import TableSweep
from fourfold.archive.table_values import ValueSweep
from fourfold.kernel import failpoints
from fourfold.store.database_files import purge_rules, scratch_of
from fourfold.store.table_archive import archive_of, point_info

if TYPE_CHECKING:
    from pathlib import Path

    from fourfold.store.store import Store

COMPACTING: Final = ".compacting"
"""Folder of files that a compaction in the background writes."""


class CompactionReport(NamedTuple):
    """Result of compacting a table."""

    name: str
    files: int
    """Number of files with new rows."""
    retired: int
    """Number of files that were replaced, with or without new rows."""
    written: int
    """Number of files that replace them."""


def compact(store: Store, *, files_max: int = COMPACT_FILES_MAX) -> list[CompactedTable]:
    """Compact the archive tables with at least `files_max` new files."""
    archive = archive_of(store)
    if not _publishes(store):
        return []
    with maintenance(store) as (publication, folder):
        compacted = compact_tables(
            archive,
            folder / ".compact",
            point=publication.point,
            now_ms=_now_ms(),
            files_max=files_max,
        )
        if compacted:
            publication.maintain({entry.table: entry.actions for entry in compacted})
        return compacted


def compact_one(
    store: Store,
    pause: Callable[[], None],
    *,
    files_max: int | None = None,
    tables: Iterable[str] | None = None,
) -> CompactedTable | None:
    """Compact one table with many new files; return None if there is none.

    Without `tables`, it is one of those that this process has published lately. Publications
    continue meanwhile; the archive is held only for the commit. `pause` is called after each row
    group; if it raises, nothing has happened.
    """
    archive, folder = archive_of(store), store.root / COMPACTING
    with compaction_lock(store.root) as is_free:
        if not is_free:
            return None
        try:
            with store.publishing:
                if not _publishes(store):
                    return None
                version = archive.catalog.state.version
                limit = COMPACT_FILES_MAX if files_max is None else files_max
                compactor = due_compaction(archive, folder, limit, pause, tables)
            if compactor is None:
                return None
            done = compactor.run(version + 1, _now_ms())
            if failpoints.armed:
                failpoints.hit("archive.tables.compacted")
            with store.publishing, maintenance(store) as (publication, _):
                # Other maintenance may have replaced the files, or deleted those just uploaded.
                commits = archive.catalog.state.commits_after(version)
                if any(row.kind == TABLES_ROW for row in commits):
                    return None
                publication.maintain({done.table: done.actions})
            return done
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def purge(store: Store) -> list[PurgedTable]:
    """Erase rows that databases have purged from the files of all points."""
    archive = archive_of(store)
    if not _publishes(store):
        return []
    with maintenance(store) as (publication, folder):
        rewritten = purge_tables(
            archive,
            folder / ".purge",
            purge_rules(),
            point=publication.point,
            now_ms=_now_ms(),
        )
        if rewritten:
            publication.maintain({entry.table: entry.actions for entry in rewritten})
        return rewritten


def compact_result(done: CompactedTable) -> CompactionReport:
    """Return the compaction of a table as it is reported."""
    return CompactionReport(done.table, done.files, done.removed_files, done.added_files)


def table_points(store: Store) -> list[PointInfo]:
    """Return the points of the archive tables, oldest first, without those of format 1."""
    return [point_info(commit) for commit in archive_of(store).catalog.refresh().points]


def drop_points(store: Store, oldest: str) -> list[CompactedTable]:
    """Remove the points before one, with all rows that only they need; return what was compacted.

    This is one commit: a point that is listed can be restored.
    """
    archive = archive_of(store)
    with maintenance(store) as (publication, folder):
        points = archive.catalog.state.points
        version = next(point.version for point in points if point.id == oldest)
        compacted = compact_tables(
            archive,
            folder / ".compact",
            point=publication.point,
            now_ms=_now_ms(),
            oldest=version,
        )
        changes = {entry.table: entry.actions for entry in compacted}
        publication.maintain(changes, oldest=version)
        return compacted


def sweep(
    store: Store,
    others: Callable[[], frozenset[str]],
    *,
    grace_s: float,
    at_ms: int,
    dry_run: bool = False,
    seldom: bool = False,
) -> list[RetiredObject]:
    """Delete objects of archive tables that no version in use refers to, and large values.

    Finding unused values reads all rows that refer to some; with `seldom` it is done only when
    objects with such rows are deleted. `others` returns the keys of the values that other archives
    under the URL need.
    """
    archive = archive_of(store)
    if not _publishes(store):
        return []
    with maintenance(store) as (publication, folder):
        tables = TableSweep(archive, grace_s=grace_s, now_ms=at_ms)
        values = ValueSweep(archive, folder / ".values", grace_s=grace_s, now_ms=at_ms)
        planned = tables.plan()
        unused: list[RetiredObject] = []
        if not seldom or values.is_due(planned):
            unused = values.plan({entry.key for entry in planned}, others)
        if dry_run:
            return [*planned, *unused]
        if planned or unused:
            # Nothing that another node has begun can refer to these objects from now on.
            publication.maintain({})
            unused = values.still_old(unused)
        tables.delete([*planned, *unused])
        return [*planned, *unused]


def _publishes(store: Store) -> bool:
    """Return True if the store has published to its archive, and the archive still exists."""
    if read_record(store.root) is None:
        return False
    return archive_of(store).catalog.refresh().snapshot.exists


@contextmanager
def maintenance(store: Store) -> Iterator[tuple[TablePublication, Path]]:
    """Hold the archive; yield a publication without rows, and a folder for files in progress.

    Raises:
        PublisherFenced: Another node publishes to this archive.
    """
    folder = scratch_of(store.root)
    with archive_lock(store.root):
        try:
            publication = archive_of(store).begin(folder / ".tables")
            try:
                yield publication, folder
            finally:
                publication.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)

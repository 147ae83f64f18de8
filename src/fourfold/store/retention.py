"""Compaction and retention of the archive of a store.

    keep = Keep(for_s=30 * 86_400)
    merge(store)                       compact small objects
    collect(store, keep=keep)          remove older points, delete objects

A restore point is kept if it is among the newest `points` or not older than `for_s`; the newest is
always kept. Kept points restore to the same state at any time: points and the rows that only they
needed are removed by one commit, and objects are deleted after a grace period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.archive.restore_points import PointInfo
from fourfold.archive.retired_objects import RetiredObject
from fourfold.archive.table_compaction import COMPACT_FILES_MAX
from fourfold.archive.table_layout import TABLES
from fourfold.errors import FourfoldError
from fourfold.retry import Retries
from fourfold.store import table_maintenance
from fourfold.store.format_one import values_of_format_1
from fourfold.store.publish import now_ms, refuse_reader
from fourfold.store.table_maintenance import CompactionReport

if TYPE_CHECKING:
    from fourfold.store.store import Store


@dataclass(frozen=True, slots=True)
class Keep:
    """Restore points to keep; the default keeps all."""

    for_s: float = 0.0
    points: int = 0

    @property
    def everything(self) -> bool:
        """True if all restore points are kept."""
        return not self.for_s and not self.points


@dataclass(slots=True)
class MergeReport:
    """Result of compacting archive tables."""

    merged: list[CompactionReport] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


@dataclass(slots=True)
class CollectReport:
    """Counts of what was, or would be, removed and deleted."""

    points: int = 0
    """Number of removed restore points."""
    deleted: list[RetiredObject] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


def keep_of(store: Store) -> Keep:
    """Return the configured retention."""
    archive = store.settings.archive
    return Keep(archive.keep_s, archive.keep_points)


def merge(store: Store, *, everything: bool = True) -> MergeReport:
    """Compact the archive tables of this store.

    Without `everything`, only tables with many new files.
    """
    refuse_reader(store)
    report = MergeReport()
    with store.publishing:
        _isolate(TABLES, report.failures, lambda: _compact_tables(store, report, everything))
    return report


def kept_points(points: list[PointInfo], keep: Keep, at_ms: int) -> list[PointInfo]:
    """Return the restore points to keep, oldest first."""
    if keep.everything or not points:
        return points
    newest = max(1, keep.points)
    oldest_ms = at_ms - 1000 * keep.for_s
    first = len(points) - newest
    for at, point in enumerate(points):
        if keep.for_s and datetime.fromisoformat(point.at).timestamp() * 1000 >= oldest_ms:
            first = min(first, at)
            break
    return points[max(0, first) :]


def collect(
    store: Store,
    *,
    keep: Keep | None = None,
    dry_run: bool = False,
    grace_s: float | None = None,
    seldom: bool = False,
    at_ms: int | None = None,
) -> CollectReport:
    """Remove restore points that are not kept, and delete unreferenced objects.

    With `dry_run` only report them. Removing points writes the state of the oldest kept one again;
    with `seldom` only when that is worth the writes.
    """
    refuse_reader(store)
    keep = keep_of(store) if keep is None else keep
    grace = store.settings.archive.grace_s if grace_s is None else grace_s
    with store.publishing:
        time_ms = now_ms() if at_ms is None else at_ms
        return _Collection(store, keep, grace, time_ms, seldom=seldom).run(dry_run=dry_run)


def _compact_tables(store: Store, report: MergeReport, everything: bool) -> None:
    table_maintenance.purge(store)
    files_max = 2 if everything else COMPACT_FILES_MAX
    compacted = table_maintenance.compact(store, files_max=files_max)
    report.merged += map(table_maintenance.compact_result, compacted)


class _Collection:
    """Retention of an archive of tables. Points of format 1 beside them are kept."""

    def __init__(
        self, store: Store, keep: Keep, grace_s: float, at_ms: int, *, seldom: bool
    ) -> None:
        self._store = store
        self._keep = keep
        self._grace_s = grace_s
        self._at_ms = at_ms
        self._seldom = seldom
        self._report = CollectReport()

    def run(self, *, dry_run: bool) -> CollectReport:
        failures = self._report.failures
        if not dry_run:
            _isolate(TABLES, failures, lambda: table_maintenance.purge(self._store))
        if not failures:
            _isolate(TABLES, failures, lambda: self._drop_points(dry_run=dry_run))
        if not failures:
            _isolate(TABLES, failures, lambda: self._sweep(dry_run=dry_run))
        return self._report

    def _drop_points(self, *, dry_run: bool) -> None:
        if self._keep.everything:
            return
        known = table_maintenance.table_points(self._store)
        kept = kept_points(known, self._keep, self._at_ms)
        dropped = len(known) - len(kept)
        # Every removal writes the state at the oldest kept point again.
        if not dropped or (self._seldom and dropped < max(limits.PUBLISH_FORGET_POINTS, len(kept))):
            return
        if not dry_run:
            table_maintenance.drop_points(self._store, kept[0].id)
        self._report.points = dropped

    def _sweep(self, *, dry_run: bool) -> None:
        store = self._store
        self._report.deleted += table_maintenance.sweep(
            store,
            lambda: values_of_format_1(store.objects, Retries()),
            grace_s=self._grace_s,
            at_ms=self._at_ms,
            dry_run=dry_run,
            seldom=self._seldom,
        )


def _isolate(name: str, failures: dict[str, FourfoldError], work: Callable[[], object]) -> None:
    try:
        work()
    except FourfoldError as error:
        failures[name] = error

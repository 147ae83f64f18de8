"""Compaction and retention of published databases.

    keep = Keep(for_s=30 * 86_400)
    merge(store)                       compact small objects
    collect(store, keep=keep)          remove older points, delete objects

A restore point is kept if it is among the newest `points` or not older than `for_s`; the newest is
always kept. Kept points restore to the same state at any time: points are removed from the list
first, then from each database what only they needed, and objects are deleted after a grace period.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.archive.compaction import CompactionReport, Merger
from fourfold.archive.publisher import DatabasePublisher, Subject
from fourfold.archive.restore import read_history
from fourfold.archive.restore_points import PointInfo, Points
from fourfold.archive.retention import RemovalResult, Retainer, Scratch, values_needed
from fourfold.archive.retired_objects import RetiredObject
from fourfold.archive.sweep import sweep
from fourfold.archive.table_compaction import COMPACT_FILES_MAX
from fourfold.archive.table_layout import TABLES
from fourfold.errors import FourfoldError, PublisherFenced
from fourfold.kernel import Database
from fourfold.objects import ObjectStore
from fourfold.retry import Retries
from fourfold.store import database_files, table_archive, table_maintenance
from fourfold.store.database_files import (
    published_as,
    scratch_of,
    subject_lent,
    tables_with_values,
)
from fourfold.store.publish import now_ms, refuse_reader
from fourfold.store.restoration import opened_aside

if TYPE_CHECKING:
    from fourfold.store.store import Store

T = TypeVar("T")
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Keep:
    """Restore points to keep; the default keeps all."""

    for_s: float = 0.0
    points: int = 0

    @property
    def everything(self) -> bool:
        return not self.for_s and not self.points


@dataclass(slots=True)
class MergeReport:
    """Result of compacting publications."""

    merged: list[CompactionReport] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


@dataclass(slots=True)
class CollectReport:
    """Counts of what was, or would be, removed and deleted."""

    points: int = 0
    """Number of removed restore points."""
    forgotten: list[RemovalResult] = field(default_factory=list)
    deleted: list[RetiredObject] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


def keep_of(store: Store) -> Keep:
    """Return the configured retention."""
    archive = store.settings.archive
    return Keep(archive.keep_s, archive.keep_points)


def merge(store: Store, *, everything: bool = True) -> MergeReport:
    """Compact the small publications of every database of this store.

    Without `everything`, only those in full pages of their manifests.
    """
    refuse_reader(store)
    report = MergeReport()
    if table_archive.uses_tables(store):
        with store.publishing:
            _isolate(TABLES, report.failures, lambda: _compact_tables(store, report, everything))
        return report
    with store.publishing:

        def one(subject: Subject) -> None:
            done = Merger(subject, store.objects).merge(now_ms(), everything=everything)
            report.merged += [] if done is None else [done]

        _for_each(store, one, report.failures)
        _isolate("points", report.failures, lambda: Points(store.objects).tidy(now_ms()))
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

    With `dry_run` only report them. Removing rewrites the list of restore points, and a whole
    database for its publications; with `seldom` only when that is worth the writes.
    """
    refuse_reader(store)
    keep = keep_of(store) if keep is None else keep
    grace = store.settings.archive.grace_s if grace_s is None else grace_s
    with store.publishing:
        time_ms = now_ms() if at_ms is None else at_ms
        if table_archive.uses_tables(store):
            tables = _TableCollection(store, keep, grace, time_ms, seldom=seldom)
            return tables.run(dry_run=dry_run)
        return _Collection(store, keep, grace, time_ms, seldom=seldom).run(dry_run=dry_run)


def _compact_tables(store: Store, report: MergeReport, everything: bool) -> None:
    table_maintenance.purge(store)
    files_max = 2 if everything else COMPACT_FILES_MAX
    compacted = table_maintenance.compact(store, files_max=files_max)
    report.merged += map(table_maintenance.compact_result, compacted)


class _TableCollection:
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
            lambda: values_of_manifests(store.objects, Retries()),
            grace_s=self._grace_s,
            at_ms=self._at_ms,
            dry_run=dry_run,
            seldom=self._seldom,
        )


class _Collection:
    def __init__(
        self, store: Store, keep: Keep, grace_s: float, at_ms: int, *, seldom: bool
    ) -> None:
        self._store = store
        self._objects = store.objects
        self._keep = keep
        self._grace_s = grace_s
        self._at_ms = at_ms
        self._seldom = seldom
        self._retries = Retries()
        self._report = CollectReport()
        self._values: frozenset[str] | None = None

    def run(self, *, dry_run: bool) -> CollectReport:
        report, points = self._report, Points(self._objects, self._retries)
        known = points.all()
        kept = kept_points(known, self._keep, self._at_ms)
        if not self._keep.everything and self._is_fenced():
            # The publishing node decides what is kept.
            return report
        if self._seldom and len(known) - len(kept) < limits.PUBLISH_FORGET_POINTS:
            kept = known
        report.points = len(known) - len(kept)
        if report.points and not dry_run:
            # First of all: every listed restore point can be restored.
            points.tidy(self._at_ms, kept[0].id)
        names = [] if self._keep.everything else [point.id for point in kept]
        _for_each(
            self._store, lambda subject: self._one(subject, names, dry_run=dry_run), report.failures
        )
        _isolate("points", report.failures, lambda: self._points(points, dry_run=dry_run))
        shutil.rmtree(scratch_of(self._store.root), ignore_errors=True)
        return report

    def _is_fenced(self) -> bool:
        """Return True if another node publishes or took over any of the databases."""
        failures: dict[str, FourfoldError] = {}

        def check(subject: Subject) -> None:
            DatabasePublisher(subject, self._objects, self._retries).owned()

        _for_each(self._store, check, failures)
        fenced = {name: e for name, e in failures.items() if isinstance(e, PublisherFenced)}
        self._report.failures |= fenced
        return bool(fenced)

    def _one(self, subject: Subject, points: list[str], *, dry_run: bool) -> None:
        report = self._report
        retainer = Retainer(subject, self._objects, self._scratch(subject), self._retries)
        if points and dry_run:
            would = retainer.would(points)
            if would:
                report.forgotten.append(RemovalResult(subject.name, would, 0, 0))
        elif points:
            done = retainer.retain(points, self._at_ms, seldom=self._seldom)
            report.forgotten += [] if done is None else [done]
        report.deleted += sweep(
            subject,
            self._objects,
            self._at_ms,
            self._grace_s,
            self._needed,
            dry_run=dry_run,
            retries=self._retries,
        )

    def _points(self, points: Points, *, dry_run: bool) -> None:
        self._report.deleted += points.sweep(self._at_ms, self._grace_s, dry_run=dry_run)

    def _scratch(self, subject: Subject) -> Scratch:
        @contextmanager
        def opened(model: str) -> Iterator[Database]:
            file = published_as(self._store, subject.name, model)
            folder = subject.folder.with_name(subject.folder.name + ".state")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with opened_aside(folder / file.path.name, file) as database:
                    yield database
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return opened

    def _needed(self) -> frozenset[str]:
        """Return the large values that any published database refers to, including those of other
        nodes.

        Computed once, and only if one is about to be deleted.
        """
        if self._values is None:
            self._values = values_of_manifests(self._objects, self._retries)
        return self._values


def values_of_manifests(objects: ObjectStore, retries: Retries) -> frozenset[str]:
    """Return the keys of the large values that any database with a manifest refers to."""
    needed: set[str] = set()
    tables = tables_with_values()
    for info in retries.run(lambda: list(objects.list(database_manifest.MANIFESTS))):
        read = retries.run(lambda key=info.key: objects.get(key))  # type: ignore[misc]
        history = read_history(read, objects, retries)
        needed |= values_needed(history, tables, objects, retries)
    return frozenset(needed)


def _for_each(
    store: Store, work: Callable[[Subject], None], failures: dict[str, FourfoldError]
) -> None:
    for name in database_files.names(store.root):

        def one(name: str = name) -> None:
            with subject_lent(store, name) as subject:
                work(subject)

        _isolate(name, failures, one)


def _isolate(name: str, failures: dict[str, FourfoldError], work: Callable[[], object]) -> None:
    try:
        work()
    except FourfoldError as error:
        failures[name] = error

"""Keeping what a store has published in order: small publications are merged, old points given up,
and objects deleted that nothing needs.

    keep = Keep(for_s=30 * 86_400)
    merge(store)                       many small objects become few
    collect(store, keep=keep)          points that are older go, then what nothing needs any more

A point is kept when it is among the newest `points`, or not older than `for_s`; the newest always
is. What is kept restores to what it was, before, while and after: the list of points lets go of
those that are given up first, then each database of what only they needed, and objects are deleted
after their time of grace.
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
from fourfold.archive.compaction import CompactResult, Merger
from fourfold.archive.publisher import DatabasePublisher, Subject
from fourfold.archive.restore import read_history
from fourfold.archive.restore_points import PointInfo, Points
from fourfold.archive.retention import Forgotten, Retainer, Scratch, values_needed
from fourfold.archive.retired_objects import RetiredObject
from fourfold.archive.retry import Retries
from fourfold.archive.sweep import sweep
from fourfold.errors import FourfoldError, PublisherFenced
from fourfold.kernel import Database
from fourfold.store import published_databases
from fourfold.store.publish import now_ms, refuse_reader
from fourfold.store.published_databases import WITH_VALUES, kind_of, scratch_of, subject_lent
from fourfold.store.restoration import opened_aside

if TYPE_CHECKING:
    from fourfold.store.store import Store

T = TypeVar("T")
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Keep:
    """Which points are kept; all of them when neither is given."""

    for_s: float = 0.0
    points: int = 0

    @property
    def everything(self) -> bool:
        return not self.for_s and not self.points


@dataclass(slots=True)
class MergeReport:
    """What was merged."""

    merged: list[CompactResult] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


@dataclass(slots=True)
class CollectReport:
    """What was given up and deleted; or would be."""

    points: int = 0
    """Points that were given up."""
    forgotten: list[Forgotten] = field(default_factory=list)
    deleted: list[RetiredObject] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


def keep_of(store: Store) -> Keep:
    """What the settings say."""
    archive = store.settings.archive
    return Keep(archive.keep_s, archive.keep_points)


def merge(store: Store, *, everything: bool = True) -> MergeReport:
    """Merge the small publications of every database of this store; without `everything`, only
    those in full pages of their manifests.
    """
    refuse_reader(store)
    report = MergeReport()
    with store.publishing:

        def one(subject: Subject) -> None:
            done = Merger(subject, store.objects).merge(now_ms(), everything=everything)
            report.merged += [] if done is None else [done]

        _each(store, one, report.failures)
        _alone("points", report.failures, lambda: Points(store.objects).tidy(now_ms()))
    return report


def kept_points(points: list[PointInfo], keep: Keep, at_ms: int) -> list[PointInfo]:
    """The points that are kept, oldest first."""
    if keep.everything or not points:
        return points
    newest = max(1, keep.points)
    oldest_ms = at_ms - 1000 * keep.for_s
    first = len(points) - newest
    for at, each in enumerate(points):
        if keep.for_s and datetime.fromisoformat(each.at).timestamp() * 1000 >= oldest_ms:
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
    """Give up points that are not kept, and delete what nothing needs any more. With `dry_run` only
    say what. A list is rewritten for points, and a whole database for publications that it gives
    up: with `seldom` only when that is worth it, so that as much is written as is published, about.
    """
    refuse_reader(store)
    keep = keep_of(store) if keep is None else keep
    grace = store.settings.archive.grace_s if grace_s is None else grace_s
    with store.publishing:
        moment = now_ms() if at_ms is None else at_ms
        return _Collection(store, keep, grace, moment, seldom=seldom).run(dry_run=dry_run)


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
            # Somebody else goes on from here, and decides what is kept.
            return report
        if self._seldom and len(known) - len(kept) < limits.PUBLISH_FORGET_POINTS:
            kept = known
        report.points = len(known) - len(kept)
        if report.points and not dry_run:
            # First of all: a point that is listed can be restored to.
            points.tidy(self._at_ms, kept[0].id)
        names = [] if self._keep.everything else [each.id for each in kept]
        _each(
            self._store, lambda subject: self._one(subject, names, dry_run=dry_run), report.failures
        )
        _alone("points", report.failures, lambda: self._points(points, dry_run=dry_run))
        shutil.rmtree(scratch_of(self._store.root), ignore_errors=True)
        return report

    def _is_fenced(self) -> bool:
        """Whether another node publishes any of the databases, or went on before them."""
        failures: dict[str, FourfoldError] = {}

        def look(subject: Subject) -> None:
            DatabasePublisher(subject, self._objects, self._retries).owned()

        _each(self._store, look, failures)
        fenced = {name: e for name, e in failures.items() if isinstance(e, PublisherFenced)}
        self._report.failures |= fenced
        return bool(fenced)

    def _one(self, subject: Subject, points: list[str], *, dry_run: bool) -> None:
        report = self._report
        retainer = Retainer(subject, self._objects, self._scratch(subject), self._retries)
        if points and dry_run:
            would = retainer.would(points)
            if would:
                report.forgotten.append(Forgotten(subject.name, would, 0, 0))
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
            kind = kind_of(self._store, subject.name, model)
            folder = subject.folder.with_name(subject.folder.name + ".state")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with opened_aside(folder / kind.path.name, kind) as database:
                    yield database
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return opened

    def _needed(self) -> frozenset[str]:
        """The large values that any database names that is published there, also one of another
        node; asked once, and only if one is about to be deleted.
        """
        if self._values is None:
            found: set[str] = set()
            for info in self._retries.run(
                lambda: list(self._objects.list(database_manifest.MANIFESTS))
            ):
                read = self._retries.run(lambda key=info.key: self._objects.get(key))  # type: ignore[misc]
                history = read_history(read, self._objects, self._retries)
                found |= values_needed(history, WITH_VALUES, self._objects, self._retries)
            self._values = frozenset(found)
        return self._values


def _each(
    store: Store, work: Callable[[Subject], None], failures: dict[str, FourfoldError]
) -> None:
    for name in published_databases.names(store, published_databases.MODELS):

        def one(name: str = name) -> None:
            with subject_lent(store, name) as subject:
                work(subject)

        _alone(name, failures, one)


def _alone(name: str, failures: dict[str, FourfoldError], work: Callable[[], object]) -> None:
    try:
        work()
    except FourfoldError as error:
        failures[name] = error

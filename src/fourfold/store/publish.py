"""Publish a whole store: every space, the sessions, the graphs, the streams, and a restore point.

A failing database is reported, and does not stop the others. A restore point combines consistent
states of all databases, which are as far apart in time as it took to publish them. A database that
another process writes is not published from here: its publish status is in the database itself,
which only its writer may change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fourfold.archive.child_process import ChildStopped
from fourfold.archive.node_record import read_record
from fourfold.archive.restore_points import PointInfo
from fourfold.archive.subject import DatabaseResult, DatabaseStatus, standing
from fourfold.archive.table_layout import TABLES
from fourfold.errors import FourfoldError, ReadOnly
from fourfold.models.streams import model as streams_model
from fourfold.store import database_files, table_archive, table_maintenance
from fourfold.store.database_files import check_models, subject_lent
from fourfold.store.table_maintenance import CompactionReport

if TYPE_CHECKING:
    from fourfold.models.streams.archive import ArchiveRound
    from fourfold.store.store import Store

STREAMS = streams_model.MODEL.name
Progress = Callable[[str, int, int], None]
"""Called with the current subject, the number of steps done, and the number of all steps."""


@dataclass(slots=True)
class PublishReport:
    """Result of publishing a store."""

    point: PointInfo | None = None
    """The new restore point; None if nothing was new."""
    published: list[DatabaseResult] = field(default_factory=list)
    unchanged: int = 0
    merged: list[CompactionReport] = field(default_factory=list)
    """Databases whose small publications were compacted."""
    streams: ArchiveRound | None = None
    failures: dict[str, FourfoldError] = field(default_factory=dict)
    """Errors of databases and streams that were not published, by name."""

    def raise_if_failed(self) -> None:
        """Raise the first error of a database."""
        for error in self.failures.values():
            raise error


def publish(
    store: Store, models: Sequence[str] | None = None, progress: Progress | None = None
) -> PublishReport:
    """Publish the new data of a store, or of some of its models."""
    models = check_models(models)
    refuse_reader(store)
    with store.publishing:
        names = database_files.names(store.root, models)
        report = publish_some(store, list(names), progress, streams=STREAMS in models)
    if report.published and store.settings.archive.compact == "on":
        _compact_due_table(store, report)
    return report


def _compact_due_table(store: Store, report: PublishReport) -> None:
    """Compact a table that has many files after a publication."""
    try:
        done = table_maintenance.compact_one(store, lambda: None)
    except FourfoldError as error:
        report.failures[TABLES] = error
        return
    if done is not None:
        report.merged.append(table_maintenance.compact_result(done))


def iter_publish(
    store: Store,
    slice_databases: int,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[PublishReport]:
    """Publish the new data of a store in slices, and yield the report of each.

    Each slice adds its restore point, so a caller may stop after any of them. The streams are in
    the last slice. With `stop` this runs in the background: it gives way to writers, and raises
    ChildStopped soon after `stop` returns True.
    """
    refuse_reader(store)
    names = list(database_files.names(store.root, check_models(None)))
    for start in range(0, max(1, len(names)), slice_databases):
        end = start + slice_databases
        advance = progress
        if progress is not None:
            advance = partial(_advance, progress, start, len(names))
        with store.publishing:
            report = publish_some(
                store, names[start:end], advance, streams=end >= len(names), stop=stop
            )
        yield report


def _advance(progress: Progress, start: int, total: int, label: str, done: int, _of: int) -> None:
    progress(label, min(start + done, total), total)


def publish_some(
    store: Store,
    names: Sequence[str],
    progress: Progress | None = None,
    *,
    streams: bool = False,
    moved: bool = False,
    stop: Callable[[], bool] | None = None,
) -> PublishReport:
    """Publish these databases, and with `streams` all streams; then add a restore point.

    With `moved` the restore point includes streams that another publisher uploads. The caller holds
    `store.publishing`. `stop` is that of `iter_publish`.
    """
    report = PublishReport()
    streams = streams and has_streams(store)
    if not names and not streams and not moved:
        return report

    def publish_streams() -> bool:
        if streams:
            _publish_streams(store, report, progress, stop)
        return moved or (streams and report.streams is not None)

    table_archive.PublicationRound(store, names, report, progress, stop).run(publish_streams)
    return report


def publish_positions(store: Store) -> None:
    """Add a point with the positions of streams, if this store has published.

    Segments that streams have retired are then no longer in the log of `streams.records`.
    """
    if read_record(store.root) is None:
        return
    with store.publishing:
        publish_some(store, (), moved=True).raise_if_failed()


def standings(store: Store, models: Sequence[str] | None = None) -> list[DatabaseStatus]:
    """Return the published and the newest position of each database.

    The difference would be lost with the disk.
    """
    return [
        read_status(store, name) for name in database_files.names(store.root, check_models(models))
    ]


def read_status(store: Store, name: str) -> DatabaseStatus:
    """Return the published and the newest position of one database."""
    with subject_lent(store, name) as subject:
        return standing(subject)


def _publish_streams(
    store: Store,
    report: PublishReport,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> None:
    count = 0

    def tell(done: ArchiveRound) -> None:
        nonlocal count
        if stop is not None and stop():
            raise ChildStopped
        count += len(done.published)
        if progress is not None:
            progress(STREAMS, count, 0)

    try:
        report.streams = store.archive.publish_all(tell, background=stop is not None)
    except FourfoldError as error:
        report.failures[STREAMS] = error
        return
    report.failures |= {
        f"{STREAMS}/{name}": error for name, error in report.streams.failures.items()
    }


def has_streams(store: Store) -> bool:
    """Return True if the store has a database of streams."""
    return bool(streams_model.MODEL.location.names(store.root))


def refuse_reader(store: Store) -> None:
    """Raise ReadOnly if the store is open for reading only."""
    if store.mode != "rw":
        raise ReadOnly(f"{store.root} is open for reading; cannot publish")


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000

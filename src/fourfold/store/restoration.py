"""Restore a whole store from published objects, at the newest restore point or an older one.

Each database is created in a staging folder and moved when it is complete, so this may stop
anywhere and be run again: existing databases stay unchanged. A store restored to an older point
than the newest can be read and written like any other, but does not publish, because that would
hide newer history, unless `take_over` is set.

Points of format 1 are restored here, and those of archive tables in `table_restoration`. Nothing is
written to format 1: a store that was restored from its newest state publishes tables, and an older
point of it cannot be taken over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold import limits
from fourfold.archive.capture import HELD_BACK
from fourfold.archive.format_1 import manifest as manifests
from fourfold.archive.format_1.points import Points
from fourfold.archive.format_1.restorer import PublishedHistory, Restorer, read_history
from fourfold.archive.restore_points import PointInfo, find
from fourfold.durability import sync_file
from fourfold.errors import FourfoldError, NotFound
from fourfold.kernel import Database, sync_folder
from fourfold.models.model import Model
from fourfold.models.streams.archive import BootstrapReport, bootstrap
from fourfold.models.streams.publication import ObjectsAt
from fourfold.retry import Retries
from fourfold.store.database_files import DatabaseFile, published_as
from fourfold.store.publish import Progress

if TYPE_CHECKING:
    from fourfold.store.store import Store

STAGING = ".restoring"


class DatabaseRestoreReport(NamedTuple):
    """A database that was restored."""

    name: str
    generation: int
    position: int
    at: str
    """Time at which the restored state was published; later writes are lost."""
    rows: int


@dataclass(slots=True)
class RebuildReport:
    """Result of restoring a store."""

    point: PointInfo | None = None
    """The requested restore point."""
    restored: list[DatabaseRestoreReport] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    """Databases that already existed, left unchanged."""
    absent: list[str] = field(default_factory=list)
    """Databases that did not exist at the restore point."""
    streams: BootstrapReport | None = None
    failures: dict[str, FourfoldError] = field(default_factory=dict)


def rebuild(
    store: Store,
    *,
    at: str | None = None,
    take_over: bool = False,
    progress: Progress | None = None,
) -> RebuildReport:
    """Restore the databases and streams of a store from its object store.

    Raises:
        NotFound: There is no such point.
        Refused: A take-over at an older point of format 1.
    """
    from fourfold.store import table_restoration  # noqa: PLC0415 - it imports this module

    if table_restoration.is_in_tables(store, at, take_over=take_over):
        return table_restoration.TableRestore(store, at, take_over=take_over).run(progress)
    return _Restore(store, at).run(progress)


class _Restore:
    """A restore from format 1."""

    def __init__(self, store: Store, at: str | None) -> None:
        self._store = store
        self._objects = store.objects
        self._retries = Retries()
        self._points = Points(self._objects, self._retries)
        self._known = self._points.all()
        self._report = RebuildReport()
        if at is not None:
            self._report.point = find(self._known, at)
        self._is_newest = at is None or self._report.point == self._known[-1]

    def run(self, progress: Progress | None) -> RebuildReport:
        report = self._report
        shutil.rmtree(self._store.root / STAGING, ignore_errors=True)
        histories = self._histories()
        for number, history in enumerate(histories):
            name = history.manifest.name
            if progress is not None:
                progress(name, number, len(histories))
            try:
                self._restore(history)
            except FourfoldError as error:
                report.failures[name] = error
        shutil.rmtree(self._store.root / STAGING, ignore_errors=True)
        report.streams = self._streams(progress)
        report.failures |= report.streams.failures
        return report

    # Databases

    def _histories(self) -> list[PublishedHistory]:
        """Read the history of every database; record those that cannot be read as failures."""
        listed = self._retries.run(lambda: list(self._objects.list(manifests.MANIFESTS)))
        keys = [info.key for info in listed]
        # A listing may be stale: restore points contain names, too.
        for info in self._known[-1:]:
            names = self._points.read(info).databases
            keys += [manifests.manifest_key(name) for name in names]
        keys = sorted(set(keys))
        histories: list[PublishedHistory] = []
        with ThreadPoolExecutor(4 * limits.ARCHIVE_CONCURRENCY) as pool:
            for key, read in zip(keys, pool.map(self._read, keys), strict=True):
                if isinstance(read, FourfoldError):
                    self._report.failures[key] = read
                elif read is not None:
                    histories.append(read)
        return sorted(histories, key=lambda history: history.manifest.name)

    def _read(self, key: str) -> PublishedHistory | FourfoldError | None:
        try:
            read = self._retries.run(lambda: self._objects.get(key))
            return read_history(read, self._objects, self._retries)
        except NotFound:
            return None
        except FourfoldError as error:
            return error

    def _restore(self, history: PublishedHistory) -> None:
        name, point = history.manifest.name, self._report.point
        file = published_as(self._store, name, history.manifest.model)
        publication = history.at(None if point is None else point.id)
        if file.path.exists():
            self._report.present.append(name)
            return
        if publication is None:
            self._report.absent.append(name)
            return
        staged = self._store.root / STAGING / file.path.relative_to(self._store.root)
        with opened_aside(staged, file) as database:
            restorer = Restorer(
                database,
                file.publication,
                self._objects,
                self._retries,
                put_content(self._store, file.model),
            )
            rows = restorer.restore(history, publication, len(file.kind.migrations))
            # The newest state may be published to tables; an older one would hide it.
            is_newest = self._is_newest and publication.generation == history.newest
            version = history.version if is_newest else HELD_BACK
            restorer.remember(publication, version, history.data)
            database.checkpoint("TRUNCATE")
        put_in_place(staged, file.path)
        self._report.restored.append(
            DatabaseRestoreReport(
                name, publication.generation, publication.position, publication.at, rows
            )
        )

    # Streams

    def _streams(self, progress: Progress | None) -> BootstrapReport:
        streams, point = self._store.streams, self._report.point
        now_ms = streams.clock()
        if point is None:
            return bootstrap(streams.database, self._objects, now_ms=now_ms, progress=progress)
        places = self._points.places(self._known, point)
        shown = ObjectsAt(self._objects, places, take_over=False, retries=self._retries)
        done = bootstrap(streams.database, shown, now_ms=now_ms, progress=progress)
        # Segments after the restore point belong to newer manifests.
        return done._replace(unclaimed=())


def put_content(store: Store, model: Model[Any]) -> Callable[[str, bytes], None] | None:
    """Return a function that stores a large value as a file, if the model has such files."""
    if model.blobs is None:
        return None
    blobs = model.blobs(store.root)

    def put(_digest: str, data: bytes) -> None:
        blobs.put(data)

    return put


def opened_aside(path: Path, file: DatabaseFile) -> Database:
    """Open a new database without syncs; it is synced at the end."""
    return Database.open(
        path,
        profile=file.profile.with_(synchronous="OFF", foreign_keys=False),
        migrations=file.kind.migrations,
        sequences=file.kind.sequences,
    )


def put_in_place(staged: Path, path: Path) -> None:
    """Move a restored database to its place, durably."""
    fd = os.open(staged, os.O_RDONLY)
    try:
        sync_file(fd)
    finally:
        os.close(fd)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged.rename(path)
    sync_folder(path.parent)

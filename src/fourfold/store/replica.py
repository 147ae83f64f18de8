"""Read replicas: a copy of a store that follows its archive, point by point.

    with ArchiveFollower("s3://bucket/shop", "copy") as follower:
        report = follower.step()

Each step brings the copy to the newest point. A database that changed gets the rows after the point
that it has, with everything derived from them, in one transaction; so do the streams together. A
database is restored as a whole if it is new, was deleted and created again, or went back, and if
rows were collected, purged or re-indexed. Readers see each database at one point or the next.

A database records its point in the same transaction, and the replica after all of them, so a step
may stop anywhere and be run again.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from fourfold.archive import capture, stream_positions
from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_rows import CommitRow, DatabaseRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.manifest import manifest_key
from fourfold.archive.node_record import archive_lock
from fourfold.archive.restore_points import Place
from fourfold.archive.table_reader import TableReader
from fourfold.archive.table_restore import RestoreSource, TableRestorer
from fourfold.errors import Busy, FourfoldError, HistoryTruncated, NotFound, Refused
from fourfold.kernel import Database, failpoints, replace_database
from fourfold.models.model import all_models
from fourfold.models.streams.archive import bootstrap
from fourfold.models.streams.archive.bootstrapper import FoundManifest, read_one, refresh
from fourfold.models.streams.model import MODEL as STREAMS
from fourfold.models.streams.publication import ObjectsAt
from fourfold.objects import open_objects
from fourfold.retry import Attempts, Retries
from fourfold.settings import load
from fourfold.store.database_files import DatabaseFile, published_as
from fourfold.store.replica_record import ReplicaRecord, read_replica, write_replica
from fourfold.store.restoration import STAGING, opened_aside, put_content
from fourfold.store.store import Store, open_store, remember
from fourfold.store.table_archive import archive_of

if TYPE_CHECKING:
    from types import TracebackType

FOLLOW_PAUSE_S: Final = 1.0
"""First pause after a failure."""
FOLLOW_PAUSE_MAX_S: Final = 60.0
"""Longest pause after repeated failures."""


class FollowReport(msgspec.Struct, frozen=True):
    """Result of one step of a follower."""

    point: str
    """Newest point, which the replica has now."""
    at: str
    """Time at which the point was published."""
    points: int
    """Number of points that this step advanced."""
    advanced: int
    """Databases that got new rows."""
    restored: int
    """Databases that were restored as a whole."""
    rows: int
    streams: int
    """Streams that changed."""
    lag_s: float
    """Time from the publication of the point until it was applied; 0 if nothing was new."""


class ArchiveFollower:
    """Keeps a read-only copy of a store in step with an archive.

    Args:
        url: Object store with the archive.
        root: Folder of the replica; it is created if needed.
        settings: Settings of the replica, by dotted name.

    Raises:
        NotFound: There is no archive at the URL.
        Refused: The folder is a store of its own, or follows another archive.
    """

    def __init__(
        self, url: str, root: str | Path, settings: Mapping[str, object] | None = None
    ) -> None:
        self._root = Path(root).absolute()
        self._record = read_replica(self._root) or _create(self._root, url)
        remember(self._root, url)
        loaded = load(self._root, environ=os.environ, arguments=settings)
        self._store = Store(self._root, loaded, mode="rw", temporary=False)
        self._archive = archive_of(self._store)
        self._retries = Retries()

    @property
    def record(self) -> ReplicaRecord:
        """The archive, and the newest point that is applied."""
        return self._record

    def close(self) -> None:
        """Close the databases of the replica."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        on_step: Callable[[FollowReport], None],
        on_failure: Callable[[FourfoldError, float], None],
        *,
        every_s: float = 1.0,
        stop: threading.Event | None = None,
    ) -> None:
        """Take a step every `every_s` seconds until `stop` is set.

        A failure that may pass is retried with a backoff, and reported with the pause.

        Raises:
            Refused: The archive is a different one now.
        """
        stop = stop or threading.Event()
        attempts = Attempts(Retries(None, FOLLOW_PAUSE_S, FOLLOW_PAUSE_MAX_S))
        while not stop.is_set():
            try:
                report = self.step()
            except FourfoldError as error:
                pause_s = attempts.pause(error)
                on_failure(error, pause_s)
            else:
                attempts.restart()
                pause_s = every_s
                on_step(report)
            stop.wait(pause_s)

    def step(self) -> FollowReport:
        """Bring the replica to the newest point.

        Raises:
            Refused: The archive is a different one, or went back to an older state.
            Busy: The archive changed meanwhile; the next step continues.
        """
        state = self._archive.catalog.refresh()
        self._check_same(state)
        newest = state.newest_point
        assert newest is not None
        if newest.version == self._record.version:
            return FollowReport(newest.id, newest.at, 0, 0, 0, 0, 0, 0.0)
        staging = self._root / STAGING
        with archive_lock(self._root):
            shutil.rmtree(staging, ignore_errors=True)
            reader = TableReader(
                self._store.objects, dict(state.tables), staging / ".objects", self._retries
            )
            try:
                return self._apply(_ReplicaStep(self._store, self._record, state, reader), newest)
            except (NotFound, HistoryTruncated) as error:
                raise Busy(
                    f"the archive changed while point {newest.id} was read: {error.message}"
                ) from error
            finally:
                reader.close()
                shutil.rmtree(staging, ignore_errors=True)

    def _apply(self, step: _ReplicaStep, newest: CommitRow) -> FollowReport:
        before = self._record.version
        for row in step.changed():
            step.apply(row)
        streams = step.apply_streams(newest)
        record = msgspec.structs.replace(
            self._record,
            version=newest.version,
            token=newest.token,
            point=newest.id,
            at=newest.at,
        )
        write_replica(self._root, record)
        self._record = record
        late = datetime.now(UTC) - datetime.fromisoformat(newest.at)
        return FollowReport(
            newest.id,
            newest.at,
            len(step.state.points_after(before)),
            step.advanced,
            step.restored,
            step.rows,
            streams,
            round(max(late.total_seconds(), 0.0), 3),
        )

    def _check_same(self, state: CatalogState) -> None:
        """Raise Refused if the archive is not the one that was followed so far."""
        record, where = self._record, self._store.settings.objects.url
        if state.newest_point is None:
            raise Refused(f"{where}: the archive that {self._root} follows is gone", hint=_HINT)
        if state.snapshot.defined().id != record.archive:
            raise Refused(
                f"{where}: is not the archive that {self._root} follows; it was created again",
                hint=_HINT,
            )
        known = state.commit_at(record.version)
        if state.version < record.version or (known is not None and known.token != record.token):
            raise Refused(
                f"{where}: the archive went back to before point {record.point}, which "
                f"{self._root} has",
                hint=_HINT,
            )


_HINT: Final = "Follow it into a new folder."


class _ReplicaStep:
    """The way of a replica to the newest point."""

    def __init__(
        self, store: Store, record: ReplicaRecord, state: CatalogState, reader: TableReader
    ) -> None:
        self.state = state
        self.advanced = 0
        self.restored = 0
        self.rows = 0
        self._store = store
        self._record = record
        self._reader = reader
        self._retries = Retries()

    def changed(self) -> list[DatabaseRow]:
        """Return the rows of databases that changed since the point of the replica."""
        rows = (
            row
            for row in self.state.newest_rows()
            if not row.is_positions and row.version > self._record.version
        )
        return sorted(rows, key=lambda row: row.name)

    # Databases

    def apply(self, row: DatabaseRow) -> None:
        """Bring a database to its state in the catalog."""
        file = published_as(self._store, row.name, row.model)
        if row.absent:
            _delete(file.path)
            return
        if file.path.exists() and file.model.kind_in(file.path) == file.kind:
            rows = self._advance(file, row)
            if rows is not None:
                self.advanced += rows > 0
                self.rows += rows
                return
        self._restore(file, row)

    def _advance(self, file: DatabaseFile, row: DatabaseRow) -> int | None:
        """Apply new rows; return their number, or None if that is not possible."""
        with Database.open(
            file.path,
            profile=file.profile.with_(foreign_keys=False),
            migrations=file.kind.migrations,
            sequences=file.kind.sequences,
        ) as database:
            with database.read() as snapshot:
                known = capture.record_of(snapshot)
            if known is None:
                return None
            if (known.generation, known.version) == (row.point, row.token):
                return 0
            # The archive may have removed rows that only removed points needed.
            oldest = self.state.oldest_point
            assert oldest is not None
            continues = max(known.generation, self._record.version) >= oldest.version
            if (
                not continues
                or database.identity() != row.file_id
                or not row.base <= known.generation < row.point
            ):
                return None
            restorer = self._restorer(database, file)
            rows = restorer.advance(row, known.generation, len(file.kind.migrations))
        if failpoints.armed:
            failpoints.hit("archive.follow.committed")
        return rows

    def _restore(self, file: DatabaseFile, row: DatabaseRow) -> None:
        """Restore a database as a whole, and replace the one that is there."""
        root = self._store.root
        staged = root / STAGING / file.path.relative_to(root)
        with opened_aside(staged, file) as database:
            restorer = self._restorer(database, file)
            rows = restorer.restore(row, len(file.kind.migrations))
            restorer.remember(row)
            database.checkpoint("TRUNCATE")
        replace_database(staged, file.path)
        if failpoints.armed:
            failpoints.hit("archive.follow.replaced")
        self.restored += 1
        self.rows += rows

    def _restorer(self, database: Database, file: DatabaseFile) -> TableRestorer:
        label = file.model.id_column, file.model.location.id_of(file.name)
        source = RestoreSource(self._reader, self._store.objects, self._retries, file.prefix, label)
        return TableRestorer(
            database, file.publication, source, put_content(self._store, file.model)
        )

    # Streams

    def apply_streams(self, newest: CommitRow) -> int:
        """Bring all streams to the point, in one transaction; return how many changed."""
        row = self.state.find(stream_positions.NAME, newest.version)
        if row is None:
            return 0
        exists = bool(STREAMS.location.names(self._store.root))
        begun = exists and self._record.version >= 0
        if begun and row.version <= self._record.version:
            return 0
        objects = self._store.objects
        if not begun or row.base > self._record.version:
            places = stream_positions.positions_at(self._reader, row)
        else:
            since = msgspec.structs.replace(row, base=self._record.version + 1)
            places = stream_positions.positions_at(self._reader, since)
        shown = ObjectsAt(objects, places, take_over=False, retries=self._retries)
        streams, now_ms = self._store.streams, self._store.streams.clock()
        if not begun:
            report = bootstrap(streams.database, shown, now_ms=now_ms)
            for error in report.failures.values():
                raise error
        if not exists:
            return len(places)
        found, gone = self._manifests(shown, places)
        refresh(streams.database, found, gone, now_ms=now_ms)
        if failpoints.armed:
            failpoints.hit("archive.follow.streams")
        return len(places)

    def _manifests(
        self, shown: Any, places: Mapping[str, Place]
    ) -> tuple[list[FoundManifest], list[str]]:
        """Read the manifests of some streams; return them, and the names of deleted streams."""
        found: list[FoundManifest] = []
        gone: list[str] = []
        for name in places:
            manifest = read_one(shown, self._retries, manifest_key(name))
            if isinstance(manifest, FourfoldError):
                raise manifest
            if manifest is None or manifest.manifest.deleted:
                gone.append(name)
            else:
                found.append(manifest)
        return found, gone


def _create(root: Path, url: str) -> ReplicaRecord:
    """Create the folder of a replica; nothing is written if there is no archive."""
    if any(model.location.names(root) for model in all_models()):
        raise Refused(
            f"{root}: is a store of its own, not a replica of {url}",
            hint="Choose an empty or new folder.",
        )
    where = url if ":" in url else str(Path(url).absolute())
    with open_objects(where) as objects:
        state = Catalog(objects).refresh()
        newest = state.newest_point
    if newest is None:
        raise NotFound(
            f"{url}: has no archive with a restore point",
            hint="Publish a store there first: `fourfold publish ROOT --objects URL`.",
        )
    with open_store(root):
        remember(root, url)
    record = ReplicaRecord(where, state.snapshot.defined().id)
    write_replica(root, record)
    return record


def _delete(path: Path) -> None:
    """Delete a database and its log."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)

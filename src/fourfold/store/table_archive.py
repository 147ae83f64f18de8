"""The archive of a store as tables: publish, points, verify.

Streams keep their own segments and manifests; a point has their positions. An archive of format 1
that has no tables yet gets them beside it, from a store that has its newest state.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fourfold.archive import stream_positions
from fourfold.archive.capture import HELD_BACK, SQL, record_of
from fourfold.archive.catalog_rows import CommitRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.child_process import ChildStopped
from fourfold.archive.format_1.manifest import MANIFESTS, manifest_key
from fourfold.archive.format_1.points import Points
from fourfold.archive.manifest_format import token_of
from fourfold.archive.node_record import archive_lock
from fourfold.archive.restore_points import PointInfo, next_id
from fourfold.archive.table_layout import STREAM_RECORDS
from fourfold.archive.table_publisher import PointTime, TableArchive, TablePublication
from fourfold.archive.table_purge import purge_problems
from fourfold.archive.table_verify import table_problems
from fourfold.errors import FourfoldError, PublisherFenced, StorageError, WriterLocked
from fourfold.kernel import Database
from fourfold.models.model import model_of_database
from fourfold.store import database_files
from fourfold.store.database_files import (
    DatabaseFile,
    opened_for_reading,
    purge_rules,
    scratch_of,
    subject_lent,
)
from fourfold.store.stream_tables import StreamChanges, gather_changes, record_problems

if TYPE_CHECKING:
    from fourfold.store.publish import Progress, PublishReport
    from fourfold.store.store import Store
    from fourfold.wire.store import ArchiveTableRow

_archives: weakref.WeakKeyDictionary[Store, TableArchive] = weakref.WeakKeyDictionary()


def archive_of(store: Store) -> TableArchive:
    """Return the archive of a store; it is read once and then kept up to date."""
    archive = _archives.get(store)
    if archive is None or archive.objects is not store.objects:
        archive = TableArchive(store.root, store.objects, grace_s=store.settings.archive.grace_s)
        _archives[store] = archive
    return archive


def list_points(store: Store) -> list[PointInfo]:
    """Return the points of an archive, oldest first; those of format 1 are older."""
    state = archive_of(store).catalog.refresh()
    older = Points(store.objects).all()
    return [*older, *map(point_info, state.points)]


def list_tables(store: Store) -> list[ArchiveTableRow]:
    """Return the tables of an archive, by name; none if it has format 1 only."""
    archive = archive_of(store)
    return [archive.describe(name) for name in sorted(archive.catalog.refresh().tables)]


def point_info(commit: CommitRow) -> PointInfo:
    """Return a point as it is listed."""
    return PointInfo(
        commit.id,
        commit.at,
        commit.started_ms,
        "",
        commit.databases,
        commit.streams,
        commit.restored,
    )


def new_point(
    store: Store, state: CatalogState, started: datetime, *, restored: str | None = None
) -> PointTime:
    """Return the identity of a point that is complete now; it is greater than all others."""
    point = state.newest_point
    if point is not None:
        newest: str | None = point.id
    else:
        before = Points(store.objects).newest()
        newest = None if before is None else before.id
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return PointTime(next_id(started, newest), at, _ms(started), restored)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def check_start(store: Store) -> None:
    """Raise PublisherFenced if the first tables of an archive would hide newer data in format 1.

    The store must have published or restored the newest state of its databases in format 1, and of
    at least one.
    """
    objects, continues = store.objects, False
    manifests = {info.key for info in objects.list(MANIFESTS)}
    for name in database_files.names(store.root) if manifests else ():
        key = manifest_key(name)
        if key not in manifests:
            continue
        is_newest = _has_newest(store, name, objects.get(key).data)
        if is_newest is False:
            raise PublisherFenced(
                f"{name!r} does not have its newest state in the archive of format 1",
                hint=_START_HINT,
            )
        continues |= is_newest is not None
    if manifests and not continues:
        raise PublisherFenced(
            "the archive has format 1, and no database of this store was published to it",
            hint=_START_HINT,
        )


_START_HINT = "Use another URL, or restore the newest state to a new folder: `fourfold bootstrap`."


def _has_newest(store: Store, name: str, manifest: bytes) -> bool | None:
    """Return True if a manifest of format 1 is the last that a database knows, or tried to write.

    None if the database is a new one; one of its name may have been deleted.
    """
    file = database_files.locate(store, model_of_database(name), name)
    token = token_of(manifest)
    with _opened(store, file) as database:
        with database.read() as snapshot:
            record = record_of(snapshot)
        if record is None:
            return None
        if record.intent is not None and record.intent.token == token:
            # It was written, but that was not recorded; the next intent replaces this one.
            if database.writable:
                database.transact(lambda txn: txn.execute(SQL.adopt, (manifest,)))
            return True
    if record.manifest is None or record.version == HELD_BACK:
        return False
    return token is not None and token == token_of(record.manifest)


@contextmanager
def _opened(store: Store, file: DatabaseFile) -> Iterator[Database]:
    """Open a database, for reading only while another process writes it."""
    with ExitStack() as stack:
        try:
            database = stack.enter_context(store.lent(file))
        except WriterLocked:
            database = stack.enter_context(opened_for_reading(file))
        yield database


class PublicationRound:
    """One publication of some databases of a store."""

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        report: PublishReport,
        progress: Progress | None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._stop = stop
        self._store = store
        self._names = list(names)
        self._report = report
        self._progress = progress
        self._archive = archive_of(store)
        self._folder = scratch_of(store.root)
        self._started = datetime.now(UTC)

    def run(self, publish_streams: Callable[[], bool]) -> None:
        """Publish the databases, then the streams, and add a point.

        `publish_streams` returns True if positions of streams belong to the point.
        """
        with archive_lock(self._store.root):
            try:
                self._run(publish_streams)
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, publish_streams: Callable[[], bool]) -> None:
        report = self._report
        try:
            publication = self._added()
        except FourfoldError as error:
            publish_streams()
            report.failures |= dict.fromkeys(self._names, error)
            return
        try:
            streams = self._streams() if publish_streams() else StreamChanges()
            if streams.is_complete and not streams.actions:
                self._archive.knows_streams = True
            if publication.published or streams:
                self._commit(publication, streams)
        except FourfoldError as error:
            report.unchanged = 0
            names = [published.name for published in publication.published]
            report.failures |= dict.fromkeys(names or ["streams"], error)
        finally:
            publication.close()

    def _added(self) -> TablePublication:
        """Return a publication with the new rows of all databases that do not fail."""
        if self._archive.catalog.refresh().head is None:
            check_start(self._store)
        while True:
            publication = self._archive.begin(self._folder / ".tables", self._stop)
            try:
                tainted = self._add_all(publication)
            except BaseException:
                publication.close()
                raise
            if tainted is None:
                return publication
            # Some of its rows are in the files: start again without it.
            publication.close()
            self._names.remove(tainted)

    def _add_all(self, publication: TablePublication) -> str | None:
        """Add all databases; return the name of one that failed after rows were written."""
        self._report.unchanged = 0
        for number, name in enumerate(self._names):
            if self._progress is not None:
                self._progress(name, number, len(self._names))
            try:
                with subject_lent(self._store, name) as subject:
                    self._report.unchanged += not publication.add(subject)
            except ChildStopped:
                raise
            except FourfoldError as error:
                self._report.failures[name] = error
            except Exception as error:  # noqa: BLE001 - whatever it is, it is of this database alone
                self._report.failures[name] = StorageError(
                    f"{name!r} cannot be published: {error!r}"
                )
            if publication.is_tainted:
                return name
        return None

    def _streams(self) -> StreamChanges:
        """Return what changed in the streams since the last point."""
        try:
            return gather_changes(self._store, self._archive, _ms(self._started), self._folder)
        except WriterLocked as error:
            # The process that has the streams open adds points of its own.
            self._report.failures[stream_positions.NAME] = error
            return StreamChanges()

    def _commit(self, publication: TablePublication, streams: StreamChanges) -> None:
        store, state, report = self._store, self._archive.catalog.state, self._report
        more = []
        if streams.places:
            before = state.find(stream_positions.NAME)
            more.append(stream_positions.add_positions(publication, streams.places, before))
        point = new_point(store, state, self._started)
        others = {STREAM_RECORDS: streams.actions} if streams.actions else {}
        head = publication.commit(point, more, streams=len(streams.places), others=others)
        if streams.is_complete:
            self._archive.knows_streams = True
        report.point = point_info(head)
        report.published = publication.published
        for published in publication.published:
            try:
                with subject_lent(store, published.name) as subject:
                    publication.record(subject)
            except WriterLocked:
                # Another process has opened it meanwhile; the next publication finds this one.
                continue
            except FourfoldError as error:
                report.failures[published.name] = error


def object_problems(
    store: Store, progress: Progress | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the problems of each archive table."""
    archive = archive_of(store)
    state = archive.catalog.refresh()
    for number, table in enumerate(sorted(state.tables)):
        if progress is not None:
            progress(table, number, len(state.tables))
        if table == STREAM_RECORDS:
            yield table, tuple(_record_problems(store))
            continue
        problems = tuple(table_problems(archive, table))
        if not problems:
            problems = tuple(_purge_problems(store, table))
        yield table, problems


def _record_problems(store: Store) -> Iterator[str]:
    folder = scratch_of(store.root) / ".verify"
    try:
        yield from record_problems(store, archive_of(store), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _purge_problems(store: Store, table: str) -> Iterator[str]:
    folder = scratch_of(store.root) / ".verify"
    try:
        yield from purge_problems(archive_of(store), folder, purge_rules(), table)
    except FourfoldError as error:
        yield error.message
    finally:
        shutil.rmtree(folder, ignore_errors=True)

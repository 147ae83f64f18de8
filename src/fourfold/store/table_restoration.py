"""Restore a whole store from archive tables, at the newest point or an older one.

Each database is created in a staging folder and moved when it is complete, so this may stop
anywhere and be run again: existing databases stay unchanged. Restoring changes nothing in the
archive, and does not stop its publisher; of several nodes that could continue, the first that
publishes does. A take-over at an older point is a commit of the catalog: from then on the state of
that point is the newest, and this store is the publisher.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from fourfold.archive import stream_positions, stream_records
from fourfold.archive.catalog_rows import CommitRow, DatabaseRow
from fourfold.archive.node_record import (
    archive_lock,
    new_record,
    read_record,
    write_record,
)
from fourfold.archive.restore_points import Place, PointInfo, find
from fourfold.archive.table_layout import STREAM_RECORDS
from fourfold.archive.table_reader import TableReader
from fourfold.archive.table_restore import RestoreSource, TableRestorer
from fourfold.errors import FourfoldError, Refused
from fourfold.kernel import failpoints
from fourfold.models.streams.archive import BootstrapReport, bootstrap
from fourfold.models.streams.publication import ObjectsAt
from fourfold.retry import Retries
from fourfold.store.database_files import DatabaseFile, published_as, scratch_of
from fourfold.store.restoration import (
    STAGING,
    DatabaseRestoreReport,
    RebuildReport,
    opened_aside,
    put_content,
    put_in_place,
)
from fourfold.store.table_archive import archive_of, list_points, new_point

if TYPE_CHECKING:
    from fourfold.store.publish import Progress
    from fourfold.store.store import Store


def is_in_tables(store: Store, at: str | None, *, take_over: bool) -> bool:
    """Return True if a point, by default the newest, is in archive tables.

    Raises:
        NotFound: There is no such point.
        Refused: A take-over at an older point of format 1.
    """
    state = archive_of(store).catalog.refresh()
    if at is None:
        return state.newest_point is not None
    points = list_points(store)
    point = find(points, at)
    found = any(commit.id == point.id for commit in state.points)
    if take_over and not found and point != points[-1]:
        raise Refused(
            f"point {point.id} has format 1; it can be restored, but not taken over",
            hint="Restore it without --take-over, and publish to another URL.",
        )
    return found


def restore_databases(store: Store, names: Iterable[str], version: int) -> None:
    """Restore some databases as of a version of the catalog, to read them; streams stay out.

    The store gets no right to publish. Existing databases stay unchanged.
    """
    archive_of(store).catalog.refresh()
    TableRestore(store, None, take_over=False).restore_databases(names, version)


def restore_streams(store: Store, version: int | None) -> None:
    """Restore the streams as of a version of the catalog, or of their manifests, to read them.

    Raises:
        FourfoldError: A stream cannot be restored.
    """
    archive_of(store).catalog.refresh()
    TableRestore(store, None, take_over=False).restore_streams(version)


class TableRestore:
    """One restore of a store."""

    def __init__(self, store: Store, at: str | None, *, take_over: bool) -> None:
        self._store = store
        self._archive = archive_of(store)
        self._state = self._archive.catalog.state
        self._retries = Retries()
        self._report = RebuildReport()
        points = self._state.points
        self._commit: CommitRow | None = None
        if at is not None:
            info: PointInfo = find(list_points(store), at)
            self._report.point = info
            self._commit = next(commit for commit in points if commit.id == info.id)
        self._is_older = self._commit is not None and self._commit.version != points[-1].version
        self._take_over = take_over and self._is_older
        self._reader = TableReader(
            store.objects,
            dict(self._state.tables),
            store.root / STAGING / ".objects",
            self._retries,
        )

    def run(self, progress: Progress | None) -> RebuildReport:
        """Restore what is missing, and return what was done."""
        store, report = self._store, self._report
        shutil.rmtree(store.root / STAGING, ignore_errors=True)
        try:
            with archive_lock(store.root):
                rows = self._rows()
                places = None
                if self._commit is not None:
                    row = self._state.find(stream_positions.NAME, self._commit.version)
                    places = stream_positions.positions_at(self._reader, row)
                if self._take_over:
                    rows = self._claimed(rows, places or {})
                self._restore_all(rows, progress)
                self._remember_node()
        finally:
            self._reader.close()
            shutil.rmtree(store.root / STAGING, ignore_errors=True)
        report.streams = self._streams(places, progress)
        report.failures |= report.streams.failures
        return report

    def restore_databases(self, names: Iterable[str], version: int) -> None:
        """Restore some databases as of a version of the catalog."""
        try:
            with archive_lock(self._store.root):
                self._restore_all({name: self._state.find(name, version) for name in names}, None)
        finally:
            self._reader.close()
            shutil.rmtree(self._store.root / STAGING, ignore_errors=True)
        for error in self._report.failures.values():
            raise error

    def restore_streams(self, version: int | None) -> None:
        """Restore the streams as of a version of the catalog, or of their manifests."""
        places = None
        try:
            if version is not None:
                row = self._state.find(stream_positions.NAME, version)
                places = stream_positions.positions_at(self._reader, row)
        finally:
            self._reader.close()
        for error in self._streams(places, None).failures.values():
            raise error

    def _rows(self) -> dict[str, DatabaseRow | None]:
        """Return the rows of all databases at the point; None for one that did not exist."""
        version = None if self._commit is None else self._commit.version
        found: dict[str, DatabaseRow | None] = {}
        for name in self._state.names():
            newest, row = self._state.find(name), self._state.find(name, version)
            if newest is None or newest.is_positions:
                continue
            found[name] = None if row is None or row.absent else row
        return found

    def _restore_all(self, rows: dict[str, DatabaseRow | None], progress: Progress | None) -> None:
        report = self._report
        for number, (name, row) in enumerate(rows.items()):
            if progress is not None:
                progress(name, number, len(rows))
            try:
                file = self._file(name, row)
                if file.path.exists():
                    report.present.append(name)
                elif row is None:
                    report.absent.append(name)
                else:
                    report.restored.append(self._restore(file, row))
            except FourfoldError as error:
                report.failures[name] = error

    def _file(self, name: str, row: DatabaseRow | None) -> DatabaseFile:
        known = row or self._state.find(name)
        assert known is not None
        return published_as(self._store, name, known.model)

    def _restore(self, file: DatabaseFile, row: DatabaseRow) -> DatabaseRestoreReport:
        store = self._store
        staged = store.root / STAGING / file.path.relative_to(store.root)
        label = file.model.id_column, file.model.location.id_of(file.name)
        source = RestoreSource(
            self._reader, self._archive.objects, self._retries, file.prefix, label
        )
        with opened_aside(staged, file) as database:
            restorer = TableRestorer(
                database, file.publication, source, put_content(store, file.model)
            )
            rows = restorer.restore(row, len(file.kind.migrations))
            restorer.remember(row)
            database.checkpoint("TRUNCATE")
        if failpoints.armed:
            failpoints.hit("archive.restore.filled")
        put_in_place(staged, file.path)
        if failpoints.armed:
            failpoints.hit("archive.restore.placed")
        return DatabaseRestoreReport(
            file.name, row.point, row.position, self._published_at(row), rows
        )

    def _published_at(self, row: DatabaseRow) -> str:
        commit = self._state.commit_at(row.point)
        return "" if commit is None else commit.at

    # The right to publish

    def _remember_node(self) -> None:
        """Let this store continue after the restored point; it may publish if that is the newest.

        A store that was the publisher before stays it.
        """
        root, head = self._store.root, self._state.head
        if read_record(root) is not None or head is None:
            return
        known = head if not self._is_older or self._commit is None else self._commit
        write_record(root, new_record(known.version, known.token))

    def _claimed(
        self, rows: dict[str, DatabaseRow | None], places: dict[str, Place]
    ) -> dict[str, DatabaseRow | None]:
        """Make the state of the point the newest one, and this store its publisher."""
        store, state, commit = self._store, self._state, self._commit
        assert commit is not None
        assert state.head is not None
        known = read_record(store.root)
        if known is None or (known.version, known.token) != (state.head.version, state.head.token):
            record = new_record(state.head.version, state.head.token)
            write_record(store.root, record)
        publication = self._archive.begin(scratch_of(store.root) / ".tables")
        try:
            more: list[DatabaseRow] = []
            claimed = dict(rows)
            for name, row in rows.items():
                newest = state.find(name)
                if newest is None or newest == row or self._file(name, row).path.exists():
                    continue
                if row is not None:
                    claimed[name] = publication.signed(row)
                elif not newest.absent:
                    more.append(publication.signed(msgspec.structs.replace(newest, absent=True)))
            more += [row for name, row in claimed.items() if row is not None and row != rows[name]]
            before = state.find(stream_positions.NAME)
            if before is not None:
                positions = stream_positions.add_positions(publication, places, None)
                absent = msgspec.structs.replace(positions, absent=not places)
                more.append(absent)
            time = new_point(store, state, datetime.now(UTC), restored=commit.id)
            expected = self._archive.expected(STREAM_RECORDS)
            removed = stream_records.cut_actions(expected, places, time.started_ms)
            others = {STREAM_RECORDS: removed} if removed else {}
            publication.commit(time, more, others=others)
            self._archive.forget_checks()
        finally:
            publication.close()
        return claimed

    # Streams

    def _streams(
        self, places: dict[str, Place] | None, progress: Progress | None
    ) -> BootstrapReport:
        streams, objects = self._store.streams, self._archive.objects
        now_ms = streams.clock()
        if places is None:
            return bootstrap(streams.database, objects, now_ms=now_ms, progress=progress)
        shown = ObjectsAt(objects, places, take_over=self._take_over, retries=self._retries)
        done = bootstrap(streams.database, shown, now_ms=now_ms, progress=progress)
        # Segments after the point belong to newer manifests.
        return done._replace(unclaimed=())

"""Restore a database from archive tables: the log byte for byte, at any point.

The rows that count are read a row group at a time and put into a new, private database. Derived
data is rebuilt at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive import capture
from fourfold.archive.capture import SCHEMA
from fourfold.archive.catalog_rows import DatabaseRow
from fourfold.archive.database_filler import DatabaseFiller, PutContent
from fourfold.archive.delta_actions import AddFile
from fourfold.archive.publication import ChangedRows, Description, PublicationTable, Row
from fourfold.archive.sealer import SCHEMA_TABLE
from fourfold.archive.table_layout import (
    DELETE,
    OP,
    PACKED,
    POINT,
    TABLE,
    ArchiveTable,
    archive_table,
    original_column,
    unpack,
)
from fourfold.archive.table_reader import TableReader, points_of
from fourfold.archive.table_state import PointInterval, WholeTables, newest_of_runs
from fourfold.errors import FutureFormat
from fourfold.kernel import Database, failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

ADVANCE_ROWS_MAX: Final = 200_000
"""Rows that a database gets in one transaction; with more it is restored as a whole."""


class RestoreSource(NamedTuple):
    """Source of a restored database."""

    reader: TableReader
    objects: ObjectStore
    retries: Retries
    prefix: str
    label: tuple[str, str]
    """Column with the id of the database, and the id."""


class TableRestorer:
    """Fills a new database with rows of the archive."""

    def __init__(
        self,
        database: Database,
        description: Description,
        source: RestoreSource,
        put_content: PutContent | None,
    ) -> None:
        self._filler = DatabaseFiller(
            database, description, source.objects, source.retries, put_content
        )
        self._source = source
        self._rows = 0
        self._changes: list[ChangedRows] | None = None
        """Changed rows, while a database advances."""

    def restore(self, row: DatabaseRow, migrations: int) -> int:
        """Restore the database as of a row of the catalog; return the number of rows read."""
        self._restore_interval(row, row.interval, migrations)
        self._filler.finish()
        return self._rows

    def advance(self, row: DatabaseRow, after: int, migrations: int) -> int | None:
        """Apply the rows after a point up to a row of the catalog, in one transaction.

        Returns the number of rows; None if the database must be restored as a whole.
        """
        interval = row.interval._replace(base=after + 1)
        self._changes = []
        try:
            with self._filler.database.write(deadline_s=limits.PUBLISH_DEADLINE_S):
                self._restore_interval(row, interval, migrations)
                self._derive(self._changes)
                self.remember(row)
                if failpoints.armed:
                    failpoints.hit("archive.follow.applied")
        except _MustRebuild:
            return None
        return self._rows

    def _derive(self, changes: Sequence[ChangedRows]) -> None:
        if not self._filler.advance(changes):
            raise _MustRebuild

    def _restore_interval(self, row: DatabaseRow, interval: PointInterval, migrations: int) -> None:
        if row.migrations > migrations:
            raise FutureFormat(
                f"{row.name} has {row.migrations} migrations; this Fourfold knows {migrations}"
            )
        filler = self._filler
        if filler.description.schema is not None:
            self._restore_whole(SCHEMA_TABLE, interval)
        with filler.database.read_current() as snapshot:
            tables = capture.tables_of(snapshot, filler.description)
        self._restore_tables(tables, interval)

    def remember(self, row: DatabaseRow) -> None:
        """Let the database continue after the publication of a row of the catalog."""
        self._filler.remember(row.position, row.point, row.token, None)

    def _restore_tables(self, tables: Sequence[PublicationTable], interval: PointInterval) -> None:
        """Restore all tables; tables of one group are read together."""
        groups: dict[str, list[PublicationTable]] = {}
        for table in tables:
            groups.setdefault(self._archived(table).name, []).append(table)
        for members in groups.values():
            if members[0].whole:
                self._restore_whole(members[0], interval, {table.name for table in members})
            else:
                self._restore_log(members, interval)

    def _archived(self, table: PublicationTable) -> ArchiveTable:
        return archive_table(self._source.prefix, self._source.label[0], table)

    def _files(self, target: ArchiveTable, interval: PointInterval) -> list[AddFile]:
        return self._source.reader.files(target.name, *self._source.label, interval)

    def _batches(
        self, target: ArchiveTable, file: AddFile, interval: PointInterval
    ) -> Iterator[tuple[list[str], list[Row]]]:
        for batch in self._source.reader.batches(target.name, file, *self._source.label, interval):
            self._rows += len(batch.rows)
            yield batch.columns, batch.rows

    # Tables that are published as a whole

    def _restore_whole(
        self, table: PublicationTable, interval: PointInterval, names: set[str] | None = None
    ) -> None:
        target = self._archived(table)
        wholes = WholeTables()
        for file in reversed(self._files(target, interval)):
            if not target.shared and points_of(file)[1] < wholes.point(table.name):
                continue
            for columns, rows in self._batches(target, file, interval):
                op_at, point_at = columns.index(OP), columns.index(POINT)
                name_at = columns.index(TABLE) if target.shared else None
                for row in rows:
                    name = table.name if name_at is None else row[name_at]
                    wholes.add(name, row[op_at], row[point_at], _with_columns(columns, row))
        for name, found in wholes.items():
            if names is None or name in names:
                self._replace(name, target, found)

    def _replace(self, name: str, target: ArchiveTable, rows: list[Row]) -> None:
        """Replace the rows of a table, given as pairs of columns and values."""
        if name == SCHEMA:
            plain = [tuple(dict(row)[key] for key in ("type", "name", "sql")) for row in rows]
            self._filler.create_objects(plain)
        else:
            values = [_without_fixed(row, target) for row in rows]
            self._filler.replace(name, values)
            self._note(name, (), [tuple(row.values()) for row in values])

    # Logs

    def _restore_log(self, members: list[PublicationTable], interval: PointInterval) -> None:
        target = self._archived(members[0])
        known = {table.name: table for table in members}
        for file in self._files(target, interval):
            least, greatest = points_of(file)
            columns, batches = self._peeked(self._batches(target, file, interval))
            if least != greatest:
                names = [TABLE, *target.key] if target.shared else target.key
                batches = newest_of_runs(batches, _picker(columns, names) if columns else tuple)
            for rows in batches:
                self._apply(target, known, columns, rows)

    def _peeked(
        self, batches: Iterator[tuple[list[str], list[Row]]]
    ) -> tuple[list[str], Iterator[list[Row]]]:
        """Return the columns of a file, and its batches of rows."""
        first = next(batches, None)
        if first is None:
            return [], iter(())

        def rows() -> Iterator[list[Row]]:
            yield first[1]
            for _, more in batches:
                yield more

        return first[0], rows()

    def _apply(
        self,
        target: ArchiveTable,
        known: dict[str, PublicationTable],
        columns: list[str],
        rows: list[Row],
    ) -> None:
        """Delete and put the rows of a batch, each in its table."""
        op_at = columns.index(OP)
        name_at = columns.index(TABLE) if target.shared else None
        parts: dict[tuple[str, bool], list[Row]] = {}
        only = next(iter(known))
        for row in rows:
            name = only if name_at is None else row[name_at]
            # An app may have dropped a table after its rows were published.
            if name in known:
                parts.setdefault((name, row[op_at] != DELETE), []).append(row)
        for (name, is_put), some in sorted(parts.items(), key=lambda part: part[0]):
            if is_put:
                names = [column for column in columns if column not in target.fixed]
                values = [*map(_picker(columns, names), some)]
                originals = [original_column(column) for column in names]
                self._filler.put(name, originals, values)
                self._note(name, originals, values)
            else:
                keys = [*map(_picker(columns, target.key), some)]
                self._filler.delete(name, target.key, keys)
                self._note(name, target.key, keys, deleted=True)

    def _note(
        self, name: str, columns: Sequence[str], rows: Sequence[Row], *, deleted: bool = False
    ) -> None:
        if self._changes is not None:
            if self._rows > ADVANCE_ROWS_MAX:
                raise _MustRebuild
            self._changes.append(ChangedRows(name, tuple(columns), rows, deleted))


class _MustRebuild(Exception):
    """Derived data cannot follow from the changed rows alone."""


def _picker(columns: list[str], names: Sequence[str]) -> Callable[[Row], Row]:
    """Return a function that returns some values of a row."""
    places = [columns.index(name) for name in names]
    return lambda row: tuple(row[at] for at in places)


def _with_columns(columns: list[str], row: Row) -> Row:
    return tuple(zip(columns, row, strict=True))


def _without_fixed(row: Row, target: ArchiveTable) -> dict[str, Any]:
    """Return the values of a row of a SQLite table by column."""
    values = dict(row)
    if target.packed:
        return dict(unpack(values[PACKED]))
    return {name: value for name, value in values.items() if name not in target.fixed}

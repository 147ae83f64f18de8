"""Sealing of a database: write its new rows, from one consistent state.

The cost depends on the new data only: rows after the published positions, rows whose keys a trigger
recorded, and small tables as a whole if they changed. Values that are separate objects are uploaded
before the row that refers to them is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Protocol

import msgspec

from fourfold import limits
from fourfold.archive import capture
from fourfold.archive.capture import SCHEMA, SQL, CaptureState
from fourfold.archive.publication import (
    GONE,
    PUT,
    WHOLE,
    Content,
    Contents,
    Description,
    PublicationTable,
    Row,
    TableColumn,
)
from fourfold.kernel import Database, ReadTransaction
from fourfold.kernel.bulk_insert import quoted

PUBLISH_INLINE_BYTES: Final = 64 * limits.KIB
"""A larger blob is an object of its own; smaller ones are stored in the segment."""


OBJECT, IN_FILE = "object", "in_file"
SCHEMA_TABLE: Final = PublicationTable(SCHEMA, whole=True)
"""The schema of the tables that a database makes itself, published like a table."""
_SCHEMA_COLUMNS = (
    TableColumn("type", "TEXT"),
    TableColumn("name", "TEXT"),
    TableColumn("sql", "TEXT"),
)
Carry = Callable[[str, Callable[[], Iterator[bytes]], int | None], None]
"""Uploads a value as an object: its digest, its bytes, and its size if known."""


class ValueTarget(NamedTuple):
    """Source of large values, and the function that uploads them."""

    carry: Carry
    contents: Contents | None
    """Returns the bytes of values that are files next to the database."""


class RowSink(Protocol):
    """Receives the new rows of a database, table by table."""

    def write(
        self,
        table: PublicationTable,
        action: str,
        columns: tuple[TableColumn, ...],
        rows: Iterable[Row],
    ) -> None:
        """Write rows; `columns` are those of the table.

        With the action GONE, rows are keys. With PUT, rows of a table with large values have two
        more values: OBJECT and IN_FILE. With WHOLE, rows may be empty.
        """


@dataclass(slots=True)
class SealResult:
    """The state of a database whose new rows were written."""

    state: CaptureState = field(default_factory=CaptureState)
    position: int = 0
    change: int = 0


def seal_into(
    sink: RowSink,
    database: Database,
    description: Description,
    state: CaptureState,
    values: ValueTarget,
) -> SealResult:
    """Write the new rows into a sink."""
    while True:
        watched = capture.watch(database, description)
        sealed = seal_watched(sink, database, description, state, values, watched=watched)
        if sealed is not None:
            return sealed


def seal_watched(
    sink: RowSink,
    database: Database,
    description: Description,
    state: CaptureState,
    values: ValueTarget,
    *,
    watched: frozenset[str],
) -> SealResult | None:
    """Write the new rows into a sink; None if there is a table that `capture.watch` must see."""
    with database.read(deadline_s=limits.PUBLISH_DEADLINE_S) as snapshot:
        tables = capture.tables_of(snapshot, description)
        # A new table gets its triggers first: its changes must be recorded.
        if not {table.name for table in tables} <= watched:
            return None
        return _Sealer(snapshot, description, state, values, sink).run(tables)


def count_new_rows(
    database: Database, description: Description, state: CaptureState, most: int
) -> int:
    """Return about how many rows a publication would write, at most `most` for each query."""
    count = 0
    with database.read() as snapshot:
        change = int(snapshot.value(SQL.last_change))
        for table in capture.tables_of(snapshot, description):
            if table.whole:
                continue
            columns = capture.columns_of(snapshot, table.name)
            before = state.positions.get(table.name)
            if before is None:
                selects = [(_everything(table, columns), 0)]
            else:
                new, changed = queries(table, columns)
                selects = [(sql, before) for sql in new] + [(sql, change) for sql in changed]
            for sql, after in selects:
                count += int(snapshot.value(SQL.count_some.format(rows=sql), (after, most)))
                if count >= most:
                    return count
    return count


class _Sealer:
    def __init__(
        self,
        snapshot: ReadTransaction,
        description: Description,
        state: CaptureState,
        values: ValueTarget,
        sink: RowSink,
    ) -> None:
        self._snapshot = snapshot
        self._description = description
        self._before = state
        self._values = values
        self._sink = sink
        self._done = SealResult()
        self._positions = dict(state.positions)
        self._wholes = dict(state.wholes)

    def run(self, tables: tuple[PublicationTable, ...]) -> SealResult:
        snapshot, done = self._snapshot, self._done
        done.change = int(snapshot.value(SQL.last_change))
        newest = int(snapshot.value(self._description.newest))
        done.position = max(newest, self._before.position)
        if self._description.schema is not None:
            self._whole(SCHEMA_TABLE, _SCHEMA_COLUMNS, snapshot.all(self._description.schema))
        for table in tables:
            columns = capture.columns_of(snapshot, table.name)
            if table.whole:
                self._whole(table, columns, snapshot.all(_everything(table, columns)))
            else:
                self._gone(table, columns)
                self._put(table, columns)
        done.state = CaptureState(done.position, self._positions, self._wholes)
        return done

    def _whole(
        self, table: PublicationTable, columns: tuple[TableColumn, ...], rows: list[Row]
    ) -> None:
        digest = _digest(columns, rows)
        if self._wholes.get(table.name) == digest:
            return
        self._wholes[table.name] = digest
        self._sink.write(table, WHOLE, columns, rows)

    def _gone(self, table: PublicationTable, columns: tuple[TableColumn, ...]) -> None:
        if not table.watch and table.source is None:
            return
        key = key_columns(table, columns)
        sql = SQL.gone_rows.format(
            keys=", ".join(capture.picked(column, at) for at, column in enumerate(key)),
            literal=capture.literal(table.watched),
            table=quoted(table.watched),
            match=capture.match(key),
        )
        gone = self._snapshot.rows(sql, (self._done.change,))
        self._sink.write(table, GONE, columns, gone)

    def _put(self, table: PublicationTable, columns: tuple[TableColumn, ...]) -> None:
        rows = self._rows(table, columns)
        if table.content is not None:
            rows = self._referring(rows, columns, table.content)
        self._sink.write(table, PUT, columns, rows)

    def _rows(self, table: PublicationTable, columns: tuple[TableColumn, ...]) -> Iterator[Row]:
        """Yield the new and the changed rows of a table."""
        snapshot, change = self._snapshot, self._done.change
        before = self._positions.get(table.name)
        self._positions[table.name] = self._reached(table, before or 0)
        if before is None:
            return snapshot.rows(_everything(table, columns))
        new, changed = queries(table, columns)
        found = [snapshot.rows(sql, (before,)) for sql in new]
        found += [snapshot.rows(sql, (change,)) for sql in changed]
        return chain.from_iterable(found)

    def _reached(self, table: PublicationTable, before: int) -> int:
        """Return the newest position of a table in this state.

        Rows at the end may have been deleted; their positions are not used again.
        """
        if table.position is None:
            return self._done.position
        return max(before, _greatest(self._snapshot, table))

    def _referring(
        self, rows: Iterator[Row], columns: tuple[TableColumn, ...], content: Content
    ) -> Iterator[Row]:
        """Yield rows after uploading their large values."""
        names = [column.name for column in columns]
        digest_at, data_at = names.index(content.digest), names.index(content.data)
        for row in rows:
            digest, data = row[digest_at], row[data_at]
            digits = digest.hex() if isinstance(digest, bytes) else digest
            if data is not None and len(data) <= PUBLISH_INLINE_BYTES:
                yield (*row, None, None)
                continue
            self._carry_one(digits, data)
            yield (*row[:data_at], None, *row[data_at + 1 :], digits, int(data is None))

    def _carry_one(self, digits: str, data: bytes | None) -> None:
        carry, contents = self._values.carry, self._values.contents
        if data is not None:
            carry(digits, lambda: iter((data,)), len(data))
        elif contents is not None:
            carry(digits, lambda: contents(digits), None)


def queries(
    table: PublicationTable, columns: tuple[TableColumn, ...]
) -> tuple[list[str], list[str]]:
    """Return the queries for new and for changed rows of a published table.

    None of them may scan the history.
    """
    own = _names(columns, "t.")
    new, changed = [], [sql.format(columns=own) for sql in table.changed]
    if table.new is not None:
        new.append(table.new.format(columns=own))
    elif table.position is not None:
        names = {"columns": _names(columns), "table": quoted(table.name)}
        new.append(SQL.new_rows.format(**names, position=quoted(table.position)))
    if table.watch:
        sql = SQL.changed_rows.format(
            columns=own,
            table=quoted(table.name),
            literal=capture.literal(table.name),
            match=capture.match(key_columns(table, columns)),
        )
        changed.append(sql)
    return new, changed


def _everything(table: PublicationTable, columns: tuple[TableColumn, ...]) -> str:
    if table.everything is not None:
        return table.everything.format(columns=_names(columns, "t."))
    names = {"columns": _names(columns), "table": quoted(table.name)}
    if table.position is None:
        return SQL.all_rows.format(**names)
    return SQL.all_rows_by_position.format(**names, position=quoted(table.position))


def _names(columns: tuple[TableColumn, ...], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{quoted(column.name)}" for column in columns)


def key_columns(
    table: PublicationTable, columns: tuple[TableColumn, ...]
) -> tuple[TableColumn, ...]:
    """Return the columns of the key of a table."""
    kinds = {column.name: column for column in columns}
    return tuple(kinds[name] for name in table.key)


def _greatest(snapshot: ReadTransaction, table: PublicationTable) -> int:
    """Return the greatest position in a table."""
    position = quoted(table.position or "")
    sql = table.newest or SQL.greatest.format(position=position, table=quoted(table.name))
    return int(snapshot.value(sql) or 0)


def state_of(snapshot: ReadTransaction, description: Description, position: int) -> CaptureState:
    """Return the state of a database that is completely published, such as after a restore."""
    positions: dict[str, int] = {}
    wholes: dict[str, str] = {}
    if description.schema is not None:
        wholes[SCHEMA] = _digest(_SCHEMA_COLUMNS, snapshot.all(description.schema))
    for table in capture.tables_of(snapshot, description):
        columns = capture.columns_of(snapshot, table.name)
        if table.whole:
            wholes[table.name] = _digest(columns, snapshot.all(_everything(table, columns)))
        elif table.position is None:
            positions[table.name] = position
        else:
            positions[table.name] = _greatest(snapshot, table)
    return CaptureState(position, positions, wholes)


def _digest(columns: tuple[TableColumn, ...], rows: list[Row]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode([columns, rows])).hexdigest()

"""Descriptions of databases for publishing and restoring: tables, queries, derived data.

A table is one of these:

- a **log**: rows are appended with an increasing position, by which new rows are found.
- **watched**: rows are rarely inserted, changed or deleted. A trigger records the key of each.
- **whole**: a few rows that are published together whenever one of them changed.

A log may be watched too, for rows that are changed or deleted later. All other tables are derived,
and rebuilt after a restore, or caches, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fourfold.kernel import Database, ReadTransaction, Transaction

Row = tuple[Any, ...]

PUT, GONE, WHOLE = "put", "gone", "whole"
"""What is done with rows: put them, delete those with these keys, or replace the whole table."""


class Content(NamedTuple):
    """A column of bytes whose SHA-256 is the key of the row; large values become objects."""

    digest: str
    """Column with the SHA-256, as bytes or in hex."""
    data: str


@dataclass(frozen=True, slots=True)
class PublicationTable:
    """A published table.

    The queries are in SQL files of the model, with {columns} for the columns of the table, aliased
    as `t`; by default they are built from `position` and `key`.
    """

    name: str
    key: tuple[str, ...] = ()
    position: str | None = None
    """Column that finds new rows of a log; it should have an index."""
    watch: tuple[str, ...] = ()
    """Events that a trigger records: `insert`, `delete`, `update`, or `update of` some columns."""
    whole: bool = False
    source: str | None = None
    """Another table that decides which rows of this one are log, and whose changes count."""
    everything: str | None = None
    """Query for all rows; used the first time."""
    new: str | None = None
    """Query for rows after the position ?1."""
    newest: str | None = None
    """Query for the greatest position, 0 without rows."""
    changed: tuple[str, ...] = ()
    """Query for rows changed up to the change ?1, in addition to those of `watch`."""
    content: Content | None = None
    group: str | None = None
    """Name under which equal tables of one database are archived together; by default `name`."""
    packed: bool = False
    """Archive each row as one JSON value, because the columns differ from table to table."""
    erase: bool = False
    """Erase a deleted row from older points, too."""

    @property
    def watched(self) -> str:
        """The table whose changes affect these rows."""
        return self.source or self.name


class Purge(NamedTuple):
    """Rows that are erased from older points, too, once another row is marked."""

    table: str
    """Table whose rows are marked; its key is one column."""
    mark: str
    """Column that is not 0 in a marked row."""
    rows: str
    """Table with the rows that are erased."""
    column: str
    """Column of these rows with the key of the marked one."""


class ChangedRows(NamedTuple):
    """Rows that a point puts into a table, or whose keys it deletes."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    deleted: bool = False

    def values(self, *names: str) -> Iterator[Row]:
        """Yield some columns of each row."""
        places = [self.columns.index(name) for name in names]
        return (tuple(row[at] for at in places) for row in self.rows)


def _nothing(_database: Database) -> None:
    return None


def _no_tables(_snapshot: ReadTransaction) -> tuple[PublicationTable, ...]:
    return ()


def _never(_txn: Transaction, _changes: Sequence[ChangedRows]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a model's database for publishing."""

    tables: tuple[PublicationTable, ...]
    """In referential order: a row comes after the rows that it refers to."""
    newest: str
    """Query for the position of the newest row of the log."""
    more: Callable[[ReadTransaction], tuple[PublicationTable, ...]] = _no_tables
    """Returns additional tables, which depend on the content of the database."""
    schema: str | None = None
    """Query for the schema of those: kind, name and text, tables first."""
    rebuild: Callable[[Database], None] = _nothing
    """Rebuilds derived data after the log is restored."""
    advance: Callable[[Transaction, Sequence[ChangedRows]], bool] = _never
    """Derives what follows from changed rows, in the transaction that changes them.

    It returns False if derived data must be rebuilt; the transaction is then rolled back.
    """
    unsettled: tuple[str, ...] = field(default=())
    """Statements that fix what cannot be published, before `rebuild`."""
    purges: tuple[Purge, ...] = ()


class TableColumn(NamedTuple):
    """A column of a table, and its type."""

    name: str
    kind: str
    """`TEXT`, `INTEGER`, `REAL` or `BLOB`."""


Contents = Callable[[str], Iterator[bytes]]
"""Returns the bytes of a blob that is a file, by its SHA-256 in hex."""

"""What a model says of its database, so that it can be published and restored: which of its tables
are log, how new rows of them are found, and what has to be made again.

A table is one of these:

- a **log**: rows are added, with a position that only goes up. New rows are found by it.
- **watched**: rows come, change and go, and that is seldom. A trigger notes the key of each.
- **whole**: a few rows that are carried as they are, whenever they changed.

A log may be watched too, for rows that are changed or removed later. What is in none of them is
derived, and made again after a restore; or a cache, and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fourfold.kernel import Database, ReadTransaction

Row = tuple[Any, ...]


class Content(NamedTuple):
    """A column of bytes whose SHA-256 is the key of the row: the large ones become objects."""

    digest: str
    """The column with the SHA-256, as bytes or in hex."""
    data: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is published. The queries are in files of the model's, with {columns} for the
    columns of the table, which they call `t`; where there is none, the obvious one is made from
    `position` and `key`.
    """

    name: str
    key: tuple[str, ...] = ()
    position: str | None = None
    """The column by which new rows of a log are found; it should have an index."""
    watch: tuple[str, ...] = ()
    """What a trigger notes: `insert`, `delete`, `update`, or `update of` some columns."""
    whole: bool = False
    source: str | None = None
    """Another table that says which rows of this one are log, and whose changes are theirs."""
    everything: str | None = None
    """All rows; asked the first time."""
    new: str | None = None
    """Rows behind the position ?1."""
    changed: tuple[str, ...] = ()
    """Rows that were changed up to the change ?1, beside those of `watch`."""
    content: Content | None = None

    @property
    def watched(self) -> str:
        """The table whose changes say what became of these rows."""
        return self.source or self.name


def _nothing(_database: Database) -> None:
    return None


def _no_tables(_snapshot: ReadTransaction) -> tuple[Table, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Description:
    """A model's database, as far as publishing must know it."""

    tables: tuple[Table, ...]
    """In an order in which what a row refers to is before it."""
    newest: str
    """Asks for the position of the newest row of the log."""
    more: Callable[[ReadTransaction], tuple[Table, ...]] = _no_tables
    """The tables that a database has beside those, by what it holds."""
    schema: str | None = None
    """Asks how those are made: kind, name and text, tables first."""
    rebuild: Callable[[Database], None] = _nothing
    """Makes again what is derived, once the log is restored."""
    unsettled: tuple[str, ...] = field(default=())
    """Statements that mend what cannot be carried, before `rebuild`."""


class Column(NamedTuple):
    """A column of a table, and whether it holds text, integers, numbers or bytes."""

    name: str
    kind: str
    """`TEXT`, `INTEGER`, `REAL` or `BLOB`."""


Contents = Callable[[str], Iterator[bytes]]
"""The bytes of a blob that is a file, by its SHA-256 in hex."""

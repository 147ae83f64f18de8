"""Indexes of large tables, created in slices.

`CREATE INDEX` reads and sorts the whole table in one transaction, for which every writer waits.
Here a table gets the rows of the index slice by slice, while triggers apply what others write, and
a last short transaction declares the B-tree of that table to be the index:

    build_<index>   (columns of the index, rest of the primary key) WITHOUT ROWID
    <index>         ON <table> (columns of the index)

Both B-trees are the same: the entries of an index of a table without rowids are the indexed columns
and those columns of the primary key that are not among them
(https://www.sqlite.org/fileformat2.html#representation_of_sql_indices).

What was filled when a process died stays, with the triggers, and the next call continues. Rows must
not be written with `INSERT OR REPLACE`: SQLite runs no trigger for the row that it deletes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.kernel.bulk_insert import quoted
from fourfold.kernel.named_queries import load_queries

if TYPE_CHECKING:
    from fourfold.kernel.database import Database
    from fourfold.kernel.transaction import ReadTransaction, Transaction

_SQL = load_queries("fourfold.kernel")
BUILD_ROWS: Final = 200
"""Rows of one slice. Each may change another page of the index."""


class IndexPlan(NamedTuple):
    """An index of a table without rowids."""

    name: str
    table: str
    columns: tuple[str, ...]


def build_index(database: Database, index: IndexPlan, *, rows: int = BUILD_ROWS) -> None:
    """Create an index in transactions of at most `rows` rows, unless it exists.

    Pauses between them while other threads write.

    Raises:
        InvalidInput: the table has rowids, or a column that may be null.
    """
    with database.read_current() as snapshot:
        if _exists(snapshot, "index", index.name):
            return
        build = _Build(snapshot, index)
    database.pauses.start()
    after: tuple[Any, ...] | None = ()
    while after is not None:
        after = database.transact(partial(build.step, after, rows))
        database.pauses.pause()


def _exists(snapshot: ReadTransaction, kind: str, name: str) -> bool:
    return bool(snapshot.value(_SQL.schema_object, (kind, name)))


class _Build:
    """The statements that build one index."""

    def __init__(self, snapshot: ReadTransaction, index: IndexPlan) -> None:
        columns = snapshot.all(_SQL.columns_of_table, (index.table,))
        keys = [name for _, name in sorted((at, name) for name, _, _, at in columns if at)]
        kinds = {name: kind for name, kind, _, _ in columns}
        nullable = {name for name, _, not_null, _ in columns if not not_null}
        entry = list(dict.fromkeys((*index.columns, *keys)))
        if (
            not snapshot.value(_SQL.is_without_rowid, (index.table,))
            or set(entry) - set(kinds)
            or set(entry) & nullable
        ):
            raise InvalidInput(
                f"index {index.name!r}: cannot be built in slices on table {index.table!r}",
                hint="The table must be WITHOUT ROWID, and the columns NOT NULL.",
            )
        self._index = index
        self._table = quoted(index.table)
        self._build = f"build_{index.name}"
        self._entry, self._keys = _listed(entry), _listed(keys)
        self._place = ", ".join("?" * len(keys))
        definition = ", ".join(f"{quoted(name)} {kinds[name]} NOT NULL" for name in entry)
        build = quoted(self._build)
        create = f"CREATE TABLE {build} ({definition}, PRIMARY KEY ({self._entry})) WITHOUT ROWID"
        old, new = (_listed(entry, f"{row}.") for row in ("old", "new"))
        # A slice may have added the row, or may add it later.
        add = f"INSERT OR IGNORE INTO {build} VALUES ({new});"  # noqa: S608
        remove = f"DELETE FROM {build} WHERE ({self._entry}) = ({old});"  # noqa: S608
        self._triggers = [quoted(f"{self._build}_{event}") for event in ("insert", "delete", "set")]
        events = (
            ("INSERT", add),
            ("DELETE", remove),
            (f"UPDATE OF {self._entry}", f"{remove} {add}"),
        )
        self._creation = [
            create,
            *(
                f"CREATE TRIGGER {name} AFTER {event} ON {self._table} BEGIN {work} END"
                for name, (event, work) in zip(self._triggers, events, strict=True)
            ),
        ]

    def step(self, after: tuple[Any, ...], rows: int, txn: Transaction) -> tuple[Any, ...] | None:
        """Add the next rows; return the key of the last one, or None if the index is complete."""
        if _exists(txn, "index", self._index.name):
            # Another thread has completed it.
            return None
        if not _exists(txn, "table", self._build):
            for statement in self._creation:
                txn.execute(statement)
        last = self._fill(after, rows, txn)
        if last is None:
            self._adopt(txn)
        return last

    def _fill(self, after: tuple[Any, ...], rows: int, txn: Transaction) -> tuple[Any, ...] | None:
        first = f"({self._keys}) > ({self._place})" if after else "true"
        last = txn.one(
            f"SELECT {self._keys} FROM {self._table} WHERE {first} "  # noqa: S608
            f"ORDER BY {self._keys} LIMIT 1 OFFSET ?",
            (*after, rows - 1),
        )
        until = "true" if last is None else f"({self._keys}) <= ({self._place})"
        txn.execute(
            f"INSERT OR IGNORE INTO {quoted(self._build)} "  # noqa: S608
            f"SELECT {self._entry} FROM {self._table} WHERE {first} AND {until}",
            (*after, *(last or ())),
        )
        return last

    def _adopt(self, txn: Transaction) -> None:
        """Declare the B-tree of the table to be the index."""
        index = self._index
        columns = ", ".join(index.columns)
        statement = f"CREATE INDEX {index.name} ON {index.table} ({columns})"
        with txn.writable_schema():
            txn.execute(_SQL.declare_index, (index.name, index.table, statement, self._build))
        # After the schema was read again: this lets other connections read it, too.
        for trigger in self._triggers:
            txn.execute(f"DROP TRIGGER {trigger}")


def _listed(names: list[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{quoted(name)}" for name in names)

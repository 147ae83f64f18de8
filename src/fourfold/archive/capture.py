"""What a database keeps of its own publication: how far it is, what it intends, and the keys of
rows that changed where no position shows it.

Nothing of it exists before the first publication. Then triggers note the keys, on tables and
columns that a model names because they change seldom; so an append costs the same as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from fourfold.archive.database_manifest import Publication
from fourfold.archive.publication import Column, Description, Table
from fourfold.errors import CorruptData
from fourfold.kernel import Database, ReadTransaction, Transaction, load_queries
from fourfold.kernel.bulk_insert import quoted

SQL = load_queries("fourfold.archive", "tables.sql")
SCHEMA = "schema"
"""The name under which the texts of a database's own tables are published."""
HELD_BACK = '"restored"'
"""A version that no object store gives. A database has it that was restored to an earlier state
than the newest: it is refused when it publishes.
"""
_KERNEL = (
    Table("kernel_meta", whole=True, everything=SQL.kernel_meta),
    Table("kernel_sequence", whole=True, everything=SQL.sequences),
)
_KINDS = {"TEXT", "INTEGER", "REAL", "BLOB"}


class State(msgspec.Struct, frozen=True):
    """How far each table is published."""

    position: int = 0
    positions: dict[str, int] = {}
    wholes: dict[str, str] = {}
    """The digests of tables that are carried as a whole."""


class Intent(msgspec.Struct, frozen=True):
    """What a publication will have done, once its manifest is up."""

    token: str
    publication: Publication
    state: State
    change: int


class Record(NamedTuple):
    """The row of a database about its own publication."""

    node: str
    generation: int = 0
    version: str | None = None
    manifest: bytes | None = None
    state: State = State()
    intent: Intent | None = None


def record_of(snapshot: ReadTransaction) -> Record | None:
    """What is known of the publication of a database; None when it was never published."""
    if not snapshot.value(SQL.is_published):
        return None
    row = snapshot.one(SQL.published)
    if row is None:
        return None
    node, generation, version, manifest, state, intent = row
    try:
        return Record(
            node,
            generation,
            version,
            manifest,
            State() if not state else msgspec.json.decode(state, type=State),
            None if intent is None else msgspec.json.decode(intent, type=Intent),
        )
    except msgspec.DecodeError as error:
        raise CorruptData(f"what is known of the publication is damaged: {error}") from error


def tables_of(snapshot: ReadTransaction, description: Description) -> tuple[Table, ...]:
    """Every table that is published of a database as it is now."""
    return (*_KERNEL, *description.tables, *description.more(snapshot))


def watch(database: Database, description: Description) -> frozenset[str]:
    """Note changes from now on, if that is not done yet; the tables that are watched."""
    with database.read() as snapshot:
        known = snapshot.value(SQL.is_published)
        tables = tables_of(snapshot, description)
        missing = [sql for table in tables for sql in _triggers(snapshot, table)]
    if missing or not known:
        database.transact(lambda txn: _watch(txn, missing))
    return frozenset(table.name for table in tables)


def _watch(txn: Transaction, statements: Sequence[str]) -> None:
    txn.execute(SQL.tables)
    txn.execute(SQL.begin, (uuid.uuid4().hex,))
    for statement in statements:
        txn.execute(statement)


def _triggers(snapshot: ReadTransaction, table: Table) -> Iterator[str]:
    """The statements that make the triggers of a table that are not there."""
    columns = {column.name: column for column in columns_of(snapshot, table.name)}
    for event in table.watch:
        name = f"published_{table.name}_{event.split()[0]}"
        if snapshot.one(SQL.has_object, ("trigger", name)) is not None:
            continue
        row = "old" if event == "delete" else "new"
        names = [f"{row}.{quoted(key)}" for key in table.key]
        yield SQL.trigger.format(
            name=quoted(name),
            event=event.upper() if " " not in event else event,
            table=quoted(table.name),
            literal=literal(table.name),
            key=", ".join(
                f"hex({each})" if columns[key].kind == "BLOB" else each
                for key, each in zip(table.key, names, strict=True)
            ),
        )


def columns_of(snapshot: ReadTransaction, table: str) -> tuple[Column, ...]:
    found = tuple(Column(name, kind) for name, kind in snapshot.all(SQL.columns, (table,)))
    strange = [column for column in found if column.kind not in _KINDS]
    if strange or not found:
        raise CorruptData(f"table {table} has no columns that can be published: {strange}")
    return found


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def match(key: Sequence[Column], alias: str = "t") -> str:
    """That a row has the key that a change names."""
    return " AND ".join(
        f"{alias}.{quoted(column.name)} = {picked(column, at)}" for at, column in enumerate(key)
    )


def picked(column: Column, at: int) -> str:
    """A part of the key that a change names."""
    part = f"c.row_key ->> {at}"
    return f"unhex({part})" if column.kind == "BLOB" else f"({part})"

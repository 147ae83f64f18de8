"""Publish status inside a database: positions, the intent, and keys of changed rows.

Nothing of this exists before the first publication. After it, triggers record the keys of changed
rows, on tables and columns that a model declares because they change rarely; so an append costs the
same as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from fourfold.archive.publication import Description, PublicationTable, TableColumn
from fourfold.errors import CorruptData
from fourfold.kernel import Database, ReadTransaction, Transaction, load_queries
from fourfold.kernel.bulk_insert import quoted

SQL = load_queries("fourfold.archive", "tables.sql")
SCHEMA = "schema"
"""Name under which the schema of a database's own tables is published."""
HELD_BACK = '"restored"'
"""A version that no object store returns.

A database restored to an older state of format 1 than the newest has it; its store is refused when
it publishes there.
"""
_KERNEL = (
    PublicationTable("kernel_meta", whole=True, everything=SQL.kernel_meta),
    PublicationTable("kernel_sequence", whole=True, everything=SQL.sequences),
)
_KINDS = {"TEXT", "INTEGER", "REAL", "BLOB"}


class CaptureState(msgspec.Struct, frozen=True):
    """Published position of each table."""

    position: int = 0
    positions: dict[str, int] = {}
    wholes: dict[str, str] = {}
    """Digests of tables that are published as a whole."""


class Intent(msgspec.Struct, frozen=True):
    """The result of a publication once the catalog has its token, or in format 1 its manifest."""

    token: str
    state: CaptureState
    change: int


class StatusRow(NamedTuple):
    """The row with a database's own publish status."""

    node: str
    generation: int = 0
    version: str | None = None
    manifest: bytes | None = None
    """Manifest of format 1 that was published or restored; None for archive tables."""
    state: CaptureState = CaptureState()
    intent: Intent | None = None


def record_of(snapshot: ReadTransaction) -> StatusRow | None:
    """Return the publish status of a database; None if it was never published."""
    if not snapshot.value(SQL.is_published):
        return None
    row = snapshot.one(SQL.published)
    if row is None:
        return None
    node, generation, version, manifest, state, intent = row
    try:
        return StatusRow(
            node,
            generation,
            version,
            manifest,
            CaptureState() if not state else msgspec.json.decode(state, type=CaptureState),
            None if intent is None else msgspec.json.decode(intent, type=Intent),
        )
    except msgspec.DecodeError as error:
        raise CorruptData(f"the publish status is damaged: {error}") from error


def tables_of(snapshot: ReadTransaction, description: Description) -> tuple[PublicationTable, ...]:
    """Return every published table of a database in its current state."""
    return (*_KERNEL, *description.tables, *description.more(snapshot))


def watch(database: Database, description: Description) -> frozenset[str]:
    """Create the missing triggers that record changes; return the names of the tables."""
    with database.read_current() as snapshot:
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


def _triggers(snapshot: ReadTransaction, table: PublicationTable) -> Iterator[str]:
    """Yield the statements that create the missing triggers of a table."""
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
                f"hex({value})" if columns[key].kind == "BLOB" else value
                for key, value in zip(table.key, names, strict=True)
            ),
        )


def columns_of(snapshot: ReadTransaction, table: str) -> tuple[TableColumn, ...]:
    """Return the columns of a table; raise if one has a type that segments do not hold."""
    columns = tuple(TableColumn(name, kind) for name, kind in snapshot.all(SQL.columns, (table,)))
    strange = [column for column in columns if column.kind not in _KINDS]
    if strange or not columns:
        raise CorruptData(f"table {table} has columns that cannot be published: {strange}")
    return columns


def defaults_of(snapshot: ReadTransaction, table: str) -> dict[str, Any]:
    """Return the default values of the columns that have one."""
    return {
        name: snapshot.value(SQL.evaluate.format(expression=text))
        for name, text in snapshot.all(SQL.defaults, (table,))
    }


def literal(text: str) -> str:
    """Return text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def match(key: Sequence[TableColumn], alias: str = "t") -> str:
    """Return a condition: the row has the key of a change."""
    return " AND ".join(
        f"{alias}.{quoted(column.name)} = {picked(column, at)}" for at, column in enumerate(key)
    )


def picked(column: TableColumn, at: int) -> str:
    """Return an expression for one part of the key of a change."""
    part = f"c.row_key ->> {at}"
    return f"unhex({part})" if column.kind == "BLOB" else f"({part})"

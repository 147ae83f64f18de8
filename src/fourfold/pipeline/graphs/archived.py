"""Tables of graphs in the archive: the log of rows, for all apps of a store.

The flags of a row may be set later, so the newest version of each row is read. The slug of an app
and the key of a type are in small tables, which are exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fourfold.models.graphs.database import PROFILE
from fourfold.models.graphs.records import KINDS, ROWS, Kind
from fourfold.pipeline.archive_plan import Archived, ArchivedTable, Lookup
from fourfold.query.graphs import shapes
from fourfold.query.graphs.tables import TABLES
from fourfold.query.tables import Column

_ROW: Final = {"file_id": "string", "_table": "string", "_point": "bigint"}
_STORED: Final = {"double": "double", "binary": "binary", "string": "string"}
"""Types of columns of the archive by those of the tables; all others are integers."""


def _rows(kind: Kind, columns: tuple[Column, ...]) -> ArchivedTable:
    """Return the rows of a kind with the columns of a table; those it does not have are null."""
    own = {column.name: column for column in shapes.of_all() if column.name in ROWS[kind]._fields}
    expressions = {
        "app_id": "cast(split_part(_table, '_', 2) as bigint)",
        "kind": f"'{kind}'",
        "app": "app",
        "type": "type",
    }
    for column in columns:
        value = f"`{column.name}`" if column.name in own else "null"
        expressions.setdefault(column.name, f"cast({value} as {column.type})")
    table = f"concat('app_', app_id, '_{kind}')"
    return ArchivedTable(
        kind=PROFILE.name,
        source=f"graphs.{kind}",
        schema=_ROW | {name: _STORED.get(column.type, "bigint") for name, column in own.items()},
        columns=expressions,
        position="global_seq",
        log="envelopes",
        key=("file_id", "_table", "id"),
        shared=True,
        lookups=(
            Lookup({"app": "app"}, ("_table",), live="apps", keys={"_table": table}),
            Lookup({"type": "type"}, ("_table", "type_id"), live="types", keys={"_table": table}),
        ),
    )


def _columns(table: str) -> tuple[Column, ...]:
    return TABLES.table(table).columns


_ENVELOPES: Final = ArchivedTable(
    kind=PROFILE.name,
    source="graphs.envelopes",
    schema={
        "file_id": "string",
        "_point": "bigint",
        "global_seq": "bigint",
        "app_id": "bigint",
        "kinds": "bigint",
        "sync_flags": "bigint",
        "created_at": "string",
        "trace_id": "string",
    },
    columns={
        "app_id": "app_id",
        "app": "app",
        "global_seq": "global_seq",
        "kinds": "kinds",
        "sync_flags": "sync_flags",
        "created_at": "cast(created_at as timestamp)",
        "trace_id": "trace_id",
    },
    position="global_seq",
    key=("file_id", "global_seq", "app_id"),
    lookups=(Lookup({"app": "app"}, ("app_id",), live="apps"),),
)

ARCHIVED: Final[Mapping[str, Archived]] = {
    **{table: (_rows(kind, _columns(table)),) for table, kind in shapes.TABLES.items()},
    "changes": tuple(_rows(kind, _columns("changes")) for kind in KINDS),
    "envelopes": (_ENVELOPES,),
}
"""Tables of graphs by name. `current` is folded from the live file, whose indexes have the newest
versions; the others are small and change without a transaction of the log.
"""

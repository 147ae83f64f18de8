"""Columns of the tables of graphs: one shape for each kind, and one for all kinds.

Every app has its own tables, but the tables of a kind are alike in all apps. So there is one table
for each kind, with the column `app`, and not one for each of ten thousand apps. In tables with rows
of all kinds, a column that a kind does not have is null.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fourfold.models.graphs.records import KINDS, ROWS, Kind
from fourfold.models.graphs.statements import fill
from fourfold.query.tables import Column

APP: Final = (
    Column("app", "string", nullable=False, filtered=True),
    Column("app_id", "bigint", nullable=False, filtered=True),
)
KIND: Final = Column("kind", "string", nullable=False, filtered=True)
TYPE: Final = Column("type", "string", filtered=True)

_POINTERS: Final = (
    "parent_id",
    "src_parent_id",
    "dst_parent_id",
    "dst_attr_id",
    "target_parent_id",
    "target_attr_id",
)
_COLUMNS: Final = {
    **{name: Column(name, "bigint", filtered=True) for name in _POINTERS},
    **{
        name: Column(name, "bigint", nullable=False, filtered=True)
        for name in ("id", "type_id", "owner_identity", "global_seq", "object_id", "version")
    },
    **{
        name: Column(name, "bigint", nullable=False)
        for name in ("sync_flags", "origin_seq", "position")
    },
    "origin": Column("origin", "string", nullable=False, filtered=True),
    "leads": Column("leads", "boolean", nullable=False),
    # The writer of a row may have set these times, in any ISO 8601 format.
    "created_at": Column("created_at", "string", nullable=False),
    "updated_at": Column("updated_at", "string"),
    "value_text": Column("value_text", "string"),
    "value_number": Column("value_number", "double"),
    "value_json": Column("value_json", "string"),
    "value_blob": Column("value_blob", "binary", hidden=True),
}
FIELDS: Final = (
    "id",
    "object_id",
    "version",
    "type_id",
    "owner_identity",
    *_POINTERS,
    "value_text",
    "value_number",
    "value_json",
    "value_blob",
    "global_seq",
    "sync_flags",
    "created_at",
    "updated_at",
    "origin",
    "origin_seq",
    "position",
    "leads",
)
"""All fields of rows of any kind, in the order of the tables."""


def of_kind(kind: Kind) -> tuple[Column, ...]:
    """Return the columns of the table of one kind."""
    own = [name for name in FIELDS if name in ROWS[kind]._fields]
    return (*APP, TYPE, *(_COLUMNS[name] for name in own))


def of_all() -> tuple[Column, ...]:
    """Return the columns of a table with all kinds."""
    return (*APP, KIND, TYPE, *(_COLUMNS[name] for name in FIELDS))


def of_folded() -> tuple[Column, ...]:
    """Return the columns of a folded table with all kinds; only app and kind are filtered, because
    other values are known only after the fold.
    """
    return (*APP, KIND, *(replace(column, filtered=False) for column in of_all()[len(APP) + 1 :]))


def filled(query: str, app_id: int, kind: Kind | None) -> str:
    """Return a query of a table on the tables of one app, and of one kind if there is one."""
    if kind is None:
        return query.replace("{n}", str(app_id))
    return fill(query, app_id, kind).replace("{columns}", selected(kind))


def selected(kind: Kind) -> str:
    """Return every field of a row of this kind as SELECT columns, null if it has none."""
    own = ROWS[kind]._fields
    return ", ".join(f"{f'r.{name}' if name in own else 'NULL'} AS {name}" for name in FIELDS)


TABLES: Final[dict[str, Kind]] = {f"{kind}s": kind for kind in KINDS}
"""Kinds by table name."""

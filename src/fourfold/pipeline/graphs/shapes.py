"""The columns of the tables of graphs: one shape for each kind, and one that holds them all.

Every app has tables of its own, but the tables of a kind are alike in all apps. So there is one
table for each kind, in which `app` says whose row it is, and not one for each of ten thousand apps.
Where rows of all kinds stand together, a column that a kind does not have is null.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fourfold.models.graphs.records import KINDS, ROWS, Kind
from fourfold.pipeline.tables import Column

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
    # Whoever wrote a row may have given these times, in any form that ISO 8601 has.
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
"""All fields that a row of any kind has, in the order of the tables."""


def of_kind(kind: Kind) -> tuple[Column, ...]:
    """The columns of the table of one kind."""
    own = [name for name in FIELDS if name in ROWS[kind]._fields]
    return (*APP, TYPE, *(_COLUMNS[name] for name in own))


def of_all() -> tuple[Column, ...]:
    """The columns of a table that holds all kinds."""
    return (*APP, KIND, TYPE, *(_COLUMNS[name] for name in FIELDS))


def of_folded() -> tuple[Column, ...]:
    """The same for a table that is folded: what a condition rules out is not known before that, but
    for the app and the kind.
    """
    return (*APP, KIND, *(replace(each, filtered=False) for each in of_all()[len(APP) + 1 :]))


def selected(kind: Kind) -> str:
    """Every field of a row of this kind, null where it has none: for a SELECT."""
    own = ROWS[kind]._fields
    return ", ".join(f"{f'r.{name}' if name in own else 'NULL'} AS {name}" for name in FIELDS)


TABLES: Final[dict[str, Kind]] = {f"{kind}s": kind for kind in KINDS}
"""The table of each kind."""

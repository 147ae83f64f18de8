"""The statements of one table of one app, made from the templates in app.sql and app_queries.sql.

Only the number of the app and names from the records go into the text of a statement, and the
number only after it was checked to be one; everything else is a parameter.
"""

from __future__ import annotations

from functools import lru_cache

from fourfold.kernel import Queries, load_queries
from fourfold.kernel.bulk_insert import values_statement
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import BITS, KINDS, ROWS, Kind

_APP = load_queries("fourfold.models.graphs", "app.sql")
_TEMPLATES = load_queries("fourfold.models.graphs", "app_queries.sql")
SQL = load_queries("fourfold.models.graphs")

NOUNS: tuple[str, ...] = (*KINDS, "type", "log")
"""The tables of an app, by the last word of their names."""
REFERENCES: dict[Kind, tuple[tuple[str, Kind], ...]] = {
    "parent": (),
    "attr": (("parent_id", "parent"),),
    "edge": (("src_parent_id", "parent"), ("dst_parent_id", "parent"), ("dst_attr_id", "attr")),
    "rating": (("target_parent_id", "parent"), ("target_attr_id", "attr")),
}
"""The columns of a kind that point at other objects, and of which kind these are."""
POINTERS: dict[Kind, tuple[str, ...]] = {
    kind: tuple(name for name, _ in pointers) for kind, pointers in REFERENCES.items()
}


@lru_cache(maxsize=16384)
def statements_of(app_id: int, kind: Kind) -> Queries:
    """Return the queries of one table.

    Reads have a twin `..._current` without replaced versions; those that follow a pointer have one
    for each pointer.
    """
    validation.check_integer(app_id, "app_id")
    columns = ", ".join(f"r.{name}" for name in ROWS[kind]._fields)
    made: dict[str, str] = {}
    for name in _TEMPLATES:
        text = getattr(_TEMPLATES, name).replace("{n}", str(app_id)).replace("{kind}", kind)
        made[name] = text.replace("{columns}", columns)
    only_current = made.pop("only_current")
    held = {name: made.pop(name) for name in ("held", "held_by_one")}
    for name, text in list(made.items()):
        if "{pointer}" in text:
            del made[name]
            for pointer in POINTERS[kind]:
                made[f"{name}_{pointer}"] = text.replace("{pointer}", pointer)
    for name, text in list(made.items()):
        if "{current}" in text:
            made[name] = text.replace("{current}", "")
            bound = "?3" if "json_each" in text else "?2"
            made[f"{name}_current"] = text.replace(
                "{current}", only_current.replace("{bound}", bound)
            )
    if kind in {"attr", "rating"}:
        for pointer, target in REFERENCES[kind]:
            for name, text in held.items():
                filled = text.replace("{bit}", str(BITS[kind]))
                made[f"{name}_{pointer}"] = filled.replace(
                    "{target_kind}", str(int(target == "attr"))
                )
    return Queries(f"table {kind} of app {app_id}", made)


@lru_cache(maxsize=4096)
def app_statements(app_id: int) -> Queries:
    """Return the queries about a whole app; `tables` creates missing tables and indexes."""
    number = str(validation.check_integer(app_id, "app_id"))
    filled = {name: getattr(_APP, name).replace("{n}", number) for name in _APP}
    return Queries(f"app {number}", filled)


@lru_cache(maxsize=16384)
def insert_statement(app_id: int, kind: Kind, rows: int) -> str:
    """Return the statement that inserts this many rows into a table."""
    return values_statement(table_of(app_id, kind), ROWS[kind]._fields, rows)


@lru_cache(maxsize=16384)
def table_of(app_id: int, noun: str) -> str:
    """Return the name of a table of an app."""
    return f"app_{validation.check_integer(app_id, 'app_id')}_{noun}"

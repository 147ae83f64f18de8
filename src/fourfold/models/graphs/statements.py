"""The statements of one table of one app, made from the templates in app.sql and app_queries.sql.

Only the number of the app and names from the records go into the text of a statement, and the
number only after it was checked to be one; everything else is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


_DERIVED_POINTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "src_parent_id": (("edge_now", "o.src = wanted.value"),),
    **{
        pointer: tuple(
            (table, f"o.dst_kind = {kind} AND o.dst = wanted.value")
            for table in ("edge_now", "edge_past", "edge_unseen")
        )
        for kind, pointer in enumerate(("dst_parent_id", "dst_attr_id"))
    },
    **{
        pointer: (
            (
                "value_now",
                f"o.kind = {BITS['rating']} AND o.target_kind = {kind} AND o.target = wanted.value",
            ),
        )
        for kind, pointer in enumerate(("target_parent_id", "target_attr_id"))
    },
}
"""The tables of all apps in which rows that point at objects are found, with the condition."""
_EDGE_ENDS = {
    "src_parent_id": ("e.src = ?1", "e.type_id, e.dst_kind, e.dst, e.object_id"),
    "dst_parent_id": ("e.dst_kind = 0 AND e.dst = ?1", "e.type_id, e.src, e.object_id"),
    "dst_attr_id": ("e.dst_kind = 1 AND e.dst = ?1", "e.type_id, e.src, e.object_id"),
}
"""The condition on one end of an edge, and the order of the index that finds it."""
_BOUND_OBJECTS = {
    "held": ("v.object_id", "?3"),
    "held_by_one": ("v.object_id", "?2"),
    "newest": ("?1", "?2"),
    "adjacent": ("e.object_id", "?2"),
    "adjacent_past": ("e.object_id", "?2"),
}
"""The object and the last row of statements about the newest version of an object."""
_FRAGMENTS = ("only_current", "newest_id", "rows_of_object", "rows_at")


@lru_cache(maxsize=2048)
def statements_of(app_id: int, kind: Kind) -> Queries:
    """Return the queries of one table.

    Reads have a twin `..._current` without replaced versions; those that follow a pointer have one
    for each pointer.
    """
    columns = ", ".join(f"r.{name}" for name in ROWS[kind]._fields)
    texts = {name: fill(getattr(_TEMPLATES, name), app_id, kind) for name in _TEMPLATES}
    texts = {name: text.replace("{columns}", columns) for name, text in texts.items()}
    fragments = {name: texts.pop(name) for name in _FRAGMENTS}
    for name, (object_id, until) in _BOUND_OBJECTS.items():
        newest = fragments["newest_id"].replace("{object}", object_id).replace("{until}", until)
        texts[name] = texts[name].replace("{newest}", newest)
    of_one = fragments["rows_of_object"].replace("{object}", "?1")
    of_each = fragments["rows_of_object"].replace("{object}", "o.object_id")
    made: dict[str, str] = {}
    for name, text in texts.items():
        if name in _BY_POINTER:
            for pointer, filled in _BY_POINTER[name](kind, text.replace("{rows}", of_each)):
                made[f"{name.replace('derived', 'pointing')}_{pointer}"] = filled
        else:
            made[name] = text.replace("{rows}", of_one)
    for name, text in list(made.items()):
        if "{current}" in text:
            made[name] = text.replace("{current}", "")
            bound = "?3" if "json_each" in text else "?2"
            current = fragments["only_current"].replace("{bound}", bound)
            made[f"{name}_current"] = text.replace("{current}", current)
    return Queries(f"table {kind} of app {app_id}", made)


def _held(kind: Kind, text: str) -> Iterator[tuple[str, str]]:
    if kind in {"attr", "rating"}:
        for pointer, target in REFERENCES[kind]:
            yield pointer, text.replace("{target_kind}", str(int(target == "attr")))


def _adjacent(kind: Kind, text: str) -> Iterator[tuple[str, str]]:
    if kind == "edge":
        for pointer, (ends, order) in _EDGE_ENDS.items():
            yield pointer, text.replace("{ends}", ends).replace("{order}", order)


def _pointing(kind: Kind, text: str) -> Iterator[tuple[str, str]]:
    if kind == "attr":
        for pointer in POINTERS[kind]:
            yield pointer, text.replace("{pointer}", pointer)


def _derived(kind: Kind, text: str) -> Iterator[tuple[str, str]]:
    if kind in {"edge", "rating"}:
        for pointer in POINTERS[kind]:
            typed = text.replace("{pointer}", pointer)
            arms = [
                typed.replace("{source}", source)
                .replace("{ends}", ends)
                .replace("{typed}", "r" if source == "edge_unseen" else "o")
                for source, ends in _DERIVED_POINTERS[pointer]
            ]
            yield pointer, " UNION ALL ".join(arms)


_BY_POINTER: dict[str, Callable[[Kind, str], Iterator[tuple[str, str]]]] = {
    "held": _held,
    "held_by_one": _held,
    "adjacent": _adjacent,
    "adjacent_past": _adjacent,
    "pointing_at": _pointing,
    "pointing_at_of_type": _pointing,
    "derived_at": _derived,
    "derived_at_of_type": _derived,
}
"""Statements that follow a pointer; each yields those of the pointers of a kind."""


def fill(text: str, app_id: int, kind: Kind) -> str:
    """Return a template with the number of an app, a table and its bit."""
    number = str(validation.check_integer(app_id, "app_id"))
    return text.replace("{n}", number).replace("{kind}", kind).replace("{bit}", str(BITS[kind]))


def newest_of(app_id: int, kind: Kind, object_id: str, until: str) -> str:
    """Return the expression for the row of the newest version of an object up to a row.

    It is the first row of the object if that is later.
    """
    text = fill(_TEMPLATES.newest_id, app_id, kind)
    return text.replace("{object}", object_id).replace("{until}", until)


def rows_pointing_at(app_id: int, kind: Kind, column: str, target: str) -> str:
    """Return a query for the ids of rows whose column may have a value: the versions of objects
    that point there, or of the object itself.
    """
    if column == "object_id":
        rows = fill(_TEMPLATES.rows_of_object, app_id, kind)
        return rows.replace("{object}", target)
    arms = (
        fill(_TEMPLATES.rows_at, app_id, kind)
        .replace("{source}", source)
        .replace("{ends}", ends.replace("wanted.value", target))
        for source, ends in _DERIVED_POINTERS[column]
    )
    return " UNION ALL ".join(arms)


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

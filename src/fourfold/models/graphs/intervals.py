"""Intervals of objects: what an edge, an attribute or a rating is now, and what it was before.

    edge_now, edge_past      where each edge leads
    value_now, value_past    the value of each attribute and rating

The tables are derived from the logs of all apps and are written in the transaction of the rows. An
interval covers the seqs in which an object was the same, so versions that change something else add
none. The intervals of an object do not overlap, and the last one is in the table of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fourfold.kernel import Queries, ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import BITS, Kind
from fourfold.models.graphs.statements import newest_of

_TEMPLATES = load_queries("fourfold.models.graphs", "intervals.sql")
KEY_CHARS = 120
"""Characters of a text that `value_now` and `value_past` have; a reader compares the rest."""
_VALUE = f"coalesce(substr(value_text, 1, {KEY_CHARS}), value_number, {{other}}) AS value"
_VALUE_COLUMNS = ("target_kind", "target", "type_id", "object_id", "value")


class _Family(NamedTuple):
    """The intervals of one kind of rows."""

    table: str
    columns: tuple[str, ...]
    moving: tuple[str, ...]
    """Columns that versions of one object may change."""
    source: str
    key: dict[str, str]


_FAMILIES: dict[Kind, _Family] = {
    "edge": _Family(
        "edge",
        ("src", "type_id", "dst_kind", "dst", "object_id"),
        ("dst_kind", "dst"),
        "src_parent_id AS src, type_id, dst_attr_id IS NOT NULL AS dst_kind, "
        "coalesce(dst_attr_id, dst_parent_id) AS dst, object_id",
        {"app_id": "{n}"},
    ),
    "attr": _Family(
        "value",
        _VALUE_COLUMNS,
        ("value",),
        "0 AS target_kind, parent_id AS target, type_id, object_id, "
        + _VALUE.format(other="iif(value_json IS NULL, x'00', x'')"),
        {"app_id": "{n}", "kind": str(BITS["attr"])},
    ),
    "rating": _Family(
        "value",
        _VALUE_COLUMNS,
        ("value",),
        "target_attr_id IS NOT NULL AS target_kind, "
        "coalesce(target_attr_id, target_parent_id) AS target, type_id, object_id, "
        + _VALUE.format(other="iif(value_json IS NULL, x'00', x'')"),
        {"app_id": "{n}", "kind": str(BITS["rating"])},
    ),
}
"""A value that is neither text nor a number is an empty blob for JSON, and x'00' for all others."""
DERIVED: tuple[Kind, ...] = tuple(_FAMILIES)


@lru_cache(maxsize=4096)
def _statements(app_id: int, kind: Kind) -> Queries:
    """Return the statements about the intervals of one kind of rows of one app."""
    family = _FAMILIES[kind]
    number = str(validation.check_integer(app_id, "app_id"))
    columns = family.columns
    places = {
        "now": f"{family.table}_now",
        "past": f"{family.table}_past",
        "log": f"app_{number}_{kind}",
        "key": ", ".join(family.key),
        "constants": ", ".join(f"{value} AS {name}" for name, value in family.key.items()),
        "own": " AND ".join(f"{name} = {value}" for name, value in family.key.items()),
        "columns": ", ".join(columns),
        "source": family.source,
        "given": ", ".join(f"?{place}" for place in range(1, len(columns) + 1)),
        "same": " AND ".join(f"{name} = ?{place}" for place, name in enumerate(columns, start=1)),
        "previous": ", ".join(f"lag({name}) OVER same AS last_{name}" for name in family.moving),
        "changes": " OR ".join(f"last_{name} IS NOT {name}" for name in family.moving),
    }
    texts = {name: getattr(_TEMPLATES, name) for name in _TEMPLATES}
    for name, text in texts.items():
        filled = text.replace("{intervals}", texts["intervals"])
        filled = filled.replace("{newest}", newest_of(app_id, kind, "?1", "?2"))
        if name in {"add_now", "add_past"}:
            filled = filled.replace("{constants}", ", ".join(family.key.values()))
        for place, value in places.items():
            filled = filled.replace(f"{{{place}}}", value)
        texts[name] = filled.replace("{n}", number)
    return Queries(f"intervals of {kind} of app {number}", texts)


def add(txn: Transaction, app_id: int, kind: Kind, ids: range) -> None:
    """Add the rows with these ids, which were just written here or by another node."""
    if kind not in _FAMILIES:
        return
    sql = _statements(app_id, kind)
    bounds = (ids.start, ids.stop - 1)
    txn.execute(sql.add_first, bounds)
    if txn.changes < len(ids):
        for row_id, object_id in txn.all(sql.later_versions, bounds):
            _add_version(txn, sql, int(row_id), int(object_id))


def _add_version(txn: Transaction, sql: Queries, row_id: int, object_id: int) -> None:
    """Replace the interval of an object by that of a new version."""
    previous = txn.one(sql.leading, (object_id, row_id - 1))
    newest = txn.one(sql.leading, (object_id, row_id))
    assert previous is not None
    assert newest is not None
    old, new, seq = previous[:-1], newest[:-1], int(newest[-1])
    if old == new:
        return
    since = int(txn.value(sql.drop_now, old))
    if since < seq:
        txn.execute(sql.add_past, (*old, since, seq))
        txn.execute(sql.add_now, (*new, seq))
        return
    # The replaced version has the same seq and was never visible.
    reopened = txn.value(sql.drop_past, (*new, seq))
    txn.execute(sql.add_now, (*new, seq if reopened is None else int(reopened)))


def rebuild(txn: Transaction, kinds: tuple[Kind, ...] = DERIVED) -> None:
    """Derive the intervals of some kinds, by default of all, from the logs of all apps."""
    for kind in kinds:
        txn.execute(_statements(0, kind).clear_of_no_app)
        for (app_id,) in txn.all(_TEMPLATES.apps):
            sql = _statements(int(app_id), kind)
            txn.execute(sql.clear)
            txn.execute(sql.fill)


def problems(snapshot: ReadTransaction, app_id: int, limit: int) -> Iterator[str]:
    """Yield the differences between the derived intervals of one app and its log."""
    for kind, family in _FAMILIES.items():
        sql, tables = _statements(app_id, kind), f"{family.table}_now, {family.table}_past"
        for object_id, seq in snapshot.all(sql.missing, (limit,)):
            yield f"{tables}: {kind} {object_id} of app {app_id} from seq {seq} is missing"
        for object_id, seq in snapshot.all(sql.extra, (limit,)):
            yield f"{tables}: {kind} {object_id} of app {app_id} has no version at seq {seq}"


def unknown_apps(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield a problem for each app that has intervals but does not exist."""
    for kind in ("edge", "attr"):
        family = _FAMILIES[kind]
        for (app_id,) in snapshot.all(_statements(0, kind).of_no_app):
            yield f"{family.table}_now, {family.table}_past: unknown app {app_id}"

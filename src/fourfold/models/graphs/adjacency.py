"""Edges by their ends: where each edge leads now, and where it led before.

Both tables are derived from the logs of all apps and are written in the transaction of the rows.
An interval covers the seqs in which an edge had one destination, so versions that change something
else add none. The intervals of an edge do not overlap, and the last one is in `edge_now`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fourfold.kernel import Queries, ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import validation

_TEMPLATES = load_queries("fourfold.models.graphs", "adjacency.sql")


@lru_cache(maxsize=4096)
def adjacency_statements(app_id: int) -> Queries:
    """Return the statements about the edges of one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    texts = {name: getattr(_TEMPLATES, name) for name in _TEMPLATES}
    filled = {
        name: text.replace("{intervals}", texts["intervals"]).replace("{n}", number)
        for name, text in texts.items()
    }
    return Queries(f"edges of app {number}", filled)


def add(txn: Transaction, app_id: int, ids: range) -> None:
    """Add the edges with these row ids, which were just written here or by another node."""
    sql = adjacency_statements(app_id)
    bounds = (ids.start, ids.stop - 1)
    txn.execute(sql.add_first, bounds)
    if txn.changes < len(ids):
        for row_id, object_id in txn.all(sql.later_versions, bounds):
            _add_version(txn, sql, int(row_id), int(object_id))


def _add_version(txn: Transaction, sql: Queries, row_id: int, object_id: int) -> None:
    """Move an edge from its previous destination to that of a new version."""
    previous = txn.one(sql.leading, (object_id, row_id - 1))
    newest = txn.one(sql.leading, (object_id, row_id))
    assert previous is not None
    assert newest is not None
    old, new, seq = previous[:5], newest[:5], int(newest[5])
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


def rebuild(txn: Transaction) -> None:
    """Derive the intervals of all apps from their logs."""
    txn.execute(_TEMPLATES.clear)
    for (app_id,) in txn.all(_TEMPLATES.apps):
        txn.execute(adjacency_statements(int(app_id)).fill)


def problems(snapshot: ReadTransaction, app_id: int, limit: int) -> Iterator[str]:
    """Yield the differences between the derived intervals of one app and its log."""
    sql = adjacency_statements(app_id)
    for object_id, seq in snapshot.all(sql.missing, (limit,)):
        yield f"edge_now, edge_past: edge {object_id} of app {app_id} from seq {seq} is missing"
    for object_id, seq in snapshot.all(sql.extra, (limit,)):
        yield f"edge_now, edge_past: edge {object_id} of app {app_id} has no version at seq {seq}"


def unknown_apps(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield a problem for each app that has intervals but does not exist."""
    for (app_id,) in snapshot.all(_TEMPLATES.of_no_app):
        yield f"edge_now, edge_past: unknown app {app_id}"

"""Indexes of the rows of all apps: by seq, by object, and edges by ends that were never visible.

    seq_row        the first row of each seq in each table of an app
    row_version    later versions of objects
    edge_unseen    ends of versions that are in neither `edge_now` nor `edge_past`

They are derived from the logs of the apps in the transaction of the rows. An index of its own in
each app would find the same, but every connection parses the schema of every app.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fourfold.kernel import Queries, ReadTransaction, Transaction, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import BITS, KINDS, Kind
from fourfold.models.graphs.statements import app_statements

_TEMPLATES = load_queries("fourfold.models.graphs", "row_index.sql")
_PARTS = ("seqs", "later", "unseen")


@lru_cache(maxsize=4096)
def _statements(app_id: int, kind: Kind) -> Queries:
    """Return the statements about one table of one app."""
    number = str(validation.check_integer(app_id, "app_id"))
    texts = {}
    for name in _TEMPLATES:
        text = getattr(_TEMPLATES, name)
        for part in _PARTS:
            text = text.replace(f"{{{part}}}", getattr(_TEMPLATES, part))
        text = text.replace("{n}", number).replace("{kind}", kind)
        texts[name] = text.replace("{bit}", str(BITS[kind]))
    return Queries(f"index of {kind} rows of app {number}", texts)


def add_seq(txn: Transaction, app_id: int, kind: Kind, seq: int, first_id: int) -> None:
    """Add the first row of a seq."""
    txn.execute(_TEMPLATES.add_seq, (app_id, BITS[kind], seq, first_id))


def add_version(
    txn: Transaction,
    app_id: int,
    kind: Kind,
    row: tuple[int, int, int],
    edge: tuple[int, int, int] | None,
) -> None:
    """Add a later version of an object.

    Args:
        txn: The transaction that wrote it.
        app_id: The app.
        kind: The kind of the object.
        row: The object, whether the version leads it, and the id of the row.
        edge: If it is an edge, where the version leads, by kind and id, and its seq.
    """
    object_id, leads, row_id = row
    if edge is not None:
        seen, seq = edge[:2], edge[2]
        if leads:
            sql = _statements(app_id, kind).last_leading
            previous = txn.one(sql, (object_id, row_id))
            assert previous is not None
            if int(previous[2]) == seq:
                txn.execute(_TEMPLATES.add_unseen, (app_id, *previous[:2], object_id))
        else:
            txn.execute(_TEMPLATES.add_unseen, (app_id, *seen, object_id))
    txn.execute(_TEMPLATES.add_version, (app_id, BITS[kind], object_id, leads, row_id))


def replace_indexes(txn: Transaction) -> None:
    """Fill the tables, and drop the indexes of apps that they replace."""
    rebuild(txn)
    for (app_id,) in txn.all(_TEMPLATES.apps):
        txn.execute(app_statements(int(app_id)).drop_earlier_indexes)


def rebuild(txn: Transaction, kinds: tuple[Kind, ...] = KINDS) -> None:
    """Derive the entries of some kinds, by default of all, from the logs of all apps."""
    txn.execute(_TEMPLATES.clear_of_no_app)
    for (app_id,) in txn.all(_TEMPLATES.apps):
        for kind in kinds:
            sql = _statements(int(app_id), kind)
            txn.execute(sql.clear)
            txn.execute(sql.fill)
            if kind == "edge":
                txn.execute(sql.fill_unseen)


def problems(snapshot: ReadTransaction, app_id: int, limit: int) -> Iterator[str]:
    """Yield the differences between the tables and the logs of one app."""
    for kind in KINDS:
        sql = _statements(app_id, kind)
        for (seq,) in snapshot.all(sql.wrong_seqs, (limit,)):
            yield f"seq_row: the first {kind} of app {app_id} under {seq} is another one"
        for (row_id,) in snapshot.all(sql.wrong_versions, (limit,)):
            yield f"row_version: {kind} row {row_id} of app {app_id} is missing or no version"
    for (object_id,) in snapshot.all(_statements(app_id, "edge").wrong_unseen, (limit,)):
        yield f"edge_unseen: edge {object_id} of app {app_id} has other ends"


def unknown_apps(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield a problem for each app that has entries but does not exist."""
    for (app_id,) in snapshot.all(_TEMPLATES.of_no_app):
        yield f"seq_row, row_version, edge_unseen: unknown app {app_id}"

"""Rows as packages of the earlier format brought them: named by node, seq and position."""

from __future__ import annotations

from functools import partial

from graph_nodes import APP, SHARED

from fourfold.models.graphs import fold
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.statements import REFERENCES
from fourfold.models.graphs.validation import SHAPES

_NAME = "SELECT origin, origin_seq, position FROM app_{app}_{kind} WHERE id = ?"
_OWN = "SELECT id FROM app_{app}_{kind} WHERE origin = ? AND global_seq = ? AND position = ?"
_FOREIGN = "SELECT id FROM app_{app}_{kind} WHERE origin = ? AND origin_seq = ? AND position = ?"


def import_rows(node, other):
    """Write the shared rows of another node to this one, in the order of their seqs."""
    for changes in other.graphs.feed(flag_mask=SHARED, timeout=0):
        for change in changes:
            if change.app_id == APP:
                node.graphs.with_transaction(partial(_import, node, other, change))
    last_seq = other.graphs.get_global_seq()
    node.graphs.record_sync_progress(node.peers[other.path], "notes", last_seq)
    # As the migration of a database marks rows of packages of that format.
    node.graphs.upsert_setting("sync_format", "earlier")


def _import(node, other, change, handle):
    row, kind = change.row, change.kind
    if _local_id(node, other, handle, kind, row.id) is not None:
        return
    handle.start_seq()
    keys = {each.id: each.pubkey for each in other.graphs.list_identities()}
    columns = {
        name: value
        for name, value in row._asdict().items()
        if name in SHAPES[kind].fields and value is not None
    }
    for name, target in REFERENCES[kind]:
        if name in columns:
            columns[name] = _local_id(node, other, handle, target, columns[name])
    columns["owner_identity"] = handle.identity(keys[row.owner_identity])
    # All nodes of these tests registered the same types in the same order.
    assert columns["type_id"] in node.types.values()
    local_id = handle.next_id(APP, kind)
    first = row.id == row.object_id
    object_id = local_id if first else _local_id(node, other, handle, kind, row.object_id)
    values, size = SHAPES[kind].read(columns, handle.seq, "")
    origin = row.origin or other.graphs.node
    leads = first or (row.version, origin) > fold.rank(
        handle.newest(APP, kind, object_id), node.graphs.node
    )
    place = (object_id, row.version, origin, row.origin_seq, row.position, int(leads))
    handle.insert_synced(APP, kind, (local_id, *values, *place), SHARED, size)


def _local_id(node, other, handle, kind, row_id):
    """Return the id that a row of another node has here, or None."""
    assert kind in KINDS
    with other.graphs.database.read() as snapshot:
        origin, seq, position = snapshot.one(_NAME.format(app=APP, kind=kind), (row_id,))
    origin = origin or other.graphs.node
    if origin == node.graphs.node:
        return handle.txn.value(_OWN.format(app=APP, kind=kind), ("", seq, position))
    return handle.txn.value(_FOREIGN.format(app=APP, kind=kind), (origin, seq, position))

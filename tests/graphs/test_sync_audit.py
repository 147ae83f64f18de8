"""`verify` checks the signatures, the chains and the row bodies that sync stored."""

from __future__ import annotations

import pytest
from graph_nodes import APP, SHARED, Node

from fourfold.models.graphs.verify import problems


@pytest.fixture
def synced(tmp_path):
    """A node with a log of three entries of its own, and one of another author."""
    one, two = Node(tmp_path / "one.db", 1), Node(tmp_path / "two.db", 2)
    for node, other in ((one, two), (two, one)):
        node.meet(other)
    for node, count in ((one, 3), (two, 1)):
        for number in range(count):
            own = {"owner_identity": node.me, "sync_flags": SHARED}
            parent = {"type_id": node.types["parent"], **own}
            parent_id = node.graphs.insert_parent(APP, parent)
            attr = {"type_id": node.types["attr"], "parent_id": parent_id, **own}
            node.graphs.insert_attr(APP, {**attr, "value_text": f"{number}"})
    one.pull_all(two)
    two.pull_all(one)
    yield one
    for node in (one, two):
        node.graphs.database.close()


def found(node):
    with node.graphs.database.read() as snapshot:
        return problems(snapshot, "", node.graphs.node)


def test_logs_that_were_synced_have_no_problems(synced):
    with synced.graphs.database.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM sync_entry") >= 4
    assert found(synced) == []


FIRST = "WHERE arrival = (SELECT min(arrival) FROM sync_entry)"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (f"UPDATE sync_entry SET signature = randomblob(64) {FIRST}", "is not signed by"),
        (f"UPDATE sync_entry SET head = head || x'00' {FIRST}", "is not the id of its head"),
        (f"UPDATE sync_entry SET seq = 9 {FIRST}", "at another place"),
        (f"UPDATE sync_entry SET prev = x'00' {FIRST}", "follows no entry"),
        ("UPDATE sync_entry SET is_tip = 1 - is_tip", "wrong about being the last"),
        ("UPDATE sync_log SET domain = 'other'", "at another place"),
        ("UPDATE sync_row SET body = body || x'00' WHERE body IS NOT NULL", "id of its body"),
        ("DELETE FROM sync_row", "is missing"),
        ("DELETE FROM sync_log", "follows no entry"),
    ],
)
def test_damage_of_stored_logs_is_named(synced, damage, message):
    synced.graphs.database.transact(lambda txn: txn.execute(damage))
    assert any(message in problem for problem in found(synced)), found(synced)

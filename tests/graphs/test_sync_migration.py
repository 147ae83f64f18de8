"""Stores of the earlier format: three of them migrate in any order and stay one graph."""

from __future__ import annotations

from itertools import permutations

import pytest
from earlier_format import import_rows
from graph_nodes import APP, SHARED, Node, shape, texts, write

from fourfold.errors import Refused


@pytest.fixture
def nodes(tmp_path):
    """Three nodes that exchanged their rows in the earlier format."""
    three = [Node(tmp_path / f"{name}.db", seed + 1) for seed, name in enumerate("abc")]
    for node in three:
        for other in three:
            if other is not node:
                node.meet(other)
    for node in three:
        note, attr = write(node, f"first of {node.path.stem}")
        node.graphs.update(APP, "attr", attr, {"value_text": f"second of {node.path.stem}"})
        write(node, f"private of {node.path.stem}", flags=0)
        row = {"owner_identity": node.me, "sync_flags": SHARED, "type_id": node.types["edge"]}
        node.graphs.insert_edge(APP, {**row, "src_parent_id": note, "dst_attr_id": attr})
    exchange_earlier(three)
    reply(three[1])
    exchange_earlier(three)
    yield three
    for node in three:
        node.graphs.database.close()


def exchange_earlier(nodes):
    for node in nodes:
        for other in nodes:
            if other is not node:
                import_rows(node, other)


def reply(node):
    """An attribute of a note that another node wrote."""
    (note,) = [
        row.object_id
        for row in node.graphs.select_parents(APP)
        if row.origin and row.owner_identity == node.graphs.list_identities()[1].id
    ][:1]
    row = {"owner_identity": node.me, "sync_flags": SHARED, "parent_id": note}
    node.graphs.insert_attr(APP, {**row, "type_id": node.types["attr"], "value_text": "reply"})


def shared(node):
    return [text for text in texts(node) if not text.startswith("private")]


def members(node):
    """The content ids of the rows of the domain."""
    with node.graphs.database.read() as snapshot:
        return {bytes(row[0]) for row in snapshot.all("SELECT row_id FROM sync_member")}


def migrate(node):
    return node.graphs.migrate_sync(node.path.with_suffix(".backup"))


def pull_in_rounds(nodes):
    for _ in range(2):
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.pull_all(other)


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize("exchange", ["between", "after"])
@pytest.mark.parametrize("order", ORDERS)
def test_three_nodes_migrate_in_any_order(nodes, order, exchange):
    rows = [shape(node) for node in nodes]
    assert shared(nodes[0]) == shared(nodes[1]) == shared(nodes[2])
    assert len(shared(nodes[0])) == 4
    migrated = []
    for index in order:
        node = nodes[index]
        for other in migrated:
            with pytest.raises(Refused, match="earlier format"):
                node.pull(other)
        assert migrate(node) > 0
        migrated.append(node)
        if exchange == "between":
            write(node, f"new of {node.path.stem}")
            pull_in_rounds(migrated)
    pull_in_rounds(nodes)
    if exchange == "after":
        # Every row was recognized: none arrived a second time.
        assert [shape(node) for node in nodes] == rows
    assert shared(nodes[0]) == shared(nodes[1]) == shared(nodes[2])
    assert members(nodes[0]) == members(nodes[1]) == members(nodes[2])
    for node in nodes:
        assert node.graphs.verify() == []
        assert node.graphs.parked_rows() == ()


def test_rows_of_an_author_who_is_elsewhere_are_not_forwarded(nodes):
    alice, bob, carol = nodes
    before = shared(bob)
    migrate(bob)
    migrate(carol)
    sent = bob.graphs.export_package("notes", bob.signer)
    assert shared(bob) == before
    # His own rows are signed, but for the reply: Alice did not sign her note yet.
    assert (sent.rows, [row.kind for row in sent.not_shareable]) == (4, ["attr"])
    migrate(alice)
    bob.pull_all(alice)
    carol.pull_all(bob)
    assert bob.graphs.export_package("notes", bob.signer).not_shareable == ()
    carol.pull_all(bob)
    assert members(carol) == members(bob)


def test_migration_makes_a_backup_first(nodes, tmp_path):
    alice = nodes[0]
    backup = tmp_path / "before.db"
    alice.graphs.migrate_sync(backup)
    assert backup.stat().st_size > 0
    assert alice.graphs.sync_progress() == ()


def test_store_that_never_imported_needs_no_migration(tmp_path):
    node = Node(tmp_path / "d.db", 7)
    write(node, "mine")
    assert node.graphs.export_package("notes", node.signer).rows == 2
    node.graphs.database.close()

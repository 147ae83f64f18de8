"""Tables that all apps share instead of indexes of their own: what they find, and that they are
noticed when they are wrong.
"""

from __future__ import annotations

import pytest
from graph_nodes import APP, with_notes

from fourfold.models.graphs import row_index
from fourfold.models.graphs.verify import problems

EARLIER = """
CREATE INDEX app_1_edge_src_type ON app_1_edge (src_parent_id, type_id);
CREATE INDEX app_1_edge_dst_type ON app_1_edge (dst_parent_id, type_id);
CREATE INDEX app_1_attr_seq ON app_1_attr (global_seq);
CREATE INDEX app_1_attr_object ON app_1_attr (object_id, leads);
CREATE UNIQUE INDEX app_1_attr_foreign ON app_1_attr (origin, origin_seq, position)
    WHERE origin <> '';
"""
NAMES = "SELECT name FROM sqlite_schema WHERE tbl_name GLOB 'app_1_*' ORDER BY name"
TABLES = ("seq_row", "row_version", "edge_unseen")


@pytest.fixture
def types(graphs):
    return with_notes(graphs)


@pytest.fixture
def ends(graphs, types):
    """Three parents, and an edge from the first to the second."""
    own = {"type_id": types["parent"], "owner_identity": 1}
    parents = [graphs.insert_parent(APP, own) for _ in range(3)]
    link = {"type_id": types["edge"], "owner_identity": 1, "src_parent_id": parents[0]}
    return parents, link


def contents(graphs):
    with graphs.database.read() as snapshot:
        return {table: snapshot.all(f"SELECT * FROM {table}") for table in TABLES}


def found(graphs):
    with graphs.database.read() as snapshot:
        return problems(snapshot, "", graphs.node)


def test_end_that_was_never_visible_is_found(graphs, ends):
    (_, second, third), link = ends
    with graphs.transaction() as txn:
        edge = graphs.insert_edge(APP, {**link, "dst_parent_id": second}, txn=txn)
        graphs.update(APP, "edge", edge, {"dst_parent_id": third}, txn=txn)
    assert [row.version for row in graphs.select_edges(APP, dst_parent_ids=[second])] == [1]
    assert [row.version for row in graphs.select_edges(APP, dst_parent_ids=[third])] == [2]
    assert contents(graphs)["edge_unseen"] == [(APP, 0, second, edge)]
    assert found(graphs) == []


def test_edge_that_came_back_is_selected_once_for_each_version(graphs, ends):
    (_, second, third), link = ends
    edge = graphs.insert_edge(APP, {**link, "dst_parent_id": second})
    for end in (third, second, third):
        graphs.update(APP, "edge", edge, {"dst_parent_id": end})
    rows = graphs.select_edges(APP, dst_parent_ids=[second], type_ids=[link["type_id"]])
    assert [row.version for row in rows] == [1, 3]
    assert [row.version for row in graphs.select_edges(APP, src_parent_ids=[1])] == [1, 2, 3, 4]
    assert found(graphs) == []


def test_parents_of_an_owner_are_in_log_order(graphs, types):
    other = graphs.register_type(APP, "parent", "another")
    for type_id in (other, types["parent"], other, types["parent"]):
        for owner in (1, 2):
            graphs.insert_parent(APP, {"type_id": type_id, "owner_identity": owner})
    assert [row.id for row in graphs.select_parents(APP, owner=2)] == [2, 4, 6, 8]
    assert [row.id for row in graphs.select_parents(APP, owner=2, limit=3)] == [2, 4, 6]


@pytest.mark.parametrize("table", TABLES)
def test_verify_names_a_table_that_lacks_a_row(graphs, ends, table):
    (_, second, third), link = ends
    with graphs.transaction() as txn:
        edge = graphs.insert_edge(APP, {**link, "dst_parent_id": second}, txn=txn)
        graphs.update(APP, "edge", edge, {"dst_parent_id": third}, txn=txn)
    before = contents(graphs)
    graphs.database.transact(lambda txn: txn.execute(f"DELETE FROM {table} WHERE app_id = {APP}"))
    assert any(problem.startswith(f"{table}: ") for problem in found(graphs))
    graphs.database.transact(row_index.rebuild)
    assert contents(graphs) == before
    assert found(graphs) == []


def test_entry_of_no_app_is_a_problem(graphs, types):
    add = "INSERT INTO seq_row VALUES (77, 1, 1, 1)"
    graphs.database.transact(lambda txn: txn.execute(add))
    assert any("unknown app 77" in problem for problem in found(graphs))
    assert types


def test_indexes_of_earlier_versions_are_replaced(graphs, ends):
    """As the migration does it, and a bootstrap from an archive of an earlier version."""
    (_, second, _), link = ends
    graphs.insert_edge(APP, {**link, "dst_parent_id": second})
    before = contents(graphs)
    with graphs.database.read() as snapshot:
        names = snapshot.all(NAMES)

    def make_earlier(txn):
        txn.execute(EARLIER)
        for table in TABLES:
            txn.execute(f"DELETE FROM {table}")

    graphs.database.transact(make_earlier)
    graphs.database.transact(row_index.replace_indexes)
    with graphs.database.read() as snapshot:
        assert snapshot.all(NAMES) == names
    assert contents(graphs) == before
    assert found(graphs) == []

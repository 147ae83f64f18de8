"""Reading a graph: filters, order, time travel, suppression, and the ways SQLite takes."""

from __future__ import annotations

import re

import apsw
import pytest
from graph_nodes import APP, everything

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.statements import SQL, statements_of

INDEXES = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


@pytest.fixture
def town(graphs, types):
    """Ten parents of two types and three owners, each with two attributes, an edge to the next and
    a rating; every one under its own number.
    """
    other = graphs.register_type(APP, "parent", "house")
    for n in range(10):
        with graphs.transaction() as txn:
            of = types["parent"] if n % 2 else other
            one = graphs.insert_parent(APP, {"type_id": of, "owner_identity": n % 3}, txn=txn)
            common = {"owner_identity": n % 3}
            graphs.insert_many_attrs(
                APP,
                [
                    {"parent_id": one, "type_id": types["attr"], "value_text": f"{n}.{k}", **common}
                    for k in range(2)
                ],
                txn=txn,
            )
            graphs.insert_edge(
                APP,
                {
                    "src_parent_id": one,
                    "dst_parent_id": max(1, one - 1),
                    "type_id": types["edge"],
                    **common,
                },
                txn=txn,
            )
            graphs.insert_rating(
                APP,
                {"target_parent_id": one, "type_id": types["rating"], "value_number": n, **common},
                txn=txn,
            )
    return graphs, types, other


def test_filters_agree_with_going_through_all_rows(town):
    graphs, types, other = town
    rows = graphs.select_parents(APP)
    for type_ids in (None, [], [other], [other, types["parent"]]):
        for owner in (None, 0, 2, 9):
            for since in (None, 0, 4, 10):
                for at in (None, 0, 3, 7):
                    for limit in (None, 0, 1, 3):
                        wanted = [
                            row
                            for row in rows
                            if (type_ids is None or row.type_id in type_ids)
                            and (owner is None or row.owner_identity == owner)
                            and (since is None or row.global_seq > since)
                            and (at is None or row.global_seq <= at)
                        ][:limit]
                        found = graphs.select_parents(
                            APP, type_ids=type_ids, owner=owner, since_seq=since, at=at, limit=limit
                        )
                        assert list(found) == wanted


def test_pointers_agree_with_going_through_all_rows(town):
    graphs, types, _ = town
    rows = everything(graphs)
    assert list(graphs.select_attrs(APP, parent_ids=[3, 1])) == [
        row for row in rows["attr"] if row.parent_id in {1, 3}
    ]
    assert list(graphs.select_attrs(APP, parent_ids=[3, 1], type_ids=[])) == []
    assert list(graphs.select_attrs(APP, type_ids=[types["attr"]], since_seq=8)) == [
        row for row in rows["attr"] if row.global_seq > 8
    ]
    assert list(graphs.select_edges(APP, dst_parent_ids=[1])) == [
        row for row in rows["edge"] if row.dst_parent_id == 1
    ]
    assert list(graphs.select_edges(APP, src_parent_ids=[2, 5], dst_parent_ids=[4])) == [
        row for row in rows["edge"] if row.src_parent_id == 5
    ]
    assert list(graphs.select_edges(APP, dst_attr_ids=[1])) == []
    assert list(graphs.select_ratings(APP, target_parent_ids=[4, 9], at=5)) == [
        row for row in rows["rating"] if row.target_parent_id == 4
    ]


def test_a_past_number_shows_the_versions_of_that_time(graphs, types):
    note = graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    of = {"parent_id": note, "type_id": types["attr"], "owner_identity": 1}
    body = graphs.insert_attr(APP, {**of, "value_text": "0"})
    for n in range(1, 6):
        graphs.update(APP, "attr", body, {"value_text": str(n)})
    for at in range(2, 8):
        found = graphs.current_attrs(APP, parent_ids=[note], at=at)
        assert [row.value_text for row in found] == [str(at - 2)]
    assert graphs.current_attrs(APP, at=1) == ()
    with pytest.raises(InvalidInput, match="newest seq, got 99"):
        graphs.current_attrs(APP, at=99)
    with pytest.raises(NotFound, match="at 1"):
        graphs.newest(APP, "attr", body, at=1)


def test_suppressed_row_is_hidden_until_the_suppression_ends(graphs, types):
    mine = graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
    rating = {"type_id": types["suppress"], "target_parent_id": mine}
    graphs.insert_rating(APP, {**rating, "owner_identity": 2})
    assert [row.id for row in graphs.current_parents(APP)] == [mine]
    assert graphs.current_parents(APP, trusted=[2]) == ()
    own = graphs.insert_rating(APP, {**rating, "owner_identity": 1})
    assert graphs.current_parents(APP) == ()
    # Nothing is gone: not the row, not the past, not what a raw read shows.
    assert len(graphs.select_parents(APP)) == 1
    assert len(graphs.current_parents(APP, suppressed=True)) == 1
    assert len(graphs.current_parents(APP, at=2)) == 1
    graphs.update(APP, "rating", own, {"value_number": 0})
    assert len(graphs.current_parents(APP)) == 1


def test_a_snapshot_does_not_see_what_is_committed_later(graphs, types):
    with graphs.snapshot() as reader:
        graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1})
        assert reader.rows(Query(APP, "parent")) == []
    assert len(graphs.select_parents(APP)) == 1


def test_only_the_transaction_sees_its_own_rows(graphs, types):
    with graphs.transaction() as txn:
        graphs.insert_parent(APP, {"type_id": types["parent"], "owner_identity": 1}, txn=txn)
        assert len(graphs.select_parents(APP, txn=txn)) == 1
        assert graphs.select_parents(APP) == ()


def test_results_are_the_same_without_any_index(town):
    graphs, _, _ = town
    before = everything(graphs), graphs.current_attrs(APP, parent_ids=range(1, 11))
    with graphs.database.write() as txn:
        names = txn.all(INDEXES)
        for (name,) in names:
            if name.startswith("app_1_"):
                txn.execute(f"DROP INDEX {name}")
    assert before == (everything(graphs), graphs.current_attrs(APP, parent_ids=range(1, 11)))
    graphs.ensure_app_schema(APP)
    with graphs.database.read() as snapshot:
        assert sorted(snapshot.all(INDEXES)) == sorted(names)


READS = [
    (kind, name)
    for kind in KINDS
    for name in statements_of(APP, kind)
    if statements_of(APP, kind).__getattribute__(name).startswith("SELECT")
    and name not in {"greatest_seq", "next_id", "count"}
    and not (kind != "parent" and "owner" in name)
]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize(("kind", "name"), READS)
def test_no_read_scans_a_table_or_sorts_it(town, kind, name, analyzed):
    """Without statistics, and with those of large tables, since SQLite plans by these."""
    graphs, _, _ = town
    if analyzed:
        with graphs.database.write() as txn:
            txn.execute("ANALYZE")
            txn.execute(
                "UPDATE sqlite_stat1 SET stat = '1000000 ' || substr(stat, instr(stat, ' ') + 1)"
            )
    sql = getattr(statements_of(APP, kind), name)
    assert_walks_an_index(graphs, sql)


@pytest.mark.parametrize("name", ["feed_end", "feed_tables", "app_by_slug", "progress"])
def test_no_read_of_the_feed_scans_or_sorts(town, name):
    assert_walks_an_index(town[0], getattr(SQL, name))


def assert_walks_an_index(graphs, sql):
    numbers = {int(number) for number in re.findall(r"\?(\d+)", sql)}
    params = [None] * max(numbers, default=0)
    graphs.database.close()
    connection = apsw.Connection(str(graphs.database.path))
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, params)]
    connection.close()
    for step in plan:
        assert "TEMP B-TREE" not in step, plan
        if step.startswith("SCAN"):
            # Lists that are parameters are gone through; a table never is.
            assert "VIRTUAL TABLE" in step or "CONSTANT ROW" in step, plan

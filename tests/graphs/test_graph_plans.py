"""On a database of 1,000,000 rows no read walks a whole table, and none sorts one."""

from __future__ import annotations

import re

import apsw
import pytest
from bench.graphs import dataset, store

from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.statements import POINTERS, SQL, statements_of

pytestmark = pytest.mark.slow
APP = dataset.APP
ROWS = 1_000_000
WHOLE = {"greatest_seq", "next_id", "count"}
"""Questions about a whole table: `greatest_seq` is the end of an index, `next_id` one small row,
and `count` says itself that it goes through all.
"""
FEED = ["feed_end", "feed_tables", "app_by_id", "app_by_slug", "progress", "usage"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "backend.db"
    store.make_size(path, ROWS)
    with store.opened(path) as graphs:
        graphs.analyze()
    return path


def plan(path, sql):
    numbers = {int(number) for number in re.findall(r"\?(\d+)", sql)}
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    params = [None] * max(numbers, default=0)
    try:
        return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, params)]
    finally:
        connection.close()


def assert_walks_an_index(path, sql):
    steps = plan(path, sql)
    for step in steps:
        assert "TEMP B-TREE" not in step, (sql, steps)
        if step.startswith("SCAN"):
            # Lists that are parameters are gone through; a table never is.
            assert "VIRTUAL TABLE" in step or "CONSTANT ROW" in step, (sql, steps)


def reads(kind):
    statements = statements_of(APP, kind)
    for name in statements:
        sql = getattr(statements, name)
        if sql.startswith("SELECT") and name not in WHOLE:
            # Only parents are asked for by their owner.
            if "owner" in name and kind != "parent":
                continue
            yield sql


def test_the_file_is_as_large_as_it_says(large):
    with store.opened(large, "r") as graphs, graphs.database.read() as snapshot:
        assert sum(graphs.count(snapshot, APP, kind) for kind in KINDS) == ROWS
        assert snapshot.value("SELECT stat FROM sqlite_stat1 WHERE idx = 'app_1_attr_type'")


@pytest.mark.parametrize("kind", KINDS)
def test_no_question_about_a_table_scans_or_sorts(large, kind):
    found = list(reads(kind))
    assert len(found) > 8
    for sql in found:
        assert_walks_an_index(large, sql)


@pytest.mark.parametrize("name", FEED)
def test_no_question_of_the_feed_scans_or_sorts(large, name):
    assert_walks_an_index(large, getattr(SQL, name))


def test_what_the_calls_really_ask_neither_scans_nor_sorts(large):
    """The calls of the specification are made, and the statements that reach SQLite explained."""
    asked = set()
    with store.opened(large, "r") as graphs:
        pool = graphs.database._readers

        def heard(_, sql, __):
            asked.add(sql)
            return True

        with pool.snapshot(float("inf")) as snapshot:
            snapshot._connection.exec_trace = heard
        call_everything(graphs)
    about_tables = [sql for sql in asked if re.search(r"FROM (app_1_|envelopes|json_each)", sql)]
    assert len(about_tables) > 20
    for sql in about_tables:
        assert_walks_an_index(large, sql)


def call_everything(graphs):
    near = {"since_seq": 150_000, "at": 150_100}
    graphs.select_parents(APP, limit=10)
    graphs.select_parents(APP, type_ids=[1], owner=1, **near)
    graphs.select_parents(APP, owner=1, limit=5)
    graphs.select_attrs(APP, parent_ids=[5, 6], type_ids=[2])
    graphs.select_attrs(APP, type_ids=[2], **near)
    graphs.select_edges(APP, src_parent_ids=[5000])
    graphs.select_edges(APP, dst_parent_ids=[5], type_ids=[3], limit=5)
    graphs.select_edges(APP, dst_attr_ids=[5])
    graphs.select_ratings(APP, target_parent_ids=[5])
    graphs.select_ratings(APP, target_attr_ids=[5], type_ids=[4])
    graphs.select_logs(APP)
    graphs.current_parents(APP, type_ids=[1], at=2000)
    graphs.current_attrs(APP, parent_ids=[5000], at=10_000)
    graphs.newest(APP, "parent", 5000, at=150_000)
    graphs.versions(APP, "attr", 5000)
    for kind in KINDS:
        graphs.select_pending_rows(APP, kind, 1, 10, 0)
        graphs.select(Query(APP, kind, since=199_790))
        for pointer in POINTERS[kind]:
            graphs.select(Query(APP, kind, pointer=pointer, targets=[7, 8]))
    graphs.feed(after=100_000, timeout=0).next(0)
    graphs.feed(after=0, flag_mask=1, timeout=0).next(0)
    graphs.feed(after=199_000, flag_mask=4, apps=[APP], kinds=["attr"]).next(0)

"""SQL over a store: the views, the columns that they read, and `fourfold sql`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import sample_store
from pyspark.errors import AnalysisException

import fourfold
from fourfold.pipeline import sql, views
from fourfold.pipeline.models import model_tables

TABLES = model_tables("documents").tables


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views") / "store"
    sample_store.build(folder)
    return folder


@pytest.mark.spark
def test_sql_equals_query_over_complete_views(root, spark):
    queries = [
        "from revisions |> limit 2",
        "from revisions |> where seq = 1 |> drop data",
        "from revisions |> where seq < 4 |> union all from revisions |> aggregate count(*) as n",
        "select * except (data, time) from revisions where op = 'delete'",
        "select s.id, c.time from state s join commits c on s.space = c.space and s.seq = c.seq",
        "select a, count(*) from branches as b(a, c, d, e, f, g, h, i) group by a",
        "select id from state where exists (select 1 from facts where facts.id = state.id)",
        "select c.seq, r.id from commits c left join revisions r on c.seq = r.seq and r.op = 'set'",
    ]
    # Other tests share the session, and may have left one.
    spark.catalog.dropTempView("revisions")
    narrow = [sql(spark, query, root)[0] for query in queries]
    assert not spark.catalog.tableExists("revisions")
    views(spark, root, prefix="")
    try:
        for query, actual in zip(queries, narrow, strict=True):
            whole = spark.sql(query)
            assert actual.schema == whole.schema, query
            if "limit" not in query:
                assert rows(actual) == rows(whole), query
    finally:
        for name in TABLES:
            spark.catalog.dropTempView(name)


def rows(frame):
    return sorted(map(repr, frame.collect()))


@pytest.mark.spark
def test_sql_restores_views_of_session(root, spark):
    views(spark, root, tables=["state"])
    everything = spark.sql("select count(*) from state").collect()
    answer, _ = sql(spark, "select id from state where id = 'note-1'", root)
    assert spark.sql("select count(*) from state").collect() == everything
    assert {row.id for row in answer.collect()} == {"note-1"}
    with pytest.raises(AnalysisException):
        sql(spark, "select nothing from state", root)
    assert spark.sql("select count(*) from state").collect() == everything
    described, _ = sql(spark, "describe state", root)
    assert "document" in {row.col_name for row in described.collect()}


@pytest.mark.spark
def test_views_cover_every_public_table(root, spark):
    with fourfold.open(root, mode="r") as store:
        made = views(spark, store, prefix="shop_")
    assert made.names == tuple(f"shop_{name}" for name, table in TABLES.items() if table.public)
    for name in made.names:
        assert spark.table(name).columns == [
            column.name for column in TABLES[name.removeprefix("shop_")].select_columns()
        ]
    assert spark.sql("select count(*) from shop_state where op <> 'delete'").collect() == [(8,)]


@pytest.mark.spark
def test_views_at_a_seq_show_that_state(root, spark):
    views(spark, root, at=4)
    for table, count in {"commits": 8, "revisions": 8, "state": 8, "branches": 2}.items():
        assert spark.table(table).count() == count, table
    with pytest.raises(fourfold.InvalidInput, match="at must be between"):
        views(spark, root, at=5000)


@pytest.mark.spark
@pytest.mark.slow
def test_sql_command_prints_table_and_json(root):
    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "fourfold", "sql", *arguments],
            env={**os.environ, "FOURFOLD_ROOT": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )

    query = "select space, count(*) as n from state where op <> 'delete' group by 1 order by 1"
    done = call(query, "--json", "--master", "local[1]")
    assert json.loads(done.stdout) == {
        "columns": ["space", "n"],
        "rows": [["did:web:new.example", 4], ["did:web:old.example", 4]],
        "more": False,
        "skipped": [],
    }
    assert done.stderr == ""
    wrong = call("select nothing from state", "--master", "local[1]")
    assert wrong.returncode == 2
    assert "error[invalid_input]" in wrong.stderr
    assert "nothing" in wrong.stderr


@pytest.mark.spark
def test_sql_reads_qualified_names_and_tables_at_points(root, spark):
    both = {
        "select count(*) as n from documents_revisions r join state s on r.id = s.id": None,
        "select id, document from documents_state_at(3) where id not in"
        " (select id from state_at(2))": "select id, document from documents_state('', 3)"
        " where id not in (select id from documents_state('', 2))",
        "select id, seq from history_at(25, 'draft') where seq > 20": "select id, seq"
        " from documents_history('draft', 25) where seq > 20",
    }
    did = "did:web:old.example"
    with fourfold.open(root, mode="r") as store:
        for query, in_process in both.items():
            expected = store.space(did).sql(in_process or query).rows
            actual = sql(spark, query, root, space=did)[0].collect()
            assert expected
            assert sorted(map(tuple, actual)) == sorted(expected), query
        query = "select count(*) from documents_state, sessions_events"
        assert [tuple(row) for row in sql(spark, query, root)[0].collect()] == [(0,)]
    assert not spark.catalog.tableExists("fourfold_at_1_state")

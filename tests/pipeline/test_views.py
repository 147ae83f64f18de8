"""SQL over a store: the views, the columns that they read, and `fourfold sql`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import sample_store

import fourfold
from fourfold.pipeline import sql, views
from fourfold.pipeline.tables import model_tables
from fourfold.pipeline.views import columns_named

TABLES = model_tables("documents").tables


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views") / "store"
    sample_store.build(folder)
    return folder


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select id, seq from revisions", {"id", "seq"}),
        ("select count(*) from revisions where op = 'set'", {"op"}),
        ("SELECT COUNT( * ) FROM revisions", {"space"}),
        ("select r.id from revisions r order by r.SEQ desc", {"id", "seq"}),
        ("select * from revisions", set()),
        ("select r.* from revisions r", set()),
        ("select a.id from revisions a natural join commits b", set()),
        ("table revisions", set()),
        ("describe revisions", set()),
        ("select 2 * seq from revisions", set()),
    ],
)
def test_a_query_reads_the_columns_that_it_names_or_all(query, columns):
    assert set(columns_named(query, TABLES["revisions"])) == columns


@pytest.mark.spark
def test_every_public_table_is_a_view(root, spark):
    with fourfold.open(root, mode="r") as store:
        made = views(spark, store, prefix="shop_")
    assert made.names == tuple(f"shop_{name}" for name, table in TABLES.items() if table.public)
    for name in made.names:
        assert spark.table(name).columns == [
            column.name for column in TABLES[name.removeprefix("shop_")].chosen()
        ]
    assert spark.sql("select count(*) from shop_state where op <> 'delete'").collect() == [(8,)]


@pytest.mark.spark
def test_a_query_gives_the_same_with_few_columns_as_with_all(root, spark):
    queries = [
        "select s.id, c.time from state s join commits c on s.space = c.space and s.seq = c.seq",
        "select a, count(*) from branches as b(a, c, d, e, f, g, h, i) group by a",
        "select id from state where exists (select 1 from facts where facts.id = state.id)",
    ]
    for query in queries:
        frame, _ = sql(spark, query, root)
        narrow = sorted(map(repr, frame.collect()))
        views(spark, root)
        assert narrow == sorted(map(repr, spark.sql(query).collect())), query


@pytest.mark.spark
def test_a_view_of_the_past_shows_the_past_in_every_table(root, spark):
    views(spark, root, at=4)
    for table, count in {"commits": 8, "revisions": 8, "state": 8, "branches": 2}.items():
        assert spark.table(table).count() == count, table
    with pytest.raises(fourfold.InvalidInput, match="not in the history"):
        views(spark, root, at=5000)


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_answers_as_a_table_and_as_json(root):
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

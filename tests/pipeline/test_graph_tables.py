"""Tables of graphs equal the store: current objects at any seq, and the feed."""

from __future__ import annotations

import random

import pytest
from random_graphs import Life, lives_of
from stream_driver import follow

import fourfold
from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS, ROWS
from fourfold.pipeline import sql, views
from fourfold.pipeline.models import model_tables
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark
TABLES = model_tables("graphs").tables
ALL = ",".join(column.name for column in TABLES["current"].columns)


def rows_of(frame):
    return [row.asDict() for row in frame.collect()]


def as_records(rows, kind):
    """Convert Spark rows to records of the model, by app."""
    result = {}
    for row in rows:
        if row.get("kind", kind) == kind:
            values = {name: row[name] for name in ROWS[kind]._fields}
            if values.get("value_blob") is not None:
                values["value_blob"] = bytes(values["value_blob"])
            result.setdefault(row["app_id"], []).append(ROWS[kind](**values))
    return {app: sorted(records) for app, records in result.items()}


def expected_current(graphs, kind, at, trusted=(), *, suppressed=False):
    result = {}
    for app in graphs.list_apps():
        question = Query(app.app_id, kind, at=at)
        rows = graphs.current(question, trusted=trusted, suppressed=suppressed)
        if rows:
            result[app.app_id] = sorted(rows)
    return result


def compare(read, root, graphs, at):
    options = {"model": "graphs", "at": at, "columns": ALL, "partition_bytes": 100_000}
    current = rows_of(read(root, "current", **options))
    trusting = rows_of(read(root, "current", trusted="2,3", **options))
    everything = rows_of(read(root, "current", suppressed="true", **options))
    changes = rows_of(read(root, "changes", **options))
    for kind in KINDS:
        assert as_records(current, kind) == expected_current(graphs, kind, at)
        assert as_records(trusting, kind) == expected_current(graphs, kind, at, (2, 3))
        shown = expected_current(graphs, kind, at, suppressed=True)
        assert as_records(everything, kind) == shown
        written = {
            app.app_id: sorted(rows)
            for app in graphs.list_apps()
            if (rows := graphs.select(Query(app.app_id, kind, at=at)))
        }
        assert as_records(changes, kind) == written
    return len(everything) - len(current)


def compared(read, folder, count, rounds, seed=None):
    with fourfold.open(folder / "one") as store, fourfold.open(folder / "two") as other:
        life = Life(store, other)
        lives_of(life, count, seed)
        # The last operation hides an object by its own owner.
        life.nodes[0].hide_one()
        newest = store.graphs.get_global_seq()
        hidden = [
            compare(read, folder / "one", store.graphs, at)
            for at in [newest, *random.sample(range(1, newest), rounds)]
        ]
        assert hidden[0] > 0


def test_spark_fold_equals_store_read(read, tmp_path):
    compared(read, tmp_path, count=8, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_spark_fold_equals_store_read_for_many_histories(read, tmp_path, seed):
    compared(read, tmp_path, count=40, rounds=5, seed=seed)


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        fill(opened.graphs, "notes", 6)
        fill(opened.graphs, "mail", 3)
        yield opened


def fill(graphs, slug, count):
    """Write groups of three rows, each group under its own seq."""
    app = graphs.register_app(slug, slug).app_id
    note = graphs.register_type(app, "parent", "note")
    text = graphs.register_type(app, "attr", "text")
    link = graphs.register_type(app, "edge", "link")
    for number in range(count):
        with graphs.transaction() as txn:
            parent = {"type_id": note, "owner_identity": 1}
            one = graphs.insert_parent(app, parent, txn=txn)
            row = {"type_id": text, "owner_identity": 1, "parent_id": one}
            graphs.insert_attr(app, {**row, "value_text": f"{slug} {number}"}, txn=txn)
            edge = {"type_id": link, "owner_identity": 1, "src_parent_id": one}
            graphs.insert_edge(app, {**edge, "dst_parent_id": one}, txn=txn)
    return app


def test_views_cover_every_table_and_select_app(store, spark):
    made = views(spark, store, model="graphs", prefix="g_")
    assert made.names == tuple(f"g_{name}" for name, table in TABLES.items() if table.public)
    for name in made.names:
        chosen = TABLES[name.removeprefix("g_")].select_columns()
        assert spark.table(name).columns == [column.name for column in chosen]
    query = "select type, value_text from current where kind = 'attr' order by value_text"
    frame, _ = sql(spark, query, store.root, model="graphs", app="mail")
    assert [tuple(row) for row in frame.collect()] == [("text", f"mail {n}") for n in range(3)]
    assert spark.sql("select sum(rows) from g_apps where app = 'notes'").collect() == [(18,)]
    assert spark.sql("select count(distinct app) from g_types").collect() == [(2,)]
    assert spark.sql("select app from g_types where kind = 'attr'").count() == 2


def test_where_on_app_and_kind_selects_tables(store):
    from fourfold.pipeline import cut, plan  # noqa: PLC0415
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    for table in ("changes", "current"):
        where = "app = 'mail' and kind = 'edge'"
        asked = {"root": str(store.root), "model": "graphs", "table": table, "where": where}
        options = read_options(asked)
        [work] = plan.plan(cut.read_cut(options).bounds, options, options.table.select_columns())
        [piece] = work.pieces
        assert "app_2_edge" in piece.sql
        assert "app_1_" not in piece.sql
        # Objects of other kinds are looked up, but their rows are not read.
        assert "FROM app_2_attr AS r" not in piece.sql


def test_where_works_on_any_column_of_current(store, read):
    frame = read(store.root, "current", model="graphs")
    everything = frame.collect()
    for condition in ("object_id = 2", "value_text = 'mail 1'", "src_parent_id in (1, 3)"):
        shown = {repr(row) for row in frame.where(condition).collect()}
        every = [row for row in everything if _holds(row, condition)]
        assert shown == {repr(row) for row in every}
        assert shown


def _holds(row, condition):
    return {
        "object_id = 2": row.object_id == 2,
        "value_text = 'mail 1'": row.value_text == "mail 1",
        "src_parent_id in (1, 3)": row.src_parent_id in {1, 3},
    }[condition]


def test_unknown_app_raises_not_found(store, read):
    with pytest.raises(Exception, match="unknown app 'nodes'") as caught:
        read(store.root, "current", model="graphs", app="nodes").count()
    assert unwrap_error(caught.value).kind == "not_found"


def fed(*stores):
    return sorted(
        (store.graphs.app(each.app_id).slug, each.kind, each.global_seq, each.row.id)
        for store in stores
        for page in store.graphs.feed(timeout=0)
        for each in page
    )


def test_change_feed_streams_rows_once_without_splitting_seq(tmp_path):
    columns = "app string, kind string, global_seq long, id long"
    options = {"model": "graphs", "table": "changes", "roots": f"{tmp_path}/stores/*"}
    with fourfold.open(tmp_path / "stores/one") as one:
        fill(one.graphs, "notes", 4)
        before, sizes, end = follow(columns, max_rows=7, **options)
        assert before == fed(one)
        # Two groups of three rows fit into seven; a third would not.
        assert sizes == [6, 6]
        fill(one.graphs, "mail", 2)
        with fourfold.open(tmp_path / "stores/two") as two:
            fill(two.graphs, "late", 2)
            rows, sizes, end = follow(columns, end, **options)
            assert sorted(before + rows) == fed(one, two)
            assert sum(sizes) == 12
            assert follow(columns, end, **options) == ([], [], end)


def test_peers_table_shows_lag(tmp_path, read):
    with fourfold.open(tmp_path / "one") as one, fourfold.open(tmp_path / "two") as two:
        life = Life(one, two)
        life.live([("parents", 1, 1, 2), ("parents", 1, 1, 2), ("sync", 0, 1, False)])
        [row] = rows_of(read(tmp_path / "two", "peers", model="graphs"))
        [progress] = two.graphs.sync_progress()
        assert (row["domain"], row["received"]) == ("all", progress.last_seq)
        [here] = rows_of(read(tmp_path / "one", "peers", model="graphs"))
        assert (here["sent"], here["newest"], here["lag"], here["waiting"]) == (None, 2, 2, 0)

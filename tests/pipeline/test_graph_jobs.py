"""Jobs over graphs: verify, stats, materialize, components and load."""

from __future__ import annotations

import json
import math
import random
import shutil
from itertools import pairwise

import apsw
import pytest
from random_graphs import Life, lives_of

import fourfold
from fourfold import limits
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS
from fourfold.pipeline import jobs, store_files, verify_tasks
from fourfold.pipeline.graphs import verify
from fourfold.pipeline.models import model_tables
from fourfold.store.verification import database_problems

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with a random history, partly from another node."""
    folder = tmp_path_factory.mktemp("graphs")
    with fourfold.open(folder / "one") as one, fourfold.open(folder / "two") as two:
        life = Life(one, two)
        lives_of(life, 6, seed=5)
        life.nodes[0].hide_one()
    return folder / "one"


@pytest.fixture
def home(tmp_path):
    root = tmp_path / "home"
    fourfold.open(root).close()
    return root


# Verify

CHANGED = (
    ("parent", "object_id"),
    ("parent", "leads"),
    ("parent", "global_seq"),
    ("attr", "parent_id"),
    ("attr", "type_id"),
    ("edge", "src_parent_id"),
    ("rating", "origin_seq"),
)


def damage(path, chance):
    """Change one number of one row, or delete a row."""
    connection = apsw.Connection(str(path))
    while True:
        kind, column = chance.choice(CHANGED)
        table = f"app_{chance.choice([1, 2])}_{kind}"
        # The seq of a row on another node is not known here.
        rows = list(connection.execute(f"SELECT id, {column} FROM {table} WHERE origin = ''"))
        if rows:
            break
    row, value = chance.choice(rows)
    if chance.random() < 0.3:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (row,))
    else:
        new = 1 - value if column == "leads" else value + 1000
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (new, row))
    connection.close()


def every_damage_is_found(spark, home, sound, tmp_path, count, seed):
    chance = random.Random(seed)
    damaged = {}
    for number in range(count):
        root = tmp_path / "many" / f"store{number:03}"
        shutil.copytree(sound, root)
        path = root / "graphs" / "backend.db"
        if number % 4:
            damage(path, chance)
            damaged[str(path)] = set(map(str, database_problems(path)))
    into = tmp_path / "faults.ndjson"
    options = {"model": "graphs", "roots": f"{tmp_path}/many/*", "into": into}
    done = jobs.run("verify", home, options, spark=spark)
    result = {}
    for each in map(json.loads, into.read_text().splitlines()):
        result.setdefault(each["file"], set()).add(each["problem"])
        assert each["problem"].startswith(each["table"]) or each["table"] in {"pages", "file"}
    assert done.report["files"] == count
    assert result == damaged


def test_verify_finds_seeded_damage(spark, home, sound, tmp_path):
    every_damage_is_found(spark, home, sound, tmp_path, count=8, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_verify_finds_many_seeded_damages(spark, home, sound, tmp_path, seed):
    every_damage_is_found(spark, home, sound, tmp_path, count=80, seed=seed)


def test_verify_of_parts_equals_whole_file(sound, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "VERIFY_PART_BYTES", 200_000)
    shutil.copytree(sound, tmp_path / "copy")
    connection = apsw.Connection(str(tmp_path / "copy/graphs/backend.db"))
    connection.execute("UPDATE app_1_parent SET leads = 0 WHERE id = 1")
    connection.execute("UPDATE app_2_parent SET version = 7 WHERE id = 1")
    connection.execute("UPDATE envelopes SET app_id = 77 WHERE global_seq = 3")
    connection.close()
    [file] = store_files.find_files([tmp_path / "copy"], model_tables("graphs"))
    parts = verify.units(file)
    assert len(parts) > 3
    actual = {each.problem for unit in parts for each in verify_tasks.iter_problems(unit)}
    whole = verify_tasks.Unit(file.path, file.space, file.bytes, model="graphs")
    assert actual == {each.problem for each in verify_tasks.iter_problems(whole)}
    assert len(actual) >= 3


# Stats and materialize


def test_stats_equal_store(spark, sound):
    figures = jobs.run("stats", sound, {"model": "graphs", "top": 2}, spark=spark).report
    with fourfold.open(sound, mode="r") as store:
        graphs = store.graphs
        apps = [app.app_id for app in graphs.list_apps()]
        assert figures["apps"] == len(apps)
        assert figures["numbers"] == graphs.get_global_seq()
        for kind in KINDS:
            written = [row for app in apps for row in graphs.select(Query(app, kind))]
            current = [row for app in apps for row in graphs.current(Query(app, kind))]
            assert figures["kinds"][kind]["rows"] == len(written)
            assert figures["kinds"][kind]["current"] == len(current)
        assert figures["rows"] == sum(graphs.usage(app).rows for app in apps)
    assert figures["peers"]["count"] == 1
    assert len(figures["hot"]) == 2


def test_materialized_objects_track_log(spark, read, sound, tmp_path):
    root, into = tmp_path / "store", tmp_path / "tables"
    shutil.copytree(sound, root)
    options = {"model": "graphs", "into": into}

    def same():
        rows = sorted(map(repr, read(root, "current", model="graphs").collect()))
        kept = spark.read.parquet(str(into / "current/current")).collect()
        assert sorted(map(repr, kept)) == rows
        return len(rows)

    jobs.run("materialize", root, options, spark=spark)
    before = same()
    assert jobs.run("materialize", root, options, spark=spark).outcome == "nothing"
    with fourfold.open(root) as store:
        graphs = store.graphs
        one = graphs.current_parents(1)[0]
        suppress = graphs.register_type(1, "rating", "suppress")
        rating = {"type_id": suppress, "owner_identity": one.owner_identity}
        graphs.insert_rating(1, {**rating, "target_parent_id": one.object_id})
    jobs.run("materialize", root, options, spark=spark)
    # The object is hidden, with everything that belongs to it and the rating that hides it.
    assert same() < before


# Components


def linked(root, edges, count, app="net"):
    """Create an app with objects and edges between them; return the ids of the objects."""
    with fourfold.open(root) as store:
        graphs = store.graphs
        app_id = graphs.register_app(app, app).app_id
        node = graphs.register_type(app_id, "parent", "node")
        link = graphs.register_type(app_id, "edge", "link")
        row = {"type_id": node, "owner_identity": 1}
        ids = graphs.insert_many_parents(app_id, [row] * count)
        rows = [
            {"type_id": link, "owner_identity": 1, "src_parent_id": ids[a], "dst_parent_id": ids[b]}
            for a, b in edges
        ]
        if rows:
            graphs.insert_many_edges(app_id, rows)
    return ids


def least_of(ids, edges):
    """Return the least object of each component, by merging sets edge by edge."""
    home = {each: each for each in ids}

    def find(each):
        while home[each] != each:
            each = home[each]
        return each

    for a, b in edges:
        one, other = find(ids[a]), find(ids[b])
        home[max(one, other)] = min(one, other)
    return {each: find(each) for each in ids}


def components(spark, root, into, **options):
    done = jobs.run("components", root, {"into": into, **options}, spark=spark)
    rows = spark.read.parquet(str(into / "current/components")).collect()
    return done, rows


def random_graph(chance, count):
    return [(chance.randrange(count), chance.randrange(count)) for _ in range(count * 3 // 4)]


def test_components_equal_plain_search_in_few_rounds(spark, tmp_path):
    chance = random.Random(4)
    edges = random_graph(chance, 12)
    ids = linked(tmp_path / "store", edges, 12)
    order = list(range(5))
    chance.shuffle(order)
    others = linked(tmp_path / "store", list(pairwise(order)), 5, app="path")
    done, rows = components(spark, tmp_path / "store", tmp_path / "out")
    actual = {(row.app, row.object_id): row.component for row in rows}
    expected = {("net", each): least for each, least in least_of(ids, edges).items()}
    expected |= {("path", each): others[0] for each in others}
    assert actual == expected
    assert done.report["rounds"] <= math.log2(5) + 2
    assert done.report["components"] == len({(row.app, row.component) for row in rows})
    neighbours = {row.object_id: row.neighbours for row in rows if row.app == "net"}
    around = {each: set() for each in ids}
    for a, b in edges:
        if a != b:
            around[ids[a]].add(ids[b])
            around[ids[b]].add(ids[a])
    assert neighbours == {each: len(others) for each, others in around.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_larger_components_equal_plain_search(spark, tmp_path, seed):
    chance = random.Random(seed)
    edges = random_graph(chance, 3000)
    ids = linked(tmp_path / "store", edges, 3000)
    done, rows = components(spark, tmp_path / "store", tmp_path / "out")
    assert {row.object_id: row.component for row in rows} == least_of(ids, edges)
    assert done.report["rounds"] <= 2 * math.log2(3000)


def test_components_and_neighbourhood_use_only_current_objects(spark, tmp_path):
    root = tmp_path / "store"
    ids = linked(root, [(0, 1), (1, 2), (4, 5), (6, 5), (6, 7), (8, 8)], 9)
    with fourfold.open(root) as store:
        graphs = store.graphs
        suppress = graphs.register_type(1, "rating", "suppress")
        text = graphs.register_type(1, "attr", "text")
        link = graphs.register_type(1, "edge", "link")
        own = {"owner_identity": 1}
        graphs.insert_rating(1, {**own, "type_id": suppress, "target_parent_id": ids[1]})
        attr = graphs.insert_attr(1, {**own, "type_id": text, "parent_id": ids[3]})
        graphs.insert_edge(
            1, {**own, "type_id": link, "src_parent_id": ids[0], "dst_attr_id": attr}
        )
    options = {"app": "1", "from": [str(ids[4]), str(ids[8])], "hops": 2}
    done, rows = components(spark, root, tmp_path / "out", **options)
    least = {0: 0, 2: 2, 3: 0, 4: 4, 5: 4, 6: 4, 7: 4, 8: 8}
    assert {row.object_id: row.component for row in rows} == {
        ids[one]: ids[other] for one, other in least.items()
    }
    near = spark.read.parquet(str(tmp_path / "out/current/neighbourhood")).collect()
    assert {(row.origin, row.object_id, row.hops) for row in near} == {
        (ids[4], ids[4], 0),
        (ids[4], ids[5], 1),
        (ids[4], ids[6], 2),
        (ids[8], ids[8], 0),
    }
    assert done.report["neighbourhood"] == 4


@pytest.mark.slow
def test_components_at_a_seq_use_that_state(spark, tmp_path):
    ids = linked(tmp_path / "store", [(0, 1)], 3)
    with fourfold.open(tmp_path / "store") as store:
        link = store.graphs.register_type(1, "edge", "link")
        row = {"type_id": link, "owner_identity": 1, "src_parent_id": ids[1]}
        before = store.graphs.get_global_seq()
        store.graphs.insert_edge(1, {**row, "dst_parent_id": ids[2]})
    for at, count in ((str(before), 2), (None, 1)):
        options = {} if at is None else {"at": at}
        _, rows = components(spark, tmp_path / "store", tmp_path / f"out{count}", **options)
        assert len({row.component for row in rows}) == count


def test_components_refuses_invalid_options(spark, sound):
    for options, error, message in (
        ({"app": "nodes"}, NotFound, "unknown app 'nodes'"),
        ({"from": ["1"]}, InvalidInput, "requires --app"),
        ({"from": ["x"], "app": "notes"}, InvalidInput, "invalid object id"),
    ):
        with pytest.raises(error, match=message):
            jobs.run("components", sound, options, spark=spark)


# Load


@pytest.fixture
def loaded(tmp_path):
    """A store with an app, and a file of envelopes for it."""
    root, path = tmp_path / "store", tmp_path / "envelopes.ndjson"
    with fourfold.open(root) as store:
        app = store.graphs.register_app("notes", "Notes").app_id
        store.graphs.register_type(app, "parent", "note")
        store.graphs.register_type(app, "attr", "text")
    lines = []
    for number in range(30):
        common = {"app_id": app, "owner_identity": 1}
        ops = [
            {**common, "op": "parent_create", "type_key": "note"},
            {
                **common,
                "op": "attr_create",
                "type_key": "text",
                "payload": {"parent_id": {"$op": 0}, "value": f"note {number}"},
            },
        ]
        lines.append(json.dumps({"trace_id": f"t{number}", "ops": ops}))
    path.write_text("\n".join(lines) + "\n")
    return root, path, lines


def texts(root):
    with fourfold.open(root, mode="r") as store:
        return [row.value_text for row in store.graphs.current_attrs(1)]


def test_envelopes_are_loaded_in_order_once(spark, loaded):
    root, path, _ = loaded
    options = {"model": "graphs", "from": [str(path)], "job": "notes"}
    done = jobs.run("load", root, options, spark=spark)
    assert (done.rows_in, done.rows_out) == (30, 30)
    assert texts(root) == [f"note {number}" for number in range(30)]
    with fourfold.open(root, mode="r") as store:
        assert store.graphs.get_global_seq() == 30
    assert jobs.run("load", root, options, spark=spark).outcome == "nothing"
    assert len(texts(root)) == 30


def test_stopped_load_resumes(spark, loaded, monkeypatch):
    root, path, lines = loaded
    monkeypatch.setattr("fourfold.pipeline.graphs.load.ENVELOPE_LOAD_PAGE", 7)
    far = {"op": "attr_create", "app_id": 1, "owner_identity": 1, "type_key": "text"}
    bad = {"trace_id": "bad", "ops": [{**far, "payload": {"parent_id": 9999}}]}
    path.write_text("\n".join([*lines[:20], json.dumps(bad), *lines[20:]]))
    options = {"model": "graphs", "from": [str(path)], "job": "notes"}
    with pytest.raises(NotFound):
        jobs.run("load", root, options, spark=spark)
    # Two pages of seven were applied; the third has the bad one and is not applied.
    assert texts(root) == [f"note {number}" for number in range(14)]
    done = jobs.run("load", root, options, spark=spark, skip_bad=True)
    assert texts(root) == [f"note {number}" for number in range(30)]
    assert done.rows_out == 16
    assert len(done.skipped) == 1


def test_load_refuses_invalid_envelope_before_writing(spark, loaded):
    root, path, lines = loaded
    path.write_text("\n".join([*lines, '{"trace_id": "x", "ops": []}', "{"]))
    options = {"model": "graphs", "from": [str(path)], "job": "notes"}
    with pytest.raises(InvalidInput, match="at least one operation"):
        jobs.run("load", root, options, spark=spark)
    assert texts(root) == []
    with pytest.raises(InvalidInput, match="requires model 'documents'"):
        jobs.run("load", root, {**options, "space": "did:web:a"}, spark=spark)

"""SQL in process equals reads of random stores, a naive model, and Spark, now and in the past."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import random_graphs
import random_sessions
import random_streams
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from random_spaces import LIVES, Life, same_states, same_versions

import fourfold
from fourfold.errors import HistoryTruncated
from fourfold.query.engine import all_tables
from support.properties import examples


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(LIVES)
def test_states_and_versions_of_random_spaces_equal_the_model(steps):
    for history in ("revisions", "facts"):
        with fourfold.open(":memory:") as store:
            life = Life(store.space("did:key:z1", history=history))
            life.live(steps)
            for seq in {life.space.horizon(), life.model.seq}:
                mark = SimpleNamespace(seq=seq, since=0, space="did:key:z1")
                rows = life.space.sql("select * from state", at=seq, branch="*").dicts()
                same_states(rows, life.states(mark))
                rows = life.space.sql("select * from history", at=seq, branch="*").dicts()
                same_versions(rows, life.versions(mark))
                query = "select * from state where id = ? and branch = ?"
                for (space, branch, entity), state in life.states(mark).items():
                    found = life.space.sql(query, [entity, branch], at=seq, branch="*").dicts()
                    same_states(found, {(space, branch, entity): state})


@pytest.mark.parametrize("seed", [7, 8])
def test_views_of_random_sessions_equal_the_reader(tmp_path, seed):
    with fourfold.open(tmp_path / "store") as store:
        lives = random_sessions.lives_of(store.sessions, 15, seed=seed)
        newest = store.sql("select max(position) from sessions_events").rows[0][0]
        for position in (newest // 3, newest):
            rows = store.sql("select * from sessions_view", at=position).dicts()
            by_name = {row["session"]: random_sessions.state_row(row) for row in rows}
            for life in lives:
                for name in life.names.values():
                    view = random_sessions.view_of(store.sessions, name, position)
                    assert by_name.get(name) == (None if view is None else view.state)


def test_messages_and_records_of_streams_equal_the_reader(tmp_path):
    draw = random.Random(3)
    with fourfold.open(tmp_path / "store") as store:
        written = {}
        for number in range(5):
            stream = store.streams.create(f"s/{number}", "application/json")
            written[f"s/{number}"] = [{"n": draw.randrange(9)} for _ in range(draw.randrange(8))]
            for message in written[f"s/{number}"]:
                stream.append(message)
        query = "select text ->> 'n' from streams_{} where stream = ? order by offset"
        for table in ("messages", "records"):
            for name, messages in written.items():
                rows = store.sql(query.format(table), [name]).rows
                assert rows == [(message["n"],) for message in messages]


KEYS = st.sampled_from(["a", "b", "ö"])
CHANGES = st.tuples(
    st.sampled_from(["set", "set", "delete", "fork", "recreate"]),
    st.sampled_from(["one", "two"]),
    st.sampled_from(["user", "item"]),
    KEYS,
    st.one_of(st.integers(), st.text(max_size=3), st.just(None), st.just({"x": [1]})),
)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(CHANGES, max_size=12))
def test_states_of_random_streams_equal_a_dict(changes):
    with fourfold.open(":memory:") as store:
        states, forked = {}, set()
        for number, (kind, name, row_type, key, value) in enumerate(changes):
            # A deleted stream that has forks cannot be created again.
            if name not in states or (kind == "recreate" and name not in forked):
                if name in states:
                    store.streams.delete(name)
                store.streams.create(name, "application/json")
                states[name] = {}
            stream = store.streams.open(name)
            change = {"type": row_type, "key": key}
            if kind == "fork":
                stream.fork(f"fork/{number}")
                forked.add(name)
                states[f"fork/{number}"] = dict(states[name])
            elif kind == "delete":
                stream.append({**change, "headers": {"operation": "delete"}})
                states[name].pop((row_type, key), None)
            else:
                stream.append({**change, "value": value, "headers": {"operation": "update"}})
                states[name].pop((row_type, key), None)
                states[name][row_type, key] = value
        rows = store.sql("select stream, type, key, value from streams_state").rows
        found = {(stream, kind, key): json.loads(value) for stream, kind, key, value in rows}
        assert found == {
            (name, *pair): value for name, state in states.items() for pair, value in state.items()
        }
        assert len(rows) == len(found)


def _value(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def _sorted(rows):
    return sorted((tuple(map(_value, row)) for row in rows), key=repr)


@pytest.mark.spark
def test_every_table_has_same_rows_in_sqlite_and_in_spark(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store, fourfold.open(tmp_path / "other") as other:

        def grow(number):
            history = ("revisions", "facts")[number % 2]
            space = store.space(f"did:key:z{number}", history)
            for entity in range(5):
                space.set(f"n{entity}", {"n": entity, "text": "\u00e9"})
            space.patch("n1", [{"op": "increment", "path": "/n", "by": 2}])
            space.delete("n2")
            space.branches.create("draft")
            space.set("n1", {"draft": number}, branch="draft")
            space.blobs.put(b"bytes", "text/plain")
            stream = store.streams.create(f"s{number}", "application/json")
            stream.append([{"n": 1}, {"n": 2}])
            store.streams.create(f"b{number}", "application/octet-stream").append(b"\x00\xff")
            random_sessions.lives_of(store.sessions, 1, seed=number)
            random_graphs.lives_of(life, 2, seed=number)

        life = random_graphs.Life(store, other)
        grow(0)
        middle = datetime.now(UTC)
        grow(1)
        compare_engines(spark, store, (None, middle))


def in_process(store, query, at, branch):
    """Return the rows of a query as values of the declared types."""
    result = store.sql(query, at=at, branch=branch)
    return [row.values() for row in result.to_arrow().to_pylist()]


def _result(query):
    """Return the sorted rows of a query; None for history that only segments have."""
    try:
        return _sorted(query())
    except HistoryTruncated:
        return None


def compare_engines(spark, store, points):
    """Assert that every table has the same rows in SQLite and in Spark, at each point.

    Published records are only in Spark, where their position is null.
    """
    for at in points:
        for tables in all_tables().values():
            public = tables.public()
            branched = [table for table in public if "branch" in table.options]
            compare_tables(spark, store, public, at)
            compare_tables(spark, store, branched, at, branch="*")


def compare_tables(spark, store, tables, at, branch=""):
    from fourfold.pipeline import views  # noqa: PLC0415 - Spark is optional

    if not tables:
        return
    model = tables[0].model
    options = {"model": model, "prefix": f"{model}_", "at": at, "branch": branch}
    names = [table.name for table in tables]
    views(spark, store.root, tables=names, **options)
    for table in tables:
        query = f"select * from {model}_{table.name}"
        in_sqlite = _result(lambda query=query: in_process(store, query, at, branch))
        if model == "streams" and table.position is not None:
            query += " where position is not null"
        if in_sqlite is not None:
            assert in_sqlite == _sorted(spark.sql(query).collect()), (table.name, at, branch)


def grow_random_store(folder, seed, *, rounds, spaces, sessions, graphs, stream_steps):
    """Yield a store with random contents of all models, after each round."""
    root = random_streams.grown(folder / "store", seed, steps=stream_steps)
    with fourfold.open(root) as store, fourfold.open(folder / "other") as other:
        life = random_graphs.Life(store, other)
        for number in range(rounds):
            for space, steps in enumerate(random_lives(spaces, seed * 10 + number)):
                history = ("revisions", "facts")[space % 2]
                Life(store.space(f"did:key:z{number}{space}", history)).live(steps)
            if number == rounds // 2:
                random_sessions.lives_of(store.sessions, sessions, seed=seed)
            random_graphs.lives_of(life, graphs, seed=seed * 10 + number)
            yield store


@pytest.mark.spark
def test_random_store_has_equal_rows_in_sqlite_and_spark(spark, tmp_path):
    sizes = {"rounds": 2, "spaces": 2, "sessions": 2, "graphs": 1, "stream_steps": 12}
    points = []
    for store in grow_random_store(tmp_path, 11, **sizes):
        points.append(datetime.now(UTC))
        if len(points) == sizes["rounds"]:
            compare_engines(spark, store, (None, points[0]))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(4))
def test_random_stores_have_same_rows_in_sqlite_and_in_spark(spark, tmp_path, seed):
    sizes = {"rounds": 3, "spaces": 6, "sessions": 6, "graphs": 3, "stream_steps": 40}
    points = [None]
    for store in grow_random_store(tmp_path, seed, **sizes):
        points.append(datetime.now(UTC))
        if len(points) > sizes["rounds"]:
            compare_engines(spark, store, points)


def random_lives(count, seed):
    """Return the steps of some random spaces."""
    lives = []

    @seeded(seed)
    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(LIVES)
    def collect(steps):
        lives.append(steps)

    collect()
    return lives


def naive_current(written, at, node):
    """Fold rows by kind in the simplest way: newest versions, without what owners suppress."""
    newest = {}
    for kind, rows in written.items():
        for row in rows:
            key = (kind, row["app_id"], row["object_id"])
            rank = (row["version"], row["origin"] or node)
            if row["global_seq"] <= at and (key not in newest or rank > newest[key][0]):
                newest[key] = (rank, row)
    current = {key: row for key, (_, row) in newest.items()}
    hidden = set()
    for (kind, app, _), row in current.items():
        if kind == "rating" and row["type"] == "suppress" and row["value_number"] != 0:
            for target in ("parent", "attr"):
                key = (target, app, row[f"target_{target}_id"])
                if key in current and current[key]["owner_identity"] == row["owner_identity"]:
                    hidden.add(key)
    pointers = ("parent_id", "src_parent_id", "dst_parent_id", "target_parent_id")
    for target, names in (("parent", pointers), ("attr", ("dst_attr_id", "target_attr_id"))):
        for (kind, app, number), row in current.items():
            if any((target, app, row.get(name)) in hidden for name in names):
                hidden.add((kind, app, number))
    return {key: row["id"] for key, row in current.items() if key not in hidden}


def compare_graphs(folder, count, seed):
    with fourfold.open(folder / "store") as store, fourfold.open(folder / "other") as other:
        life = random_graphs.Life(store, other)
        random_graphs.lives_of(life, count, seed=seed)
        life.nodes[0].hide_one()
        written = {
            kind: store.sql(f"select * from graphs_{kind}s", max_rows=10**6).dicts()
            for kind in ("parent", "attr", "edge", "rating")
        }
        node = store.graphs.node
        newest = store.graphs.get_global_seq()
        for at in [newest, *random.Random(seed).sample(range(newest), 4)]:
            rows = store.sql("select kind, app_id, object_id, id from graphs_current", at=at).rows
            expected = naive_current(written, at, node)
            assert {row[:3]: row[3] for row in rows} == expected
            assert len(rows) == len(expected)
        objects = {
            (kind, row["app_id"], row["object_id"])
            for kind, rows in written.items()
            for row in rows
        }
        # One object at least is suppressed by its own owner.
        assert naive_current(written, newest, node).keys() < objects


def test_current_objects_of_random_graphs_equal_a_naive_fold(tmp_path):
    compare_graphs(tmp_path, 6, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_current_objects_of_many_graphs_equal_a_naive_fold(tmp_path, seed):
    compare_graphs(tmp_path, 40, seed=seed)

"""SQL in process equals reads of random stores, a naive model, and Spark, now and in the past."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import random_graphs
import random_sessions
from hypothesis import HealthCheck, given, settings
from random_spaces import LIVES, Life, same_states, same_versions

import fourfold
from fourfold.query.engine import all_tables


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
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


def test_views_of_random_sessions_equal_the_reader(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        lives = random_sessions.lives_of(store.sessions, 15, seed=7)
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


def _value(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def _sorted(rows):
    return sorted((tuple(map(_value, row)) for row in rows), key=repr)


@pytest.mark.spark
def test_every_table_has_the_same_rows_in_sqlite_and_in_spark(spark, tmp_path):
    from fourfold.pipeline import views  # noqa: PLC0415 - Spark is optional

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
        for at in (None, middle):
            for model, tables in all_tables().items():
                views(spark, root, model=model, prefix=f"{model}_", at=at)
                for table in tables.public():
                    query = f"select * from {model}_{table.name}"
                    in_spark = _sorted(spark.sql(query).collect())
                    arrow = store.sql(query, at=at).to_arrow()
                    in_sqlite = _sorted(row.values() for row in arrow.to_pylist())
                    assert in_sqlite == in_spark, (table.name, at)

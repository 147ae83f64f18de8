"""Materialize and stats of streams: what the store answers, published or not."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.pipeline import jobs

pytestmark = pytest.mark.spark


def change(key, value, operation="upsert"):
    headers = {"operation": operation}
    return {"type": "item", "key": key, "value": value, "headers": headers}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root, settings={"archive.seal_rows": 3}) as store:
        state = store.streams.create("state", "application/json")
        state.append([change(name, number) for number, name in enumerate("abca")])
        store.streams.create("bytes", "application/octet-stream").append(b"\x00\xff")
        store.archive.publish_all()
        state.append([change("b", None, "delete"), change("d", {"x": [1.5]})])
        state.fork("fork")
        store.streams.create("closed", "text/plain").close()
    return root


def states(store):
    return {
        (info.name, kind, key): value
        for info in store.streams.list()
        if info.content_type == "application/json"
        for (kind, key), value in store.streams.state(info.name).items()
    }


def materialized(spark, folder):
    rows = spark.read.parquet(str(folder / "current" / "state")).collect()
    assert len({row[:3] for row in map(tuple, rows)}) == len(rows)
    return {(row.stream, row.type, row.key): json.loads(row.value) for row in rows}


def names_in(spark, folder):
    rows = spark.read.parquet(str(folder / "current" / "streams")).collect()
    return sorted(row.stream for row in rows)


def test_materialized_streams_follow_the_store(spark, root, tmp_path):
    into = tmp_path / "tables"

    def run():
        return jobs.run("materialize", root, {"into": into, "model": "streams"}, spark=spark)

    first = run()
    assert (first.outcome, first.report["rows"]) == ("done", {"state": 6, "streams": 4})
    with fourfold.open(root) as store:
        assert materialized(spark, into) == states(store)
        assert names_in(spark, into) == ["bytes", "closed", "fork", "state"]
    assert run().outcome == "nothing"
    with fourfold.open(root) as store:
        store.streams.open("state").append([change("e", 1), change("a", None, "delete")])
        store.archive.publish_all()
        expected = states(store)
    assert run().report["version"] == 2
    assert materialized(spark, into) == expected
    with fourfold.open(root) as store:
        # Neither appends a record.
        store.streams.delete("fork")
        store.streams.create("empty", "text/plain")
        expected = states(store)
    assert run().outcome == "done"
    assert materialized(spark, into) == expected
    assert names_in(spark, into) == ["bytes", "closed", "empty", "state"]
    assert run().outcome == "nothing"


def test_stats_count_published_and_logged_records(spark, root):
    done = jobs.run("stats", root, {"model": "streams", "top": 1}, spark=spark)
    assert done.report["streams"] == {"count": 4, "closed": 1, "forks": 1}
    records = done.report["records"]
    assert (records["count"], records["published"]) == (7, 5)
    with fourfold.open(root, mode="r") as store:
        _, chunk = store.streams.read("state", "-1")
        assert records["bytes"] == 2 + sum(len(record.payload) for record in chunk.records)
    [hot] = done.report["hot"]
    assert (hot["stream"], hot["records"], hot["published"]) == ("state", 6, 4)
    assert "4 streams, 7 records" in done.sentence

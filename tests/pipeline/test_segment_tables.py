"""Streams of a store in Spark are complete: published records, and those of the log after them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from random_streams import collected, grown, origins, seen

import fourfold
from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.pipeline import sql, views
from fourfold.pipeline.streams import segment_tables
from fourfold.store.restoration import rebuild
from fourfold.store.store import remember
from support.s3_server import serve_s3

pytestmark = pytest.mark.spark

CHANGE = {"type": "t", "key": "k", "headers": {"operation": "upsert"}}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with streams of every kind, mostly published."""
    return grown(tmp_path_factory.mktemp("segments") / "a store", seed=14)


def own(root):
    """Return each record once, under the stream that it was appended to."""
    start = origins(root)
    rows = {
        name: [row for row in rows if row[0] >= start[name]] for name, rows in seen(root).items()
    }
    return {name: rows for name, rows in rows.items() if rows}


def scan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def change(value):
    return json.dumps(CHANGE | {"value": value}).encode()


def test_records_and_messages_of_a_store_equal_stream_reads(read, store):
    expected = own(store)
    frame = read(store, "records", model="streams")
    assert collected(frame) == expected
    assert collected(read(store, "messages", model="streams")) == expected
    logged = frame.where("position is not null").count()
    assert 0 < logged < frame.count()
    plan = scan_of(frame.where("stream = 'kept/1' and offset > 3").select("offset"))
    assert "Python" not in plan
    assert "GreaterThan(offset,3)" in plan


def test_options_select_streams_rows_and_columns(read, store):
    expected = own(store)
    kept = {name: rows for name, rows in expected.items() if name.startswith("kept/")}
    assert collected(read(store, "records", model="streams", stream="kept/*")) == kept
    where = "stream = 'kept/1' and offset >= 2"
    rows = read(store, "messages", model="streams", where=where, columns="offset,root").collect()
    assert sorted(row.offset for row in rows) == [row[0] for row in kept["kept/1"] if row[0] >= 2]
    assert {row.root for row in rows} == {str(store)}
    assert read(store, "records", model="streams", columns="root").count() == sum(
        map(len, expected.values())
    )


def test_sql_joins_published_records_with_streams(spark, store):
    query = "select count(*) from streams_records r join streams_streams s on r.stream = s.stream"
    frame, _ = sql(spark, query, store)
    assert frame.collect()[0][0] == sum(map(len, own(store).values()))


def test_state_is_folded_from_segments_and_log(read, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        first = opened.streams.create("state", "application/json")
        first.append([change(1), change(2)])
        opened.archive.publish_all()
        first.append(change(3))
        first.fork("fork", at=f"{0:016d}_{1:016d}")
        opened.streams.create("other", "application/json").append(change(4))
        expected = {info.name: opened.streams.state(info.name) for info in opened.streams.list()}
    rows = read(root, "state", model="streams").collect()
    actual = {name: {} for name in expected}
    for row in rows:
        actual[row.stream][row.type, row.key] = json.loads(row.value)
    assert actual == expected
    assert actual["fork"] == {("t", "k"): 1}


def test_positions_and_times_bound_published_records(read, tmp_path):
    clock = [1_000_000]
    with fourfold.open(tmp_path / "store") as opened:
        opened.streams.clock = lambda: clock[0]
        one, two = (opened.streams.create(name, "text/plain") for name in ("one", "two"))
        expected = []
        for number in range(12):
            clock[0] += 1_000
            chosen = two if number % 3 else one
            chosen.append(b"%d" % number)
            expected.append((clock[0], str(number)))
            if number == 6:
                opened.archive.settle("two")

        def texts(**options):
            rows = read(tmp_path / "store", "records", model="streams", **options).collect()
            return sorted((row.text for row in rows), key=int)

        for position in range(1, 13):
            assert texts(at=position) == [text for _, text in expected[:position]]
            assert texts(since=position) == [text for _, text in expected[position:]]
            time = datetime.fromtimestamp(expected[position - 1][0] / 1000, UTC)
            assert texts(at=time) == [text for _, text in expected[:position]]
            assert texts(since=time) == [text for _, text in expected[position:]]
        opened.archive.publish_all()
        assert texts(at=5) == [text for _, text in expected[:5]]
        assert texts() == [text for _, text in expected]


def test_unknown_past_position_is_refused(read, tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        log = opened.streams.create("log", "text/plain")
        log.append([b"one", b"two"])
        opened.archive.publish_all()
        opened.streams.database.transact(
            lambda txn: (
                txn.execute("DELETE FROM feed_trail"),
                txn.execute("UPDATE feed_state SET horizon = 2, trail_rows = 0"),
            )
        )
        log.append([b"three"])
    with pytest.raises(HistoryTruncated, match="until 2"):
        read(tmp_path / "store", "records", model="streams", at=1)
    assert read(tmp_path / "store", "records", model="streams", at=2).count() == 2


def test_views_stay_at_their_cut_when_records_are_published(spark, tmp_path, monkeypatch):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        log = opened.streams.create("log", "application/json")
        log.append([change(1), change(2)])
        opened.archive.publish_all()
        log.append(change(3))
        plan_tail = segment_tables.plan_tail_tasks

        def late(*args, **options):
            works = plan_tail(*args, **options)
            log.append(change(9))
            opened.archive.publish_all()
            return works

        monkeypatch.setattr(segment_tables, "plan_tail_tasks", late)
        views(spark, root, model="streams", prefix="cut_", tables=["records", "messages", "state"])
    texts = [row.text for row in spark.table("cut_messages").orderBy("offset").collect()]
    assert texts == [change(number).decode() for number in (1, 2, 3)]
    assert spark.table("cut_records").count() == 3
    assert [row.value for row in spark.table("cut_state").collect()] == ["3"]


def test_old_messages_in_segments_are_promoted(read, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        stream = opened.streams.create("s", "application/json")
        closed = {"type": "object", "additionalProperties": False}
        stream.set_schema(closed | {"properties": {"n": {"type": "integer"}}})
        stream.append([{"n": 1}])
        opened.archive.publish_all()
        newer = closed | {"properties": {"m": {"type": "integer"}}}
        stream.set_schema(newer, lens=[{"op": "rename", "from": "n", "to": "m"}])
        stream.append([{"m": 2}])
    records = read(root, "records", model="streams").orderBy("offset").collect()
    assert [json.loads(row.text) for row in records] == [{"n": 1}, {"m": 2}]
    messages = read(root, "messages", model="streams").orderBy("offset").collect()
    assert [json.loads(row.text) for row in messages] == [{"m": 1}, {"m": 2}]


def test_segments_of_s3_are_downloaded_once(spark, read, tmp_path):
    with serve_s3() as server:
        root = grown(tmp_path / "store", seed=6, steps=60, objects=server.url("shop"))
        expected = own(root)
        assert collected(read(root, "records", model="streams")) == expected
        again = read(root, "records", model="streams")
    assert collected(again) == expected


def test_two_stores_are_read_together(read, tmp_path):
    for name in ("one", "two"):
        with fourfold.open(tmp_path / name) as opened:
            log = opened.streams.create("log", "text/plain")
            log.append(name.encode())
            if name == "one":
                opened.archive.publish_all()
    roots = str(tmp_path / "*")
    rows = read(None, "records", model="streams", roots=roots, columns="root,text").collect()
    assert {(row.root.rpartition("/")[2], row.text) for row in rows} == {
        ("one", "one"),
        ("two", "two"),
    }


def test_archive_has_streams_as_of_its_points(spark, read, tmp_path):
    root, url = tmp_path / "store", str(tmp_path / "store" / "objects")
    points, expected = [], []
    with fourfold.open(root, settings={"archive.seal_rows": 3}) as opened:
        log = opened.streams.create("log", "application/json")
        for number in range(3):
            log.append([change(number), b'{"n": 1}'])
            opened.streams.create(f"new/{number}", "text/plain").append(b"x" * (number + 1))
            points.append(opened.publish().point.id)
            expected.append(own(root))
            opened.archive.compact()
        log.append(change(9))

    def at(point, table="records"):
        return read(None, table, model="streams", url=url, at=point)

    for point, rows in zip(points, expected, strict=True):
        assert collected(at(point)) == collected(at(point, "messages")) == rows
    assert collected(at(None)) == expected[-1]
    assert [row.value for row in at(points[1], "state").collect()] == ["1"]
    assert {row.stream for row in at(points[0], "streams").collect()} == {"log", "new/0"}
    query = "select s.value, count(*) from streams_state s, streams_records r group by 1"
    assert sql(spark, query, url=url)[0].collect() == [("2", 9)]
    with pytest.raises(InvalidInput, match="time or a restore point"):
        at(3)


def test_archive_without_points_has_the_streams_of_its_manifests(read, tmp_path):
    with serve_s3() as server:
        url = server.url("shop") + "&allow_http=true"
        root = tmp_path / "store"
        with fourfold.open(root, settings={"objects.url": url}) as opened:
            log = opened.streams.create("log", "text/plain")
            for text in (b"one", b"two"):
                log.append(text)
                opened.archive.publish_all()
                found = read(None, "records", model="streams", url=url)
                assert found.count() == log.info.next_offset
                log.append(b"not published")


def test_restored_store_has_the_published_records(read, store, tmp_path):
    frame = read(store, "records", model="streams").where("position is null")
    root = tmp_path / "restored"
    fourfold.open(root).close()
    remember(root, str(store / "objects"))
    with fourfold.open(root) as opened:
        assert not rebuild(opened).failures
    restored = read(root, "records", model="streams")
    assert collected(restored) == own(root)
    # Two queries on one DataFrame do not change each other.
    few = restored.where("offset < 2").count()
    assert 0 < few < restored.count() == frame.count()
    assert restored.where("offset < 2").count() == few

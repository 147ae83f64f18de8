"""Streams in Spark: every record once, an offset per stream, states like the engine's."""

from __future__ import annotations

import json
import random

import pytest

import fourfold
from fourfold.errors import InvalidInput, NotFound, OffsetGone
from fourfold.models.streams import Producer
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import read_batches
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams.stream_source import StreamFollower

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with streams of several kinds, and their own records."""
    root = tmp_path_factory.mktemp("filled") / "store"
    chance = random.Random(5)
    own = {}
    with fourfold.open(root) as store:
        for n in range(12):
            kind = "application/json" if n % 3 else "application/octet-stream"
            store.streams.create(f"shop/{n}", kind)
            own[f"shop/{n}"] = []
        for n in range(400):
            name = f"shop/{chance.randrange(12)}"
            body = json.dumps({"n": n}).encode()
            store.streams.open(name).append(body, producer=Producer("p", n, 0))
            own[name].append(body)
        store.streams.open("shop/1").fork("fork", at=f"{0:016d}_{3:016d}").append(b'{"of": "fork"}')
        own["fork"] = [b'{"of": "fork"}']
        store.streams.create("gone", "text/plain", body=b"x")
        store.streams.delete("gone")
        store.streams.create("notes/1", "text/plain", body="zwölf".encode()).close()
        own["notes/1"] = ["zwölf".encode()]
        store.streams.create("empty", ttl=1000)
    return root, own


def test_records_table_has_every_record_once(read, filled):
    root, own = filled
    rows = read(root, "records", model="streams", partition_bytes=20_000).collect()
    actual = {}
    for row in sorted(rows, key=lambda row: (row.stream, row.offset)):
        actual.setdefault(row.stream, []).append(bytes(row.payload))
        binary = row.content_type == "application/octet-stream"
        assert row.text == (None if binary else bytes(row.payload).decode())
        assert row.size == len(row.payload)
    assert actual == {name: records for name, records in own.items() if records}
    assert len({(row.stream, row.offset) for row in rows}) == len(rows)


def test_option_stream_selects_name_or_pattern(read, filled):
    root, own = filled
    one = read(root, "records", model="streams", stream="shop/4", columns="offset,text").collect()
    assert [row.text.encode() for row in sorted(one)] == own["shop/4"]
    some = read(root, "records", model="streams", stream="shop/1*").select("stream").distinct()
    assert {row.stream for row in some.collect()} == {"shop/1", "shop/10", "shop/11"}
    where = read(root, "records", model="streams").where("stream = 'shop/4' and offset >= 2")
    assert where.count() == len(own["shop/4"]) - 2
    assert read(root, "streams", model="streams", stream="it's").count() == 0


def test_streams_and_producers_tables_have_rows(read, filled):
    root, own = filled
    rows = {row.stream: row for row in read(root, "streams", model="streams").collect()}
    assert set(rows) == {*own, "empty"}
    assert (rows["fork"].forked_from, rows["fork"].fork_offset) == ("shop/1", 3)
    assert rows["notes/1"].closed
    assert (rows["empty"].ttl_seconds, rows["empty"].expires > rows["empty"].created) == (
        1000,
        True,
    )
    assert rows["shop/2"].next_offset == rows["shop/2"].records == len(own["shop/2"])
    with fourfold.open(root, mode="r") as store:
        for name, row in rows.items():
            made = store.streams.info(name).created_at_ms
            assert round(row.created.timestamp() * 1000) == made
    made = read(root, "producers", model="streams").collect()
    written = {name for name, records in own.items() if records and name.startswith("shop/")}
    assert {row.stream for row in made} == written
    assert {row.last_seq for row in made} == {0}


def test_state_table_equals_engine(read, tmp_path):
    root, chance = tmp_path / "store", random.Random(11)
    operations = ("insert", "update", "upsert", "delete")
    with fourfold.open(root) as store:
        for n in range(4):
            store.streams.create(f"state/{n}", "application/json")
        store.streams.create("other", "application/json", body=b'[1, {"key": 2}, "x"]')
        for n in range(400):
            change = {
                "type": chance.choice("ab"),
                "key": f"k{chance.randrange(15)}",
                "value": chance.choice([n, {"n": n, "é": [1.5, None]}, "text"]),
                "headers": {"operation": chance.choice(operations)},
            }
            store.streams.open(f"state/{chance.randrange(4)}").append(json.dumps(change).encode())
        store.streams.open("state/2").fork("fork", at=f"{0:016d}_{20:016d}")
        store.streams.open("fork").fork("fork/fork", at=f"{0:016d}_{10:016d}")
        expected = {each.name: store.streams.state(each.name) for each in store.streams.list()}
    for options in ({}, {"partition_bytes": 4_096}):
        rows = read(root, "state", model="streams", **options).collect()
        actual = {name: {} for name in expected}
        for row in rows:
            actual[row.stream][row.type, row.key] = json.loads(row.value)
        assert actual == expected
    assert actual["fork/fork"]
    some = read(root, "state", model="streams", stream="fork*").where("stream <> 'fork'").collect()
    assert {row.stream for row in some} == {"fork/fork"}


def states(root, **options):
    """Return the table `state`, read without Spark."""
    given = read_options({"root": str(root), "model": "streams", "table": "state", **options})
    works = plan.plan(cuts.read_cut(given).bounds, given, given.table.select_columns())
    return [row for work in works for batch in read_batches(work) for row in batch.to_pylist()]


def test_state_of_partial_changes_is_refused(tmp_path):
    change = {"type": "t", "key": "k", "value": 1, "headers": {"operation": "insert"}}
    with fourfold.open(tmp_path) as store:
        for name in ("whole", "published"):
            store.streams.create(name, "application/json").append(json.dumps(change).encode())
        store.streams.open("published").fork("fork")
        assert {row["stream"] for row in states(tmp_path)} == {"whole", "published", "fork"}
        # The state after the archive has published a segment.
        store.streams.database.transact(
            lambda txn: txn.execute(
                "UPDATE streams SET sealed_through = 0, uploaded_through = 0 "
                "WHERE stream = 'published'"
            )
        )
        for name in ("published", "fork", "*"):
            with pytest.raises(Exception) as refused:
                states(tmp_path, stream=name)
            assert unwrap_error(refused.value).kind == "history_truncated"
        assert len(states(tmp_path, stream="whole")) == 1


def test_dataframe_excludes_later_records(read, tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        stream = store.streams.create("s", "application/json")
        stream.append([b"1", b"2"])
        frame = read(tmp_path / "store", "records", model="streams")
        stream.append(b"3")
        assert frame.count() == frame.count() == 2
        past = read(tmp_path / "store", "records", model="streams", at="2")
        assert past.count() == 2


def follow(spark, root, into, checkpoint, **options):
    """Run a query over the current data; the rows of each batch are added to `into`."""
    source = spark.readStream.format("fourfold").options(
        root=str(root), model="streams", table="records", **options
    )
    writer = (
        source.load()
        .writeStream.foreachBatch(
            lambda frame, _: into.append([(row.stream, row.offset) for row in frame.collect()])
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    query = writer.start()
    query.awaitTermination()
    return into


def test_query_reads_records_once_across_restarts(spark, tmp_path):
    root = tmp_path / "store"
    expected = set()
    chance = random.Random(3)
    batches = []
    for run in range(2):
        with fourfold.open(root) as store:
            for n in range(30):
                name = f"s{chance.randrange(4 + 2 * run)}"
                store.streams.create(name, "application/json")
                at = store.streams.open(name).append(str(n).encode()).next_offset
                expected.add((name, at - 1))
            if run == 1:
                store.streams.delete("s0")
                store.streams.create("s0", "application/json", body=b"[1]")
                expected.add(("s0", 0))
        rows = [row for batch in batches for row in batch]
        follow(spark, root, batches, tmp_path / "checkpoint", max_rows="13")
        more = [row for batch in batches for row in batch][len(rows) :]
        assert len(set(more)) == len(more)
    actual = [row for batch in batches for row in batch]
    # The stream that was created again is another one, so its first offset appears twice.
    assert {row for row in actual if row[0] != "s0"} == {row for row in expected if row[0] != "s0"}
    assert len([row for row in actual if row[0] != "s0"]) == len(
        {r for r in actual if r[0] != "s0"}
    )
    assert actual.count(("s0", 0)) == 2
    assert max(len(batch) for batch in batches) <= 18
    assert len(batches) > 4


def test_query_over_pattern_reads_matching_streams(spark, filled, tmp_path):
    root, own = filled
    actual = follow(spark, root, [], tmp_path / "checkpoint", stream="shop/1*")
    rows = sorted(row for batch in actual for row in batch)
    expected = [
        (name, offset)
        for name in ("shop/1", "shop/10", "shop/11")
        for offset in range(len(own[name]))
    ]
    assert rows == sorted(expected)


def followed(root, **options):
    given = {"root": str(root), "model": "streams", "table": "records", **options}
    return StreamFollower(read_options(given))


def places(offset, store):
    """Return an offset with the names of streams instead of their incarnations."""
    names = {each.incarnation: each.name for each in store.streams.list()}
    return {names[stream]: place for stream, place in offset["wal"].items()}


def test_offsets_are_per_stream_and_fair(tmp_path):
    with fourfold.open(tmp_path) as store:
        for n in range(3):
            store.streams.create(f"s{n}", "text/plain").append([b"x"] * 10 * (n + 1))
        following = followed(tmp_path)
        first = following.end_offset(following.start_offset(), 30)
        assert places(first, store) == {"s0": [0, 10], "s1": [0, 10], "s2": [0, 10]}
        second = following.end_offset(first, 15)
        assert places(second, store) == {"s0": [0, 10], "s1": [0, 17], "s2": [0, 18]}
        assert following.end_offset(second, None) == following.newest_offset()
        assert following.plan_tasks(second, second, ()) == []
    (tmp_path / "streams").rename(tmp_path / "elsewhere")
    with pytest.raises(NotFound):
        followed(tmp_path).end_offset(second, None)
    with pytest.raises(NotFound):
        followed(tmp_path).plan_tasks(first, second, ())


def test_query_fails_on_unread_deleted_records(tmp_path):
    clock = [1_000_000]
    with fourfold.open(tmp_path) as store:
        streams = store.streams
        streams.clock = lambda: clock[0]
        stream = streams.create("s", "text/plain", retention_seconds=10)
        stream.append([b"x"] * 5)
        following = followed(tmp_path)
        seen = following.end_offset({}, 2)
        clock[0] += 60_000
        stream.append(b"y")
        streams.sweep()
        with pytest.raises(OffsetGone):
            following.end_offset(seen, None)
        # A new query begins with the remaining records.
        assert places(followed(tmp_path).end_offset({}, None), store) == {"s": [5, 6]}


def test_batch_with_deleted_records_fails(tmp_path):
    clock = [1_000_000]
    with fourfold.open(tmp_path / "store") as store:
        streams = store.streams
        streams.clock = lambda: clock[0]
        stream = streams.create("s", "text/plain", retention_seconds=10)
        stream.append([b"x"] * 5)
        following = followed(tmp_path / "store")
        end = following.end_offset({}, None)
        columns = read_options(
            {"root": ".", "model": "streams", "table": "records"}
        ).table.select_columns(["stream", "offset"])
        [work] = following.plan_tasks({}, end, columns)
        assert sum(batch.num_rows for batch in read_batches(work)) == 5
        clock[0] += 60_000
        stream.append(b"y")
        streams.sweep()
        with pytest.raises(Exception) as refused:
            list(read_batches(work))
        assert unwrap_error(refused.value).kind == "history_truncated"


@pytest.mark.parametrize(
    "options",
    [
        {"table": "state"},
        {"table": "streams"},
        {"table": "records", "since": "3"},
        {"table": "records", "at": "3"},
    ],
)
def test_tables_that_cannot_be_streamed_are_refused(filled, options):
    with pytest.raises(Exception) as refused:
        stream_reader({"root": str(filled[0]), "model": "streams", **options})
    assert isinstance(unwrap_error(refused.value), InvalidInput)


def stream_reader(options):
    source = FourfoldSource(options)
    return source.streamReader(source.schema())

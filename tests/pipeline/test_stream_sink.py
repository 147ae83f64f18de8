"""`df.write` and `df.writeStream` into streams: each row once, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from dying_copies import dying_at, registered
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from stream_copy_child import DyingBetweenStreams, copy

import fourfold
from fourfold.errors import InvalidInput, NotFound, ProducerFenced, StreamClosed, WriterLocked
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams import ingest as ingesting
from fourfold.pipeline.streams.ingest import BatchReport, ingest
from fourfold.pipeline.streams.sink import StreamColumns, stage

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.streams.create("a", "application/json")
        store.streams.create("b", "text/plain")
    return tmp_path / "store"


def records(root, name):
    with fourfold.open(root, mode="r") as store:
        return [each.payload for each in store.streams.open(name).read().records]


def write(frame, root, **options):
    given = {"root": str(root), "model": "streams", **options}
    frame.write.format("fourfold").mode("append").options(**given).save()


def refused(call, *arguments, **given):
    with pytest.raises(Exception) as caught:
        call(*arguments, **given)
    return unwrap_error(caught.value)


def test_write_is_appended_once_per_job(spark, root):
    rows = spark.range(0, 40, 1, 4).selectExpr(
        "if(id % 2 = 0, 'a', 'b') as stream", "cast(id as string) as payload", "id"
    )
    for _ in range(2):
        write(rows, root, job="first", order="id")
    assert records(root, "a") == [str(n).encode() for n in range(0, 40, 2)]
    assert records(root, "b") == [str(n).encode() for n in range(1, 40, 2)]
    write(rows.select("stream", "payload"), root)
    assert len(records(root, "a")) == 40
    assert not (root / ".pipeline" / "staging").exists() or not list(
        (root / ".pipeline" / "staging").iterdir()
    )


def test_sink_creates_stream_of_option(spark, root):
    rows = spark.range(3).selectExpr("cast(cast(id as string) as binary) as payload")
    assert isinstance(refused(write, rows, root, stream="new"), NotFound)
    write(rows, root, stream="new", content_type="application/octet-stream")
    assert sorted(records(root, "new")) == [b"0", b"1", b"2"]


def test_invalid_row_of_task_is_refused_and_nothing_is_written(spark, root):
    rows = spark.range(0, 2, 1, 2).selectExpr("if(id = 0, '1', '{') as payload")
    assert isinstance(refused(write, rows, root, stream="a"), InvalidInput)
    assert records(root, "a") == []


def write_in_process(columns, root, **options):
    """Write rows as Spark does with one task, without a JVM."""
    batch = pa.RecordBatch.from_pydict(columns)
    source = FourfoldSource({"root": str(root), "model": "streams", **options})
    writer = source.writer(from_arrow_schema(batch.schema), False)
    writer.commit([writer.write(iter([batch]))])


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"payload": ["1", "{"]}, {"stream": "a"}),
        ({"payload": ["1", "1,2"]}, {"stream": "a"}),
        ({"payload": ["x", ""]}, {"stream": "b"}),
        ({"payload": ["x", None]}, {"stream": "b"}),
        ({"payload": [0, 1]}, {"stream": "b"}),
        ({"payload": ["x", "x"], "n": [0, 1]}, {"stream": "b"}),
        ({"payload": ["x", "x"]}, {}),
        ({"payload": ["x", "x"], "stream": ["a", "a"]}, {"stream": "b"}),
        ({"payload": ["x", "x"]}, {"stream": "b", "strem": "b"}),
        ({"payload": ["x", "x"]}, {"stream": "b", "order": "id"}),
    ],
)
def test_invalid_rows_are_refused_and_nothing_is_written(root, columns, options):
    error = refused(write_in_process, columns, root, **options)
    assert isinstance(error, InvalidInput), error
    assert records(root, "a") == records(root, "b") == []


def test_valid_rows_are_written_in_process(root):
    write_in_process({"payload": ["1", "2"]}, root, stream="a")
    assert records(root, "a") == [b"1", b"2"]


def test_sink_waits_for_writer_and_then_raises(spark, root):
    rows = spark.range(1).selectExpr("'1' as payload")
    with fourfold.open(root) as store:
        assert store.streams.totals().records == 0
        error = refused(write, rows, root, stream="a", wait_s="0.2")
    assert isinstance(error, WriterLocked)
    write(rows, root, stream="a")
    assert records(root, "a") == [b"1"]


def staged(tmp_path, rows, order=()):
    batch = pa.RecordBatch.from_pylist([{"stream": name, "payload": text} for name, text in rows])
    return stage(iter([batch]), StreamColumns(None, order), tmp_path / "staged")


def test_repeated_batch_changes_nothing_and_older_is_refused(root, tmp_path):
    first = [staged(tmp_path, [("a", b"1"), ("b", b"x"), ("a", b"2")])]
    third = [staged(tmp_path, [("a", b"3")])]
    send = {"shape": StreamColumns(), "producer": "query:q"}
    assert ingest(root, first, batch=0, **send) == BatchReport(3, 2, 0)
    assert ingest(root, first, batch=0, **send) == BatchReport(0, 2, 2)
    # Batch 1 had no rows for these streams.
    assert ingest(root, third, batch=2, **send) == BatchReport(1, 1, 0)
    with pytest.raises(ProducerFenced):
        ingest(root, first, batch=0, **send)
    assert (records(root, "a"), records(root, "b")) == ([b"1", b"2", b"3"], [b"x"])
    with fourfold.open(root) as store:
        store.streams.open("a").close()
    assert ingest(root, third, batch=2, **send).replayed == 1
    with pytest.raises(StreamClosed):
        ingest(root, third, batch=3, **send)


def test_large_batch_is_several_requests_and_resumes(root, tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.pipeline.streams.ingest.SINK_REQUEST_BYTES", 10)
    rows = [staged(tmp_path, [("b", b"%04d" % n) for n in range(20)])]
    send = {"shape": StreamColumns(), "producer": "query:q", "batch": 5}
    whole = ingesting._requests

    def cut_short(part, bytes_max):
        for number, request in enumerate(whole(part, bytes_max)):
            if number == 3:
                raise InterruptedError
            yield request

    monkeypatch.setattr(ingesting, "_requests", cut_short)
    with pytest.raises(InterruptedError):
        ingest(root, rows, **send)
    assert len(records(root, "b")) == 6
    monkeypatch.setattr(ingesting, "_requests", whole)
    assert ingest(root, rows, **send) == BatchReport(14, 1, 0)
    assert records(root, "b") == [b"%04d" % n for n in range(20)]


def lived_in(root, count):
    with fourfold.open(root) as store:
        for n in range(count):
            name = f"s{n % 3}"
            store.streams.create(name, "application/json")
            store.streams.open(name).append(json.dumps({"n": n}).encode())


def contents(root):
    with fourfold.open(root, mode="r") as store:
        assert store.streams.verify() == []
        return {
            each.name: [record.payload for record in store.streams.open(each.name).read().records]
            for each in store.streams.list()
        }


def made(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    lived_in(source, 60)
    fourfold.open(target).close()
    return source, target, tmp_path / "checkpoint"


# A batch that is repeated after its commit is above, without Spark.
@pytest.mark.parametrize("window", [pytest.param("commit", marks=pytest.mark.slow), "streams"])
def test_copy_whose_sink_dies_has_every_record_once(spark, tmp_path, window):
    source, target, checkpoint = places = made(tmp_path)
    with (
        registered(spark, dying_at(DyingBetweenStreams, window, 1)),
        pytest.raises(PySparkException),
    ):
        copy(spark, *places)
    assert not (checkpoint / "commits" / "1").exists()
    had = {name: len(records) for name, records in contents(target).items()}
    assert sum(had.values()) > 25
    copy(spark, *places)
    assert contents(target) == contents(source)


def killed(tmp_path, window, batch):
    """Run a copy that kills itself at a point; return its folders."""
    places = made(tmp_path)
    child = Path(__file__).with_name("stream_copy_child.py")
    done = subprocess.run(
        [sys.executable, child, *map(str, places), window, str(batch)],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    return places


@pytest.mark.slow
def test_copy_killed_after_commit_has_every_record_once(spark, tmp_path):
    source, target, checkpoint = killed(tmp_path, "commit", 1)
    assert not (checkpoint / "commits" / "1").exists()
    assert sum(map(len, contents(target).values())) > 25
    copy(spark, source, target, checkpoint)
    assert contents(target) == contents(source)


@pytest.mark.slow
def test_copy_killed_between_streams_has_every_record_once(spark, tmp_path):
    source, target, checkpoint = killed(tmp_path, "streams", 1)
    had = {name: len(records) for name, records in contents(target).items()}
    assert len(set(had.values())) > 1
    copy(spark, source, target, checkpoint)
    assert contents(target) == contents(source)

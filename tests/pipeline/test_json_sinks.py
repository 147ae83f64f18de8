"""`df.write` and `df.writeStream` into sessions and graphs: each row once, whatever is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from json_sink_child import Written, envelopes, events

import fourfold
from fourfold.errors import InvalidInput, NotFound, Refused, WriterLocked
from fourfold.pipeline import json_sink
from fourfold.pipeline.spark import unwrap_error
from server.served_streams import Served
from support.forked_process import ForkedProcess

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(json_sink, "JSON_SINK_PAGE", 3)


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create({"id": "a"})
        store.sessions.create({"id": "b"})
        app = store.graphs.register_app("notes", "Notes").app_id
        store.graphs.register_type(app, "parent", "note")
    return tmp_path / "store"


def contents(root, session="a"):
    with fourfold.open(root, mode="r") as store:
        every = store.sessions.events_since(session)
        return [
            int(event.data["message"]["content"])
            for event in every
            if event.type == "message/appended"
        ]


def parents(root):
    with fourfold.open(root, mode="r") as store:
        [(count,)] = store.sql("select count(*) from graphs_parents")
        return count


def fails(call):
    with pytest.raises(Exception) as caught:
        call()
    return unwrap_error(caught.value)


MODELS = [("sessions", events, lambda root: len(contents(root))), ("graphs", envelopes, parents)]


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_job_and_batch_are_written_once(root, model, rows, count):
    for _ in range(2):
        Written(root, model, rows(*range(5)), rows(5, 6), job="first", order="n").run()
    assert count(root) == 7
    for batch in (0, 1, 1, 0):
        Written(root, model, rows(batch), batch=batch, query="q", order="n").run()
    assert count(root) == 9
    Written(root, model, rows(0), order="n").run()
    Written(root, model, rows(0), order="n").run()
    assert count(root) == 11, "writes without a name are different ones"
    assert not list((root / ".pipeline" / "staging").glob("*"))


def test_events_have_the_order_of_the_option(root):
    Written(root, "sessions", events(4, 0, 2), events(3, 1), order="n").run()
    assert contents(root) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_killed_write_is_completed_by_the_next(root, model, rows, count):
    """Each run writes a page more than the one before it, and is killed."""
    child = Path(__file__).with_name("json_sink_child.py")
    written = {"before": 0, "after": 3}
    for pages in (1, 2):
        for when in ("before", "after"):
            # Sessions recognize each page that is sent again; graphs skip them.
            call = pages if model == "sessions" else 1
            with ForkedProcess([child, root, model, call, when]) as process:
                assert process.wait(120) == -signal.SIGKILL
            assert count(root) == 3 * (pages - 1) + written[when]
    for _ in range(2):
        Written(root, model, rows(*range(10)), job="once", order="n").run()
    assert count(root) == 10


@pytest.mark.parametrize(
    ("model", "rows", "problem"),
    [
        ("sessions", [{"session": "a", "event": "{"}], "not valid JSON"),
        ("sessions", [{"session": "a", "event": "[]"}], "must be a JSON object"),
        ("sessions", [{"session": "a", "event": '{"type": 1}'}], "type"),
        ("sessions", [{"session": None, "event": "{}"}, *events(1)], "must not be null"),
        ("sessions", [{"session": "a", "event": "{}", "more": 1}], "unknown column 'more'"),
        ("sessions", [{"event": "{}"}], "column 'session' is required"),
        ("graphs", [{"envelope": 1}], "must be string, got bigint"),
        ("graphs", [{"envelope": '{"trace_id": "t", "ops": []}'}], "ops"),
    ],
)
def test_invalid_rows_are_refused_before_anything_is_written(root, model, rows, problem):
    good = events(1) if model == "sessions" else envelopes(1)
    names = set(rows[0]) - {"n"}
    fits = names == set(good[0]) - {"n"} and isinstance(rows[0].get("envelope", ""), str)
    tasks = [good, rows] if fits else [rows]
    tasks = [[{name: row.get(name) for name in names} for row in task] for task in tasks]
    error = fails(lambda: Written(root, model, *tasks).run())
    assert isinstance(error, InvalidInput)
    assert problem in error.message
    assert contents(root) == []
    assert parents(root) == 0


def test_unknown_session_is_refused_or_created(root):
    rows = [*events(1), *events(2, session="new")]
    error = fails(lambda: Written(root, "sessions", rows, order="n").run())
    assert isinstance(error, NotFound)
    assert "unknown session 'new'" in error.message
    assert contents(root) == []
    for _ in range(2):
        Written(root, "sessions", rows, order="n", create="true", job="j").run()
    assert (contents(root), contents(root, "new")) == ([1], [2])


def test_refused_envelope_stops_the_batch_and_it_continues_there(root):
    rows = [*envelopes(0, 1, 2), *envelopes(3, type_key="later")]
    for _ in range(2):
        assert fails(lambda: Written(root, "graphs", rows, job="j", order="n").run()).kind
        assert parents(root) == 3
    with fourfold.open(root) as store:
        store.graphs.register_type(1, "parent", "later")
    Written(root, "graphs", rows, job="j", order="n").run()
    assert parents(root) == 4


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_locked_store_is_named_and_nothing_is_written(root, model, rows, count):
    with fourfold.open(root) as store:
        getattr(store, model)
        written = Written(root, model, rows(1), wait_s="0", order="n")
        error = fails(written.run)
    assert isinstance(error, WriterLocked | Refused)
    assert count(root) == 0


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_spark_writes_and_streams_into_the_model(spark, root, tmp_path, model, rows, count):
    source = tmp_path / "rows"
    frame = spark.createDataFrame(rows(*range(6)))
    frame.repartition(2).write.parquet(str(source))
    for _ in range(2):
        options = {"root": str(root), "model": model, "order": "n"}
        frame.write.format("fourfold").mode("append").options(job="j", **options).save()
        stream = spark.readStream.schema(frame.schema).parquet(str(source))
        query = (
            stream.writeStream.format("fourfold")
            .options(checkpointLocation=str(tmp_path / "checkpoint"), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert count(root) == 12


@pytest.fixture
def served(root):
    server = Served(root)
    yield server
    server.kill()


def address(server):
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_rows_are_written_once_into_a_served_store(served, root, tmp_path, model, rows, count):
    options = {"order": "n", "staging": str(tmp_path / "staging")}
    url = address(served)
    for _ in range(2):
        Written(url, model, rows(*range(5)), rows(5, 6), job="first", **options).run()
    for batch in (0, 1, 1, 0):
        Written(url, model, rows(batch), batch=batch, query="q", **options).run()
    served.kill()
    assert count(root) == 9


@pytest.mark.parametrize(("model", "rows", "count"), MODELS)
def test_killed_write_into_a_served_store_is_completed(
    served, root, tmp_path, model, rows, count, monkeypatch
):
    """The process is killed before and after a request, so also with a lost response."""
    child = Path(__file__).with_name("json_sink_child.py")
    for call in (1, 2, 3):
        for when in ("before", "after"):
            with ForkedProcess([child, address(served), model, call, when]) as process:
                assert process.wait(120) == -signal.SIGKILL
    for _ in range(2):
        staging = str(tmp_path / "staging")
        Written(
            *(address(served), model, rows(*range(10))), job="once", order="n", staging=staging
        ).run()
    served.kill()
    assert count(root) == 10

"""The sinks write to a running server through its API: every row once, also if it is sent again."""

from __future__ import annotations

import pytest
from staged_rows import A, B, patched, row, staged

import fourfold
from fourfold.errors import InvalidInput, NotFound, ProducerFenced
from fourfold.pipeline.documents import ingest, sink
from fourfold.pipeline.documents.ingest import ingest_through_api
from fourfold.pipeline.documents.staging import Batch
from fourfold.pipeline.sink import parse_destination
from fourfold.pipeline.streams.ingest import BatchReport, append_staged
from fourfold.pipeline.streams.sink import StreamColumns, stage
from server.served_streams import Served

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("sink") / "store"
    with fourfold.open(root) as store:
        store.space(A, "facts").set("old", {"n": 0})
        store.streams.create("json", "application/json")
        store.streams.create("text", "text/plain")
    server = Served(root)
    yield server
    server.kill()


@pytest.fixture
def store(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        yield store


def test_rows_are_committed_in_slices_and_once(store, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "SINK_SLICE_OPERATIONS", 4)
    rows = [row(f"n-{n}", {"n": n}, seq=n, space=(A, B)[n % 2]) for n in range(20)]
    rows += [patched("old", "seen", True, seq=20), row("n-0", op="delete", seq=21)]
    files = staged(tmp_path, rows[::2], rows[1::2])
    report = ingest_through_api(store, files, Batch("query:q"))
    assert (report.rows, report.spaces, report.commits, report.replayed) == (22, 2, 6, 0)
    again = ingest_through_api(store, files, Batch("query:q"))
    assert (again.rows, again.commits, again.replayed) == (0, 0, 2)
    assert store.space(A)["old"] == {"n": 0, "seen": True}
    assert "n-0" not in store.space(A)
    assert store.space(B)["n-19"] == {"n": 19}
    later = ingest_through_api(store, staged(tmp_path, [row("n-1", {"n": 2})]), Batch("query:q", 1))
    assert (later.rows, later.spaces) == (1, 1)


def test_interrupted_batch_is_completed(store, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "SINK_SLICE_OPERATIONS", 2)
    files = staged(tmp_path, [row(f"i-{n}", {"n": n}, seq=n) for n in range(7)])
    sent = []

    def refuse_third(operations):
        sent.append(operations)
        if len(sent) == 3:
            raise InterruptedError
        return operations

    whole = ingest._operation
    monkeypatch.setattr(ingest, "_operation", lambda entry: refuse_third(whole(entry)))
    with pytest.raises(InterruptedError):
        ingest_through_api(store, files, Batch("job:i"))
    monkeypatch.setattr(ingest, "_operation", whole)
    assert ingest_through_api(store, files, Batch("job:i")).rows == 5
    assert [entity for entity in store.space(A).ids() if entity.startswith("i-")] == [
        f"i-{n}" for n in range(7)
    ]


def test_bad_rows_and_unknown_branches_name_their_row(store, tmp_path):
    bad = staged(tmp_path, [row("a", {"n": 1}), row("b", "[1]")])
    with pytest.raises(InvalidInput, match="must be a JSON object"):
        ingest_through_api(store, bad, Batch("job:bad"))
    assert ingest_through_api(store, bad, Batch("job:bad", skip_bad=True)).refused_rows == 1
    unknown = staged(tmp_path, [row("a", {"n": 1}, branch="none")])
    with pytest.raises(NotFound, match=f"space {A}: "):
        ingest_through_api(store, unknown, Batch("job:branch"))


def records(store, name):
    return [each.payload for each in store.streams.open(name).read().records]


def test_records_are_appended_once(store, tmp_path):
    import pyarrow as pa  # noqa: PLC0415 - the tests of the library alone have none

    def staged_records(*rows):
        batch = pa.RecordBatch.from_pylist([{"stream": s, "payload": p} for s, p in rows])
        return [stage(iter([batch]), StreamColumns(), tmp_path / "records")]

    first = staged_records(("json", b"1"), ("text", b"x"), ("json", b"2"), ("text", b"y"))
    send = {"shape": StreamColumns(), "producer": "query:q"}
    assert append_staged(store.streams, first, batch=0, **send) == BatchReport(4, 2, 0)
    assert append_staged(store.streams, first, batch=0, **send) == BatchReport(0, 2, 2)
    assert append_staged(store.streams, staged_records(("json", b"3")), batch=2, **send).rows == 1
    with pytest.raises(ProducerFenced):
        append_staged(store.streams, first, batch=0, **send)
    assert (records(store, "json"), records(store, "text")) == ([b"1", b"2", b"3"], [b"x", b"y"])
    new = staged_records(("made", b"z"))
    with pytest.raises(NotFound):
        append_staged(store.streams, new, batch=3, **send)
    assert append_staged(store.streams, new, batch=3, content_type="text/plain", **send).rows == 1
    with pytest.raises(InvalidInput):
        append_staged(store.streams, staged_records(("json", b"{")), batch=4, **send)


def test_server_is_the_destination_of_a_write(served, tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{served.port}"
    monkeypatch.setenv("FOURFOLD_KEY", "ff_secret")
    assert parse_destination({"url": url}).key == "ff_secret"
    assert parse_destination({"url": url, "key": "ff_own"}).key == "ff_own"
    folder = parse_destination({"url": url}).staging({"staging": str(tmp_path)})
    assert folder == tmp_path
    monkeypatch.delenv("FOURFOLD_KEY")
    writer = sink._commit
    options = sink.WriteOptions(
        parse_destination({"url": url}), None, tmp_path / "own", Batch("job:whole")
    )
    files = staged(tmp_path / "own", [row("whole", {"n": 1})])
    writer([sink.Message(file) for file in files], options, options.batch)
    with fourfold.connect(url) as store:
        assert store.space(A)["whole"] == {"n": 1}

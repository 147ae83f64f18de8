"""Segments of streams in the Delta table `streams.records`: what other programs read."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from published_stores import open_store, published, rebuilt

from fourfold.archive import segment_writer, table_sweep
from fourfold.archive.delta_actions import AddFile, RemoveFile
from fourfold.archive.delta_log import DeltaLog
from fourfold.errors import ObjectStoreError
from fourfold.objects import FaultyStore, FolderStore, MemoryStore, open_objects
from fourfold.store import retention
from fourfold.store.restoration import rebuild
from fourfold.testing.faulty_store import Fault
from support.s3_server import serve_s3

delta = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
NAMES = ["stream", "file_id", "offset", "payload"]


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store", tmp_path / "objects") as opened:
        yield opened


def append(store, name, *payloads, **options):
    stream = store.streams.create(name, content_type="text/plain")
    for payload in payloads:
        stream.append(payload, **options)
    return stream


def online(store):
    """Every record of every stream, as readers of the store get them."""
    with store.streams.database.read() as snapshot:
        streams = snapshot.all("SELECT stream, incarnation FROM streams ORDER BY stream")
    return [
        (name, file_id, record.offset, record.payload)
        for name, file_id in streams
        for record in store.streams.open(name).read(limit=1_000).records
    ]


def logged(uri, options=None, version=None):
    """The rows of the table, on which deltalake and Polars agree."""
    table = delta.DeltaTable(uri, version=version, storage_options=options)
    columns = table.to_pyarrow_dataset().to_table(NAMES)
    rows = sorted(zip(*(columns.column(name).to_pylist() for name in NAMES), strict=True))
    frame = pl.scan_delta(uri, version=version, storage_options=options).select(NAMES).collect()
    assert sorted(frame.rows()) == rows
    return rows


def table_of(folder):
    return str(folder / "objects" / "streams+")


def last_changes(folder):
    """The files of the newest commit: action, and whether it changed data."""
    with FolderStore(folder / "objects") as objects:
        log = DeltaLog(objects, "streams")
        actions = log.read_commit(log.snapshot().version).actions
        files = [action for action in actions if isinstance(action, AddFile | RemoveFile)]
        return sorted((type(file).__name__, file.data_change) for file in files)


def problems(store):
    return [str(problem) for problem in store.verify(objects=True).problems]


def test_other_readers_see_the_records_of_each_point(tmp_path, store):
    was = []
    append(store, "orders é/1", "one", "two")
    append(store, "other", "x")
    for number in range(3):
        published(store)
        was.append(online(store))
        append(store, "orders é/1", f"more {number}")
    assert logged(table_of(tmp_path)) == was[-1]
    history = {
        entry["version"]: entry["tables"]
        for entry in delta.DeltaTable(str(tmp_path / "objects" / "catalog+")).history()
        if "tables" in entry
    }
    versions = sorted({tables["streams.records"] for tables in history.values()})
    assert [logged(table_of(tmp_path), version=version) for version in versions] == was
    assert problems(store) == []


def test_filters_of_other_readers_find_records(tmp_path, store):
    append(store, "a", "1", "2", key="ada", headers={"n": "1"})
    append(store, "b", "3")
    published(store)
    table = delta.DeltaTable(table_of(tmp_path))
    for name, value, count in (("stream", "a", 2), ("offset", 1, 1), ("routing_key", b"ada", 2)):
        rows = table.to_pyarrow_table(filters=[(name, "=", value)])
        assert rows.num_rows == count, name
        assert table.to_pyarrow_dataset().to_table(filter=ds.field(name) == value).num_rows == count
        frame = pl.scan_delta(table_of(tmp_path)).filter(pl.col(name) == value).collect()
        assert frame.height == count, name
    assert frame["headers"].to_list() == [b'{"n":"1"}'] * 2
    first = frame["append_time"].min()
    recent = pl.scan_delta(table_of(tmp_path)).filter(pl.col("append_time") >= first).collect()
    assert recent.height == 3
    assert table.to_pyarrow_table(filters=[("append_time", ">=", first)]).num_rows == 3


def test_other_readers_see_the_same_on_s3(tmp_path, monkeypatch):
    with serve_s3() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        url = server.url("shop") + "&allow_http=true"
        with open_store(tmp_path / "store", url) as store:
            append(store, "orders", "one", "two")
            published(store)
            append(store, "orders", "three")
            published(store)
            expected = online(store)
            assert problems(store) == []
        options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true"}
        options["AWS_REGION"] = "us-east-1"
        assert logged(f"s3://{server.bucket}/shop/streams", options) == expected


def test_segments_name_their_stream_in_every_row(tmp_path, store):
    append(store, "orders", "one", "two")
    published(store)
    (path,) = (tmp_path / "objects" / "streams+").glob("*/segments+/*.parquet")
    table = pq.read_table(path)
    (row,) = {(row["stream"], row["file_id"]) for row in table.to_pylist()}
    assert row == online(store)[0][:2]


def test_registration_adds_one_object_write(tmp_path):
    writes = []
    with open_store(tmp_path / "store", "memory:") as store:
        store._objects = FaultyStore(MemoryStore(), lambda call: count(call, writes))
        for number in range(5):
            append(store, f"s{number}", "one")
        published(store)
        writes.clear()
        for number in range(5):
            append(store, f"s{number}", "two")
        published(store)
    own = [key for key in writes if not key.startswith("streams/") or "/_delta_log/" in key]
    folders = sorted(key.split("/0")[0] for key in own)
    assert folders == [
        "catalog",
        "catalog/_delta_log",
        "streams/_delta_log",
        "tables/streams.positions",
        "tables/streams.positions/_delta_log",
    ]


def count(call, writes):
    if call.op in {"put", "upload"}:
        writes.append(call.key)


def test_compaction_replaces_files_without_changing_data(tmp_path, store):
    for number in range(5):
        append(store, "orders", f"{number}")
        published(store)
    expected = online(store)
    assert len(delta.DeltaTable(table_of(tmp_path)).file_uris()) == 5
    store.archive.compact()
    published(store)
    assert last_changes(tmp_path) == [("AddFile", False), *[("RemoveFile", False)] * 5]
    assert logged(table_of(tmp_path)) == expected
    # Files that the log had until now are deleted after their references.
    assert len(store.archive.collect(grace_s=0)) == 5
    assert logged(table_of(tmp_path)) == expected
    assert problems(store) == []


def test_objects_are_deleted_only_after_their_references(tmp_path, store):
    for number in range(5):
        append(store, "orders", f"{number}")
        published(store)
    expected = online(store)
    store.archive.compact()
    store.archive.collect(grace_s=-1)
    assert logged(table_of(tmp_path)) == expected
    assert problems(store) == []


def test_deleted_and_recreated_streams_are_other_incarnations(tmp_path, store):
    append(store, "orders", "old")
    append(store, "kept", "x")
    published(store)
    before = online(store)
    store.streams.delete("orders")
    published(store)
    assert logged(table_of(tmp_path)) == [row for row in before if row[0] == "kept"]
    append(store, "orders", "new")
    published(store)
    assert logged(table_of(tmp_path)) == online(store)
    assert {row[1] for row in online(store)}.isdisjoint({before[-1][1]})
    assert problems(store) == []


def test_retention_removes_files(tmp_path, store):
    stream = append(store, "orders", "one")
    published(store)
    append(store, "orders", "two", "three")
    published(store)
    stream.configure(retention_bytes=8)
    store.streams.sweep()
    store.archive.publish_all()
    published(store)
    assert [row[2] for row in online(store)] == [1, 2]
    assert logged(table_of(tmp_path)) == online(store)
    assert last_changes(tmp_path) == [("RemoveFile", True)]


def test_take_over_at_an_older_point_removes_later_segments(tmp_path, store):
    append(store, "orders", "one")
    first = published(store).point
    expected = online(store)
    append(store, "orders", "two")
    append(store, "later", "x")
    published(store)
    taken = rebuilt(tmp_path / "taken", tmp_path / "objects", at=first.id, take_over=True)
    assert logged(table_of(tmp_path)) == expected
    with open_store(taken, tmp_path / "objects") as other:
        assert online(other) == expected
        append(other, "orders", "another two")
        published(other)
        assert logged(table_of(tmp_path)) == online(other)
        assert problems(other) == []


def test_restored_store_continues_the_table(tmp_path, store):
    append(store, "orders", "one")
    published(store)
    store.close()
    again = rebuilt(tmp_path / "again", tmp_path / "objects")
    with open_store(again, tmp_path / "objects") as other:
        append(other, "orders", "two")
        published(other)
        assert logged(table_of(tmp_path)) == online(other)
        assert problems(other) == []


def test_checkpoint_of_the_log_keeps_all_segments(tmp_path, store, monkeypatch):
    monkeypatch.setattr(table_sweep, "CHECKPOINT_COMMITS", 1)
    for number in range(3):
        append(store, "orders", f"{number}")
        published(store)
    retention.collect(store, grace_s=-1)
    log = tmp_path / "objects" / "streams+" / "_delta_log"
    assert [path.name for path in log.glob("*.json")] == [f"{2:020}.json"]
    append(store, "orders", "after")
    published(store)
    assert logged(table_of(tmp_path)) == online(store)
    assert problems(store) == []


def write_plain(store, monkeypatch, name, *payloads):
    """Publish records in segments as older versions wrote them, without the name of the stream."""
    with monkeypatch.context() as patch:
        patch.setattr(segment_writer.SegmentLabel, "add_to", lambda _, batch: batch)
        append(store, name, *payloads)
        store.archive.publish_all()
    store.streams.database.transact(
        lambda txn: txn.execute("UPDATE segments SET labeled = 0 WHERE stream = ?1", (name,))
    )


@pytest.mark.parametrize("restored", [False, True])
def test_older_segments_are_left_out_until_compaction_rewrites_them(
    tmp_path, store, monkeypatch, restored
):
    write_plain(store, monkeypatch, "orders", "one", "two")
    append(store, "orders", "three")
    published(store)
    assert [row[2] for row in logged(table_of(tmp_path))] == [2]
    assert problems(store) == []
    if restored:
        store.close()
        again = rebuilt(tmp_path / "again", tmp_path / "objects")
        store = open_store(again, tmp_path / "objects")
    with store:
        assert not store.archive.compact().failures
        published(store)
        assert logged(table_of(tmp_path)) == online(store)
        assert len(online(store)) == 3
        assert problems(store) == []


def test_verify_reports_a_log_that_differs_from_the_segments(tmp_path, store):
    append(store, "orders", "one")
    append(store, "orders", "two")
    published(store)
    store.close()
    with closing(sqlite3.connect(tmp_path / "store" / "streams" / "wal.sqlite")) as database:
        database.execute("UPDATE segments SET labeled = 0")
        database.commit()
    with open_store(tmp_path / "store", tmp_path / "objects") as again:
        (problem,) = problems(again)
    assert "is not a segment of stream 'orders'" in problem


@pytest.mark.parametrize(
    "fault", [Fault.FAIL, pytest.param(Fault.TIME_OUT, marks=pytest.mark.slow)]
)
def test_publication_interrupted_at_any_write_is_completed(tmp_path, fault):
    """The write fails, or its response is lost; then the process starts again."""
    number = 0
    while interrupt_write(tmp_path / f"{number}", number, fault):
        number += 1
    # The file and the commit of the positions, the commit of the segments, and the catalog.
    assert number == 5


def interrupt_write(folder, number, fault):
    """Let a write and all after it fail; return False if there are fewer writes."""
    url, state = str(folder / "objects"), {"writes": 0, "armed": False}

    def plan(call):
        if not state["armed"] or call.op not in {"put", "upload", "delete_many"}:
            return None
        state["writes"] += 1
        return fault if state["writes"] > number else None

    with open_store(folder / "store", url) as store, open_objects(url) as objects:
        for at in range(4):
            append(store, "orders", f"{at}")
            store.archive.publish_all()
        append(store, "gone", "x")
        published(store)
        store.archive.compact()
        store.streams.delete("gone")
        append(store, "new", "y")
        store._objects = FaultyStore(objects, plan)
        state["armed"] = True
        try:
            report = store.publish()
            finished = not report.failures and state["writes"] <= number
        except ObjectStoreError:
            finished = False
    with open_store(folder / "store", url) as store:
        published(store)
        assert logged(table_of(folder)) == online(store)
        assert problems(store) == []
        expected = online(store)
    with open_store(folder / "again", url) as again:
        assert not rebuild(again).failures
        assert online(again) == expected
    return not finished

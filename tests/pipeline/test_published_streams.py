"""Published streams in Spark equal the node's reads, without the node."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from random_streams import collected, grown, origins, seen

import fourfold
from fourfold.archive import manifest
from fourfold.errors import CorruptData, InvalidInput, NotFound
from fourfold.objects import open_objects
from fourfold.pipeline import sql, views
from fourfold.pipeline.conditions import Condition, Conditions
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams import published_cut, published_frame, published_plan
from fourfold.pipeline.streams.published import published
from fourfold.pipeline.streams.published_tables import PUBLISHED
from support.s3_server import serve_s3

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with streams of every kind, mostly published."""
    return grown(tmp_path_factory.mktemp("published") / "a store", seed=4)


@pytest.fixture
def by_source(spark):
    """Return a function that reads published records with Fourfold's own reader."""

    def reader(objects, **options):
        source = spark.read.format("fourfold").option("table", "records")
        for name, value in {"objects": objects, **options}.items():
            source = source.option(name, str(value))
        return source.load()

    return reader


def nonempty(found):
    return {name: rows for name, rows in found.items() if rows}


def own(root):
    """Return each record once, under the stream that it was appended to."""
    start = origins(root)
    result = {
        name: [row for row in rows if row[0] >= start[name]] for name, rows in seen(root).items()
    }
    return nonempty(result)


def only_published(root, rows):
    """Return the records without those after the published end."""
    return only_published_at(str(root / "objects"), rows)


def only_published_at(url, rows):
    with open_objects(url) as objects:
        ends = dict.fromkeys(rows, -1)
        for name in rows:
            key = manifest.manifest_key(name)
            if objects.head(key) is not None:
                ends[name] = manifest.decode(objects.get(key).data, key).uploaded_through
    cut = {name: [row for row in result if row[0] <= ends[name]] for name, result in rows.items()}
    return nonempty(cut)


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_shared_records_are_in_source_and_fork(spark, by_source, store, tmp_path, seed):
    root = store if seed == 4 else grown(tmp_path / "other", seed)
    expected = only_published(root, nonempty(seen(root)))
    assert any(name.startswith("fork/") for name in expected)
    assert collected(published(spark, root / "objects", shared=True)) == expected
    assert collected(by_source(root / "objects", shared="true")) == expected


def test_published_without_node_equals_published_records(spark, by_source, store):
    expected = only_published(store, own(store))
    assert expected
    assert expected != own(store)
    assert collected(published(spark, store / "objects")) == expected
    assert collected(by_source(store / "objects")) == expected


def test_both_readers_return_same_columns(spark, by_source, store):
    native, other = published(spark, store / "objects"), by_source(store / "objects")
    assert native.schema.simpleString() == other.schema.simpleString()
    rows = sorted(native.collect(), key=lambda row: (row.stream, row.offset))
    assert rows == sorted(other.collect(), key=lambda row: (row.stream, row.offset))
    for row in rows:
        payload = bytes(row.payload)
        binary = row.content_type == "application/octet-stream"
        assert row.text == (None if binary else payload.decode())
        assert row.headers == ('{"trace":"l"}' if row.routing_key == "l" else None)
        assert row.size == len(payload)
        assert row.generation >= 1
    assert any(row.headers for row in rows)


def test_published_dataframe_excludes_later_records(spark, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        log = opened.streams.create("log", "text/plain")
        log.append([b"one", b"two"])
        opened.archive.publish_all()
        log.append([b"three"])
        frame = published(spark, root / "objects")
        opened.streams.create("new", "text/plain", body=b"four")
        opened.archive.publish_all()
    assert sorted(row.text for row in frame.collect()) == ["one", "two"]
    assert published(spark, root / "objects").count() == 4


def test_truncated_records_of_a_segment_are_skipped(spark, by_source, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root, settings={"archive.seal_rows": 10}) as opened:
        log = opened.streams.create("log", "text/plain", retention_bytes=8)
        log.append([b"%d" % n for n in range(10)])
        objects = opened.objects
        opened.archive.publish_all()
        key = manifest.manifest_key("log")
        info = json.loads(objects.get(key).data)
        info["first_offset"] = 4
        objects.put(key, json.dumps(info).encode())
    expected = list(range(4, 10))
    for frame in (published(spark, root / "objects"), by_source(root / "objects")):
        assert sorted(row.offset for row in frame.select("offset").collect()) == expected
        assert sorted(row.text for row in frame.select("text").collect()) == list("456789")
        assert frame.where("offset > 4 and offset <= 6").count() == 2


def test_published_selects_stream_pattern_and_time(spark, by_source, store):
    expected = only_published(store, own(store))
    objects = store / "objects"
    assert collected(published(spark, objects, streams="kept/1")) == {"kept/1": expected["kept/1"]}
    assert set(collected(by_source(objects, stream="kept/[01]"))) <= {"kept/0", "kept/1"}
    assert published(spark, objects, streams="nothing").count() == 0
    times = sorted(ms for rows in expected.values() for _, ms, _ in rows)
    middle = times[len(times) // 2]
    until = {name: [row for row in rows if row[1] <= middle] for name, rows in expected.items()}
    at = datetime.fromtimestamp(middle / 1000, UTC)
    assert collected(published(spark, objects, at=at)) == nonempty(until)
    assert collected(by_source(objects, at=at.isoformat())) == nonempty(until)
    with pytest.raises(InvalidInput, match="must be a time"):
        published(spark, objects, at="12")


def scan_of(frame):
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return next(line for line in plan.splitlines() if "FileScan" in line)


def test_folder_is_read_by_native_reader_with_pruning(spark, store):
    frame = published(spark, store / "objects")
    options = frame.where("stream = 'kept/1' and offset > 3").select("offset")
    scan = scan_of(options)
    assert "FileScan parquet" in scan
    assert "ReadSchema: struct<offset:bigint,stream:string>" in scan
    assert "EqualTo(stream,kept/1)" in scan
    assert "GreaterThan(offset,3)" in scan
    assert options.count() == len(only_published(store, own(store))["kept/1"]) - 4


def test_objects_are_plain_parquet_for_spark(spark, store):
    expected = only_published(store, own(store))["kept/0"]
    with open_objects(str(store / "objects")) as objects:
        key = manifest.manifest_key("kept/0")
        kept = list(manifest.decode(objects.get(key).data, key).kept())
        files = [str(objects.path(each.key)) for each in kept]
    assert len(files) > 1
    rows = spark.read.parquet(*files).orderBy("offset").collect()
    actual = [(row.offset, round(row.append_time.timestamp() * 1000), row.payload) for row in rows]
    assert actual == expected


def test_unreferenced_objects_are_not_read(spark, by_source, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        opened.streams.create("log", "text/plain", body=b"one")
        opened.archive.publish_all()
        [segment] = [each.key for each in opened.objects.list("streams/") if "/seg" in each.key]
        opened.objects.put(f"{segment.rpartition('/')[0]}/half.parquet", b"PAR1 half of it")
    for frame in (published(spark, root / "objects"), by_source(root / "objects")):
        assert [row.text for row in frame.collect()] == ["one"]


def test_damaged_manifest_is_named_or_skipped(spark, by_source, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        for name in ("good", "bad"):
            opened.streams.create(name, "text/plain", body=name.encode())
        opened.archive.publish_all()
        opened.objects.put(manifest.manifest_key("bad"), b"{}")
    objects = root / "objects"
    with pytest.raises(CorruptData, match=manifest.manifest_key("bad")):
        published(spark, objects)
    with pytest.raises(Exception, match=manifest.manifest_key("bad")) as caught:
        by_source(objects)
    assert isinstance(unwrap_error(caught.value), CorruptData)
    assert [row.text for row in published(spark, objects, skip_bad=True).collect()] == ["good"]
    made = views(spark, objects=objects, skip_bad=True, prefix="damaged_")
    assert [each.path for each in made.cut.bad] == [manifest.manifest_key("bad")]


def test_missing_object_is_named_in_error(by_source, tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        opened.streams.create("log", "text/plain", body=b"one")
        opened.archive.publish_all()
        [key] = [each.key for each in opened.objects.list("streams/") if "/seg" in each.key]
        opened.objects.delete(key)
    assert by_source(root / "objects", columns="stream,offset").count() == 1
    with pytest.raises(Exception, match="is missing") as caught:
        by_source(root / "objects").collect()
    assert key in unwrap_error(caught.value).message


def test_published_streams_are_views_in_sql(spark, store):
    expected = only_published(store, own(store))
    frame, made = sql(
        spark,
        "select stream, count(*) as n, max(offset) as last from records group by stream",
        objects=store / "objects",
    )
    assert made.names == ("records",)
    actual = {row.stream: (row.n, row["last"]) for row in frame.collect()}
    assert actual == {name: (len(rows), rows[-1][0]) for name, rows in expected.items()}
    for options in ({"store": store}, {"roots": "x*"}):
        with pytest.raises(InvalidInput, match="do not support a store"):
            views(spark, objects=store / "objects", **options)


@pytest.mark.slow
def test_sql_command_queries_objects(store):
    options = "select stream, count(*) as n from records where stream = 'kept/1' group by stream"
    command = ["-m", "fourfold", "sql", options, "--objects", str(store / "objects"), "--json"]
    done = subprocess.run([sys.executable, *command], capture_output=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert rows == [["kept/1", len(only_published(store, own(store))["kept/1"])]]


def test_published_refuses_unsupported_options(by_source, read, store):
    for options in (
        {"since": "3"},
        {"root": "x"},
        {"at": "3"},
        {"space": "did:web:x"},
        {"table": "streams"},
    ):
        with pytest.raises(Exception, match=r"option|must be|unknown table") as caught:
            by_source(store / "objects", **options)
        assert isinstance(unwrap_error(caught.value), InvalidInput | NotFound)
    with pytest.raises(Exception, match="shared"):
        read(store, "records", model="streams", shared="true")


def test_remote_object_store_is_read_in_workers(spark, by_source, tmp_path):
    with serve_s3() as server:
        url = server.url("shop")
        root = grown(tmp_path / "store", seed=6, steps=60, objects=url)
        expected = only_published_at(url, nonempty(seen(root)))
        assert collected(published(spark, url, shared=True)) == expected
        narrow = by_source(url, columns="stream,offset,size", stream="kept/*")
        sizes = {
            (name, offset): len(payload)
            for name, rows in only_published_at(url, own(root)).items()
            for offset, _, payload in rows
            if name.startswith("kept/") and offset >= 2
        }
        rows = narrow.where("offset >= 2").collect()
        assert {(row.stream, row.offset): row.size for row in rows} == sizes


def test_where_on_routing_key_skips_other_keys(spark, by_source, store):
    every = published(spark, store / "objects").select("stream", "offset", "routing_key").collect()
    expected = sorted(tuple(row) for row in every if row.routing_key == "m ü")
    assert 0 < len(expected) < len(every)
    for frame in (published(spark, store / "objects"), by_source(store / "objects")):
        options = frame.where("routing_key = 'm ü'").select("stream", "offset", "routing_key")
        assert sorted(map(tuple, options.collect())) == expected


@pytest.mark.parametrize(
    "where",
    [
        "routing_key = 'm ü'",
        "routing_key > 'm' and offset >= 2",
        "stream in ('kept/1', 'kept/2') and offset < 4",
        "content_type = 'application/json'",
    ],
)
def test_where_equals_dataframe_filter(spark, by_source, store, where):
    objects, columns = store / "objects", ["stream", "offset", "size"]
    whole = published(spark, objects).where(where).select(*columns)
    expected = sorted(map(tuple, whole.collect()))
    assert expected
    narrow = published(spark, objects, where=where, columns=columns)
    assert sorted(map(tuple, narrow.collect())) == expected
    options = {"where": where, "columns": ",".join(columns)}
    assert sorted(map(tuple, by_source(objects, **options).collect())) == expected


def test_where_prunes_objects_before_reading(store):
    url = str(store / "objects")
    cut = published_cut.read_cut(url)

    def parts(*conditions):
        works = published_plan.plan_tasks(
            cut,
            url,
            PUBLISHED.table("records").select_columns(),
            Conditions(conditions),
            until_ms=None,
            partition_bytes=4 * 2**20,
            batch_rows=100,
        )
        return [part for work in works for part in work.parts]

    assert parts() == list(cut.parts)
    one = Condition("stream", "=", ("kept/1",))
    own = [part for part in cut.parts if part.stream == "kept/1"]
    assert parts(one) == own
    few = parts(one, Condition("offset", ">", (4,)), Condition("offset", "<=", (6,)))
    assert 0 < len(few) < len(own)
    assert (few[0].low, few[-1].high) == (5, 7)
    json_only = parts(Condition("content_type", "in", ("application/json",)))
    assert {part.content_type for part in json_only} == {"application/json"}


def test_fork_source_read_too_early_is_read_again(tmp_path, monkeypatch):
    root = tmp_path / "store"
    with fourfold.open(root) as opened:
        log = opened.streams.create("log", "text/plain", body=b"one")
        opened.archive.publish_all()
        key = manifest.manifest_key("log")
        early = published_cut.manifest_info(manifest.decode(opened.objects.get(key).data, key))
        log.append([b"two"])
        log.fork("fork").append([b"three"])
        opened.archive.publish_all()
    info = published_cut._ManifestReader._info

    def stale(self, asked, first=[True]):  # noqa: B006
        if asked == key and first:
            first.clear()
            return early
        return info(self, asked)

    monkeypatch.setattr(published_cut._ManifestReader, "_info", stale)
    cut = published_cut.read_cut(str(root / "objects"), shared=True)
    assert [(part.low, part.high) for part in cut.parts if part.stream == "fork"] == [
        (2, 3),
        (0, 1),
        (1, 2),
    ]


def test_old_segments_without_labels_are_read(spark, by_source, tmp_path):
    """Rows of segments of older versions do not name their stream."""
    root = tmp_path / "store"
    with fourfold.open(root, settings={"archive.seal_rows": 10}) as opened:
        for name in ("one", "two"):
            opened.streams.create(name, "text/plain").append([b"%d" % n for n in range(10)])
        opened.archive.publish_all()
        opened.streams.open("one").append([b"10"])
        opened.archive.publish_all()
        objects = opened.objects
        key = manifest.manifest_key("one")
        info = json.loads(objects.get(key).data)
        info["unlabeled"] = info["segments"]["start_offset"][:1]
        objects.put(key, json.dumps(info).encode())
        [old, _] = [part.key for part in manifest.decode(objects.get(key).data, key).kept()]
        path = objects.path(old)
    rows = pq.ParquetFile(path).read().drop_columns(["stream", "file_id"])
    path.chmod(0o600)
    pq.write_table(rows, path)
    expected = {"one": [str(n) for n in range(11)], "two": [str(n) for n in range(10)]}
    for frame in (published(spark, root / "objects"), by_source(root / "objects")):
        found = {}
        for row in frame.orderBy("stream", "offset").collect():
            found.setdefault(row.stream, []).append(row.text)
        assert found == expected


def test_more_content_types_than_scans_are_joined(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(published_frame, "CONTENT_TYPES_MAX", 2)
    root = tmp_path / "store"
    kinds = ["text/plain", "text/html", "application/x-own"]
    with fourfold.open(root) as opened:
        for kind in kinds:
            opened.streams.create(kind, kind).append([kind.encode()])
        opened.archive.publish_all()
    rows = published(spark, root / "objects").collect()
    actual = {row.stream: (row.content_type, row.text, bytes(row.payload)) for row in rows}
    assert actual == {
        kind: (kind, kind if "text" in kind else None, kind.encode()) for kind in kinds
    }


def test_join_for_generation_is_dropped_if_unused(spark, store):
    frame = published(spark, store / "objects")
    assert "Join" in frame.select("generation")._jdf.queryExecution().optimizedPlan().toString()
    kept = published(spark, store / "objects", streams="kept/1").select("stream", "text")
    assert "Join" not in kept._jdf.queryExecution().optimizedPlan().toString()

"""Sealing, publishing, trimming and reading back, case by case."""

from __future__ import annotations

import os
import shutil
import sys
from random import Random

import pytest
from node import SMALL, keys, read_manifest

from fourfold import limits
from fourfold.archive import parquet
from fourfold.archive.manifest import manifest_key, name_hash
from fourfold.errors import MissingDependency, ObjectStoreError, Refused, StorageError
from fourfold.kernel import Transaction, failpoints
from fourfold.models.streams import Fork, StreamOptions
from fourfold.models.streams.archive import Policy
from fourfold.models.streams.archive.records import SQL
from fourfold.models.streams.archive.verify import object_problems, problems
from fourfold.models.streams.validation import format_offset
from fourfold.objects import Fault, FaultyStore, MemoryStore

# When a stream is due


@pytest.mark.parametrize(
    ("records", "size", "later_ms", "sealed"),
    [
        (3, 1, 0, 0),
        (4, 1, 0, 1),
        (2, 10, 0, 1),
        (1, 1, 60_000, 1),
        (1, 1, 59_999, 0),
    ],
)
def test_stream_is_sealed_by_records_by_bytes_or_by_age(node, records, size, later_ms, sealed):
    node.write("a", records, size=size)
    node.now += later_ms
    assert node.archive.round().sealed == sealed


def test_nothing_is_scanned_to_find_what_is_due(node):
    """Candidates come from indexes: the plan of each question walks one."""
    asked = {
        SQL.due_by_bytes: (1, 1),
        SQL.due_by_rows: (1, 1),
        SQL.due_by_age: (1, 1),
        SQL.pending_uploads: ("", 1),
        SQL.due_manifests: ("", 1),
        SQL.new_streams: (0, 1),
        SQL.deletable: (0, 1),
    }
    with node.database.read() as snapshot:
        for sql, params in asked.items():
            plan = " ".join(row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", params))
            assert "SEARCH" in plan or "USING" in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)


def test_an_append_touches_no_table_of_the_archive(make):
    """Also where streams are published: no trigger of the archive is a part of an append."""
    node = make()
    node.write("a", 9)
    node.archive.publish_all()
    tables = ("segments", "manifests", "stream_segment_meta", "retired_objects")

    def state():
        with node.database.read() as snapshot:
            return [snapshot.all(f"SELECT * FROM {table}") for table in tables]

    before = state()
    node.streams.open("a").append([b"more"])
    assert state() == before


# What a publication does


def test_records_leave_the_log_with_the_manifest_that_covers_them(node, objects):
    records = node.write("a", 10)
    node.archive.round()
    row = node.row("a")
    assert (row["sealed_through"], row["uploaded_through"]) == (7, 7)
    assert (row["uploaded_segment_count"], row["pending_rows"], row["wal_rows"]) == (2, 2, 2)
    assert node.log("a") == [8, 9]
    assert read_manifest(objects, "a").uploaded_through == 7
    assert node.read("a") == records
    assert node.streams.verify() == []


def test_a_read_joins_segments_and_log_without_a_seam(node):
    records = node.write("a", 11)
    node.archive.round()
    _, chunk = node.streams.read("a", format_offset(2))
    assert [record.offset for record in chunk.records] == list(range(2, 11))
    assert [record.payload for record in chunk.records] == records[2:]
    assert chunk.up_to_date


def test_all_four_places_are_read_from(node, objects, tmp_path):
    """Local file, cache, object store, log; and after the cache and the files are gone."""
    records = node.write("a", 13)
    node.archive.publish_all()
    node.write("a", 4, start=13)
    node.write("a", 1, start=17)
    expected = [*records, *(f"a-{n}".encode() for n in range(13, 18))]
    assert node.read("a") == expected
    shutil.rmtree(node.root / "segments")
    assert node.read("a") == expected
    node.open_archive()
    assert node.read("a") == expected


def test_a_failed_upload_leaves_everything_in_the_log(make, objects):
    node = make(over=FaultyStore(objects, lambda call: Fault.FAIL))
    records = node.write("a", 9)
    done = node.archive.round()
    assert isinstance(done.failures["a"], ObjectStoreError)
    assert node.log("a") == list(range(9))
    assert node.read("a") == records
    assert node.streams.verify() == []


def test_one_poisoned_stream_keeps_no_other_waiting(make, objects):
    poisoned = name_hash("a")
    plan = FaultyStore(objects, lambda call: Fault.FAIL if poisoned in call.key else None)
    node = make(over=plan)
    for name in ("a", "b", "c"):
        node.write(name, 9)
    done = node.archive.publish_all()
    assert set(done.failures) == {"a"}
    assert [node.log(name) for name in ("b", "c")] == [[], []]
    assert read_manifest(objects, "b").uploaded_through == 8
    assert set(node.archive.failures) == {"a"}


def test_unexpected_failure_affects_only_its_stream(make, objects):
    class Odd(MemoryStore):
        def upload(self, key, chunks, *, if_absent=False):
            if name_hash("a") in key:
                raise RuntimeError("out of nowhere")
            return super().upload(key, chunks, if_absent=if_absent)

    node = make(over=Odd())
    for name in ("a", "b"):
        node.write(name, 9)
    done = node.archive.publish_all()
    assert "out of nowhere" in done.failures["a"].message
    assert node.log("b") == []


def test_poisoned_streams_do_not_take_the_places_of_others(make, objects, monkeypatch):
    monkeypatch.setattr(limits, "ARCHIVE_STREAMS_PER_ROUND", 2)
    bad = {name_hash(name) for name in ("a", "b", "c")}
    plan = FaultyStore(objects, lambda call: Fault.FAIL if call.key.split("/")[1] in bad else None)
    node = make(over=plan)
    for name in ("a", "b", "c", "d"):
        node.write(name, 20 if name != "d" else 1)
    for _ in range(6):
        node.archive.round()
    assert read_manifest(objects, "d").next_offset == 1


def test_the_earliest_missing_segment_is_never_bypassed(make, objects):
    calls = []

    def plan(call):
        if call.op == "upload":
            calls.append(call.key)
            # The second segment cannot be uploaded.
            return Fault.FAIL if f"-{4:016d}-" in call.key else None
        return None

    node = make(over=FaultyStore(objects, plan))
    records = node.write("a", 12)
    done = node.archive.round()
    assert "a" in done.failures
    assert read_manifest(objects, "a").uploaded_through == 3
    assert not any(f"-{8:016d}-" in key for key in calls)
    assert node.log("a") == list(range(4, 12))
    assert node.read("a") == records


def test_arrays_are_appended_to_and_never_rewritten(node):
    node.write("a", 8)
    node.archive.round()

    def arrays():
        with node.database.read() as snapshot:
            return snapshot.one("SELECT * FROM stream_segment_meta")[2:]

    before = arrays()
    node.write("a", 8, start=8)
    node.archive.round()
    after = arrays()
    for old, new in zip(before, after, strict=True):
        assert new.startswith(old)
        assert len(new) == 2 * len(old)


def test_a_lost_segment_file_is_sealed_again_from_the_log(make, objects):
    broken = [True]
    node = make(over=FaultyStore(objects, lambda call: Fault.FAIL if broken[0] else None))
    records = node.write("a", 9)
    node.archive.round()
    shutil.rmtree(node.root / "segments" / "local")
    broken[0] = False
    assert not node.archive.publish_all().failures
    assert read_manifest(objects, "a").uploaded_through == 8
    assert node.read("a") == records
    assert node.streams.verify() == []


def test_publishing_everything_does_not_end_where_lost_files_are_found(node, objects):
    """All records were sealed and their objects are up, so nothing else is left to do; the node
    died before its manifest got up, and lost its segment files.
    """

    def die(_point):
        raise RuntimeError("the node is gone")

    records = node.write("a", 8)
    node.write("gone", 1)
    node.streams.delete("gone")
    failpoints.arm("archive.manifest.intended", die)
    node.archive.round(everything=True)
    failpoints.disarm()
    assert node.row("a")["sealed_through"] == 7
    assert keys(objects, "manifest.json") == []
    node.open_archive()
    shutil.rmtree(node.root / "segments")
    done = node.archive.publish_all()
    assert not done.failures
    assert [(database.stream, database.uploaded_through) for database in done.published] == [
        ("a", 7)
    ]
    assert read_manifest(objects, "a").uploaded_through == 7
    assert node.log("a") == []
    assert node.read("a") == records
    assert node.streams.verify() == []
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []


def test_segment_files_lost_repeatedly_fail_their_stream(node, objects):
    def lose(_point):
        shutil.rmtree(node.root / "segments" / "local")

    records = node.write("a", 8)
    failpoints.arm("archive.seal.committed", lose, repeat=True)
    failure = node.archive.publish_all().failures["a"]
    assert isinstance(failure, StorageError)
    assert "missing or damaged" in failure.message
    with pytest.raises(StorageError, match="missing or damaged"):
        node.archive.settle("a")
    assert node.read("a") == records
    failpoints.disarm()
    assert not node.archive.publish_all().failures
    assert read_manifest(objects, "a").uploaded_through == 7
    assert node.read("a") == records
    assert node.streams.verify() == []


def test_half_uploaded_segment_is_mended_and_nothing_else_is_overwritten(make, objects):
    torn = [True]

    def plan(call):
        if call.op == "upload" and torn[0]:
            torn[0] = False
            return Fault.TEAR
        return None

    node = make(over=FaultyStore(objects, plan))
    records = node.write("a", 9)
    assert not node.archive.publish_all().failures
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []
    assert node.read("a") == records


def test_a_manifest_whose_answer_was_lost_is_known_again(make, objects):
    def plan(call):
        return Fault.TIME_OUT if call.op == "put" else None

    node = make(over=FaultyStore(objects, plan))
    node.write("a", 9)
    node.archive.round()
    assert node.row("a")["uploaded_through"] == 7
    assert read_manifest(objects, "a").generation == 1


def test_manifest_of_the_previous_generation_is_replaced(node, objects):
    node.write("a", 8)
    node.archive.round()
    key = manifest_key("a")
    old = objects.get(key).data
    node.write("a", 4, start=8)
    node.archive.round()
    objects.put(key, old)
    node.write("a", 4, start=12)
    assert not node.archive.round().failures
    assert read_manifest(objects, "a").uploaded_through == 15
    assert node.streams.verify() == []


def test_verify_writes_nothing_to_the_folder(node, objects, tmp_path, monkeypatch):
    here = tmp_path / "home"
    theirs = [here / ".film.parquet.1.partial", here / "deep" / "mine.partial", here / "x.parquet"]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"foreign")
    monkeypatch.chdir(here)
    looked_at = []
    monkeypatch.setattr(os, "walk", lambda top: looked_at.append(top) or iter(()))
    node.streams.create("a", "text/plain").append([b"x"] * 40, key="k")
    assert not node.archive.publish_all().failures
    assert not node.archive.index().failures
    assert not node.archive.publish_all().failures
    looked_at.clear()
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []
    assert looked_at == []
    assert all(path.read_bytes() == b"foreign" for path in theirs)


def test_change_during_an_upload_is_in_the_next_manifest(node, objects):
    node.write("a", 4)
    failpoints.arm("archive.manifest.uploaded", lambda _point: node.streams.open("a").close())
    node.archive.round()
    failpoints.disarm()
    manifest = read_manifest(objects, "a")
    assert (manifest.generation, manifest.closed) == (2, True)


def test_stream_deleted_while_published_is_marked_deleted(node, objects):
    node.write("a", 4)
    failpoints.arm("archive.manifest.uploaded", lambda _point: node.streams.delete("a"))
    node.archive.round()
    failpoints.disarm()
    node.archive.round()
    assert read_manifest(objects, "a").deleted
    node.archive.collect(grace_s=0)
    assert [info.key for info in objects.list("streams/") if "/segments/" in info.key] == []
    assert node.streams.verify() == []


def test_new_stream_of_a_name_replaces_the_one_being_published(node, objects):
    """The node died when the manifest of the one before was up, and was not recorded."""

    def begin_again_and_die(_point):
        node.streams.delete("a")
        node.write("a", 4, start=100)
        raise RuntimeError("the node is gone")

    node.write("a", 8)
    failpoints.arm("archive.manifest.uploaded", begin_again_and_die)
    node.archive.round()
    failpoints.disarm()
    before = read_manifest(objects, "a")
    node.open_archive()
    assert not node.archive.publish_all().failures
    after = read_manifest(objects, "a")
    assert after.incarnation != before.incarnation
    assert (before.uploaded_through, after.uploaded_through) == (7, 3)
    assert node.read("a") == [f"a-{number}".encode() for number in range(100, 104)]
    node.archive.collect(grace_s=0)
    assert node.streams.verify() == []
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []


def test_records_trimmed_while_being_sealed_are_counted_once(make):
    node = make()
    node.streams.create("a", "text/plain", retention_bytes=10)
    node.write("a", 6)
    failpoints.arm("archive.segment.built", lambda _point: node.streams.sweep())
    node.archive.round()
    failpoints.disarm()
    assert node.streams.verify() == []
    node.archive.publish_all()
    assert node.streams.verify() == []
    first = node.streams.info("a").first_offset
    assert first > 0
    assert node.read("a", format_offset(first)) == [f"a-{n}".encode() for n in range(first, 6)]


@pytest.mark.parametrize("sub", [0, 1, 4, 6])
def test_a_fork_of_what_is_only_in_segments_is_whole(node, sub):
    records = node.write("a", 12)
    node.archive.publish_all()
    node.streams.create("f", fork=Fork("a", 2, sub))
    joined = b"".join(records[:2]) + b"".join(records[2:])[:sub]
    assert b"".join(node.read("f")) == joined
    assert node.streams.info("f").size_bytes == len(joined)


@pytest.mark.parametrize("seed", range(4))
def test_fork_of_published_records_reads_no_object_while_it_writes(node, monkeypatch, seed):
    random = Random(seed)
    model = {"a": node.write("a", 12)}
    size_from, records = node.streams.cold.size_from, node.streams.cold.records
    for name, method in (("size_from", size_from), ("records", records)):

        def outside(snapshot, *range_, method=method):
            assert not isinstance(snapshot, Transaction)
            return method(snapshot, *range_)

        monkeypatch.setattr(node.streams.cold, name, outside)
    for number in range(12):
        source = random.choice(list(model))
        rest = len(b"".join(model[source])) - 1
        at = random.randint(0, len(model[source]) - 1)
        sub = random.randint(0, rest - len(b"".join(model[source][:at])))
        size = len(b"".join(model[source][:at])) + sub
        name = f"f{number}"
        made = node.streams.create_with_options(
            StreamOptions(name, None, fork=Fork(source, at, sub))
        )
        assert made.info.size_bytes == size
        shared = node.read(name)
        assert b"".join(shared) == b"".join(model[source])[:size]
        model[name] = shared + node.write(name, random.randint(1, 8))
        if random.random() < 0.5:
            node.archive.publish_all()
        assert node.streams.verify() == []


def test_verify_is_sound_while_a_segment_leaves_the_log(make):
    node = make(policy=Policy(seal_bytes=SMALL.seal_bytes, seal_rows=4, trim_rows=1))
    node.write("a", 8)
    node.streams.create("f", fork=Fork("a", 3))
    seen = []

    def look(_point):
        seen.append(node.streams.verify())

    failpoints.arm("archive.manifest.sliced", look, repeat=True)
    node.archive.publish_all()
    failpoints.disarm()
    assert len(seen) > 2
    assert not any(seen)


def test_fork_is_measured_when_its_source_is_published_meanwhile(node, monkeypatch):
    records = node.write("a", 12)
    monkeypatch.setattr("fourfold.models.streams.forks.STREAM_FORK_SLICE", 2)
    reads, read = 0, node.database.read

    def publishing(**options):
        nonlocal reads
        reads += 1
        if reads == 4:
            node.archive.publish_all()
        return read(**options)

    monkeypatch.setattr(node.database, "read", publishing)
    made = node.streams.create_with_options(StreamOptions("f", None, fork=Fork("a", 6)))
    assert made.info.size_bytes == len(b"".join(records[:6]))
    assert node.read("f") == records[:6]
    assert node.streams.verify() == []


def test_fork_of_published_records_is_refused_without_an_object_store(node):
    node.write("a", 8)
    node.archive.publish_all()
    node.streams.cold = None
    with pytest.raises(Refused, match="segments"):
        node.streams.create("f", fork=Fork("a", 3))
    assert node.streams.create_with_options(StreamOptions("f", None, fork=Fork("a"))).created


def test_write_ahead_log_is_emptied_now_and_then_after_trim(node, monkeypatch):
    wal = node.root / "wal.sqlite-wal"
    node.write("a", 8)
    node.archive.round()
    assert wal.stat().st_size > 0
    monkeypatch.setattr("fourfold.models.streams.archive.archiver.ARCHIVE_CHECKPOINT_S", 0.0)
    node.archive.round()
    assert wal.stat().st_size == 0
    node.write("a", 1, start=8)
    node.archive.round()
    assert wal.stat().st_size > 0


def test_requests_are_counted_by_stream_and_kind(node, objects):
    node.write("a", 8)
    node.archive.round()
    with node.database.read() as snapshot:
        rows = snapshot.all(SQL.request_counts, (name_hash("a"),))
    counts = {(artifact, op): count for artifact, op, count, _ in rows}
    assert counts == {("segment", "put"): 2, ("manifest", "put"): 1}


def test_publishing_without_pyarrow_names_the_missing_package(node, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    parquet.arrow.cache_clear()
    node.write("a", 8)
    try:
        done = node.archive.round()
    finally:
        monkeypatch.undo()
        parquet.arrow.cache_clear()
    assert isinstance(done.failures["a"], MissingDependency)
    assert "fourfold[archive]" in done.failures["a"].hint


# What is damaged is named


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE segments SET start_offset = 3 WHERE segment_index = 1", "segments"),
        ("UPDATE segments SET uploaded_at_ms = NULL WHERE segment_index = 0", "segments"),
        ("DELETE FROM segments WHERE segment_index = 1", "arrays"),
        ("UPDATE stream_segment_meta SET segment_offsets = x'00'", "arrays"),
        ("UPDATE segments SET size_bytes = size_bytes + 1 WHERE segment_index = 0", "entry 0"),
        ("DELETE FROM stream_segment_meta", "sealed"),
        ("UPDATE manifests SET last_uploaded_etag = NULL", "manifests"),
    ],
)
def test_a_damaged_table_of_the_archive_is_named(node, damage, says):
    node.write("a", 8)
    node.archive.publish_all()

    with pytest.raises(ZeroDivisionError), node.database.write() as txn:
        damage_and_look(txn, damage, says)
    assert node.streams.verify() == []


def test_without_an_object_store_a_cold_read_is_refused(node):
    node.write("a", 8)
    node.archive.publish_all()
    node.streams.cold = None
    with pytest.raises(Refused, match="segments"):
        node.streams.read("a")


def test_a_node_works_in_the_background(make, objects):
    node = make(policy=Policy(seal_bytes=SMALL.seal_bytes, seal_rows=4))
    with node.archive.running(every_s=0.001):
        records = node.write("a", 50)
        while node.row("a")["uploaded_through"] < 47:
            pass
    assert node.read("a") == records
    assert node.streams.verify() == []


def damage_and_look(txn, damage, says):
    txn.execute(damage)
    assert says in " ".join(problems(txn))
    raise ZeroDivisionError

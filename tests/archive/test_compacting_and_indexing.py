"""Segments are indexed and compacted after they are published."""

from __future__ import annotations

import io
import json

import msgspec
import pyarrow.parquet as pq
import pytest
from keyed_streams import TINY, by_key, fill, key, numbers, rows, sound
from node import keys, read_manifest

from fourfold.archive import index_runs
from fourfold.archive.manifest import encode, manifest_key
from fourfold.errors import InvalidInput
from fourfold.models.streams.archive import Policy, compaction
from fourfold.models.streams.archive.indexes import builder
from fourfold.models.streams.archive.verify import object_problems


@pytest.fixture
def node(make):
    return make(policy=TINY)


# Indexing


def test_runs_are_sorted_and_say_where_each_key_is(node, tmp_path):
    fill(node, "a", 16, key)
    node.archive.publish_all()
    node.archive.index()
    (run,) = read_manifest(node.objects, "a").index.runs
    table = pq.read_table(io.BytesIO(node.objects.get(run.key).data))
    prints = table.column("fingerprint").to_pylist()
    assert prints == sorted(prints)
    assert sum(table.column("records").to_pylist()) == sum(1 for n in range(16) if key(n))
    assert run.entries == table.num_rows
    assert run.filter_bytes > 0
    assert (run.start_offset, run.end_offset) == (0, 15)


def test_only_what_is_not_indexed_is_indexed(node):
    fill(node, "a", 16, key)
    node.archive.publish_all()
    assert node.archive.index().segments == 4
    assert node.archive.index().segments == 0
    fill(node, "a", 0, key).append([b"x"] * 4, key="key-1")
    node.archive.publish_all()
    assert node.archive.index(everything=False).segments == 0
    assert node.archive.index().segments == 1
    assert rows(node, "SELECT stream, indexed_through FROM index_state") == [("a", 5)]


def test_what_was_built_twice_counts_once(node):
    """Two builders of the same run, or of the same segment, as two jobs may be."""
    fill(node, "a", 16, key)
    node.archive.publish_all()
    (incarnation,) = rows(node, "SELECT incarnation FROM streams")[0]
    upkeep, folder = node.archive.upkeep, node.root / "elsewhere"
    with node.database.read() as snapshot:
        (task,) = builder.tasks(snapshot, "a", incarnation, TINY, folder, everything=True)
        (group,) = compaction.due(snapshot, TINY)
    built = [builder.build(node.archive.segments, task, folder / str(n)) for n in range(2)]
    assert [upkeep.adopt_run(run) for run in built] == [True, False]
    made = [
        compaction.build(node.archive.segments, group, folder / str(n), folder) for n in range(2)
    ]
    assert upkeep.adopt_segment(made[0])
    upkeep.publish("a")
    assert not upkeep.adopt_segment(made[1])
    node.archive.collect(grace_s=0)
    assert len(keys(node.objects, "parquet")) == 2
    assert by_key(node, "a", "key-1") == numbers(16, "key-1")
    sound(node)


def test_runs_are_merged_by_level_and_deleted_after_grace(node):
    fill(node, "a", 16 * 9, key)
    node.archive.publish_all()
    node.archive.index()
    active = "SELECT level, start_segment, end_segment FROM index_runs WHERE retired_at_ms IS NULL"
    assert rows(node, active) == [(2, 0, 35)]
    retired = rows(node, "SELECT count(*), min(retired_gen) > 0 FROM index_runs WHERE level < 2")
    assert retired == [(12, 1)]
    assert len(keys(node.objects, "parquet")) == 36 + 13
    assert node.archive.collect() == []
    assert len(node.archive.collect(grace_s=0)) == 12
    assert rows(node, "SELECT count(*) FROM index_runs") == [(1,)]
    assert len(keys(node.objects, "parquet")) == 36 + 1
    assert by_key(node, "a", "key-1") == numbers(16 * 9, "key-1")
    sound(node)


def test_a_merge_in_parts_is_the_same(node, monkeypatch):
    monkeypatch.setattr("fourfold.archive.index_runs.INDEX_MERGE_ROWS", 7)
    monkeypatch.setattr("fourfold.archive.index_runs.INDEX_GROUP_ROWS", 4)
    index_runs._options.cache_clear()
    fill(node, "a", 16 * 9, key)
    node.archive.publish_all()
    node.archive.index()
    index_runs._options.cache_clear()
    for wanted in ("key-0", "key-3", "unknown"):
        assert by_key(node, "a", wanted) == numbers(16 * 9, wanted)


def test_stream_without_keys_gets_no_run_and_no_new_manifest(node):
    fill(node, "a", 16, lambda _number: None)
    node.archive.publish_all()
    before = read_manifest(node.objects, "a").generation
    done = node.archive.index()
    assert (done.segments, done.runs) == (4, 0)
    assert rows(node, "SELECT count(*) FROM index_runs") == [(0,)]
    assert read_manifest(node.objects, "a").generation == before
    assert by_key(node, "a", "key") == []


def test_index_lost_or_damaged_costs_time_and_nothing_else(make, node):
    fill(node, "a", 48, key)
    node.archive.publish_all()
    node.archive.index()
    first, *others = read_manifest(node.objects, "a").index.runs
    node.objects.delete(first.key)
    for other in others:
        node.objects.put(other.key, b"damaged")
    node.close()
    again = make(policy=TINY)
    for path in (again.root / "segments" / "cache").rglob("*run*"):
        path.unlink()
    assert by_key(again, "a", "key-1") == numbers(48, "key-1")
    with again.database.read() as snapshot:
        assert len(list(object_problems(snapshot, again.objects))) == 1 + len(others)


def test_run_that_says_something_else_than_its_segments_is_named(node):
    """Its bytes are whole, and it was made of other records: only looking at both tells."""
    fill(node, "a", 16, key)
    fill(node, "b", 16, lambda number: f"key-{number % 4}")
    node.archive.publish_all()
    node.archive.index()
    sound(node)
    (one,) = read_manifest(node.objects, "a").index.runs
    (other,) = read_manifest(node.objects, "b").index.runs
    name = manifest_key("a")
    manifest = read_manifest(node.objects, "a")
    wrong = msgspec.structs.replace(other, start_offset=one.start_offset)
    index = msgspec.structs.replace(manifest.index, runs=[wrong])
    node.objects.put(name, encode(msgspec.structs.replace(manifest, index=index)))
    with node.database.read() as snapshot:
        (problem,) = object_problems(snapshot, node.objects)
    assert "does not match its segments" in problem


def test_a_node_is_rebuilt_with_its_indexes(make, node):
    fill(node, "a", 48, key)
    node.archive.publish_all()
    node.archive.index()
    node.archive.collect(grace_s=0)
    other = make("other", policy=TINY)
    report = other.bootstrap()
    assert not report.unclaimed
    for table in ("index_state", "index_runs"):
        columns = "stream, indexed_through" if table == "index_state" else "object_key, end_segment"
        sql = f"SELECT {columns} FROM {table} WHERE stream = 'a'"
        alive = sql if table == "index_state" else f"{sql} AND retired_at_ms IS NULL"
        assert rows(other, alive) == rows(node, alive)
    before = other.archive.segments.opened
    assert by_key(other, "a", "key-1") == numbers(48, "key-1")
    assert other.archive.segments.opened - before <= 12
    sound(other)


def test_truncated_or_deleted_stream_leaves_no_run(node):
    stream = node.streams.create("a", "text/plain", retention_bytes=20)
    for _ in range(32):
        stream.append([b"0123456789"], key="k")
    node.archive.publish_all()
    node.archive.index()
    node.streams.sweep()
    node.archive.publish_all()
    node.archive.collect(grace_s=0)
    first = stream.info.first_offset
    assert first >= 28
    runs_left = read_manifest(node.objects, "a").index.runs
    assert all(run.end_offset >= first for run in runs_left)
    assert len(keys(node.objects, "parquet")) == len(runs_left) + len(
        list(read_manifest(node.objects, "a").kept())
    )
    node.streams.delete("a")
    node.archive.publish_all()
    node.archive.collect(grace_s=0)
    assert keys(node.objects, "parquet") == []
    assert rows(node, "SELECT count(*) FROM key_runs") == [(0,)]


# Fields


def test_messages_are_found_by_a_field(node):
    stream = node.streams.create("a", "application/json")
    for number in range(40):
        stream.append(json.dumps({"customer": {"id": number % 7}, "n": number}).encode())
    node.archive.publish_all()
    plain = by_key(node, "a", None, where=("customer.id", 3))
    assert plain == [number for number in range(40) if number % 7 == 3]
    node.archive.upkeep.declare("a", "customer.id")
    node.archive.index()
    assert rows(node, "SELECT stream, index_name, indexed_through FROM secondary_index_state") == [
        ("a", "customer.id", 10)
    ]
    before = node.archive.segments.opened
    assert by_key(node, "a", None, where=("customer.id", 3)) == plain
    assert node.archive.segments.opened - before == len({number // 4 for number in plain})
    assert by_key(node, "a", None, where=("customer.id", "3")) == []
    sound(node)


def test_a_field_of_what_has_no_fields_is_refused(node):
    fill(node, "a", 1, key)
    with pytest.raises(InvalidInput):
        node.archive.upkeep.declare("a", "customer")
    with pytest.raises(InvalidInput):
        node.archive.upkeep.declare("a", "customer..id")


# Compacting


def test_small_segments_become_one_and_every_record_stays(node):
    records = node.write("a", 40)
    node.archive.publish_all()
    before = read_manifest(node.objects, "a")
    assert before.segment_count == 10
    done = node.archive.compact()
    assert (done.segments, done.compacted) == (10, 1)
    after = read_manifest(node.objects, "a")
    assert after.generation == before.generation + 1
    (only,) = after.kept()
    assert (only.start_offset, only.end_offset) == (0, 39)
    assert node.read("a") == records
    assert node.row("a")["uploaded_segment_count"] == 1
    sound(node)
    assert node.archive.compact().compacted == 0


def test_the_old_segments_are_deleted_after_grace_and_not_before(node):
    records = node.write("a", 40)
    node.archive.publish_all()
    old = {segment.key for segment in read_manifest(node.objects, "a").kept()}
    node.archive.compact()
    assert node.archive.collect() == []
    assert old < set(keys(node.objects, "parquet"))
    assert {info.key for info in node.archive.collect(grace_s=0)} == old
    assert len(keys(node.objects, "parquet")) == 1
    assert node.read("a") == records


def test_reader_in_middle_of_old_segment_goes_on(node):
    records = node.write("a", 40)
    node.archive.publish_all()
    with node.database.read() as snapshot:
        reading = node.archive.cold.records(snapshot, 1, 0, 40)
        found = [next(reading).payload for _ in range(3)]
        node.archive.compact()
        node.archive.collect()
        found += [record.payload for record in reading]
    assert found == records


def test_large_segments_and_those_with_a_gap_are_left_alone(make):
    node = make(
        policy=Policy(seal_rows=4, compact_bytes=200, compact_rows=1_000, compact_segments=2)
    )
    node.write("a", 12, size=30)
    node.archive.publish_all()
    assert node.archive.compact().compacted == 0


def test_segments_after_the_compacted_ones_move_up(node):
    records = node.write("a", 16)
    node.archive.publish_all()
    stream = node.streams.open("a")
    for letter in b"xyz":
        records.append(bytes([letter]) * 6_000)
        stream.append([records[-1]])
        node.archive.publish_all()
    stream.append([b"sealed"])
    records.append(b"sealed")
    assert node.archive.compact().segments == 4
    sound(node)
    indexes = rows(node, "SELECT segment_index FROM segments ORDER BY start_offset")
    assert indexes == [(0,), (1,), (2,), (3,)]
    node.archive.publish_all()
    assert node.read("a") == records
    sound(node)


def test_a_group_at_least_doubles_its_largest(node):
    node.write("a", 400)
    node.archive.publish_all()
    assert node.archive.compact().compacted == 1
    node.write("a", 4, start=400)
    node.archive.publish_all()
    assert node.archive.compact().compacted == 0


def test_indexes_stay_right_when_segments_are_compacted(node):
    fill(node, "a", 48, key)
    node.archive.round()
    node.archive.index()
    before = by_key(node, "a", "key-1")
    assert node.archive.compact().compacted == 1
    assert by_key(node, "a", "key-1") == before == numbers(48, "key-1")
    through, segments = rows(
        node, "SELECT indexed_through, (SELECT max(end_segment) FROM index_runs) FROM index_state"
    )[0]
    assert (through, segments) == (1, 0)
    sound(node)


def test_run_goes_on_from_middle_of_compacted_segment(node):
    fill(node, "a", 16, key)
    node.archive.publish_all()
    node.archive.index()
    stream = node.streams.open("a")
    for number in range(16, 36):
        stream.append([b"x"], key=key(number))
    node.archive.publish_all()
    assert node.archive.compact().compacted == 1
    assert node.archive.index().segments == 1
    covered = rows(
        node, "SELECT start_offset, end_offset FROM key_runs WHERE retired_at_ms IS NULL"
    )
    assert sorted(covered) == [(0, 15), (16, 35)]
    for wanted in ("key-1", "key-2"):
        assert by_key(node, "a", wanted) == numbers(36, wanted)
    sound(node)


def test_companions_of_compacted_segments_are_retired_and_the_others_renumbered(node):
    node.write("a", 16)
    node.archive.publish_all()
    with node.database.write() as txn:
        txn.execute("INSERT INTO search_companion_plans VALUES ('a', 1, 'h', '{}', 0)")
        for index in range(4):
            txn.execute(
                "INSERT INTO search_segment_companions VALUES "
                "('a', ?1, 'streams/x/segments/c' || ?1, 1, '[]', '{}', 5, NULL, NULL, 0)",
                (index,),
            )
    node.archive.compact()
    assert rows(node, "SELECT count(*) FROM search_segment_companions") == [(0,)]
    assert len([info for info in node.archive.collect(grace_s=0) if "streams/x" in info.key]) == 4
    sound(node)

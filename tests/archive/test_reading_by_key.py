"""Reads by key find every record, in the log and in segments, and open few segments for it."""

from __future__ import annotations

from random import Random

import pytest
from keyed_streams import TINY, by_key, fill, key, numbers, rows, sound
from node import Node

from fourfold import limits
from fourfold.archive.segment_reader import SegmentRequest
from fourfold.errors import InvalidInput
from fourfold.models.streams.archive import Policy
from fourfold.models.streams.records import RecordFilter
from fourfold.models.streams.validation import format_offset
from fourfold.objects import MemoryStore


@pytest.fixture
def node(make):
    return make(policy=TINY)


def test_records_in_the_log_are_found_by_their_routing_key(node):
    fill(node, "a", 20, key)
    assert by_key(node, "a", "key-1") == numbers(20, "key-1")
    assert by_key(node, "a", b"key-2") == numbers(20, "key-2")
    assert by_key(node, "a", "unknown") == []


def test_the_log_is_asked_through_its_index(node):
    fill(node, "a", 5, key)
    plan = rows(
        node,
        "EXPLAIN QUERY PLAN SELECT offset FROM wal_log WHERE sid = 1 AND routing_key = x'00' "
        "AND offset >= 0 AND offset < 9 ORDER BY offset",
    )
    used = "SEARCH wal_log USING COVERING INDEX wal_stream_key_idx "
    used += "(sid=? AND routing_key=? AND offset>? AND offset<?)"
    assert [step[3] for step in plan] == [used]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_key_is_found_in_segments_and_in_log_together(node, indexed, compacted):
    fill(node, "a", 30, key)
    node.archive.round()
    assert 0 < len(node.log("a")) < 30
    if indexed:
        assert node.archive.index().runs
    if compacted:
        assert node.archive.compact().compacted
    fill(node, "a", 0, key).append([b"a-30"], key="key-1")
    for wanted in ("key-0", "key-1", "key-4"):
        extra = [30] if wanted == "key-1" else []
        assert by_key(node, "a", wanted) == numbers(30, wanted) + extra
    later = [number for number in numbers(30, "key-1") if number >= 12]
    assert by_key(node, "a", "key-1", format_offset(12)) == [*later, 30]
    sound(node)


def test_a_read_by_key_goes_on_from_where_it_was(node):
    fill(node, "a", 40, key)
    node.archive.publish_all()
    node.archive.index()
    at, found = "-1", []
    while True:
        _, chunk = node.streams.read("a", at, records_max=2, sought=RecordFilter(b"key-2"))
        assert len(chunk.records) <= 2
        found += [record.offset for record in chunk.records]
        at = chunk.offset
        if chunk.up_to_date:
            break
    assert found == numbers(40, "key-2")


def test_a_filter_examines_segments_and_the_log_in_bounded_steps(node, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.FIELD_READ_RECORDS", 8)
    stream = node.streams.create("j", "application/json")
    for number in range(40):
        stream.append({"n": number, "even": number % 2 == 0}, key=f"k{number % 3}")
    node.archive.round()
    assert 0 < len(node.log("j")) < 40
    for options, expected in (
        ({"where": {"even": True}}, list(range(0, 40, 2))),
        ({"where": {"n": {"$gte": 37}}}, [37, 38, 39]),
        ({"where": {"even": True}, "key": "k1"}, [4, 10, 16, 22, 28, 34]),
    ):
        chunks = [stream.read(**options)]
        while not chunks[-1].up_to_date:
            chunks.append(stream.read(chunks[-1].offset, **options))
        found = [record.value["n"] for chunk in chunks for record in chunk]
        assert found == expected
        assert len(chunks) >= 2


def test_a_key_that_cannot_be_one_is_refused(node):
    stream = fill(node, "a", 1, key)
    for bad in ("", b"", 7, "x" * (limits.ROUTING_KEY_MAX + 1)):
        with pytest.raises(InvalidInput):
            stream.append([b"x"], key=bad)
        with pytest.raises(InvalidInput):
            stream.read(key=bad)
    with pytest.raises(InvalidInput):
        stream.read(key="a", where=("b", 1))
    assert stream.info.next_offset == 1


def test_a_fork_finds_the_keys_of_what_it_shares(node):
    stream = fill(node, "a", 20, key)
    node.archive.publish_all()
    node.archive.index()
    fork = stream.fork("b", format_offset(10))
    fork.append([b"own"], key="key-1")
    assert by_key(node, "b", "key-1") == [*numbers(10, "key-1"), 10]


# Pruning


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    """A stream of 320 published segments of 3 records, whose keys are spread at random."""
    policy = Policy(seal_rows=3, index_span=16, cache_bytes=0, concurrency=1)
    node = Node(tmp_path_factory.mktemp("segmented"), MemoryStore(), policy)
    random = Random(1)
    stream = node.streams.create("a", "text/plain")
    held = {}
    for number in range(960):
        name = f"key-{random.randrange(120)}" if random.random() < 0.9 else None
        stream.append([b"x"], key=name)
        held.setdefault(name, []).append(number)
    node.archive.publish_all()
    yield node, held
    node.close()


def opened(node, name, wanted):
    segments = node.archive.segments
    before = segments.opened
    found = by_key(node, name, wanted)
    return found, segments.opened - before


def test_without_an_index_every_segment_is_looked_at(segmented):
    node, held = segmented
    assert node.streams.details("a").archived.segments == 320
    found, count = opened(node, "a", "key-7")
    assert found == held["key-7"]
    assert count == 320


def test_of_many_segments_only_those_with_the_key_are_opened(segmented):
    node, held = segmented
    done = node.archive.index()
    assert done.segments == 320
    assert done.runs == 20 + 1
    levels = rows(
        node, "SELECT level, count(*) FROM index_runs WHERE retired_at_ms IS NULL GROUP BY 1"
    )
    assert levels == [(0, 4), (1, 1)]
    whole = having = 0
    for wanted in [f"key-{number}" for number in range(40)] + ["unknown"]:
        found, count = opened(node, "a", wanted)
        assert found == held.get(wanted, [])
        having += len({number // 3 for number in found})
        whole += count
    assert having > 200
    assert having <= whole <= having * 1.01


def test_filters_spare_row_groups_that_do_not_have_key(node):
    stream = node.streams.create("a", "text/plain")
    for number in range(4):
        stream.append([b"x"], key=f"a-{number}z"[:5])
    node.archive.publish_all()
    with node.database.read() as snapshot:
        row = snapshot.one("SELECT segment_id, size_bytes, digest FROM segments")
    with node.archive.segments.open(SegmentRequest(*row)) as file:
        may = [
            file.may_have(0, "routing_key", b"a-%d" % number + b"z", ordered=True)
            for number in range(4)
        ]
        assert all(may)
        missed = [file.may_have(0, "routing_key", b"a-1%d" % n, ordered=True) for n in range(100)]
    assert sum(missed) < 10

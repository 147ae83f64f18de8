"""Reads from a time: in the log, in segments, through forks, and with a bounded cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node import Node

from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import Producer
from fourfold.models.streams.times import parse_time_ms
from fourfold.objects import MemoryStore
from support.properties import examples


def write_at(node, name, times):
    """Append one record for each time, in milliseconds."""
    for time in times:
        node.now = time
        node.write(name, 1, start=time)


def since(node, name, time):
    """Return the times of the records that a read since `time` returns."""
    return [record.ts_ms for record in node.streams.open(name).read(since=time)]


def test_read_begins_at_first_record_at_or_after_time(node):
    write_at(node, "a", [1_000, 2_000, 2_000, 3_000])
    assert since(node, "a", 0) == since(node, "a", 1_000) == [1_000, 2_000, 2_000, 3_000]
    assert since(node, "a", 1_001) == since(node, "a", 2_000) == [2_000, 2_000, 3_000]
    assert since(node, "a", 3_000) == [3_000]
    chunk = node.streams.open("a").read(since=3_001)
    assert (chunk.records, chunk.next_offset, chunk.up_to_date) == ((), 4, True)


def test_records_of_one_append_have_one_time(node):
    node.now = 5_000
    stream = node.streams.create("a", "text/plain")
    stream.append([b"1", b"2", b"3"])
    assert len(stream.read(since=5_000)) == 3
    assert len(stream.read(since=5_001)) == 0


def test_stream_without_records_has_an_end_only(node):
    node.streams.create("a", "text/plain")
    assert node.streams.offset_since("a", 0).record == 0
    with pytest.raises(NotFound):
        node.streams.offset_since("b", 0)


@pytest.mark.parametrize("kept", [0, 3])
def test_record_is_found_in_segments_and_in_the_log(node, kept):
    write_at(node, "a", range(1_000, 13_000, 1_000))
    node.archive.publish_all()
    write_at(node, "a", range(13_000, 16_000, 1_000))
    if kept:
        # Retention removed the first segment.
        node.now = 15_000
        node.streams.open("a").configure(retention_seconds=10)
        node.streams.sweep()
    first = node.streams.info("a").first_offset
    assert bool(first) == bool(kept)
    times = [record.ts_ms for record in node.streams.open("a").read()]
    assert times == list(range(1_000 * (first + 1), 16_000, 1_000))
    for time in range(0, 17_000, 500):
        assert since(node, "a", time) == [each for each in times if each >= time], time


def test_record_of_a_fork_is_found_in_its_source(node):
    write_at(node, "a", [1_000, 2_000, 3_000, 4_000])
    node.streams.open("a").fork("b", 3)
    write_at(node, "a", [5_000])
    write_at(node, "b", [6_000, 7_000])
    node.archive.publish_all()
    write_at(node, "b", [8_000])
    times = [1_000, 2_000, 3_000, 6_000, 7_000, 8_000]
    for time in range(0, 9_000, 500):
        assert since(node, "b", time) == [each for each in times if each >= time], time


CLOCKS = st.lists(st.sampled_from([1_000, 2_000, 9_000, 9_001]), min_size=1, max_size=6)
CHANGES = {
    "append": lambda node, stream: stream.append([b"x"]),
    "append many": lambda node, stream: stream.append([b"x"] * 100),
    "append with a key": lambda node, stream: stream.append([b"x", b"y"], key="k"),
    "produce": lambda node, stream: stream.append(
        [b"x"], producer=Producer("p", node.streams.info("a").next_offset, 0)
    ),
    "configure": lambda node, stream: stream.configure(retention_bytes=10**6),
    "publish": lambda node, stream: node.archive.publish_all(),
    "schema of another": lambda node, stream: node.streams.create(
        f"j{node.streams.info('a').next_offset}-{node.now}", "application/json"
    ).set_schema({"type": "object"}),
}


@settings(max_examples=examples(30), deadline=None)
@given(clocks=CLOCKS, names=st.lists(st.sampled_from(sorted(CHANGES)), min_size=6, max_size=6))
def test_times_do_not_step_back_with_the_clock(tmp_path_factory, clocks, names):
    with MemoryStore() as objects:
        node = Node(tmp_path_factory.mktemp("times") / "node", objects)
        try:
            node.now = 5_000
            stream = node.streams.create("a", "text/plain")
            stream.append([b"first"])
            for node.now, name in zip(clocks, names, strict=False):
                CHANGES[name](node, stream)
            stream.append([b"last"])
            check_times(node, "a")
        finally:
            node.close()


def check_times(node, name, newest=None):
    """Times are in order, the last is `newest`, and a read since a time is a scan."""
    times = [record.ts_ms for record in node.streams.open(name).read()]
    assert times == sorted(times)
    assert times[-1] == newest or (newest is None and times[-1] >= max(5_000, node.now))
    for time in {*times, times[-1] + 1}:
        assert since(node, name, time) == [each for each in times if each >= time]


def test_fork_is_not_earlier_than_its_source(node):
    write_at(node, "a", [8_000, 9_000])
    node.now = 3_000
    node.streams.open("a").fork("b").append([b"x"])
    node.streams.open("b").fork("c", 2).append([b"x"])
    for name in ("b", "c"):
        check_times(node, name, newest=9_000)


def test_restored_stream_is_not_earlier_than_its_segments(make):
    node = make()
    write_at(node, "a", [8_000, 9_000])
    node.archive.publish_all()
    node.close()
    restored = make("restored")
    restored.now = 3_000
    restored.bootstrap()
    restored.streams.open("a").append([b"x"])
    check_times(restored, "a", newest=9_000)


@settings(max_examples=examples(20), deadline=None)
@given(
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    published=st.integers(0, 30),
    data=st.data(),
)
def test_read_since_returns_what_a_scan_returns(tmp_path_factory, gaps, published, data):
    with MemoryStore() as objects:
        node = Node(tmp_path_factory.mktemp("times") / "node", objects)
        try:
            times = [1_000 + sum(gaps[: at + 1]) for at in range(len(gaps))]
            write_at(node, "a", times[:published])
            node.archive.publish_all()
            write_at(node, "a", times[published:])
            time = data.draw(st.integers(999, times[-1] + 1))
            assert since(node, "a", time) == [each for each in times if each >= time]
        finally:
            node.close()


def test_cost_does_not_grow_with_the_stream(node, monkeypatch):
    """A stream of 4,096 times the length needs twelve more steps."""
    queries = []
    value = ReadTransaction.value

    def counted(transaction, *arguments):
        queries.append(arguments)
        return value(transaction, *arguments)

    counts = []
    for name, size in (("short", 4), ("long", 4 * 4_096)):
        stream = node.streams.create(name, "text/plain")
        stream.append([b"x"] * size)
        node.now += 1
        stream.append([b"y"])
        with monkeypatch.context() as patch:
            patch.setattr(ReadTransaction, "value", counted)
            assert node.streams.offset_since(name, node.now).record == size
        counts.append(len(queries))
        queries.clear()
    assert counts[1] <= counts[0] + 13


def test_search_reads_one_segment_only(make):
    node = make()
    write_at(node, "a", range(1_000, 41_000, 1_000))
    node.archive.publish_all()
    opened = []
    cold = node.streams.cold
    records = cold.records

    class Counting:
        def records(self, snapshot, sid, start, end):
            opened.append(start)
            return records(snapshot, sid, start, end)

    node.streams.cold = Counting()
    offset = node.streams.offset_since("a", 20_500).record
    assert offset == 20
    # A segment has four records.
    assert {at // 4 for at in opened} == {5}


# Times


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "time",
    [
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(timezone(timedelta(hours=5))),
        NOON + timedelta(microseconds=999),
        "2026-03-01T12:00:00Z",
        "2026-03-01T13:00:00+01:00",
        "2026-03-01 12:00",
        1_772_366_400_000,
        "1772366400000",
    ],
)
def test_time_can_be_written_in_several_ways(time):
    assert parse_time_ms(time) == 1_772_366_400_000


@pytest.mark.parametrize("time", ["", "yesterday", "-1", -1, 1.5, True, None, b"0", "2026-13-01"])
def test_other_times_are_refused(time):
    with pytest.raises(InvalidInput, match="since: must be a time"):
        parse_time_ms(time)


def test_offset_and_time_are_not_both_accepted(node):
    node.write("a", 2)
    with pytest.raises(InvalidInput, match="not both"):
        node.streams.open("a").read(1, since=0)


def test_follow_begins_at_a_time(node):
    write_at(node, "a", [1_000, 2_000])
    chunks = node.streams.open("a").follow(since=2_000, timeout=0.01)
    assert [record.ts_ms for chunk in chunks for record in chunk] == [2_000]

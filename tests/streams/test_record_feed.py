"""The feed over all streams: order, cursors, gaps, and what a restored store does with them."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest
from opened_streams import JSON

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.models.streams import Append
from fourfold.models.streams.incarnations import reserve_in_file


@pytest.fixture
def streams(opened):
    opened.streams.delete("s")
    return opened.streams


def seen(items):
    return [(item.stream, item.record.value) for item in items]


def read(streams, after="-1", **options):
    """Read the feed to its end; return its items and the last cursor."""
    items = []
    while True:
        page = streams.read_feed(after, **options)
        items += page.items
        after = page.cursor
        if page.up_to_date:
            return items, after


def test_records_come_in_the_order_of_commits(streams):
    for number in range(3):
        for name in ("b", "a/x", "a/y"):
            streams.create(name, JSON).append([number, number + 0.5])
    expected = [(s, v) for n in range(3) for s in ("b", "a/x", "a/y") for v in (n, n + 0.5)]
    assert seen(read(streams)[0]) == expected
    assert seen(read(streams, limit=1)[0]) == expected
    of_a = [row for row in expected if row[0].startswith("a/")]
    assert seen(read(streams, prefix="a/")[0]) == of_a
    assert seen(streams.follow(after="-1", prefix="a/", timeout=0)) == of_a
    assert list(streams.follow(timeout=0)) == []


def test_cursor_continues_after_any_record(streams):
    for number in range(4):
        streams.create(f"s{number % 2}", JSON).append([number, number])
    items, end = read(streams)
    for index, item in enumerate(items, 1):
        assert seen(read(streams, item.cursor)[0]) == seen(items[index:])
    assert read(streams, end) == ([], end)


def test_read_examines_a_bounded_number_of_entries(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.record_feed.FEED_READ_ENTRIES", 4)
    streams.create("other", JSON).append(list(range(10)))
    streams.create("mine", JSON).append("x")
    page = streams.read_feed("-1", prefix="mine")
    assert (page.items, page.up_to_date) == ((), False)
    assert seen(read(streams, prefix="mine")[0]) == [("mine", "x")]
    assert seen(streams.follow(after="-1", prefix="mine", timeout=0)) == [("mine", "x")]


def test_ids_are_not_used_again_when_newest_records_are_deleted(streams):
    streams.create("a", JSON).append([1, 2])
    _, cursor = read(streams)
    for number in range(3):
        # The log is empty before each append.
        streams.delete("a")
        streams.create("a", JSON, body=b"10" if number == 1 else b"")
        streams.open("a").append(number)
        items, after = read(streams, cursor)
        assert after > cursor
        assert seen(items) == [("a", 10)] * (number == 1) + [("a", number)]
        cursor = after
        assert streams.verify() == []


def test_removed_records_are_a_gap(streams):
    stream = streams.create("a", JSON, retention_bytes=3)
    other = streams.create("b", JSON)
    stream.append([1, 2])
    _, cursor = read(streams)
    for number in range(5):
        stream.append(number)
        other.append(number)
    streams.sweep()
    items, _ = read(streams, cursor)
    gaps = [item for item in items if not hasattr(item, "record")]
    assert {gap.stream for gap in gaps} == {"a"}
    assert sum(gap.records for gap in gaps) == 2
    follower = streams.follow(after=cursor, timeout=0)
    with pytest.raises(HistoryTruncated) as truncated:
        next(follower)
    details = truncated.value.details
    assert (details["stream"], details["cursor"]) == ("a", follower.cursor)
    assert [item for item in items if hasattr(item, "record")] == [
        item for item in read(streams, details["cursor"])[0] if hasattr(item, "record")
    ]
    # A new reader begins with what there is, and hears of no gap before it.
    assert seen(read(streams)[0]) == seen(item for item in items if hasattr(item, "record"))


def test_reader_before_horizon_of_trail_hears_of_gap_once(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.record_ids.FEED_TRAIL_ROWS", 2)
    monkeypatch.setattr("fourfold.models.streams.record_ids.FEED_TRAIL_DROPPED", 1)
    kept = streams.create("kept", JSON)
    short = streams.create("short", JSON, retention_bytes=1)
    _, cursor = read(streams)
    for number in range(6):
        kept.append(number)
        short.append(number)
    streams.sweep()
    assert streams.verify() == []
    items, end = read(streams, cursor)
    assert items[0].stream is None
    # Records that are still there are not skipped.
    records = [item for item in items if hasattr(item, "record")]
    assert seen(records) == [("kept", n) for n in range(6)] + [("short", 5)]
    assert read(streams, items[0].cursor)[0] == items[1:]
    assert read(streams, end) == ([], end)
    assert seen(read(streams)[0]) == seen(records)


def test_cursor_from_before_a_restore_continues_in_the_new_history(opened, streams, tmp_path):
    stream = streams.create("a", JSON)
    stream.append([1, 2])
    early = read(streams)[0][0].cursor
    backup = tmp_path / "backup.sqlite"
    opened.database.backup(backup)
    stream.append([3, 4])
    late = read(streams)[1]
    opened.database.close()
    for suffix in ("-wal", "-shm"):
        opened.path.with_name(opened.path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(backup, opened.path)
    reserve_in_file(opened.path, 5_000_000, tmp_path / "migrations")
    opened.open()
    opened.streams.open("a").append([5, 6, 7])
    assert seen(read(opened.streams, early)[0]) == [("a", n) for n in (2, 5, 6, 7)]
    items, after = read(opened.streams, late)
    assert seen(items) == [("a", n) for n in (5, 6, 7)]
    assert read(opened.streams, after)[0] == []


@pytest.mark.parametrize("after", ["x", "0", "0-", "-2", "0-99", "7-1", 5, "0-1-2-3"])
def test_cursor_of_another_store_is_refused(streams, after):
    with pytest.raises(InvalidInput):
        streams.read_feed(after)


def test_follower_waits_for_records_of_any_stream(streams):
    streams.create("a", JSON).append(0)

    def write():
        for number in range(1, 4):
            streams.create(f"s{number}", JSON).append(number)

    with streams.follow() as follower:
        writer = threading.Thread(target=write)
        writer.start()
        items = [next(follower) for _ in range(3)]
        writer.join()
        assert seen(items) == [(f"s{n}", n) for n in range(1, 4)]
        closer = threading.Timer(0.05, follower.close)
        closer.start()
        assert list(follower) == []


def test_follower_is_used_by_coroutines(streams):
    async def follow():
        with streams.follow() as follower:
            await streams.append_async("a", Append([b"1"], None))
            first = await anext(follower)
            waiting = asyncio.create_task(follower.next_async(30))
            await streams.append_async("b", Append([b"2"], None))
            return [first, await waiting]

    for name in "ab":
        streams.create(name, JSON)
    assert seen(asyncio.run(follow())) == [("a", 1), ("b", 2)]


def test_feed_does_not_extend_lifetime_and_leaves_out_what_expired(opened, streams):
    streams.create("short", JSON, ttl=10).append(1)
    streams.create("long", JSON).append(2)
    opened.clock.ms += 9_000
    assert len(read(streams)[0]) == 2
    opened.clock.ms += 2_000
    assert seen(read(streams)[0]) == [("long", 2)]


def test_transaction_sees_its_own_records(opened, streams):
    stream = streams.create("a", JSON)
    cursor = streams.read_feed().cursor
    with opened.database.write():
        stream.append(1)
        assert seen(read(streams, cursor)[0]) == [("a", 1)]
    assert seen(read(streams, cursor)[0]) == [("a", 1)]


def test_messages_have_the_current_version(streams):
    old = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    new = {"type": "object", "properties": {"m": {"type": "integer"}}, "required": ["m"]}
    for schema in (old, new):
        schema["additionalProperties"] = False
    stream = streams.create("a", JSON)
    stream.set_schema(old)
    stream.append({"n": 1})
    stream.set_schema(new, lens=[{"op": "rename", "from": "n", "to": "m"}])
    assert seen(read(streams)[0]) == [("a", {"m": 1})]

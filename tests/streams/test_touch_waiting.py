"""Waits in threads and on event loops, and their journals."""

from __future__ import annotations

import asyncio
import threading

import pytest
from opened_streams import JSON
from touched_streams import BY_CITY, TOUCHED, change

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.models.streams import reader
from fourfold.models.streams.touch import EntityKey, RowKey, TemplateKey, Touches
from fourfold.models.streams.touch import keys as keys_module

# Journals


def test_each_change_is_processed_once_for_all_waits(touches, stream, monkeypatch):
    seen = []
    touched_by = keys_module.touched_by
    monkeypatch.setattr(
        keys_module, "touched_by", lambda *given: seen.append(1) or touched_by(*given)
    )
    cursor = touches.meta("s").cursor
    for count in range(1, 4):
        stream.append(change())
        for _ in range(5):
            assert touches.wait("s", cursor, [EntityKey("user")], 0).touched
        assert len(seen) == count


def test_evicted_journals_are_rebuilt(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_JOURNALS_MAX", 2)
    touches = Touches(streams)
    cursors = {}
    for name in "abcd":
        streams.create(name, JSON)
        streams.profiles.put(name, TOUCHED)
        cursors[name] = touches.wait(name, None, [EntityKey("user")], 0).cursor
        streams.open(name).append(change())
    assert len(touches._scan.readers._readers) == 2
    for name in "abcd":
        assert touches.wait(name, cursors[name], [EntityKey("user"), EntityKey("x")], 0).keys == (
            0,
        )


def test_unknown_stream_evicts_no_journal(touches):
    touches.wait("s", None, [EntityKey("user")], 0)
    with pytest.raises(NotFound):
        touches.wait("missing", None, [EntityKey("user")], 0)
    assert len(touches._scan.readers._readers) == 1
    assert "s" in touches._scan.readers._readers


# Threads and coroutines


def test_append_wakes_waiting_thread(touches, stream, monkeypatch):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 1_000.0)
    cursor = touches.meta("s").cursor
    result = []
    waiter = threading.Thread(
        target=lambda: result.append(touches.wait("s", cursor, [RowKey("user", "2")], 900))
    )
    waiter.start()
    while not touches.meta("s").waiting:
        pass
    stream.append(change("1"))
    stream.append(change("2"))
    waiter.join()
    assert result[0].keys == (0,)
    assert touches.meta("s").waiting == 0


async def all_wait(touches, count):
    while touches.meta("s").waiting < count:  # noqa: ASYNC110 - the others run meanwhile
        await asyncio.sleep(0)


def test_append_wakes_only_matching_waiter(touches, stream):
    async def main():
        stop = False
        waiters = [
            asyncio.ensure_future(
                touches.wait_async(
                    "s", None, [RowKey("user", str(number))], 60, should_stop=lambda: stop
                )
            )
            for number in range(100)
        ]
        await all_wait(touches, 100)
        await stream.append_async(change("42"))
        done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        assert done == {waiters[42]}
        stop = True
        touches.wake_all()
        return await asyncio.gather(*waiters)

    result = asyncio.run(main())
    assert [number for number, each in enumerate(result) if each.touched] == [42]
    assert len({each.cursor for each in result}) == 1
    assert touches.meta("s").cursor == result[0].cursor


def test_append_costs_one_scan_for_all_waiters(touches, stream, monkeypatch):
    """One scan serves all waiters, and only matching ones are woken."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 1_000.0)
    checks, cached = [], []
    scan = touches._scan
    on_loop, from_cache, enabled = scan.check_on_loop, scan.check_cached, scan.get_enabled
    monkeypatch.setattr(
        scan, "check_on_loop", lambda wait: checks.append("on loop") or on_loop(wait)
    )
    monkeypatch.setattr(scan, "check_cached", lambda wait: cached.append(1) or from_cache(wait))
    monkeypatch.setattr(scan, "get_enabled", lambda *a: checks.append("scan") or enabled(*a))

    async def main():
        waiters = [
            asyncio.ensure_future(touches.wait_async("s", None, [RowKey("user", str(number))], 900))
            for number in range(10)
        ]
        await all_wait(touches, 10)
        for _ in range(20):
            await asyncio.sleep(0)
        checks.clear()
        cached.clear()
        await stream.append_async(change("none of them"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (checks, cached) == (["scan"], [])
        await stream.append_async(change("7"))
        assert (await waiters.pop(7)).touched
        assert (checks, cached) == (["scan"] * 2, [1])
        await stream.append_async([change(str(number)) for number in range(10)])
        result = await asyncio.gather(*waiters)
        assert (checks, cached) == (["scan"] * 3, [1] * 10)
        assert all(each.touched for each in result)

    asyncio.run(main())


def test_cached_check_is_not_used_after_eviction(touches, stream, monkeypatch):
    """No notification since the last check does not suffice: marks were evicted."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 1_000.0)
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_MARKS_MAX", 5)

    async def main():
        stop = False
        keys = [RowKey("user", str(number)) for number in range(6)]
        waiters = [
            asyncio.ensure_future(
                touches.wait_async("s", None, [key], 900, should_stop=lambda: stop)
            )
            for key in keys
        ]
        await all_wait(touches, len(keys))
        await asyncio.sleep(0)
        await stream.append_async([change(str(number)) for number in range(6)])
        for _ in range(20):
            await asyncio.sleep(0)
        stop = True
        touches.wake_all()
        return await asyncio.gather(*waiters)

    assert [result.touched for result in asyncio.run(main())] == [True] * 6


def test_waiting_coroutines_time_out(touches, stream):
    async def main():
        return await touches.wait_async("s", None, [EntityKey("order")], 0.01)

    assert not asyncio.run(main()).touched


def test_wait_ends_when_stream_is_deleted(streams, touches, stream):
    async def main():
        waiter = asyncio.ensure_future(touches.wait_async("s", None, [EntityKey("user")], 60))
        await all_wait(touches, 1)
        await streams.delete_async("s")
        with pytest.raises(NotFound):
            await waiter

    asyncio.run(main())


def test_many_records_are_processed_in_parts_on_the_loop(touches, stream, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_LOOP_RECORDS", 3)

    async def main():
        (by_city,) = await touches.activate_async("s", [BY_CITY])
        key = [TemplateKey(by_city.id, {"city": "Kiel"})]
        started = await touches.wait_async("s", None, key, 0)
        stream.append([change(str(number)) for number in range(10)])
        result = await touches.wait_async("s", started.cursor, key, 0)
        assert result == (False, False, touches.meta("s").cursor, ())
        stream.append([*[change(str(number)) for number in range(7)], change("x", "Kiel")])
        # The journal lags the cursor of this wait.
        assert not (await touches.wait_async("s", None, key, 0)).touched
        assert (await touches.wait_async("s", result.cursor, key, 0)).keys == (0,)
        # Older than an event loop reads at once: a thread builds the journal.
        touches._scan.readers._readers.clear()
        assert (await touches.wait_async("s", started.cursor, key, 0)).keys == (0,)

    asyncio.run(main())


class Segments:
    """Reader of records that are no longer in the log, which must not run on an event loop."""

    def __init__(self, records):
        self.kept = records

    def records(self, snapshot, sid, start, end):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        yield from self.kept[start:end]


def give_up_in_the_log(streams, before):
    with streams.database.write() as txn:
        sid = streams.info("s").sid
        for table in ("wal_log", "wal_index", "wal_recent"):
            txn.execute(f"DELETE FROM {table} WHERE sid = ? AND offset < ?", (sid, before))


def test_segments_are_read_in_a_thread(streams, touches, stream):
    cursor = touches.meta("s").cursor
    stream.append([change(str(number)) for number in range(4)])
    kept = stream.read().records
    give_up_in_the_log(streams, 2)
    keys = [RowKey("user", "0"), RowKey("user", "3"), RowKey("user", "9")]
    with pytest.raises(reader.NotInTheLog):
        streams.read_log("s")
    # The records are unknown, so everything may have changed.
    assert touches.wait("s", cursor, keys, 0).stale
    streams.cold = Segments(kept)

    async def main():
        waits = [touches.wait_async("s", cursor, keys, 0) for _ in range(5)]
        return await asyncio.gather(*waits)

    assert {result.keys for result in asyncio.run(main())} == {(0, 1)}
    assert touches.wait("s", cursor, keys, 0).keys == (0, 1)


def test_journal_that_needs_segments_is_rebuilt(streams, touches, stream):
    """Nothing reads segments here, and the wait needs only the log."""
    touches.wait("s", None, [EntityKey("user")], 0)
    stream.append([change(str(number)) for number in range(4)])
    later = touches.meta("s").cursor
    give_up_in_the_log(streams, 3)
    stream.append(change("4"))
    keys = [RowKey("user", str(number)) for number in range(6)]
    assert touches.wait("s", later, keys, 0).keys == (4,)

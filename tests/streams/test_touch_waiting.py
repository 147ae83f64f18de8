"""Those who wait, in threads and on event loops, and the journals that answer them."""

from __future__ import annotations

import asyncio
import threading

import pytest
from opened_streams import JSON
from touched_streams import BY_CITY, TOUCHED, change

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.models.streams import reader
from fourfold.models.streams.touch import Entity, Row, Rows
from fourfold.models.streams.touch import keys as keys_module

# Journals


def test_each_change_is_looked_at_once_however_many_wait(touches, stream, monkeypatch):
    seen = []
    touched_by = keys_module.touched_by
    monkeypatch.setattr(
        keys_module, "touched_by", lambda *given: seen.append(1) or touched_by(*given)
    )
    cursor = touches.meta("s").cursor
    for count in range(1, 4):
        stream.append(change())
        for _ in range(5):
            assert touches.wait("s", cursor, [Entity("user")], 0).touched
        assert len(seen) == count


def test_journals_of_streams_that_nobody_asked_for_lately_are_made_again(
    streams, touches, monkeypatch
):
    monkeypatch.setattr(limits, "TOUCH_JOURNALS_MAX", 2)
    cursors = {}
    for name in "abcd":
        streams.create(name, JSON)
        streams.profiles.put(name, TOUCHED)
        cursors[name] = touches.wait(name, None, [Entity("user")], 0).cursor
        streams.open(name).append(change())
    assert len(touches._scan.readers._readers) == 2
    for name in "abcd":
        assert touches.wait(name, cursors[name], [Entity("user"), Entity("x")], 0).keys == (0,)


def test_a_stream_that_is_not_there_takes_nobodys_journal(touches):
    touches.wait("s", None, [Entity("user")], 0)
    with pytest.raises(NotFound):
        touches.wait("missing", None, [Entity("user")], 0)
    assert list(touches._scan.readers._readers) == ["s"]


# Threads and coroutines


def test_a_thread_that_waits_is_woken_by_an_append(touches, stream, monkeypatch):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 1_000.0)
    cursor = touches.meta("s").cursor
    told = []
    waiter = threading.Thread(
        target=lambda: told.append(touches.wait("s", cursor, [Row("user", "2")], 900))
    )
    waiter.start()
    while not touches.meta("s").waiting:
        pass
    stream.append(change("1"))
    stream.append(change("2"))
    waiter.join()
    assert told[0].keys == (0,)
    assert touches.meta("s").waiting == 0


async def all_wait(touches, count):
    while touches.meta("s").waiting < count:  # noqa: ASYNC110 - the others run meanwhile
        await asyncio.sleep(0)


def test_an_append_wakes_exactly_the_one_of_a_hundred_whom_it_concerns(touches, stream):
    async def main():
        stop = False
        waiters = [
            asyncio.ensure_future(
                touches.wait_async(
                    "s", None, [Row("user", str(number))], 60, should_stop=lambda: stop
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

    told = asyncio.run(main())
    assert [number for number, each in enumerate(told) if each.touched] == [42]
    assert len({each.cursor for each in told}) == 1
    assert touches.meta("s").cursor == told[0].cursor


def test_an_append_costs_one_look_however_many_wait(touches, stream, monkeypatch):
    """One looks for all of them, and only those are woken whom it concerns."""
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
            asyncio.ensure_future(touches.wait_async("s", None, [Row("user", str(number))], 900))
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
        told = await asyncio.gather(*waiters)
        assert (checks, cached) == (["scan"] * 3, [1] * 10)
        assert all(each.touched for each in told)

    asyncio.run(main())


def test_what_another_one_has_looked_at_is_not_taken_where_some_of_it_was_forgotten(
    touches, stream, monkeypatch
):
    """All know that it has not rung since the first of them looked. That is not enough."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 1_000.0)
    monkeypatch.setattr(limits, "TOUCH_MARKS_MAX", 5)

    async def main():
        stop = False
        keys = [Row("user", str(number)) for number in range(6)]
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

    assert [told.touched for told in asyncio.run(main())] == [True] * 6


def test_coroutines_that_nothing_happens_to_end_with_their_time(touches, stream):
    async def main():
        return await touches.wait_async("s", None, [Entity("order")], 0.01)

    assert not asyncio.run(main()).touched


def test_a_wait_ends_with_its_stream(streams, touches, stream):
    async def main():
        waiter = asyncio.ensure_future(touches.wait_async("s", None, [Entity("user")], 60))
        await all_wait(touches, 1)
        await streams.delete_async("s")
        with pytest.raises(NotFound):
            await waiter

    asyncio.run(main())


def test_much_is_looked_at_piece_by_piece_on_a_loop(touches, stream, monkeypatch):
    monkeypatch.setattr(limits, "TOUCH_LOOP_RECORDS", 3)

    async def main():
        (by_city,) = await touches.activate_async("s", [BY_CITY])
        key = [Rows(by_city.id, {"city": "Kiel"})]
        started = await touches.wait_async("s", None, key, 0)
        stream.append([change(str(number)) for number in range(10)])
        told = await touches.wait_async("s", started.cursor, key, 0)
        assert told == (False, False, touches.meta("s").cursor, ())
        stream.append([*[change(str(number)) for number in range(7)], change("x", "Kiel")])
        # The journal is behind who waits from now on, and stays so for a while.
        assert not (await touches.wait_async("s", None, key, 0)).touched
        assert (await touches.wait_async("s", told.cursor, key, 0)).keys == (0,)
        # From further back than a loop reads at once: a thread makes the journal.
        touches._scan.readers._readers.clear()
        assert (await touches.wait_async("s", started.cursor, key, 0)).keys == (0,)

    asyncio.run(main())


class Segments:
    """What is no longer in the log, read from somewhere else, and not on an event loop."""

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
    keys = [Row("user", "0"), Row("user", "3"), Row("user", "9")]
    with pytest.raises(reader.NotInTheLog):
        streams.read_log("s")
    # Nobody can tell what is there; so everything may have changed.
    assert touches.wait("s", cursor, keys, 0).stale
    streams.cold = Segments(kept)

    async def main():
        waits = [touches.wait_async("s", cursor, keys, 0) for _ in range(5)]
        return await asyncio.gather(*waits)

    assert {told.keys for told in asyncio.run(main())} == {(0, 1)}
    assert touches.wait("s", cursor, keys, 0).keys == (0, 1)


def test_a_journal_that_would_have_to_read_segments_is_made_again(streams, touches, stream):
    """Nothing reads them here, and who waits asks for what is in the log."""
    touches.wait("s", None, [Entity("user")], 0)
    stream.append([change(str(number)) for number in range(4)])
    later = touches.meta("s").cursor
    give_up_in_the_log(streams, 3)
    stream.append(change("4"))
    keys = [Row("user", str(number)) for number in range(6)]
    assert touches.wait("s", later, keys, 0).keys == (4,)

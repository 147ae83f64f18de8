"""Concurrent waiters and writers: no sleeping waiter misses a change."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from touched_streams import TOUCHED, change

from fourfold import limits
from fourfold.models.streams.touch import EntityKey, RowKey, Touches
from fourfold.models.streams.touch.journal import TOUCH_LOOP_RECORDS
from fourfold.models.streams.touch.waiters import Waiter, _LoopGroup

ROWS = 12
LATE_S = 40
"""Longer than the test may take, so that a heartbeat cannot hide a lost wake."""


@pytest.mark.parametrize("seed", range(3))
def test_waiter_sees_last_change_of_its_row(streams, monkeypatch, seed):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 10_000.0)
    monkeypatch.setattr(
        "fourfold.models.streams.touch.journal.TOUCH_JOURNALS_MAX", (1, 128, 128)[seed]
    )
    monkeypatch.setattr(
        "fourfold.models.streams.touch.journal.TOUCH_MARKS_MAX", (6, 40, 32_768)[seed]
    )
    streams.create("other", "application/json")
    streams.profiles.put("other", TOUCHED)
    touches, last, done = Touches(streams), {}, threading.Event()
    seen, stop = {}, []

    def write(number):
        """Write to rows of this writer only, so that their last changes are known."""
        chance = random.Random(f"{seed}-{number}")
        mine = [str(row) for row in range(ROWS) if row % 3 == number]
        for _ in range(60):
            rows = chance.choices(mine, k=chance.randint(1, 4))
            end = streams.open("s").append([change(row) for row in rows]).next_offset
            for back, row in enumerate(reversed(rows)):
                last[row] = max(last.get(row, 0), end - back)
        for row in mine:
            last[row] = streams.open("s").append([change(row)]).next_offset

    def check_others():
        """Advance the journal from another thread, and evict it."""
        while not done.is_set():
            touches.wait("s", None, [EntityKey("none")], 0)
            touches.wait("other", None, [EntityKey("none")], 0)

    async def follow(row):
        cursor = touches.meta("s").cursor
        while not stop:
            result = await touches.wait_async(
                "s", cursor, [RowKey("user", row)], LATE_S, should_stop=lambda: bool(stop)
            )
            assert result.touched or stop
            cursor = result.cursor
            seen[row] = int(cursor.partition(":")[2])

    async def main():
        followers = [asyncio.create_task(follow(str(row))) for row in range(ROWS)]
        await asyncio.sleep(0)
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        looking = threading.Thread(target=check_others)
        for thread in (*writers, looking):
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in writers))
        done.set()
        await asyncio.to_thread(looking.join)
        # Nothing is appended any more: a waiter that was missed sleeps on.
        async with asyncio.timeout(LATE_S / 2):
            while any(seen.get(row, 0) < end for row, end in last.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stop.append(1)
        touches.wake_all()
        await asyncio.gather(*followers)

    asyncio.run(main())


# A sleeping waiter


@pytest.fixture
def asleep(touches, monkeypatch):
    """Run work while a coroutine waits for the row "1"; return the result of its wait."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 10_000.0)

    def run(work):
        async def main():
            waiting = asyncio.create_task(
                touches.wait_async("s", None, [RowKey("user", "1")], LATE_S)
            )
            await run_loop_turns()
            await work()
            return await asyncio.wait_for(waiting, LATE_S / 2)

        return asyncio.run(main())

    return run


async def run_loop_turns():
    for _ in range(20):
        await asyncio.sleep(0)


def test_replaced_journal_wakes_all_waiters(asleep, touches, stream):
    """The new journal has not read the records in between, and the scan finds nothing new."""

    async def work():
        touches._scan.readers._readers.clear()
        stream.append(change("1"))
        # On the thread of the loop, so before the scheduled scan runs.
        touches.wait("s", None, [EntityKey("none")], 0)

    assert asleep(work).touched


def test_append_during_scan_causes_another_scan(asleep, touches, stream):
    registry = touches._scan.waiters
    read_journal, more = registry._read_journal, [change("1")]

    def slow(name):
        done = read_journal(name)
        while more:
            stream.append(more.pop())
        return done

    async def work():
        registry._read_journal = slow
        stream.append(change("2"))

    assert asleep(work).touched


def test_incomplete_scan_wakes_all_waiters(asleep, touches, stream):
    async def work():
        # More than an event loop reads at once.
        stream.append([change("2")] * (TOUCH_LOOP_RECORDS + 1) + [change("1")])

    assert asleep(work).touched


def test_waiter_misses_nothing_after_many_other_changes(asleep, stream, monkeypatch):
    """The journal no longer covers the offset at which the waiter fell asleep."""
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_MARKS_MAX", 6)

    async def work():
        for number in range(2, 60):
            await stream.append_async([change(str(number))])
            await run_loop_turns()
        await stream.append_async([change("1")])

    result = asleep(work)
    assert result.touched
    assert not result.stale


def test_waiter_checks_again_when_notified_before_sleeping(asleep, touches, stream):
    check, once = touches._check, [1]

    async def hurried(wait):
        result = await check(wait)
        if once:
            once.clear()
            # Another wait advances the journal and notifies the waiters that sleep by now.
            stream.append(change("1"))
            touches.wait("s", None, [EntityKey("none")], 0)
            await run_loop_turns()
        return result

    touches._check = hurried

    async def work():
        pass

    assert asleep(work).touched


def test_waiter_continues_from_untouched_offset():
    async def main():
        group = _LoopGroup(asyncio.get_running_loop())
        waiter = Waiter(group)
        group.waiters.add(waiter)
        assert waiter.wake() == 0
        sleeping = asyncio.create_task(waiter.sleep({1, 2}, LATE_S))
        await run_loop_turns()
        group.notify({3}, 7)
        assert not sleeping.done()
        group.notify({2, 3}, 9)
        await sleeping
        assert waiter.wake() == 7
        await waiter.sleep({1}, 0)
        group.notify({3}, 11)
        assert waiter.wake() == 11
        # A waiter that is awake is notified, and does not sleep before it checks.
        group.notify({3}, 12)
        await asyncio.wait_for(waiter.sleep({1}, LATE_S), LATE_S / 2)
        assert waiter.wake() == 0

    asyncio.run(main())


def test_new_schema_version_wakes_all_waiters(asleep, touches, streams):
    schema = {"type": "object"}
    streams.schemas.put("s", {"schema": schema})

    async def work():
        streams.open("s").append(change("2"))
        streams.schemas.put("s", {"schema": {**schema, "title": "2"}, "lens": []})

    assert asleep(work).stale

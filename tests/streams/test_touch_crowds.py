"""Many wait while many write: nobody who sleeps is forgotten, whoever makes the journal read on."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from touched_streams import TOUCHED, change

from fourfold import limits
from fourfold.models.streams.touch import Entity, Row
from fourfold.models.streams.touch.waiters import Waiter, _WaiterRoom

ROWS = 12
LATE_S = 40
"""A wake that is lost is not made up for by any heartbeat before that."""


@pytest.mark.parametrize("seed", range(3))
def test_whoever_sleeps_is_told_of_the_last_change_of_its_row(streams, monkeypatch, seed):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 10_000.0)
    monkeypatch.setattr(limits, "TOUCH_JOURNALS_MAX", (1, 128, 128)[seed])
    monkeypatch.setattr(limits, "TOUCH_MARKS_MAX", (6, 40, 32_768)[seed])
    streams.create("other", "application/json")
    streams.profiles.put("other", TOUCHED)
    touches, last, done = streams.touches, {}, threading.Event()
    seen, stop = {}, []

    def write(number):
        """Each writer has rows of its own, so that their last changes are known."""
        chance = random.Random(f"{seed}-{number}")
        mine = [str(row) for row in range(ROWS) if row % 3 == number]
        for _ in range(60):
            rows = chance.choices(mine, k=chance.randint(1, 4))
            end = streams.open("s").append([change(row) for row in rows]).next_offset
            for back, row in enumerate(reversed(rows)):
                last[row] = max(last.get(row, 0), end - back)
        for row in mine:
            last[row] = streams.open("s").append([change(row)]).next_offset

    def look():
        """Others make the journal read on, and take its place."""
        while not done.is_set():
            touches.wait("s", None, [Entity("none")], 0)
            touches.wait("other", None, [Entity("none")], 0)

    async def follow(row):
        cursor = touches.meta("s").cursor
        while not stop:
            told = await touches.wait_async(
                "s", cursor, [Row("user", row)], LATE_S, should_stop=lambda: bool(stop)
            )
            assert told.touched or stop
            cursor = told.cursor
            seen[row] = int(cursor.partition(":")[2])

    async def main():
        followers = [asyncio.create_task(follow(str(row))) for row in range(ROWS)]
        await asyncio.sleep(0)
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        looking = threading.Thread(target=look)
        for thread in (*writers, looking):
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in writers))
        done.set()
        await asyncio.to_thread(looking.join)
        # Nothing comes any more: whoever was forgotten sleeps on.
        async with asyncio.timeout(LATE_S / 2):
            while any(seen.get(row, 0) < end for row, end in last.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stop.append(1)
        touches.wake_all()
        await asyncio.gather(*followers)

    asyncio.run(main())


# One who sleeps


@pytest.fixture
def asleep(touches, monkeypatch):
    """Runs something while a coroutine sleeps by the row "1"; what that one is told at last."""
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 10_000.0)

    def run(work):
        async def main():
            waiting = asyncio.create_task(touches.wait_async("s", None, [Row("user", "1")], LATE_S))
            await settled()
            await work()
            return await asyncio.wait_for(waiting, LATE_S / 2)

        return asyncio.run(main())

    return run


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_journal_that_took_the_place_of_another_wakes_everybody(asleep, touches, stream):
    """It has never read what came between, and the scout finds nothing more to read."""

    async def work():
        touches._looking.desks._desks.clear()
        stream.append(change("1"))
        # On the thread of the loop, so before it comes to send the scout.
        touches.wait("s", None, [Entity("none")], 0)

    assert asleep(work).touched


def test_what_rings_while_the_scout_looks_is_looked_for_again(asleep, touches, stream):
    waiters = touches._looking.waiters
    scout, more = waiters._scout, [change("1")]

    def slow(name):
        done = scout(name)
        while more:
            stream.append(more.pop())
        return done

    async def work():
        waiters._scout = slow
        stream.append(change("2"))

    assert asleep(work).touched


def test_where_the_scout_cannot_tell_everybody_looks(asleep, touches, stream):
    async def work():
        # More than a loop may read at once.
        stream.append([change("2")] * (limits.TOUCH_LOOP_RECORDS + 1) + [change("1")])

    assert asleep(work).touched


def test_who_sleeps_through_many_changes_has_missed_none_of_them(asleep, stream, monkeypatch):
    """The journal has long forgotten the place where it lay down."""
    monkeypatch.setattr(limits, "TOUCH_MARKS_MAX", 6)

    async def work():
        for number in range(2, 60):
            await stream.append_async([change(str(number))])
            await settled()
        await stream.append_async([change("1")])

    told = asleep(work)
    assert told.touched
    assert not told.stale


def test_who_was_rung_between_its_look_and_its_sleep_looks_again(asleep, touches, stream):
    look, once = touches._look, [1]

    async def hurried(wait):
        looked = await look(wait)
        if once:
            once.clear()
            # Somebody else makes the journal read on, and everybody who sleeps by now is told.
            stream.append(change("1"))
            touches.wait("s", None, [Entity("none")], 0)
            await settled()
        return looked

    touches._look = hurried

    async def work():
        pass

    assert asleep(work).touched


def test_who_sleeps_for_a_while_goes_on_from_where_nothing_had_touched_it():
    async def main():
        room = _WaiterRoom(asyncio.get_running_loop())
        seat = Waiter(room)
        room.seats.add(seat)
        assert seat.rise() == 0
        sleeping = asyncio.create_task(seat.sleep({1, 2}, LATE_S))
        await settled()
        room.told({3}, 7)
        assert not sleeping.done()
        room.told({2, 3}, 9)
        await sleeping
        assert seat.rise() == 7
        await seat.sleep({1}, 0)
        room.told({3}, 11)
        assert seat.rise() == 11
        # Whoever is awake knows nothing of what comes, and does not lie down before it looks.
        room.told({3}, 12)
        await asyncio.wait_for(seat.sleep({1}, LATE_S), LATE_S / 2)
        assert seat.rise() == 0

    asyncio.run(main())


def test_a_new_version_of_the_schema_wakes_everybody(asleep, touches, streams):
    schema = {"type": "object"}
    streams.schemas.put("s", {"schema": schema})

    async def work():
        streams.open("s").append(change("2"))
        streams.schemas.put("s", {"schema": {**schema, "title": "2"}, "lens": []})

    assert asleep(work).stale

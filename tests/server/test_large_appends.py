"""Large appends take turns while small ones arrive, and those of a connection stay in order."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from both_fronts import JSON, Front, append

from fourfold import limits
from fourfold.errors import Overloaded
from fourfold.kernel.pauses import Pauses
from fourfold.server.large_appends import LargeAppends

sleep = asyncio.sleep
"""The real one, also where a test replaces it."""
SMALL, LARGE = limits.HTTP_LOOP_BYTES, limits.HTTP_LOOP_BYTES + 1


class Clock:
    """A clock that advances by assignment, and counts the pauses of coroutines."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.slept = []
        monkeypatch.setattr("fourfold.kernel.pauses.asyncio.sleep", self.sleep)

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def turns(clock):
    pauses = Pauses(lambda: clock.now, ratio=2.0, clock=clock)
    return LargeAppends(pauses, bytes_max=10 * LARGE, clock=clock)


def test_large_append_waits_only_while_small_ones_arrive(turns):
    assert not turns.must_wait(LARGE)
    assert not turns.must_wait(LARGE)
    assert not turns.must_wait(SMALL)
    assert turns.must_wait(LARGE)
    assert not turns.must_wait(LARGE)


def test_turns_are_taken_one_after_other_with_pauses_in_proportion(turns, clock):
    running = []

    async def write():
        running.append("begin")
        clock.now += 0.004
        running.append("end")

    async def run():
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(turns.run(LARGE, write))

    asyncio.run(run())
    assert running == ["begin", "end"] * 3
    # Two pauses between three turns, twice as long as a turn.
    assert sum(clock.slept) == pytest.approx(2 * 2 * 0.004)


def test_first_large_append_after_a_while_does_not_pause(turns, clock):
    async def write():
        clock.now += 0.004

    asyncio.run(turns.run(LARGE, write))
    clock.now += 1.0
    asyncio.run(turns.run(LARGE, write))
    assert clock.slept == []


def test_bytes_that_wait_are_bounded_and_freed(turns):
    async def run():
        written = asyncio.Event()
        waiting = [asyncio.create_task(turns.run(LARGE, written.wait)) for _ in range(10)]
        await sleep(0)
        with pytest.raises(Overloaded):
            await turns.run(LARGE, written.wait)
        assert turns.must_wait(LARGE)
        written.set()
        await asyncio.gather(*waiting)
        assert await turns.run(10 * LARGE, written.wait)

    asyncio.run(run())


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path):
    made = Front(tmp_path / "store", fast=request.param)
    made.streams.create("s", JSON)
    made.streams.create("t", JSON)
    yield made
    made.stop()


def batch(first, count):
    return json.dumps([{"n": n, "text": "x" * 200} for n in range(first, first + count)]).encode()


def test_pipelined_appends_stay_in_order_around_a_large_one(front):
    """Every large append follows a small one, so that it waits for its turn."""
    bodies, number = [], 0
    for count in (1, 500, 1, 1, 600, 1) * 3:
        bodies.append(batch(number, count))
        number += count
    assert max(map(len, bodies)) > limits.HTTP_LOOP_BYTES
    requests = b"".join(append("s", body) for body in bodies)
    statuses = [answer[0] for answer in front.ask(requests, answers=len(bodies))]
    assert statuses == [204] * len(bodies)
    records = []
    offset = "-1"
    while len(records) < number:
        chunk = front.streams.read("s", offset)[1]
        offset = chunk.offset
        records += [json.loads(record.payload)["n"] for record in chunk.records]
    assert records == list(range(number))


def test_small_append_of_another_connection_overtakes_large_ones_that_wait(front, monkeypatch):
    turns = front.protocol.large_appends
    released = threading.Event()
    turn = turns._turn.acquire

    async def hold(size, write):
        await turn()
        try:
            await asyncio.to_thread(released.wait, 20)
            return await write()
        finally:
            turns._turn.release()

    monkeypatch.setattr(turns, "run", hold)
    assert front.ask(append("t", b"0"))[0][0] == 204
    with front.connect() as large:
        large.send(append("s", batch(0, 500)))
        assert front.ask(append("t", b"1"))[0][0] == 204
        assert front.streams.info("s").next_offset == 0
        released.set()
        assert large.answer()[0] == 204
    assert front.streams.info("s").next_offset == 500


def test_large_append_that_is_refused_in_its_turn_is_answered(front):
    assert front.ask(append("s", b"0"))[0][0] == 204
    status, _, body = front.ask(append("missing", batch(0, 500)))[0]
    assert status == 404
    assert b"missing" in body
    assert front.ask(append("s", b"0"))[0][0] == 204
    assert front.ask(append("s", b"[" + b"x" * 100_000 + b"]"))[0][0] == 400
    assert front.streams.info("s").next_offset == 2

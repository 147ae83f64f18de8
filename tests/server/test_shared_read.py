"""An expensive read is shared by requests, and its result has a bounded age."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.errors import StorageError
from fourfold.server.shared_read import KEYS_MAX, SharedRead, SharedReads


class Clock:
    """A clock that each read advances by its duration."""

    def __init__(self, read_s):
        self.read_s, self.now, self.reads = read_s, 0.0, 0

    def __call__(self):
        return self.now

    async def read(self):
        self.reads += 1
        await asyncio.sleep(0)
        self.now += self.read_s
        return self.reads


def test_requests_at_the_same_time_share_one_read():
    async def run():
        clock = Clock(1.0)
        shared = SharedRead(clock.read, clock=clock)
        results = await asyncio.gather(*(shared.get() for _ in range(10)))
        assert {result.value for result in results} == {1}

    asyncio.run(run())


def test_request_after_a_slow_read_gets_the_previous_result():
    async def run():
        clock = Clock(1.0)
        shared = SharedRead(clock.read, clock=clock)
        assert await shared.get() == (1, 0)
        clock.now = 11.0
        assert await shared.get() == (1, 11_000)
        assert shared._task is None, "ten times its duration it is not read again"
        clock.now = 12.0
        assert await shared.get() == (1, 12_000)
        await asyncio.wait([shared._task])
        assert (await shared.get()).value == 2

    asyncio.run(run())


@pytest.mark.parametrize(("read_s", "now"), [(0.01, 0.2), (1.0, 61.0)])
def test_request_waits_for_fast_reads_and_stale_results(read_s, now):
    async def run():
        clock = Clock(read_s)
        shared = SharedRead(clock.read, clock=clock)
        assert (await shared.get()).value == 1
        clock.now = now
        assert await shared.get() == (2, 0)

    asyncio.run(run())


def test_failed_read_is_repeated_by_the_next_request():
    async def run():
        outcomes = [StorageError("the disk is full"), 7]

        async def read():
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        shared = SharedRead(read)
        with pytest.raises(StorageError):
            await shared.get()
        assert (await shared.get()).value == 7

    asyncio.run(run())


def test_reads_are_shared_by_key_and_a_few_are_kept():
    async def run():
        read = []

        async def count(key):
            read.append(key)
            await asyncio.sleep(0)
            return key

        shared = SharedReads(count)
        assert [result.value for result in await asyncio.gather(*map(shared.get, "aab"))] == [
            *"aab"
        ]
        assert read == ["a", "b"]
        await asyncio.gather(*(shared.get(number) for number in range(KEYS_MAX)))
        assert len(shared._reads) == KEYS_MAX
        assert "a" not in shared._reads

    asyncio.run(run())

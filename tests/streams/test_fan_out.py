"""Appends with many live readers: acknowledged first, then the readers are woken."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial

import pytest

from fourfold.kernel import Database, GroupLimits, Options, notifier
from fourfold.kernel.notifier import NOTIFY_SLICE_LISTENERS
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Streams

READERS = 1_000
APPENDS = 5


@pytest.fixture(params=["inline", "thread"])
def streams(tmp_path, request):
    with Database.open(
        tmp_path / "s.sqlite",
        profile=PROFILE.with_(synchronous="OFF"),
        migrations=MIGRATIONS,
        options=Options(group=GroupLimits(placement=request.param)),
    ) as database:
        yield Streams(database)


def noted(streams, appending, readers):
    """Record the order of acknowledgements and wakes."""

    async def main():
        events = []

        async def reader(listener):
            assert await listener.wait(30)
            events.append("woken")

        with ExitStack() as stack:
            listeners = [stack.enter_context(streams.notifier.listen("s")) for _ in range(readers)]
            tasks = [asyncio.create_task(reader(listener)) for listener in listeners]
            await asyncio.sleep(0)
            await appending(events)
            await asyncio.gather(*tasks)
        return events

    streams.create("s", "text/plain")
    return asyncio.run(main())


@pytest.mark.parametrize("readers", [10, READERS])
def test_append_is_acknowledged_before_readers_are_woken(streams, readers):
    async def appending(events):
        await streams.append_async("s", Append([b"a"], "text/plain"))
        events.append("acknowledged")

    events = noted(streams, appending, readers)
    assert events == ["acknowledged"] + ["woken"] * readers


@pytest.mark.parametrize("readers", [10, READERS])
def test_appends_that_share_a_commit_are_all_acknowledged_first(streams, readers):
    async def appending(events):
        for _ in range(APPENDS):
            acknowledge = partial(events.append, "acknowledged")
            streams.append_soon("s", Append([b"a"], "text/plain"), lambda _, a=acknowledge: a())
            # Another request ends the batch: the next append starts its own.
            waiting = streams.database.transact_async(lambda txn: None)
        await waiting
        events.append("acknowledged")

    events = noted(streams, appending, readers)
    assert events == ["acknowledged"] * (APPENDS + 1) + ["woken"] * readers


def test_other_appends_are_acknowledged_while_readers_are_being_woken(streams, monkeypatch):
    slices, held = [], asyncio.Queue()
    deliver = notifier._FanOut._deliver

    def deliver_first_slice(fan_out):
        # The second slice waits until another append has been acknowledged.
        slices.append(fan_out)
        if len(slices) == 1:
            deliver(fan_out)
        else:
            held.put_nowait(fan_out)

    monkeypatch.setattr(notifier._FanOut, "_deliver", deliver_first_slice)

    async def appending(events):
        for number in range(APPENDS):
            await streams.append_async("s", Append([b"%d" % number], "text/plain"))
            events.append("acknowledged")
        fan_out = await held.get()
        monkeypatch.undo()
        deliver(fan_out)

    events = noted(streams, appending, READERS)
    last = max(place for place, event in enumerate(events) if event == "acknowledged")
    assert events[0] == "acknowledged"
    assert events[last:].count("woken") >= READERS - NOTIFY_SLICE_LISTENERS
    assert events.count("woken") == READERS


def test_readers_receive_records_in_order_while_fan_out_is_sliced(streams, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.notifier.NOTIFY_SLICE_LISTENERS", 3)
    streams.create("s", "text/plain")

    async def follow():
        records = []
        async for chunk in streams.open("s").follow_async():
            records += [record.payload for record in chunk.records]
        return records

    async def main():
        readers = [asyncio.create_task(follow()) for _ in range(8)]
        for number in range(20):
            await streams.append_async("s", Append([b"%d" % number], "text/plain"))
        await streams.append_async("s", Append((), None, close=True))
        return await asyncio.gather(*readers)

    for records in asyncio.run(main()):
        assert records == [b"%d" % number for number in range(20)]

"""Notifier: listeners are notified of their name, in slices and in order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.kernel import Notifier
from fourfold.kernel.notifier import (
    NOTIFY_PAUSES,
    NOTIFY_PAUSES_REPEATED,
    NOTIFY_PENDING_MAX,
    NOTIFY_SLICE_LISTENERS,
)


def test_listener_is_notified_of_its_name_and_of_all_names():
    notifier, received = Notifier(), []
    with (
        notifier.call(lambda _: received.append("a"), "a"),
        notifier.call(lambda _: received.append("b"), "b"),
        notifier.call(lambda _: received.append("all")),
    ):
        notifier.notify(("a", "without listeners"))
        assert received == ["all", "a"]
        received.clear()
        notifier.notify()
        assert sorted(received) == ["a", "all", "b"]
        received.clear()
        notifier.notify(())
        assert received == ["all"]
    notifier.notify(("a", "b"))
    assert received == ["all"]


def test_callback_that_leaves_does_not_remove_others():
    notifier, received = Notifier(), []
    with notifier.call(lambda _: received.append(1), "a"):
        with notifier.call(lambda _: received.append(2), "a"):
            pass
        notifier.notify(("a",))
    assert received == [1]


def test_coroutine_is_woken_by_another_thread():
    async def listen():
        notifier = Notifier()
        with notifier.listen("a") as listener:
            threading.Thread(target=notifier.notify, args=(("b",),)).start()
            assert not await listener.wait(0.05)
            threading.Thread(target=notifier.notify, args=(("a",),)).start()
            assert await listener.wait(30)

    asyncio.run(listen())


SLICE = NOTIFY_SLICE_LISTENERS
MANY = 10 * SLICE


async def iterations(count=MANY):
    """Run the loop for `count` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


async def note_wake(listener, events):
    assert await listener.wait(30)
    events.append("woken")


@pytest.mark.parametrize("thread", [False, True])
def test_notify_wakes_listeners_in_slices_between_other_callbacks(thread):
    async def main():
        notifier, events = Notifier(), []
        loop = asyncio.get_running_loop()

        def other():
            events.append("other")
            if events.count("woken") < MANY:
                loop.call_soon(other)

        with ExitStack() as stack:
            listeners = [stack.enter_context(notifier.listen("a")) for _ in range(MANY)]
            woken = [asyncio.create_task(note_wake(listener, events)) for listener in listeners]
            await asyncio.sleep(0)
            if thread:
                sender = threading.Thread(target=notifier.notify, args=(("a",),))
                sender.start()
                sender.join()
            else:
                notifier.notify(("a",))
            loop.call_soon(other)
            await asyncio.gather(*woken)
        return events

    events = asyncio.run(main())
    between = "".join("o" if event == "other" else "w" for event in events).split("o")
    assert sum(map(len, between)) == MANY
    assert max(map(len, between)) <= SLICE


def test_notify_of_many_names_is_one_fan_out():
    async def main():
        notifier = Notifier()
        names = [f"n{number}" for number in range(MANY)]
        with ExitStack() as stack:
            listeners = [stack.enter_context(notifier.listen(name)) for name in names]
            notifier.notify(names)
            first = sum(bool(listener.drain()) for listener in listeners)
            await iterations()
            return first, first + sum(bool(listener.drain()) for listener in listeners)

    assert asyncio.run(main()) == (SLICE, MANY)


def test_one_slice_of_listeners_is_notified_at_once():
    async def main():
        notifier = Notifier()
        with ExitStack() as stack:
            listeners = [stack.enter_context(notifier.listen("a")) for _ in range(SLICE)]
            notifier.notify(("a",), {"a": 1})
            return [listener.drain() for listener in listeners]

    assert asyncio.run(main()) == [[1]] * SLICE


def test_listener_that_leaves_during_a_fan_out_is_not_notified():
    async def main():
        notifier = Notifier()
        with ExitStack() as stack:
            for _ in range(SLICE):
                stack.enter_context(notifier.listen("a"))
            with notifier.listen("a") as gone:
                notifier.notify(("a",))
            last = stack.enter_context(notifier.listen("a"))
            notifier.notify(("a",))
            await iterations()
            return gone.drain(), bool(last.drain())

    assert asyncio.run(main()) == ([], True)


def test_name_with_few_listeners_does_not_wait_for_large_one():
    async def main():
        notifier = Notifier()
        with ExitStack() as stack:
            large = [stack.enter_context(notifier.listen("large")) for _ in range(MANY)]
            small = stack.enter_context(notifier.listen("small"))
            notifier.notify(("large",))
            notifier.notify(("small",))
            assert await small.wait(30)
            return sum(bool(listener.drain()) for listener in large)

    assert asyncio.run(main()) < MANY


@pytest.mark.parametrize("took_s", [0.0002, 0.00003])
@pytest.mark.parametrize("others_every", [1, 7])
def test_fan_out_pauses_while_others_commit(monkeypatch, took_s, others_every):
    """The loop is left to others in between: the next slice waits for a timer.

    Slices are shorter than commits, so those without a commit pause as well. uvloop calls at once
    if the delay is below half a millisecond.
    """

    async def main(*, others):
        notifier, pauses, readings = Notifier(), [], itertools.count()
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def note(delay, function, *arguments):
            if function.__name__ == "_end_pause":
                pauses.append(delay)
            return call_later(delay, function, *arguments)

        monkeypatch.setattr(loop, "call_later", note)
        # Read at the beginning and at the end of a slice.
        clock = SimpleNamespace(
            perf_counter=lambda: next(readings) * took_s, thread_time=lambda: 0.0
        )
        monkeypatch.setattr("fourfold.kernel.notifier.time", clock)
        with ExitStack() as stack:
            large = [stack.enter_context(notifier.listen("large")) for _ in range(MANY)]
            notifier.notify(("large",))
            turns = itertools.count()
            while not all(listener._notified for listener in large):
                if others and not next(turns) % others_every:
                    notifier.notify(("other",))
                await asyncio.sleep(0)
        return pauses

    assert asyncio.run(main(others=False)) == []
    pauses = asyncio.run(main(others=True))
    assert min(pauses) >= 0.001
    # In all as long as one after each slice but the last few.
    slices = MANY // SLICE - 1 - 0.001 / (NOTIFY_PAUSES * took_s)
    assert sum(pauses) >= slices * NOTIFY_PAUSES * took_s


@pytest.mark.parametrize(("share", "repeats"), [(0.5, 0), (1.0, NOTIFY_PAUSES_REPEATED)])
def test_pause_is_repeated_while_event_loop_has_no_idle_time(monkeypatch, share, repeats):
    """Requests wait while the loop is busy, and each slice would add to their delay."""

    async def main():
        notifier, pauses, readings = Notifier(), [], itertools.count()
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def note(delay, function, *arguments):
            if function.__name__ == "_end_pause":
                pauses.append(function.__self__._repeated)
            return call_later(delay, function, *arguments)

        monkeypatch.setattr(loop, "call_later", note)
        clock = SimpleNamespace(perf_counter=lambda: next(readings) * 0.0002)
        clock.thread_time = lambda: clock.perf_counter() * share
        monkeypatch.setattr("fourfold.kernel.notifier.time", clock)
        with ExitStack() as stack:
            large = [stack.enter_context(notifier.listen("large")) for _ in range(MANY)]
            notifier.notify(("large",))
            while not all(listener._notified for listener in large):
                notifier.notify(("other",))
                await asyncio.sleep(0)
        return pauses

    pauses = asyncio.run(main())
    assert max(pauses) == repeats
    assert pauses[: repeats + 1] == list(range(repeats + 1))


def test_fan_out_buffers_few_undelivered_payloads():
    async def main():
        notifier = Notifier()
        with ExitStack() as stack:
            listeners = [stack.enter_context(notifier.listen("a")) for _ in range(MANY)]
            for number in range(MANY):
                notifier.notify(("a",), {"a": number})
            await iterations()
            return [listener.drain() for listener in listeners]

    for received in asyncio.run(main()):
        assert received[-1] == MANY - 1
        assert None in received
        assert len(received) <= 2 * NOTIFY_PENDING_MAX


steps = st.lists(
    st.one_of(
        st.tuples(st.just("notify"), st.sampled_from("ab")),
        st.tuples(st.just("notify from a thread"), st.sampled_from("ab")),
        st.tuples(st.just("join"), st.sampled_from("ab")),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("iterate"), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(steps)
def test_listeners_receive_every_payload_once_and_in_order(steps):
    """Law: a listener receives the payloads of its name in order; None always marks a gap."""

    async def main():
        notifier, listening, sent = Notifier(), [], {"a": [], "b": []}
        for action, value in [("join", name) for name in "aaabbb"] + steps:
            if action == "join":
                registration = notifier.listen(value)
                listening.append((registration, registration.__enter__(), value, len(sent[value])))
            elif action == "leave" and value < len(listening):
                registration, listener, _, _ = listening.pop(value)
                registration.__exit__(None, None, None)
                before = listener.drain()
                await iterations(1)
                assert listener.drain() == [], before
            elif action == "iterate":
                await iterations(value)
            elif action.startswith("notify"):
                number = len(sent[value])
                sent[value].append(number)
                notify = partial(notifier.notify, (value,), {value: number})
                if action == "notify":
                    notify()
                else:
                    sender = threading.Thread(target=notify)
                    sender.start()
                    sender.join()
        await iterations(100)
        for registration, listener, name, joined in listening:
            received = listener.drain()
            expected = sent[name][joined:]
            registration.__exit__(None, None, None)
            # A payload sent shortly before it joined does no harm.
            known = [number for number in received if number is not None and number >= joined]
            assert known == sorted(set(known))
            assert None in received or known == expected
            assert known[-1:] == expected[-1:] or received[-1:] == [None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fourfold.kernel.notifier.NOTIFY_SLICE_LISTENERS", 2)
        asyncio.run(main())

"""The bell: everybody hears what concerns them, and those who listen to one name only that."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold.kernel import Notifier


def test_a_name_hears_its_own_rings_and_those_for_everybody():
    bell, heard = Notifier(), []
    with (
        bell.calling(lambda _: heard.append("a"), "a"),
        bell.calling(lambda _: heard.append("b"), "b"),
        bell.calling(lambda _: heard.append("all")),
    ):
        bell.ring(("a", "nobody"))
        assert heard == ["all", "a"]
        heard.clear()
        bell.ring()
        assert sorted(heard) == ["a", "all", "b"]
        heard.clear()
        bell.ring(())
        assert heard == ["all"]
    bell.ring(("a", "b"))
    assert heard == ["all"]


def test_who_leaves_does_not_take_others_along():
    bell, heard = Notifier(), []
    with bell.calling(lambda _: heard.append(1), "a"):
        with bell.calling(lambda _: heard.append(2), "a"):
            pass
        bell.ring(("a",))
    assert heard == [1]


def test_a_coroutine_hears_a_ring_of_another_thread():
    async def listen():
        bell = Notifier()
        with bell.heard("a") as ear:
            threading.Thread(target=bell.ring, args=(("b",),)).start()
            assert not await ear.wait(0.05)
            threading.Thread(target=bell.ring, args=(("a",),)).start()
            assert await ear.wait(30)

    asyncio.run(listen())


SLICE = limits.NOTIFY_SLICE_LISTENERS
MANY = 10 * SLICE


async def iterations(count=MANY):
    """Let the loop come round often enough for everything that is under way."""
    for _ in range(count):
        await asyncio.sleep(0)


async def note_wake(ear, events):
    assert await ear.wait(30)
    events.append("woken")


@pytest.mark.parametrize("thread", [False, True])
def test_ring_wakes_listeners_in_slices_with_other_callbacks_between(thread):
    async def main():
        bell, events = Notifier(), []
        loop = asyncio.get_running_loop()

        def other():
            events.append("other")
            if events.count("woken") < MANY:
                loop.call_soon(other)

        with ExitStack() as stack:
            ears = [stack.enter_context(bell.heard("a")) for _ in range(MANY)]
            woken = [asyncio.create_task(note_wake(ear, events)) for ear in ears]
            await asyncio.sleep(0)
            if thread:
                ringer = threading.Thread(target=bell.ring, args=(("a",),))
                ringer.start()
                ringer.join()
            else:
                bell.ring(("a",))
            loop.call_soon(other)
            await asyncio.gather(*woken)
        return events

    events = asyncio.run(main())
    between = "".join("o" if event == "other" else "w" for event in events).split("o")
    assert sum(map(len, between)) == MANY
    assert max(map(len, between)) <= SLICE


def test_ring_of_many_names_is_one_fan_out():
    async def main():
        bell = Notifier()
        names = [f"n{number}" for number in range(MANY)]
        with ExitStack() as stack:
            ears = [stack.enter_context(bell.heard(name)) for name in names]
            bell.ring(names)
            first = sum(bool(ear.forget()) for ear in ears)
            await iterations()
            return first, first + sum(bool(ear.forget()) for ear in ears)

    assert asyncio.run(main()) == (SLICE, MANY)


def test_one_slice_of_listeners_is_notified_at_once():
    async def main():
        bell = Notifier()
        with ExitStack() as stack:
            ears = [stack.enter_context(bell.heard("a")) for _ in range(SLICE)]
            bell.ring(("a",), {"a": 1})
            return [ear.forget() for ear in ears]

    assert asyncio.run(main()) == [[1]] * SLICE


def test_listener_that_leaves_during_a_fan_out_is_not_notified():
    async def main():
        bell = Notifier()
        with ExitStack() as stack:
            for _ in range(SLICE):
                stack.enter_context(bell.heard("a"))
            with bell.heard("a") as gone:
                bell.ring(("a",))
            last = stack.enter_context(bell.heard("a"))
            bell.ring(("a",))
            await iterations()
            return gone.forget(), bool(last.forget())

    assert asyncio.run(main()) == ([], True)


def test_listeners_of_a_small_stream_do_not_wait_for_those_of_a_large_one():
    async def main():
        bell = Notifier()
        with ExitStack() as stack:
            large = [stack.enter_context(bell.heard("large")) for _ in range(MANY)]
            small = stack.enter_context(bell.heard("small"))
            bell.ring(("large",))
            bell.ring(("small",))
            await iterations(2)
            return small.forget(), sum(bool(ear.forget()) for ear in large)

    heard, woken = asyncio.run(main())
    assert heard == [None]
    assert woken < MANY


def test_fan_out_keeps_little_of_what_it_could_not_deliver_yet():
    async def main():
        bell = Notifier()
        with ExitStack() as stack:
            ears = [stack.enter_context(bell.heard("a")) for _ in range(MANY)]
            for number in range(MANY):
                bell.ring(("a",), {"a": number})
            await iterations()
            return [ear.forget() for ear in ears]

    for heard in asyncio.run(main()):
        assert heard[-1] == MANY - 1
        assert None in heard
        assert len(heard) < 20


steps = st.lists(
    st.one_of(
        st.tuples(st.just("ring"), st.sampled_from("ab")),
        st.tuples(st.just("ring from a thread"), st.sampled_from("ab")),
        st.tuples(st.just("join"), st.sampled_from("ab")),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("iterate"), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(steps)
def test_listeners_hear_every_ring_once_and_in_order(steps):
    """Law: what a listener hears is what was rung under its name while it listened, in order; a gap
    is always marked with None.
    """

    async def main():
        bell, listening, rung = Notifier(), [], {"a": [], "b": []}
        for what, value in [("join", name) for name in "aaabbb"] + steps:
            if what == "join":
                calling = bell.heard(value)
                listening.append((calling, calling.__enter__(), value, len(rung[value])))
            elif what == "leave" and value < len(listening):
                calling, ear, _, _ = listening.pop(value)
                calling.__exit__(None, None, None)
                before = ear.forget()
                await iterations(1)
                assert ear.forget() == [], before
            elif what == "iterate":
                await iterations(value)
            elif what.startswith("ring"):
                number = len(rung[value])
                rung[value].append(number)
                ringing = partial(bell.ring, (value,), {value: number})
                if what == "ring":
                    ringing()
                else:
                    ringer = threading.Thread(target=ringing)
                    ringer.start()
                    ringer.join()
        await iterations(100)
        for calling, ear, name, joined in listening:
            heard = ear.forget()
            expected = rung[name][joined:]
            calling.__exit__(None, None, None)
            # A ring shortly before it joined does no harm.
            known = [number for number in heard if number is not None and number >= joined]
            assert known == sorted(set(known))
            assert None in heard or known == expected
            assert known[-1:] == expected[-1:] or heard[-1:] == [None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "NOTIFY_SLICE_LISTENERS", 2)
        asyncio.run(main())

"""The bell: everybody hears what concerns them, and those who listen to one name only that."""

from __future__ import annotations

import asyncio
import threading

from fourfold.kernel import Bell


def test_a_name_hears_its_own_rings_and_those_for_everybody():
    bell, heard = Bell(), []
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
    bell, heard = Bell(), []
    with bell.calling(lambda _: heard.append(1), "a"):
        with bell.calling(lambda _: heard.append(2), "a"):
            pass
        bell.ring(("a",))
    assert heard == [1]


def test_a_coroutine_hears_a_ring_of_another_thread():
    async def listen():
        bell = Bell()
        with bell.heard("a") as ear:
            threading.Thread(target=bell.ring, args=(("b",),)).start()
            assert not await ear.wait(0.05)
            threading.Thread(target=bell.ring, args=(("a",),)).start()
            assert await ear.wait(30)

    asyncio.run(listen())

"""The store of a server over a failing network: nothing is missing, nothing is repeated."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
from cutting_proxy import CuttingProxy
from served_streams import Served

import fourfold
from fourfold.client import AsyncRemoteStore
from fourfold.errors import NotFound, ServerUnreachable

DID = "did:web:{}.example"
pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture
def direct(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        yield store


@pytest.fixture
def cut(served):
    """Return a store whose connections are closed after about a thousand bytes."""
    with (
        CuttingProxy(served.port, 1_200, seed=5) as proxy,
        fourfold.connect(f"http://127.0.0.1:{proxy.port}", retry_for=None) as store,
    ):
        store.proxy = proxy
        yield store


def test_write_without_a_response_is_committed_once(direct, cut, name):
    direct.space(DID.format(name))
    space = cut.space(DID.format(name))
    seqs = [space.set("a", {"n": n}).seq for n in range(30)]
    space.branches.create("b")
    space.set("a", {"n": "b"}, branch="b")
    merged = space.branches.merge("b")
    space.branches.delete("b")
    assert cut.proxy.cuts > 5
    assert seqs == list(range(1, 31))
    assert merged.commit.seq == 33
    assert direct.space(DID.format(name)).position() == 34


def test_interrupted_follower_of_commits_misses_and_repeats_nothing(direct, cut, name):
    space = direct.space(DID.format(name))
    cut.proxy.most = 3_000
    with cut.space(DID.format(name)).follow(timeout=60) as commits:
        seqs = []
        for n in range(50):
            space.transact([{"op": "set", "id": str(n), "value": {"pad": "x" * 100}}])
            if n % 10 == 9:
                # A follower that catches up step by step is cut more often.
                seqs += [next(commits).seq for _ in range(10)]
        assert seqs == list(range(1, 51))
        assert commits.position == 50
    assert cut.proxy.cuts > 3


def test_interrupted_follower_of_records_misses_and_repeats_nothing(direct, cut, name):
    stream = direct.streams.create(name, "application/json")
    cut.proxy.most = 3_000
    values = []
    # A response must fit into a connection: the next record follows when the last one arrived.
    stream.append({"n": 0})
    for chunk in cut.streams[name].follow():
        values += [record.value["n"] for record in chunk]
        if not chunk.closed:
            last = len(values) == 40
            stream.append({"n": len(values), "pad": "x" * 100}, close=last)
    assert values == list(range(41))
    assert cut.proxy.cuts > 3


def test_followers_continue_on_a_server_that_was_killed(tmp_path):
    served = Served(tmp_path / "store", long_poll="1")
    try:
        with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
            space = store.space("did:web:a.example")
            session = store.sessions.create({"id": "a"})
            turn = {"type": "turn/started", "turn": {}}
            stream = store.streams.create("a", "application/json")
            with (
                space.follow() as commits,
                session.follow() as items,
                store.sessions.follow_all() as everything,
                stream.follow() as chunks,
            ):
                for n in (1, 2):
                    space.set("a", {"n": n})
                    [event] = session.append(turn)
                    stream.append(n)
                    assert commits.next(60).seq == n
                    assert items.next(60) == everything.next(60) == event
                    assert [record.value for record in chunks.next(60)] == [n]
                    if n == 1:
                        served.kill()
                        served.start()
    finally:
        served.kill()


def test_cancelled_wait_of_a_coroutine_skips_nothing(direct, name):
    space = direct.space(DID.format(name))

    async def work():
        seqs = []
        with space.follow(timeout=30) as commits:
            for n in range(20):
                waiting = asyncio.create_task(commits.next_async())
                await asyncio.sleep(0)
                waiting.cancel()
                await space.transact_async([{"op": "set", "id": "a", "value": {"n": n}}])
                seqs.append((await commits.next_async(30)).seq)
        return seqs

    assert asyncio.run(work()) == list(range(1, 21))


def test_wait_that_was_cut_off_skips_nothing(served, name):
    async def work():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            space = await store.space(DID.format(name))
            seqs = []
            async with space.follow() as commits:
                for n in range(10):
                    assert await commits.next(0.01) is None
                    await space.set("a", {"n": n})
                    seqs.append((await commits.next(30)).seq)
            assert await commits.next() is None
            return seqs

    assert asyncio.run(work()) == list(range(1, 11))


def test_closed_follower_wakes_the_thread_that_waits(direct, name):
    commits = direct.space(DID.format(name)).follow()
    found = []
    thread = threading.Thread(target=lambda: found.extend(commits))
    thread.start()
    commits.close()
    thread.join(60)
    assert not thread.is_alive()
    assert found == []


def test_closed_follower_returns_nothing_more(direct, name):
    space = direct.space(DID.format(name))
    commits = space.follow()
    for n in range(3):
        space.set("a", {"n": n})
    assert commits.next(60).seq == 1
    commits.close()
    assert commits.next(60) is None
    assert list(commits) == []


def test_dropped_follower_ends_its_thread(direct, name):
    commits = direct.space(DID.format(name)).follow()
    threads = [each for each in threading.enumerate() if each.name == "fourfold-follower"]
    assert threads
    del commits
    gc.collect()
    deadline = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.is_alive() for thread in threads)


def test_feed_of_a_missing_space_is_refused_at_once(direct, name):
    space = direct.space(DID.format(name))
    with pytest.raises(NotFound):
        space.follow(branch="none")


def test_store_that_is_unreachable_says_so(tmp_path):
    served = Served(tmp_path / "store")
    served.kill()
    with (
        fourfold.connect(f"http://127.0.0.1:{served.port}", retry_for=0) as store,
        pytest.raises(ServerUnreachable, match="list the spaces: no response from 127"),
    ):
        store.spaces()


def test_events_without_a_response_are_appended_once(direct, cut, name):
    session = cut.sessions.create({"id": name})
    for _ in range(20):
        session.append({"type": "turn/started", "turn": {}})
    session.publish_head()
    assert cut.proxy.cuts > 3
    view = direct.sessions[name].read()
    assert (view.counters.turn, len(view.heads)) == (20, 1)


def test_interrupted_follower_of_a_session_misses_and_repeats_nothing(direct, cut, name):
    session = direct.sessions.create({"id": name})
    cut.proxy.most = 3_000
    with cut.sessions[name].follow(timeout=60) as items:
        ids = []
        for n in range(40):
            session.append({"type": "message/appended", "message": {"content": "x" * 100}})
            if n % 10 == 9:
                ids += [next(items).id for _ in range(10)]
        assert ids == list(range(1, 41))
    assert cut.proxy.cuts > 3


def test_connecting_is_not_time_without_records(served, direct, name):
    direct.streams.create(name, "application/json").append([1, 2])
    stream = direct.streams.open(name)
    values = [record.value for chunk in stream.follow(timeout=0) for record in chunk]

    async def follow():
        followed = [r.value async for chunk in stream.follow(timeout=0) for r in chunk]
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            chunks = (await store.streams.open(name)).follow(timeout=0)
            followed += [r.value async for chunk in chunks for r in chunk]
            await chunks.close()
        return followed

    assert values == [1, 2]
    assert asyncio.run(follow()) == [1, 2, 1, 2]

"""A watch shows every commit once, in order, from where its consumer left off."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import fourfold
from fourfold import limits
from fourfold.errors import Closed, InvalidInput, NotFound
from fourfold.models.documents import GcPolicy, bundle, feed, writer
from fourfold.models.documents.feed import WATCH_PAGE_COMMITS, Watch


def seqs(watch):
    return [commit.seq for commit in watch]


def caught_up(space, **how):
    """All that is there already."""
    with space.watch(timeout=0, **how) as watch:
        return list(watch)


def test_watch_from_beginning_shows_every_commit_with_its_revisions(space):
    space.set("urn:a", {"value": 1})
    space.transact([{"op": "delete", "id": "urn:a"}, {"op": "set", "id": "urn:b", "value": {}}])
    first, second = caught_up(space, after=0)
    assert [(each.id, each.op, each.data) for each in first.revisions] == [
        ("urn:a", "set", {"value": 1})
    ]
    assert [(each.id, each.op_index) for each in second.revisions] == [("urn:a", 0), ("urn:b", 1)]


def test_a_watch_from_now_shows_only_what_comes(space):
    space.set("urn:a", {"value": 1})
    with space.watch(timeout=0) as watch:
        assert watch.position == 1
        space.set("urn:a", {"value": 2})
        space.set("urn:a", {"value": 3})
        assert seqs(watch) == [2, 3]
        assert watch.position == 3


def test_it_goes_on_from_position_without_hole_or_duplicate(space):
    for number in range(10):
        space.set("urn:a", {"value": number})
    seen = []
    position = 0
    while position < 10:
        with space.watch(after=position, timeout=0) as watch:
            for commit in watch:
                seen.append(commit.seq)
                if len(seen) % 3 == 0:
                    break
            position = watch.position
    assert seen == list(range(1, 11))


def test_filter_passes_commits_that_do_not_match(space, monkeypatch):
    monkeypatch.setattr(feed, "WATCH_PAGE_COMMITS", 3)
    for number in range(10):
        space.set("urn:a", {"n": number})
    with space.follow(where={"n": {"$gte": 8}}, after=0) as watch:
        assert [watch.next(timeout=0).seq for _ in range(2)] == [9, 10]
        assert watch.next(timeout=0) is None
        assert watch.position == 10
        space.set("urn:a", {"n": 1})
        assert [change.kind for change in watch.next(timeout=0).changes] == ["leave"]
        space.set("urn:a", {"n": 2})
        assert watch.next(timeout=0) is None
        assert watch.position == 12
    # Many entities in one commit are compared in parts.
    monkeypatch.setattr(feed, "_COMPARED_ENTITIES", 2)
    space.transact([{"op": "set", "id": f"urn:{name}", "value": {"n": 9}} for name in "abcde"])
    (commit,) = caught_up(space, after=12, where={"n": 9})
    assert [(row.kind, row.id[-1]) for row in commit.changes] == [("enter", x) for x in "abcde"]


def test_filter_wakes_a_coroutine_only_for_matches(space):
    async def run():
        with space.follow(where={"n": 2}) as watch:
            waiting = asyncio.ensure_future(watch.next_async(5))
            for number in range(3):
                await space.transact_async([{"op": "set", "id": "urn:a", "value": {"n": number}}])
            return await waiting

    commit = asyncio.run(run())
    assert (commit.seq, commit.changes[0].kind) == (3, "enter")


def test_only_the_watched_entities_are_shown(space):
    space.transact([{"op": "set", "id": f"urn:{each}", "value": {}} for each in "abc"])
    space.set("urn:c", {"value": 1})
    space.set("urn:b", {"value": 1})
    shown = caught_up(space, ids=["urn:a", "urn:b"], after=0)
    assert [[each.id for each in commit.revisions] for commit in shown] == [
        ["urn:a", "urn:b"],
        ["urn:b"],
    ]
    with space.watch(["urn:a"], after=1, timeout=0) as watch:
        assert seqs(watch) == []
        assert watch.position == 3


def test_pages_are_no_border(space, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.feed.WATCH_PAGE_COMMITS", 3)
    for number in range(8):
        space.set("urn:a", {"value": number})
    assert [commit.seq for commit in caught_up(space, after=0)] == list(range(1, 9))


def test_watch_of_a_branch_shows_inherited_and_own_commits(space, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.feed.WATCH_PAGE_COMMITS", 2)
    space.set("urn:a", {"value": 1})
    space.set("urn:a", {"value": 2})
    space.branches.create("work", at=1)
    space.set("urn:a", {"value": 4}, branch="work")
    space.set("urn:a", {"value": 5})
    space.branches.create("nested", "work")
    space.set("urn:a", {"value": 7}, branch="work")
    space.set("urn:a", {"value": 8}, branch="nested")
    assert [commit.seq for commit in caught_up(space, after=0, branch="work")] == [1, 4, 7]
    assert [commit.seq for commit in caught_up(space, after=0, branch="nested")] == [1, 4, 8]
    assert [commit.seq for commit in caught_up(space, after=0)] == [1, 2, 5]


def test_watch_of_deleted_branch_ends_after_its_last_commit(space):
    space.branches.create("work")
    space.set("urn:a", {"value": 1}, branch="work")
    with space.watch(after=0, branch="work") as watch:
        assert next(watch).seq == 2
        threading.Thread(target=space.branches.delete, args=("work",)).start()
        assert seqs(watch) == []
    assert [commit.seq for commit in caught_up(space, after=0, branch="work")] == [2]


def test_commit_wakes_a_waiting_watch(space, monkeypatch):
    # With an hour between two looks only the wake-up can end the wait.
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 3_600.0)
    got = []
    watch = space.watch()
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    space.set("urn:a", {"value": 1})
    thread.join()
    assert [commit.seq for commit in got] == [1]


def test_closing_ends_the_wait(space, monkeypatch):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 3_600.0)
    watch = space.watch()
    got = []
    thread = threading.Thread(target=lambda: got.append(list(watch)))
    thread.start()
    watch.close()
    thread.join()
    assert got == [[]]
    assert watch.next() is None


def test_consumers_see_every_commit_once_and_in_order(space):
    consumers, each = 3, 40
    seen = [[] for _ in range(consumers)]

    def consume(number):
        with space.watch(after=0) as watch:
            for commit in watch:
                seen[number].append(commit.seq)
                if len(seen[number]) == 2 * each:
                    return

    def write(name):
        for number in range(each):
            space.set(f"urn:{name}", {"value": number})

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
    threads += [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(1, 2 * each + 1))] * consumers


def test_the_commits_of_another_process_are_found(root, store, space, history):
    space.set("urn:a", {"value": 1})
    with fourfold.open(root, mode="r") as beside:
        reader = beside.space(space.did, history=history)
        assert not reader.database.writable
        with reader.watch() as watch:
            assert watch.next(timeout=0) is None
            space.set("urn:a", {"value": 2})
            assert watch.next(timeout=60).seq == 2


def test_a_slow_consumer_keeps_nothing_in_memory(space):
    watch = space.watch(after=0)
    for number in range(WATCH_PAGE_COMMITS * 2):
        space.set("urn:a", {"value": number})
    assert watch.next().seq == 1
    assert len(watch._seqs) < WATCH_PAGE_COMMITS
    assert all(type(seq) is int for seq in watch._seqs)


def test_a_refused_commit_is_not_shown(space):
    with space.watch(timeout=0) as watch:
        with pytest.raises(InvalidInput):
            space.patch("urn:a", [{"op": "remove", "path": "/nothing"}])
        assert seqs(watch) == []


def test_closing_the_store_ends_the_wait_with_an_error(root, history, monkeypatch):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 0.01)
    caught = []
    with fourfold.open(root) as opened:
        watch = opened.space("did:key:zWatched", history=history).watch()

        def consume():
            try:
                watch.next()
            except Closed as error:
                caught.append(error)

        thread = threading.Thread(target=consume)
        thread.start()
    thread.join()
    assert len(caught) == 1


def test_bad_watches_are_refused(space):
    space.set("urn:a", {})
    for how in (
        {"after": 2},
        {"after": -1},
        {"after": True},
        {"ids": []},
        {"ids": "urn:a"},
        {"ids": 7},
    ):
        with pytest.raises(InvalidInput):
            space.watch(**how)
    with pytest.raises(InvalidInput):
        space.watch([""])
    with pytest.raises(NotFound):
        space.watch(branch="nowhere")


def test_coroutines_see_the_same(space, monkeypatch):
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 3_600.0)

    async def scene():
        seen = []

        async def consume():
            async for commit in space.watch(after=0):
                seen.append(commit.seq)
                if len(seen) == 20:
                    return

        async def write():
            for number in range(20):
                await asyncio.to_thread(space.set, "urn:a", {"value": number})

        await asyncio.gather(consume(), write())
        return seen

    assert asyncio.run(scene()) == list(range(1, 21))


def test_a_coroutine_that_was_cancelled_misses_nothing(space):
    async def scene():
        watch = space.watch(after=0)
        seen = []
        for number in range(30):
            space.set("urn:a", {"value": number})
            try:
                async with asyncio.timeout(0.0005 * (number % 4)):
                    commit = await watch.next_async()
            except TimeoutError:
                continue
            seen.append(commit.seq)
        while (commit := await watch.next_async(timeout=0)) is not None:
            seen.append(commit.seq)
        return seen

    assert asyncio.run(scene()) == list(range(1, 31))


def test_silence_ends_a_coroutine_with_a_timeout(space):
    async def scene():
        return [commit async for commit in space.watch(timeout=0.01)]

    before = time.monotonic()
    assert asyncio.run(scene()) == []
    assert time.monotonic() >= before


@pytest.fixture
def looks(monkeypatch):
    """Every look that a watch takes at the log, by the ids that it watches."""
    # With an hour between heartbeats only a wake-up leads to a look.
    monkeypatch.setattr(limits, "WATCH_HEARTBEAT_S", 3_600.0)
    taken, look = [], Watch._poll

    def counting(self, position, seqs):
        found = look(self, position, seqs)
        taken.append(self._ids)
        return found

    monkeypatch.setattr(Watch, "_poll", counting)
    return taken


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  (what is waited for happens on other threads)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("watches", [1, 200])
def test_commit_wakes_only_the_watches_it_concerns(space, looks, watches):
    """A commit costs the same, in looks, however many watches wait for something else."""
    space.branches.create("other")

    async def scene():
        idle = [
            asyncio.create_task(space.watch([f"urn:{number}"]).next_async())
            for number in range(watches)
        ]
        idle.append(asyncio.create_task(space.watch(branch="other").next_async()))
        idle.append(asyncio.create_task(space.watch(["urn:a"], branch="other").next_async()))
        watch = space.watch(["urn:a", "urn:b"])
        await until(lambda: len(looks) == len(idle))
        looks.clear()
        for number in range(10):
            concerned = asyncio.create_task(watch.next_async())
            await until(lambda n=number: len(looks) == 2 * n + 1)
            await space.transact_async([{"op": "set", "id": "urn:x", "value": {"n": number}}])
            await space.transact_async([{"op": "set", "id": "urn:b", "value": {"n": number}}])
            assert [each.id for each in (await concerned).revisions] == ["urn:b"]
        assert len(looks) == 20
        assert set(looks) == {frozenset({"urn:a", "urn:b"})}
        assert not any(task.done() for task in idle)
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)

    asyncio.run(scene())
    assert space.waiters._waiting == {}


def test_thread_is_woken_only_by_what_concerns_it(space, looks):
    # The first commit after a start wakes every watch: what came before is not known.
    space.set("urn:b", {})
    got = []
    watch = space.watch(["urn:a"])
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    while not looks:
        time.sleep(0.001)
    for number in range(5):
        space.set("urn:b", {"value": number})
    space.branches.create("f")
    space.set("urn:a", {}, branch="f")
    assert len(looks) == 1
    space.set("urn:a", {"value": 1})
    thread.join()
    assert [commit.seq for commit in got] == [9]
    assert len(looks) == 2


def test_idle_watch_is_not_overtaken_by_a_collection(space, looks):
    got = []
    watch = space.watch(["urn:a"])
    space.set("urn:b", {"value": 0})
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    while not looks:
        time.sleep(0.001)
    for number in range(20):
        space.set("urn:b", {"value": number})
    assert space.gc(GcPolicy(keep_seqs=1)).horizon == 21
    space.set("urn:a", {"value": 1})
    thread.join()
    assert [commit.seq for commit in got] == [22]


def test_import_wakes_the_watches(store, space, history, looks):
    space.set("urn:a", {"value": 1})
    copy = store.space("did:key:z6MkCopy", history=history)
    got = []
    watch = copy.watch(["urn:a"])
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    while not looks:
        time.sleep(0.001)
    bundle.replay(copy, bundle.export(space))
    thread.join()
    assert [commit.seq for commit in got] == [1]
    # What is committed next is seen, too, though the import was not counted.
    copy.set("urn:b", {})
    copy.set("urn:a", {"value": 2})
    assert watch.next(timeout=0).seq == 3


def test_end_of_a_branch_wakes_its_watches(space, looks):
    space.branches.create("work")
    got = []
    watch = space.watch(["urn:a"], branch="work")
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    while not looks:
        time.sleep(0.001)
    space.branches.delete("work")
    thread.join()
    assert got == [None]


def test_gap_in_the_notified_seqs_wakes_every_watch(space, looks):
    """A commit that was not notified is found when the next one is."""
    space.set("urn:b", {})
    got = []
    watch = space.watch(["urn:a"])
    thread = threading.Thread(target=lambda: got.append(watch.next()))
    thread.start()
    while not looks:
        time.sleep(0.001)
    request = space._request([{"op": "set", "id": "urn:a", "value": {}}], None, None, None, "", ())
    space.database.transact(
        lambda txn: writer.commit(txn, space.history_kind, request, space._cache)
    )
    space.set("urn:b", {"value": 1})
    thread.join()
    assert [commit.seq for commit in got] == [2]

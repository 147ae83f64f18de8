"""Feeds that share one read of the log get what a feed of their own would: all, once, in order."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json

import fourfold
from fourfold.models.documents import GcPolicy
from fourfold.server.event_stream import format_event
from fourfold.server.log_tail import LogTail, TailEntry, TailPage
from fourfold.server.watches import CommitFeed, WatchRoutes, _CommitTail
from fourfold.server.workers import Workers
from fourfold.wire.documents import WatchQuery
from support.properties import examples

ENTITIES = ("a", "b", "c")
BRANCHES = ("", "w")
IDS = st.lists(st.sampled_from(ENTITIES), unique=True, max_size=2)
CHANGED = st.lists(st.sampled_from(ENTITIES), min_size=1, max_size=2, unique=True)
COMMITS = st.tuples(
    st.just("commit"),
    st.lists(st.tuples(st.sampled_from(BRANCHES), CHANGED), min_size=1, max_size=5),
)
SETTLE = st.just(("settle",))
READ = st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 4))
OPEN = st.tuples(st.just("open"), st.sampled_from(BRANCHES), IDS, st.integers(0, 10))
RARE = st.one_of(
    st.tuples(st.just("turn"), st.integers(1, 6)),
    st.tuples(st.just("reconnect"), st.integers(0, 3)),
    st.tuples(st.just("gc"), st.integers(1, 4)),
    st.just(("reset",)),
)
STEPS = st.tuples(
    st.lists(OPEN, min_size=1, max_size=4),
    st.lists(st.one_of(COMMITS, SETTLE, READ, READ, OPEN, RARE), min_size=5, max_size=40),
).map(lambda parts: [*parts[0], *(("read", number, 1) for number in range(4)), *parts[1]])


class Client:
    """A reader that notes the seqs of its commits, and the gaps."""

    def __init__(self, stack, tail, space, branch, ids, after):
        self.space, self.tail, self.stack = space, tail, stack
        self.query = WatchQuery(branch=branch, id=ids)
        self.start = self.last = after
        self.commits, self.gaps = [], []
        self.connect()

    def connect(self):
        keys = {(self.query.branch, entity) for entity in self.query.id or (None,)}
        follower = self.stack.enter_context(self.tail.follow(keys))
        self.feed = CommitFeed(self.space, self.query, self.last, self.tail, follower)

    async def read(self, timeout_s=0.0):
        event = await self.feed.next_event(timeout_s)
        if event is None:
            # As the keep-alive comment of an idle feed.
            self.last = int(self.feed.position())
            return False
        while event is not None:
            self.last = int(event.id)
            data = json.decode(format_event(event).split(b"data: ")[1])
            if event.name == "gap":
                self.gaps.append((data["after"], data["horizon"]))
            else:
                rows = [(row["id"], row["data"]) for row in data["revisions"]]
                self.commits.append((data["seq"], rows))
            event = self.feed.ready_event()
        return True

    def expected(self, model):
        """Return the commits that a list of all commits has for this reader."""
        ids = self.query.id
        for seq, branch, rows in model:
            if branch == self.query.branch and seq > self.start:
                kept = [row for row in rows if not ids or row[0] in ids]
                if kept and not any(after < seq <= horizon for after, horizon in self.gaps):
                    yield seq, kept


async def _live(space, workers, steps):
    routes = WatchRoutes(workers, None)
    model = []
    tail = _CommitTail(
        lambda after: routes._read(space, after), space.position(), entries_max=2, bytes_max=10_000
    )
    space.waiters.add(tail)
    base = space.position()
    clients = []
    with ExitStack() as stack:
        for step in steps:
            match step:
                case ("commit", commits):
                    for branch, entities in commits:
                        rows = [(entity, {"n": len(model)}) for entity in entities]
                        commit = await space.transact_async(
                            [{"op": "set", "id": entity, "value": value} for entity, value in rows],
                            branch=branch,
                        )
                        model.append((commit.seq, branch, rows))
                case ("open", branch, ids, back):
                    horizon = max(space.horizon(), base)
                    after = max(horizon, space.position() - back)
                    clients.append(Client(stack, tail, space, branch, ids, after))
                case ("read", number, times) if clients:
                    for _ in range(times):
                        await clients[number % len(clients)].read()
                case ("reconnect", number) if clients:
                    clients[number % len(clients)].connect()
                case ("turn", times):
                    for _ in range(times):
                        await asyncio.sleep(0)
                case ("settle",):
                    # A commit is notified in the next iteration, and read in a thread.
                    await asyncio.sleep(0)
                    if tail._task is not None:
                        await asyncio.wait([tail._task])
                case ("gc", keep):
                    await asyncio.to_thread(space.gc, GcPolicy(keep_seqs=keep))
                case ("reset",):
                    space.waiters.notify_all()
        for client in clients:
            while client.last < space.position():
                await client.read(0.01)
        assert await clients[0].read() is False if clients else True
        for client in clients:
            assert client.commits == list(client.expected(model)), client.query
        space.waiters.remove(tail)
        tail.close()


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_shared_feed_equals_a_list_of_all_commits(tmp_path_factory, steps):
    with fourfold.open(tmp_path_factory.mktemp("tail")) as store:
        space = store.space("did:key:z6MkTail")
        space.set("a", {})
        space.branches.create("w")
        asyncio.run(_live(space, Workers(2), steps))


def test_commit_is_read_once_for_all_readers():
    """However many follow it, and not at all if none does."""

    async def run():
        reads, log = [], []

        async def read(after):
            reads.append(after)
            return TailPage([entry for entry in log if entry.position > after], len(log))

        tail = LogTail(read, 0)

        def commit(key):
            log.append(TailEntry(len(log) + 1, frozenset([key]), key, 1))
            tail.notify(len(log), [key])

        with ExitStack() as stack:
            followers = [stack.enter_context(tail.follow(["x"])) for _ in range(100)]
            commit("y")
            await asyncio.sleep(0)
            assert (tail.position, reads) == (1, [])
            commit("x")
            for follower in followers:
                assert await follower.listener.wait(10)
                assert [entry.position for entry in tail.after(follower, 1)] == [2]
            assert reads == [1]

    asyncio.run(run())


def test_readers_are_woken_one_in_each_iteration():
    """A commit with many readers leaves iterations of the loop to requests."""

    async def run():
        async def read(_after):
            return TailPage([TailEntry(1, frozenset("x"), None, 1)], 1)

        tail = LogTail(read, 0)
        with ExitStack() as stack:
            followers = [stack.enter_context(tail.follow("x")) for _ in range(40)]
            tail.notify(1, "x")
            woken = [0]
            while woken[-1] < len(followers):
                await asyncio.sleep(0)
                woken.append(sum(follower.listener._notified for follower in followers))
            steps = [after - before for before, after in itertools.pairwise(woken)]
            assert max(steps) == 1

    asyncio.run(run())

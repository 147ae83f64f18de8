"""Commits of coroutines: many share a database transaction, and each has its own outcome."""

from __future__ import annotations

import asyncio

import pytest

from fourfold import limits
from fourfold.errors import BranchEnded, InvalidInput, NotFound, ReplayMismatch, StaleRead

CALLERS = 64


def increment(entity="a"):
    patches = [{"op": "increment", "path": "/n", "by": 1}]
    return [{"op": "patch", "id": entity, "patches": patches}]


def put(entity, document):
    return [{"op": "set", "id": entity, "value": document}]


def together(*coroutines):
    async def crowd():
        return await asyncio.gather(*coroutines, return_exceptions=True)

    return asyncio.run(crowd())


def test_coroutines_share_transactions_and_each_has_commit_of_its_own(space):
    before = space.database.metrics().counters["transactions"]
    commits = together(*(space.transact_async(increment()) for _ in range(CALLERS)))
    assert sorted(commit.seq for commit in commits) == list(range(1, CALLERS + 1))
    assert space.read("a").document == {"n": CALLERS}
    for commit in commits:
        assert space.read("a", at=commit.seq).document == {"n": commit.seq}
    assert space.database.metrics().counters["transactions"] - before < CALLERS / 4
    assert space.verify() == []


def test_what_a_coroutine_committed_it_reads(space):
    async def caller(number):
        entity = f"e{number}"
        for version in range(5):
            commit = await space.transact_async(put(entity, {"n": version}))
            state = space.read(entity)
            assert (state.seq, state.document) == (commit.seq, {"n": version})

    assert together(*(caller(number) for number in range(16))) == [None] * 16


def test_a_bad_request_fails_alone(space):
    space.set("a", {"n": 0})
    space.branches.create("ended")
    space.branches.delete("ended")
    seen = {"confirmed": [{"id": "a", "seq": 1, "path": ["n"]}]}
    bad_patch = [{"op": "patch", "id": "a", "patches": [{"op": "remove", "path": "/nowhere"}]}]
    start = space.seq()
    good, late, patch, ended, missing, wrong, last = together(
        space.transact_async(increment()),
        space.transact_async(put("a", {"n": 100}), seen),
        space.transact_async(bad_patch),
        space.transact_async(increment(), branch="ended"),
        space.transact_async(increment(), branch="nowhere"),
        space.transact_async([{"op": "set", "id": "a", "value": 5}]),
        space.transact_async(increment()),
    )
    kinds = (StaleRead, InvalidInput, BranchEnded, NotFound, InvalidInput)
    for outcome, kind in zip((late, patch, ended, missing, wrong), kinds, strict=True):
        assert isinstance(outcome, kind)
    # No seq was used up by those that failed.
    assert (good.seq, last.seq) == (start + 1, start + 2)
    assert space.read("a").document == {"n": 2}
    assert space.verify() == []


def test_a_named_request_that_comes_again_is_the_same_commit(space):
    ask = {"session": "s", "local_seq": 1}
    outcomes = together(
        space.transact_async(increment(), **ask),
        space.transact_async(increment(), **ask),
        space.transact_async(increment("b"), **ask),
    )
    first, again, other = outcomes
    assert (again.seq, again.replayed, first.replayed) == (first.seq, True, False)
    assert isinstance(other, ReplayMismatch)
    assert space.transact(increment(), **ask).replayed
    assert space.read("a").document == {"n": 1}


def test_half_a_name_is_refused(space):
    [outcome] = together(space.transact_async(increment(), session="s"))
    assert isinstance(outcome, InvalidInput)
    assert space.seq() == 0


def test_request_too_large_to_share_is_committed_all_same(space):
    large = {"text": "x" * (limits.GROUP_BYTES_MAX // 2)}
    commits = together(
        space.transact_async(put("a", large)), space.transact_async(put("b", {"n": 1}))
    )
    assert sorted(commit.seq for commit in commits) == [1, 2]
    assert space.read("a").document == large


def test_of_many_who_had_read_the_same_state_one_writes(space):
    space.set("a", {"n": 0})
    seen = {"confirmed": [{"id": "a", "seq": 1, "path": ["n"]}]}
    outcomes = together(*(space.transact_async(put("a", {"n": n}), seen) for n in range(1, 9)))
    commits = [each for each in outcomes if not isinstance(each, StaleRead)]
    assert [commit.seq for commit in commits] == [2]
    assert space.read("a").document == commits[0].revisions[0].data
    assert {each.details["conflict_seq"] for each in outcomes if each not in commits} == {2}


def test_threads_and_coroutines_count_together(space):
    async def both():
        coroutines = [space.transact_async(increment()) for _ in range(16)]
        threads = [asyncio.to_thread(space.transact, increment()) for _ in range(16)]
        return await asyncio.gather(*coroutines, *threads)

    commits = asyncio.run(both())
    assert sorted(commit.seq for commit in commits) == list(range(1, 33))
    assert space.read("a").document == {"n": 32}


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_caller_leaves_the_others_alone(space, late):
    async def crowd():
        tasks = [asyncio.create_task(space.transact_async(increment())) for _ in range(8)]
        if late:
            await asyncio.sleep(0)
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(crowd())
    commits = [each for each in outcomes if not isinstance(each, asyncio.CancelledError)]
    assert len(commits) == 7
    # A cancelled request may have been committed before its caller gave up.
    assert space.read("a").document["n"] in (7, 8)
    assert len({commit.seq for commit in commits}) == 7

"""A space as its users see it: reads, writes, history, and what they may rely on."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from space_costs import counted
from space_machine import DID

import fourfold
from fourfold.errors import BranchEnded, FourfoldError, InvalidInput, ReadOnly
from fourfold.kernel import failpoints
from support.crash import child_environment

CHILD = Path(__file__).with_name("space_child.py")


@pytest.fixture(autouse=True)
def _no_faults():
    failpoints.disarm()
    yield
    failpoints.disarm()


def increment(path="/n", by=1):
    return [{"op": "increment", "path": path, "by": by}]


# States


def test_missing_empty_and_deleted_documents_differ(space):
    assert space.read("a") is None
    space.set("a", {})
    state = space.read("a")
    assert (state.document, state.op, state.seq, state.deleted) == ({}, "set", 1, False)
    space.delete("a")
    state = space.read("a")
    assert (state.document, state.op, state.seq, state.deleted) == (None, "delete", 2, True)
    assert space.read("a", at=0) is None
    assert space.read("a", at=1).document == {}


def test_a_document_without_a_value_is_alive(space):
    space.set("a", {"result": {"/": "link"}})
    assert space.ids() == ["a"]
    assert not space.read("a").deleted


def test_entity_never_written_can_be_deleted_and_written_again(space):
    space.delete("a")
    assert space.read("a").deleted
    assert space.ids() == []
    space.set("a", {"n": 1})
    assert space.ids() == ["a"]


def test_a_commit_says_what_it_wrote(space):
    operations = [
        {"op": "set", "id": "a", "value": {"n": 1}},
        {"op": "patch", "id": "a", "patches": increment()},
        {"op": "delete", "id": "b"},
    ]
    commit = space.transact(operations, session="s", local_seq=9)
    assert (commit.seq, commit.branch, commit.session, commit.local_seq) == (1, "", "s", 9)
    assert not commit.replayed
    assert [(each.id, each.op, each.op_index, each.data) for each in commit.revisions] == [
        ("a", "set", 0, {"n": 1}),
        ("a", "patch", 1, increment()),
        ("b", "delete", 2, None),
    ]


def test_operations_of_one_commit_see_each_other(space):
    space.transact(
        [
            {"op": "set", "id": "a", "value": {"n": 1}},
            {"op": "patch", "id": "a", "patches": increment()},
            {"op": "delete", "id": "a"},
            {"op": "patch", "id": "a", "patches": increment(by=5)},
        ]
    )
    assert space.read("a").document == space.read("a", at=1).document == {"n": 5}


def test_many_entities_are_read_at_one_point(space):
    for entity in "abc":
        space.set(entity, {"id": entity})
    space.delete("b")
    found = space.read_many(["c", "b", "a", "z", "c"])
    assert list(found) == ["c", "b", "a", "z"]
    assert found["c"].document == {"id": "c"}
    assert found["b"].deleted
    assert found["z"] is None
    assert space.read_many(["b"], at=3)["b"].document == {"id": "b"}
    assert space.read_many([]) == {}


def test_ids_are_those_of_living_entities_sorted_at_any_point(space):
    for entity in ("é", "b", "a", "Z"):
        space.set(entity, {})
    space.delete("b")
    assert space.ids() == list(space) == ["Z", "a", "é"]
    assert space.ids(at=4) == ["Z", "a", "b", "é"]
    assert space.ids(at=0) == []


def test_cost_of_listing_ids_does_not_grow_with_history(space):
    def cost(at=None):
        with counted() as found:
            assert space.ids(at=at) == ["a", "b"]
        return found.steps

    space.set("a", {})
    space.set("b", {})
    few = cost()
    for number in range(300):
        space.set("a", {"n": number})
    assert cost() <= 1.5 * few
    assert cost(at=150) <= 1.5 * few


def test_history_is_paged_by_seq(space):
    for number in range(5):
        space.set("a", {"n": number})
        space.set("b", {"n": number})
    assert [each.seq for each in space.history("a")] == [1, 3, 5, 7, 9]
    assert [each.seq for each in space.history("a", after=3, limit=2)] == [5, 7]
    assert [each.data["n"] for each in space.history("a", at=5)] == [0, 1, 2]
    assert space.history("a", limit=0) == []
    assert space.history("unknown") == []
    assert [each.seq for each in space.log(after=2, until=6, limit=3)] == [3, 4, 5]
    assert space.log(limit=0) == []


# Moments


def test_a_moment_means_the_newest_commit_at_or_before_it(space):
    moments = [datetime.now(UTC) - timedelta(seconds=1)]
    for number in range(3):
        space.set("a", {"n": number})
        time.sleep(0.005)
        moments.append(datetime.now(UTC))
        time.sleep(0.005)
    assert space.read("a", at=moments[0]) is None
    for number, moment in enumerate(moments[1:]):
        assert space.read("a", at=moment).document == {"n": number}
        elsewhere = moment.astimezone(timezone(timedelta(hours=-7)))
        assert space.read("a", at=elsewhere).document == {"n": number}
        assert space.read_many(["a"], at=moment)["a"].document == {"n": number}
        assert len(space.history("a", at=moment)) == number + 1
    assert space.read("a", at=datetime.now(UTC) + timedelta(days=1)).document == {"n": 2}


def test_a_commit_can_be_found_by_its_own_time(space):
    for number in range(3):
        space.set("a", {"n": number})
        time.sleep(0.003)
    for entry in space.log():
        moment = datetime.fromisoformat(entry.created_at)
        assert moment.tzinfo is not None
        assert space.read("a", at=moment).seq == entry.seq


def test_a_branch_can_fork_a_moment(space):
    space.set("a", {"n": 1})
    time.sleep(0.005)
    moment = datetime.now(UTC)
    time.sleep(0.005)
    space.set("a", {"n": 2})
    assert space.branches.create("f", at=moment).fork_seq == 1
    assert space.read("a", "f").document == {"n": 1}


# Values belong to their callers


def test_a_document_that_was_handed_out_is_the_callers_own(space):
    space.set("a", {"list": [1], "map": {"k": 1}})
    space.patch("a", [{"op": "append", "path": "/list", "values": [2]}])
    for read in (
        lambda: space.read("a"),
        lambda: space.read("a", at=2),
        lambda: space.read_many(["a"])["a"],
    ):
        found = read().document
        expected = copy.deepcopy(found)
        found["list"].append(99)
        found["map"]["k"] = 99
        found["new"] = 99
        assert read().document == expected
        assert space.read("a", at=1).document == {"list": [1], "map": {"k": 1}}
    commit = space.set("b", {"list": [1]})
    commit.revisions[0].data["list"].append(2)
    assert space.read("b").document == space.read("b", at=3).document == {"list": [1]}
    revision = space.history("b")[0]
    revision.data["list"].append(3)
    assert space.history("b")[0].data == {"list": [1]}


def test_what_was_handed_in_may_be_changed_afterwards(space):
    document = {"list": [1], "map": {"k": 1}}
    patches = [{"op": "add", "path": "/added", "value": {"deep": [1]}}]
    space.set("a", document)
    space.patch("a", patches)
    document["list"].append(2)
    document["map"]["k"] = 2
    patches[0]["value"]["deep"].append(2)
    patches.clear()
    expected = {"list": [1], "map": {"k": 1}, "added": {"deep": [1]}}
    assert space.read("a").document == expected
    space.patch("a", [{"op": "add", "path": "/n", "value": 1}])
    assert space.read("a").document == {**expected, "n": 1}
    assert space.read_many(["a"])["a"].document == {**expected, "n": 1}


def test_equal_parts_of_one_document_are_not_one_part(space):
    part = [1]
    space.set("a", {"x": part, "y": part})
    space.patch("a", [{"op": "append", "path": "/x", "values": [2]}])
    assert space.read("a").document == {"x": [1, 2], "y": [1]}
    space.patch("a", [{"op": "add", "path": "/z", "value": part}] * 2)
    space.patch("a", [{"op": "append", "path": "/z", "values": [3]}])
    assert space.read("a").document == {"x": [1, 2], "y": [1], "z": [1, 3]}
    assert space.read_many(["a"])["a"].document == space.read("a").document


# The cache


def test_a_refused_transaction_leaves_nothing_in_the_cache(space):
    space.set("a", {"n": 1})
    space.read("a")
    with pytest.raises(InvalidInput):
        space.transact(
            [
                {"op": "patch", "id": "a", "patches": increment()},
                {"op": "set", "id": "b", "value": {}},
                {"op": "patch", "id": "a", "patches": [{"op": "remove", "path": "/nothing"}]},
            ]
        )
    assert space.read("a").document == {"n": 1}
    assert space.read("b") is None
    space.patch("a", increment())
    assert space.read("a").document == space.read("a", at=2).document == {"n": 2}


@pytest.mark.parametrize("point", ["kernel.statement.before", "kernel.commit.before"])
def test_commit_that_fails_to_sync_leaves_cache_unchanged(space, point):
    space.set("a", {"n": 1})
    failpoints.arm(point, "raise")
    with pytest.raises(FourfoldError):
        space.patch("a", increment(by=10))
    failpoints.disarm()
    assert space.read("a").document == {"n": 1}
    space.patch("a", increment())
    assert space.read("a").document == space.read_many(["a"])["a"].document == {"n": 2}


def test_a_reader_never_sees_what_is_not_committed(space):
    space.set("a", {"n": 1})
    seen = []

    def look(txn):
        with ThreadPoolExecutor(1) as other:
            seen.append(other.submit(lambda: space.read("a").document).result())
            seen.append(other.submit(lambda: space.read_many(["a"])["a"].document).result())

    def work(txn):
        space.transact([{"op": "patch", "id": "a", "patches": increment()}])
        look(txn)

    space.database.transact(work)
    assert seen == [{"n": 1}, {"n": 1}]
    assert space.read("a").document == {"n": 2}


def test_reader_never_goes_back_before_a_commit_in_the_file(space):
    space.set("a", {"n": 1})
    space.read("a")
    seen = []

    def look(point):
        seen.extend([space.read_many(["a"])["a"].seq, space.read("a").seq, space.seq()])

    # The file has the commit, and its caller has not heard of it yet.
    failpoints.arm("kernel.commit.after", look)
    space.patch("a", increment())
    assert seen == [2, 2, 2]
    assert space.read("a").document == {"n": 2}


def test_state_read_during_commit_does_not_stay_in_cache(space):
    space.set("a", {"n": 1})
    failpoints.arm("kernel.commit.before", lambda point: space.read("a"))
    space.patch("a", increment())
    assert space.read("a").document == {"n": 2}
    space.patch("a", increment())
    assert space.read("a").document == space.read("a", at=3).document == {"n": 3}


def test_a_commit_inside_a_transaction_that_is_undone_never_was(space):
    space.set("a", {"n": 1})

    def work(txn):
        space.patch("a", increment())
        raise BranchEnded("never mind")

    with pytest.raises(BranchEnded):
        space.database.transact(work)
    assert space.read("a").document == {"n": 1}
    assert space.seq() == 1
    space.patch("a", increment(by=5))
    assert space.read("a").document == space.read("a", at=2).document == {"n": 6}


def test_step_of_transaction_that_is_undone_is_not_built_upon(space):
    space.set("a", {"n": 1})

    def work(txn):
        space.patch("a", increment(by=10))
        with pytest.raises(BranchEnded):
            step(txn)
        space.patch("a", [*increment(), *increment("/m")])

    def step(txn):
        with txn.savepoint():
            space.patch("a", increment(by=100))
            space.set("b", {})
            raise BranchEnded("never mind")

    space.database.transact(work)
    assert space.read("a").document == {"n": 12, "m": 1}
    assert space.read_many(["a"])["a"].document == {"n": 12, "m": 1}
    assert space.read("b") is None
    assert space.seq() == 3


def test_the_cache_forgets_the_oldest_and_answers_the_same(store, history, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.space.DOCUMENT_CACHE_BYTES", 3_000)
    space = store.space("did:key:z6MkSmall", history=history)
    for round_ in range(3):
        for number in range(20):
            space.patch(f"e{number}", increment())
            assert space.read(f"e{number}").document == {"n": round_ + 1}
    assert len(space._cache._entries) < 20
    assert all(space.read(f"e{number}").document == {"n": 3} for number in range(20))


# Other processes and reopened stores


def test_a_reopened_space_shows_what_it_showed(root, history):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        for number in range(25):
            space.patch("a", [{"op": "append", "path": "/l", "values": [number]}])
        space.branches.create("f", at=12)
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        assert space.read("a").document == {"l": list(range(25))}
        assert space.read("a", "f").document == {"l": list(range(12))}
        assert space.patch("a", increment()).seq == 27


def test_a_reader_in_another_process_sees_the_newest_commits(root, history):
    with fourfold.open(root) as store:
        space = store.space("did:key:z6MkCrash", history=history)
        space.set("counter", {"n": 0})
        with subprocess.Popen(
            [sys.executable, str(CHILD), "watch", str(root), history, "50"],
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
        ) as child:
            assert child.stdout.readline() == "ready\n"
            for _ in range(50):
                space.patch("counter", increment())
            assert child.stdout.readline() == "50\n"
        assert child.returncode == 0


def test_a_reader_cannot_write(root, history):
    with fourfold.open(root) as store:
        store.space(DID, history=history).set("a", {"n": 1})
    with fourfold.open(root, mode="r") as store:
        space = store.space(DID, history=history)
        assert space.read("a").document == {"n": 1}
        for call in (
            lambda: space.set("a", {}),
            lambda: space.branches.create("f"),
        ):
            with pytest.raises(ReadOnly):
                call()
        assert space.verify() == []


def test_what_a_commit_shows_belongs_to_its_caller(space):
    document = {"list": [1]}
    commit = space.set("a", document)
    document["list"].append(2)
    commit.revisions[0].data["list"].append(3)
    assert space.read("a").document == {"list": [1]}
    patches = [{"op": "add", "path": "/more", "value": [4]}]
    commit = space.patch("a", patches)
    patches[0]["value"].append(5)
    commit.revisions[0].data[0]["value"].append(6)
    for _ in range(2):
        state = space.read("a")
        assert state.document == {"list": [1], "more": [4]}
        state.document["more"].append(7)
    assert space.read("a", at=space.seq()).document == {"list": [1], "more": [4]}

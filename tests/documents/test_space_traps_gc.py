"""Traps of collection: what must never be deleted, in which order the rest goes, and who may write
meanwhile.
"""

from __future__ import annotations

import threading

import pytest
from space_machine import DID

from fourfold.errors import HistoryTruncated
from fourfold.models.documents.gc.policy import GcPolicy

NEWEST = GcPolicy(keep_seqs=1)


def add(path, value):
    return [{"op": "add", "path": path, "value": value}]


def rows(space, sql, params=()):
    with space.view() as view:
        return view.all(sql, params)


@pytest.fixture
def facts(store):
    return store.space(DID, history="facts")


def patched(space, entity, count, branch=""):
    for number in range(count):
        space.patch(entity, add(f"/k{number % 5}", number), branch=branch)
    return space.seq()


# C11: the oldest state that is left has something to start from


def test_c11_every_entity_fork_and_merge_keeps_a_base(space):
    patched(space, "a", 25)
    fork = patched(space, "b", 25)
    space.branches.create("f")
    patched(space, "a", 25)
    patched(space, "b", 3, "f")
    merged = space.branches.merge("f").source.seq
    patched(space, "a", 25)
    expected = {
        (branch, at): space.read_many(["a", "b"], branch, at)
        for branch, at in [("", fork), ("f", merged), ("", space.seq()), ("f", space.seq())]
    }
    assert space.gc(NEWEST).revisions.count > 40
    for (branch, at), states in expected.items():
        assert space.read_many(["a", "b"], branch, at) == states
    # What comes next builds on what was left.
    space.patch("b", add("/new", 1), branch="f")
    space.patch("a", add("/new", 1))
    assert space.branches.merge("f").operations
    assert space.read("b").document["new"] == 1
    assert space.verify() == []


def test_c11_read_below_horizon_is_error_and_never_nothing(space):
    space.set("a", {"n": 1})
    space.set("a", {"n": 2})
    space.branches.create("f", at=2)
    patched(space, "a", 30)
    space.gc(NEWEST)
    horizon = space.horizon()
    assert horizon == space.seq()
    for at in (1, 5, horizon - 1):
        for read in (
            lambda at=at: space.read("a", at=at),
            lambda at=at: space.read_many(["a"], at=at),
            lambda at=at: space.ids(at=at),
            lambda at=at: space.diff("", at),
            lambda at=at: space.branches.create("g", at=at),
        ):
            with pytest.raises(HistoryTruncated) as caught:
                read()
            assert str(horizon) in caught.value.message
    # Before the first commit there was nothing, and the fork is kept.
    assert space.read("a", at=0) is None
    assert space.read("a", "f").document == space.read("a", at=2).document == {"n": 2}


def test_c11_snapshot_with_which_log_begins_is_no_longer_derived(space):
    patched(space, "a", 30)
    space.gc(NEWEST)
    expected = space.read("a")
    space.maintain(1)
    space.gc(GcPolicy(snapshots=1))
    assert space.read_many(["a"])["a"] == expected
    assert space.verify() == []


# D7: the facts that nothing refers to are the heads


def test_d7_heads_stay_and_the_remaining_chain_verifies(facts):
    patched(facts, "a", 20)
    facts.set("quiet", {"n": 1})
    patched(facts, "a", 20)
    heads = rows(facts, "SELECT id, fact_hash FROM head ORDER BY id")
    done = facts.gc(NEWEST)
    assert done.facts.count > 30
    assert rows(facts, "SELECT id, fact_hash FROM head ORDER BY id") == heads
    kept = {row[0] for row in rows(facts, "SELECT hash FROM fact")}
    assert {fact for _, fact in heads} <= kept
    # The oldest that is left names a parent that is gone, and that is on record.
    [pruned] = rows(facts, "SELECT parent FROM fact WHERE id = 'a' AND parent IS NOT NULL")
    assert pruned[0] not in kept
    assert facts.verify() == []
    # A head that goes all the same, or a parent that is another one, is found.
    facts.patch("a", add("/more", 1))
    assert facts.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE fact SET parent = (SELECT hash FROM fact WHERE id = 'quiet') WHERE id = 'a'",
        "UPDATE fact SET parent = NULL WHERE id = 'a'",
        "DELETE FROM occurrence WHERE id = 'quiet'",
    ],
)
def test_d7_what_collection_left_is_still_guarded_by_its_hashes(facts, damage):
    patched(facts, "a", 20)
    facts.set("quiet", {"n": 1})
    patched(facts, "a", 20)
    facts.gc(NEWEST)
    assert facts.verify() == []

    def change(txn):
        txn.execute(damage)

    facts.database.transact(change)
    assert facts.verify()


# D8: values go last, when nothing refers to them any more


def test_d8_one_collection_leaves_no_orphaned_values(facts):
    for number in range(60):
        facts.patch("a", add("/n", {"number": number}))
    for number in range(10):
        facts.set("b", {"n": number, "text": "x" * 100})
    facts.gc(GcPolicy(keep_seqs=1, snapshots=1))
    used = {
        row[0]
        for row in rows(facts, "SELECT value_ref FROM fact UNION SELECT value_ref FROM snapshot")
    }
    stored = {row[0] for row in rows(facts, "SELECT hash FROM value")}
    assert stored == used | {"__empty__"}
    assert facts.gc(GcPolicy(keep_seqs=1, snapshots=1)).values.count == 0
    assert facts.verify() == []


def test_d8_the_value_of_deleted_entities_is_no_orphan(facts):
    facts.set("a", {"n": 1})
    facts.delete("a")
    facts.set("b", {"n": 1})
    facts.gc(NEWEST)
    facts.gc(NEWEST)
    assert ("__empty__", None) in rows(facts, "SELECT hash, data FROM value")
    facts.delete("b")
    assert facts.verify() == []


# D9: a value that is about to be used again is not collected


def test_d9_writers_that_use_old_values_again_never_lose_them(facts):
    """While one thread collects over and over, another says again what was just given up."""
    documents = [{"shared": number} for number in range(4)]
    failures = []
    done = threading.Event()

    def write():
        try:
            for number in range(250):
                facts.set(f"e{number % 2}", documents[number % 4])
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        facts.gc(NEWEST)
        while not done.is_set():
            facts.gc(NEWEST)
    finally:
        writer.join()
    assert not failures
    assert facts.read_many(["e0"])["e0"].document == documents[248 % 4]
    assert facts.read_many(["e1"])["e1"].document == documents[249 % 4]
    assert facts.verify() == []
    assert rows(facts, "PRAGMA foreign_key_check") == []


def test_d9_a_value_that_was_collected_can_be_said_again(facts):
    for _ in range(3):
        facts.set("a", {"again": 1})
        facts.set("a", {"other": 1})
        facts.gc(NEWEST)
        assert rows(facts, "SELECT 1 FROM value WHERE data = '{\"again\":1}'") == []
    facts.set("b", {"again": 1})
    assert facts.read_many(["b"])["b"].document == {"again": 1}
    assert facts.verify() == []

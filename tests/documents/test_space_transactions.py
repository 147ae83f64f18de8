"""Public calls inside an open transaction: they join it, and are undone with it."""

from __future__ import annotations

from contextlib import suppress

import pytest

import fourfold
from fourfold.content import content_id
from fourfold.errors import StaleRead
from fourfold.models.documents import GcPolicy
from fourfold.models.documents.request import make_request

ENTITIES = ("a", "b", "inside", "new")
INCREMENT = [{"op": "increment", "path": "/n", "by": 1}]
SET = {"op": "set", "id": "new", "value": {"n": 1}}
BLOB = b"bytes" * 100
HASH = content_id(BLOB)


def submit(space):
    named = dict(zip(("session", "local_seq"), space.next_local(), strict=True))
    return space.submit(make_request([SET], branch="", replayable=False, **named))


CALLS = {
    "background_view": lambda space: space.background_view().__enter__(),
    "delete": lambda space: space.delete("a"),
    "diff": lambda space: list(space.diff("", 1)),
    "follow": lambda space: list(space.follow(after=0, timeout=0)),
    "gc": lambda space: space.gc(GcPolicy(keep_seqs=2)),
    "gc_policy": lambda space: space.gc_policy(),
    "history": lambda space: space.history("a"),
    "horizon": lambda space: space.horizon(),
    "ids": lambda space: space.ids(),
    "log": lambda space: space.log(),
    "maintain": lambda space: space.maintain("log"),
    "next_local": lambda space: space.next_local(),
    "patch": lambda space: space.patch("a", INCREMENT),
    "position": lambda space: space.position(),
    "read": lambda space: (space.read("a"), space.read("inside"), space.read("a", at=1)),
    "read_many": lambda space: space.read_many(ENTITIES),
    "seq": lambda space: space.seq(),
    "set": lambda space: space.set("a", {"n": 100}),
    "set_gc_policy": lambda space: space.set_gc_policy(GcPolicy(keep_seqs=3)),
    "submit": submit,
    "transact": lambda space: space.transact([SET, {"op": "delete", "id": "a"}]),
    "verify": lambda space: space.verify(),
    "view": lambda space: space.view().__enter__(),
    "watch": lambda space: list(space.watch(after=0, timeout=0)),
}
BRANCH_CALLS = {
    "create": lambda space: space.branches.create("second"),
    "delete": lambda space: space.branches.delete("work"),
    "diff": lambda space: list(space.branches.diff("", "work")),
    "get": lambda space: space.branches.get("work"),
    "list": lambda space: space.branches.list(),
    "merge": lambda space: space.branches.merge("work"),
}
BLOB_CALLS = {
    "describe": lambda space: space.blobs.describe(HASH, {"name": "x"}),
    "get": lambda space: space.blobs.get(HASH),
    "has": lambda space: space.blobs.has(HASH),
    "ids": lambda space: list(space.blobs.ids()),
    "meta": lambda space: space.blobs.meta(HASH),
    "put": lambda space: space.blobs.put(b"others" * 100, metadata={"name": "y"}),
    "stat": lambda space: space.blobs.stat(HASH),
}
ALL = {
    **CALLS,
    **{f"branches.{name}": call for name, call in BRANCH_CALLS.items()},
    **{f"blobs.{name}": call for name, call in BLOB_CALLS.items()},
}


def fill(space):
    """A branch that has something to merge, and a blob."""
    space.set("a", {"n": 0})
    space.set("b", {"n": 0})
    space.branches.create("work")
    space.patch("b", INCREMENT, branch="work")
    for _ in range(5):
        space.patch("a", INCREMENT)
    space.blobs.put(BLOB)


def states(space):
    return {
        (branch.name, entity): space.read(entity, branch.name)
        for branch in space.branches.list(deleted=True)
        for entity in ENTITIES
    }


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
def test_public_calls_keep_the_log_in_order_inside_a_transaction(store, history, fails):
    """Each call has a space of its own."""
    expected = {}
    for name, call in ALL.items():
        space = store.space(f"did:web:{name}.example", history=history)
        fill(space)
        before = space.seq(), states(space), list(space.blobs.ids())
        with suppress(ZeroDivisionError), space.database.write():
            space.set("inside", {"n": 1})
            call(space)
            space.patch("inside", INCREMENT)
            if fails:
                raise ZeroDivisionError
        if fails:
            assert (space.seq(), states(space), list(space.blobs.ids())) == before, name
        else:
            assert space.read("inside").document == {"n": 2}, name
        space.set("b", {"n": 7})
        assert [entry.seq for entry in space.log()] == list(range(1, space.seq() + 1)), name
        assert space.verify() == [], name
        expected[space.did] = states(space)
    store.close()
    with fourfold.open(store.root) as again:
        for did, found in expected.items():
            assert states(again.space(did, history=history)) == found, did


def test_merge_of_what_its_own_transaction_changed_is_refused(space):
    """A merge is computed from what is committed."""
    fill(space)
    with space.database.write():
        space.set("b", {"n": 5})
        with pytest.raises(StaleRead):
            space.branches.merge("work")
    assert space.read("b").document == {"n": 5}
    assert space.verify() == []

"""Public calls inside an open transaction: they join it, and are undone with it."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest

import fourfold
from fourfold.content import content_id
from fourfold.errors import Refused, StaleRead
from fourfold.models.documents import GcPolicy, Space
from fourfold.models.documents.blobs import SpaceBlobs
from fourfold.models.documents.branches import Branches
from fourfold.models.documents.indexes.builder import IndexBuilder
from fourfold.models.documents.indexes.indexes import Indexes
from fourfold.models.documents.memory import Memory, MemoryPut
from fourfold.models.documents.request import make_request

ENTITIES = ("a", "b", "inside", "new")
INCREMENT = [{"op": "increment", "path": "/n", "by": 1}]
SET = {"op": "set", "id": "new", "value": {"n": 1}}
BLOB = b"bytes" * 100
HASH = content_id(BLOB)


class Count(msgspec.Struct):
    """A typed document."""

    n: int


def submit(space):
    named = dict(zip(("session", "local_seq"), space.next_local(), strict=True))
    return space.submit(make_request([SET], branch="", replayable=False, **named))


CALLS = {
    "background_view": lambda space: space.background_view().__enter__(),
    "step_view": lambda space: space.step_view().__enter__(),
    "cached_bytes": lambda space: space.cached_bytes("a"),
    "commit_times": lambda space: space.commit_times([1, 2]),
    "count": lambda space: space.count({"n": 0}),
    "delete": lambda space: space.delete("a"),
    "existed_at": lambda space: space.existed_at(datetime.now(UTC)),
    "diff": lambda space: list(space.diff("", 1)),
    "explain": lambda space: space.explain({"n": 0}),
    "facets": lambda space: space.facets("n"),
    "find": lambda space: space.find({"n": {"$gte": 0}}),
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
    "search": lambda space: space.search("first"),
    "seq": lambda space: space.seq(),
    "seq_at": lambda space: space.seq_at(1),
    "set": lambda space: space.set("a", {"n": 100}),
    "set_gc_policy": lambda space: space.set_gc_policy(GcPolicy(keep_seqs=3)),
    "sql": lambda space: space.sql("SELECT count(*) FROM documents_state"),
    "submit": submit,
    "transact": lambda space: space.transact([SET, {"op": "delete", "id": "a"}]),
    "transact_async": lambda space: asyncio.run(space.transact_async([SET])),
    "typed": lambda space: space.typed(Count).set("new", Count(1)),
    "verify": lambda space: space.verify(),
    "view": lambda space: space.view().__enter__(),
    "watch": lambda space: list(space.watch(after=0, timeout=0)),
}
BRANCH_CALLS = {
    "create": lambda space: space.branches.create("second"),
    "delete": lambda space: space.branches.delete("work"),
    "diff": lambda space: list(space.branches.diff("", "work")),
    "distance": lambda space: space.branches.distance("work"),
    "get": lambda space: space.branches.get("work"),
    "list": lambda space: space.branches.list(),
    "merge": lambda space: space.branches.merge("work"),
}
BLOB_CALLS = {
    "describe": lambda space: space.blobs.describe(HASH, {"name": "x"}),
    "get": lambda space: space.blobs.get(HASH),
    "has": lambda space: space.blobs.has(HASH),
    "ids": lambda space: list(space.blobs.ids()),
    "list": lambda space: space.blobs.list(),
    "meta": lambda space: space.blobs.meta(HASH),
    "put": lambda space: space.blobs.put(b"others" * 100, metadata={"name": "y"}),
    "stat": lambda space: space.blobs.stat(HASH),
}
INDEX_CALLS = {
    "create": lambda space: space.indexes.create("by_text", "/text"),
    "declare": lambda space: space.indexes.declare(
        [msgspec.structs.replace(space.indexes.get("by_n"), name="copy")]
    ),
    "drop": lambda space: space.indexes.drop("by_n"),
    "get": lambda space: space.indexes.get("by_n"),
    "list": lambda space: space.indexes.list(),
    "rebuild": lambda space: space.indexes.rebuild("by_n"),
    "wait": lambda space: space.indexes.wait("by_n", timeout_s=0.0),
}
MEMORY_CALLS = {
    "diff": lambda memory: memory.diff(1),
    "forget": lambda memory: memory.forget("ada", "food"),
    "get": lambda memory: (memory.get("ada", "food"), memory.get("ada", "fleeting")),
    "history": lambda memory: memory.history("ada", "food"),
    "list": lambda memory: memory.list("ada"),
    "namespace_page": lambda memory: memory.namespace_page(),
    "namespaces": lambda memory: memory.namespaces(),
    "position": lambda memory: memory.position(),
    "purge": lambda memory: memory.purge("ada", "food"),
    "put": lambda memory: memory.put("ada", "drink", {"likes": "tea"}, ttl_s=60),
    "put_many": lambda memory: memory.put_many(
        [MemoryPut("ada", "food", None), MemoryPut("bob", "new", {"n": 1})]
    ),
    "search": lambda memory: memory.search("soup", namespace="ada"),
    "sweep": lambda memory: memory.sweep(),
    "version_page": lambda memory: memory.version_page("ada", "food"),
}
ALL = {
    **CALLS,
    **{f"branches.{name}": call for name, call in BRANCH_CALLS.items()},
    **{f"blobs.{name}": call for name, call in BLOB_CALLS.items()},
    **{f"indexes.{name}": call for name, call in INDEX_CALLS.items()},
}
REFUSED = {"transact_async"}
"""Calls that would wait for the end of the transaction."""


@pytest.mark.parametrize(
    ("handle", "calls"),
    [
        (Space, CALLS),
        (Branches, BRANCH_CALLS),
        (SpaceBlobs, BLOB_CALLS),
        (Indexes, INDEX_CALLS),
        (Memory, MEMORY_CALLS),
    ],
)
def test_every_public_call_is_tried_inside_a_transaction(handle, calls):
    public = {
        name
        for name, member in inspect.getmembers(handle)
        if not name.startswith("_") and callable(member)
    }
    assert public == calls.keys()


def fill(space):
    """A branch that has something to merge, a blob, and an index of each of two kinds."""
    space.indexes.create("by_n", "/n")
    space.indexes.create("words", "/text", kind="text")
    space.set("a", {"n": 0, "text": "first words"})
    space.set("b", {"n": 0, "text": "other words"})
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
            if name in REFUSED:
                with pytest.raises(Refused, match="inside a transaction"):
                    call(space)
            else:
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


def items(memory):
    return [(item.namespace, item.key, item.value) for item in memory.list()]


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
@pytest.mark.parametrize("name", MEMORY_CALLS)
def test_calls_of_a_memory_join_an_open_transaction(store, name, fails):
    memory = store.memory("assistant")
    memory.put("ada", "food", {"likes": "leek soup"})
    memory.put("ada", "food", {"likes": "onion soup"})
    memory.put("ada", "fleeting", {"likes": "rain"}, ttl_s=1e-9)
    before = memory.position(), items(memory)
    with suppress(ZeroDivisionError), memory.space.database.write():
        memory.put("ada", "inside", {"n": 1})
        MEMORY_CALLS[name](memory)
        memory.put("ada", "inside", {"n": 2})
        if fails:
            raise ZeroDivisionError
    if fails:
        assert (memory.position(), items(memory)) == before
    else:
        assert memory.get("ada", "inside").value == {"n": 2}
    memory.put("bob", "after", {"n": 3})
    assert [entry.seq for entry in memory.space.log()] == list(range(1, memory.position() + 1))
    assert memory.space.verify() == []
    found = items(memory)
    store.close()
    with fourfold.open(store.root) as again:
        assert items(again.memory("assistant")) == found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", INDEX_CALLS)
def test_index_that_is_being_built_does_not_stop_a_transaction(space, monkeypatch, call):
    """A step of a build inside the transaction would not see its own progress."""
    with monkeypatch.context() as patch:
        patch.setattr(IndexBuilder, "run", lambda *_: False)
        patch.setattr(IndexBuilder, "start", lambda _: None)
        fill(space)
        space.indexes.create("building", "/text")
        assert space.indexes.get("building").state == "building"
    with space.database.write():
        space.set("inside", {"n": 1, "text": "inside"})
        INDEX_CALLS[call](space)
        with pytest.raises(Refused, match="inside a transaction"):
            space.indexes.wait("building")
    assert space.indexes.wait("building").state == "ready"
    assert space.count({"text": "inside"}) == 1
    assert space.verify() == []


def test_merge_of_what_its_own_transaction_changed_is_refused(space):
    """A merge is computed from what is committed."""
    fill(space)
    with space.database.write():
        space.set("b", {"n": 5})
        with pytest.raises(StaleRead):
            space.branches.merge("work")
    assert space.read("b").document == {"n": 5}
    assert space.verify() == []

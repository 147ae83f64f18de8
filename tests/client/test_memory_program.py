"""One program with a memory, in a folder and on a server: equal results and errors."""

from __future__ import annotations

import asyncio
import json
import math
import random
import uuid
from datetime import UTC, datetime

import pytest

import fourfold
from fourfold import errors
from fourfold.client import AsyncRemoteStore
from fourfold.models.documents.memory_items import MemoryPut

ADA, BOB = ("users", "ada"), ("users", "bob")
NAMES = [("a",), ("a", "b"), ("a", "b/c"), ("a%", "!"), ("0",)]


@pytest.fixture
def memory(store):
    return store.memory(f"m-{uuid.uuid4().hex}")


def keys(hits):
    return [hit.item.key for hit in hits]


def test_item_is_put_read_found_and_forgotten(store, memory):
    first = memory.put(ADA, "food", {"likes": "leek soup", "stars": 5})
    memory.put(ADA, "food", {"likes": "tomatoes", "stars": 3})
    memory.put("users", "", {"text": "empty key"}, text=["/text"])
    item = memory.get(ADA, "food")
    assert (item.namespace, item.value["likes"], item.expires_at) == (ADA, "tomatoes", None)
    assert item.created_at < item.updated_at
    assert item.seq == first + 1
    assert memory.get(("users",), "").value == {"text": "empty key"}
    assert memory.get(ADA, "food", at=first).value["likes"] == "leek soup"
    assert memory.get(ADA, "food", at=datetime.now(UTC)).value["likes"] == "tomatoes"
    [hit] = memory.search("tomatoes dinner", namespace="users", where={"stars": {"$lt": 4}})
    assert hit.item == item
    assert (hit.snippets, hit.score > 0) == (("tomatoes",), True)
    assert keys(memory.search("leek", at=first)) == ["food"]
    assert [item.key for item in memory.list()] == ["", "food"]
    assert [v.value["likes"] for v in memory.history(ADA, "food")] == ["leek soup", "tomatoes"]
    assert [v.seq for v in memory.history(ADA, "food", at=first)] == [first]
    [change] = memory.diff(first, namespace=ADA)
    assert (change.before["stars"], change.after["stars"]) == (5, 3)
    assert memory.forget(ADA, "food") is True
    assert memory.forget(ADA, "food") is False
    assert memory.get(ADA, "food") is None
    assert len(memory) == 1
    assert memory.name in store.memories()
    assert repr(memory) == f"<Memory {memory.name}>"


def test_random_programs_agree_with_a_dict(memory):
    rng = random.Random(7)
    model, past = {}, {}
    for step in range(60):
        changes = [
            MemoryPut(
                rng.choice(NAMES),
                rng.choice(["x", "y/z", ""]),
                rng.choice([None, {"n": step, "text": f"word{step % 5}"}]),
            )
            for _ in range(rng.randrange(1, 4))
        ]
        seq = memory.put_many(changes)
        for change in changes:
            if change.value is None:
                model.pop((change.namespace, change.key), None)
            else:
                model[change.namespace, change.key] = change.value
        past[seq] = dict(model)
    for seq, items in past.items():
        listed = memory.list(limit=1_000, at=seq)
        assert {(item.namespace, item.key): item.value for item in listed} == items
        assert memory.namespaces(at=seq) == sorted({name for name, _ in items})
        assert memory.namespaces(max_depth=1, at=seq) == sorted({name[:1] for name, _ in items})
        assert memory.namespaces(("a",), at=seq) == sorted(
            {name for name, _ in items if name[0] == "a"}
        )
    first, *_, last = past
    changed = {(c.namespace, c.key): (c.before, c.after) for c in memory.diff(first, last)}
    assert changed == {
        item: (past[first].get(item), past[last].get(item))
        for item in past[first].keys() | past[last].keys()
        if past[first].get(item) != past[last].get(item)
    }
    for number in range(5):
        found = memory.search(f"word{number}", limit=1_000)
        assert {(hit.item.namespace, hit.item.key) for hit in found} == {
            item for item, value in model.items() if value["text"] == f"word{number}"
        }


def test_search_skips_and_limits_items(memory):
    memory.put_many(MemoryPut(ADA, f"{number:02}", {"n": number}) for number in range(30))
    pages = [memory.search(limit=7, offset=offset) for offset in range(0, 35, 7)]
    assert sorted(key for page in pages for key in keys(page)) == [f"{n:02}" for n in range(30)]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def test_nearest_vectors_agree_with_a_dict(memory):
    rng = random.Random(3)
    model, past = {}, {}
    for step in range(40):
        item = (rng.choice(NAMES), rng.choice(["x", "y", "z"]))
        vector = rng.choice([None, [rng.uniform(-1, 1) for _ in range(5)]])
        seq = memory.put(*item, {"n": step}, vector=vector)
        model.pop(item, None)
        if vector is not None:
            model[item] = vector
        past[seq] = dict(model)
    query = [rng.uniform(-1, 1) for _ in range(5)]
    for seq in (max(past), *rng.sample(sorted(past), 5)):
        for prefix in ((), ("a",), ("a", "b")):
            near = {
                item: cosine(query, vector)
                for item, vector in past[seq].items()
                if item[0][: len(prefix)] == prefix
            }
            hits = memory.search(vector=query, namespace=prefix, limit=100, at=seq)
            found = [(hit.item.namespace, hit.item.key) for hit in hits]
            assert found == sorted(near, key=near.get, reverse=True)
            assert [hit.score for hit in hits] == pytest.approx([near[item] for item in found])


def test_words_and_vectors_are_ranked_together(memory):
    memory.put(ADA, "both", {"text": "leek soup"}, vector=[1, 0.2])
    memory.put(ADA, "words", {"text": "leek soup"}, vector=[-1, 0])
    memory.put(ADA, "vector", {"text": "onion"}, vector=[1, 0.1])
    memory.put(BOB, "other", {"text": "leek soup"}, vector=[1, 0])
    memory.put(ADA, "neither", {"text": "onion"})
    hits = memory.search("leek soup", vector=[1, 0], namespace=ADA)
    assert keys(hits)[0] == "both"
    assert set(keys(hits)) == {"both", "words", "vector"}
    assert keys(memory.search(vector=[1, 0, 0])) == [], "vectors of another length do not compare"
    for wrong in ([], [0.0, 0.0], ["x"], [float("nan")]):
        with pytest.raises(errors.InvalidInput):
            memory.put(ADA, "wrong", {}, vector=wrong)
        with pytest.raises(errors.InvalidInput):
            memory.search(vector=wrong)
    assert memory.get(ADA, "wrong") is None


def test_repeated_request_returns_the_first_seq_and_writes_nothing(memory):
    change = MemoryPut(ADA, "k", {"n": 1})
    memory.put(ADA, "old", {})
    seq = memory.put_many([change, MemoryPut(ADA, "old", None)], session="s")
    memory.put(ADA, "k", {"n": 2})
    assert memory.put_many([change, MemoryPut(ADA, "old", None)], session="s") == seq
    assert memory.get(ADA, "k").value == {"n": 2}
    with pytest.raises(errors.ReplayMismatch):
        memory.put_many([MemoryPut(ADA, "k", {"n": 3})], session="s")
    assert memory.position() == seq + 1


def test_expired_items_are_not_found_and_swept(memory):
    memory.put(ADA, "short", {"text": "word"}, ttl_s=0.001)
    memory.put(ADA, "long", {"text": "word"}, ttl_s=1_000)
    while memory.get(ADA, "short", refresh=False) is not None:
        pass
    assert keys(memory.search("word")) == ["long"]
    assert memory.sweep() == 1
    assert memory.sweep() == 0
    assert memory.get(ADA, "long").expires_at > datetime.now(UTC)


def test_purge_erases_history(memory):
    first = memory.put(ADA, "k", {"n": 1})
    memory.put(BOB, "k", {"n": 2})
    assert memory.purge(ADA) == 1
    assert [item.namespace for item in memory.list()] == [BOB]
    with pytest.raises(errors.HistoryTruncated):
        memory.get(ADA, "k", at=first)


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.put((), "k", {}),
        lambda memory: memory.put(("",), "k", {}),
        lambda memory: memory.put(ADA, 1, {}),
        lambda memory: memory.put(ADA, "k", [1]),
        lambda memory: memory.put(ADA, "k", {"n": float("nan")}),
        lambda memory: memory.put(ADA, "k", {}, ttl_s=-1),
        lambda memory: memory.put(ADA, "k", {}, text="/a"),
        lambda memory: memory.get(ADA, "k", at="now"),
        lambda memory: memory.search(limit=0),
        lambda memory: memory.search(offset=-1),
        lambda memory: memory.search(where={"n": {"$above": 1}}),
        lambda memory: memory.namespaces(max_depth=0),
        lambda memory: memory.sweep(0),
        lambda memory: memory.purge((), "k"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(memory, call):
    with pytest.raises(errors.InvalidInput):
        call(memory)
    assert memory.position() == 0


def test_bad_names_are_refused(store):
    for name in ("", "a/b", "..", 1):
        with pytest.raises(errors.InvalidInput):
            store.memory(name)


def test_coroutines_use_a_memory(served):
    async def work():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            memory = await store.memory("coroutines")
            await memory.put(ADA, "k", {"text": "word"})
            return keys(await memory.search("word")), await store.memories()

    assert asyncio.run(work()) == (["k"], ["coroutines"])


def test_pages_over_http_show_one_state_and_end(served):
    def search(**body):
        url = "/v1/spaces/did:memory:pages/memory/search"
        response = served.ask("POST", url, json.dumps(body), {"content-type": "application/json"})
        return response.status, json.loads(response.text)

    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        memory = store.memory("pages")
        memory.put_many(MemoryPut((f"n{n}",), "k", {"n": n}) for n in range(5))
        _, page = search(limit=2)
        first = page["next_cursor"]
        memory.put(("later",), "k", {"n": 9})
    items = page["items"]
    while page["next_cursor"] is not None:
        _, page = search(limit=2, cursor=page["next_cursor"])
        items += page["items"]
    assert sorted(hit["item"]["value"]["n"] for hit in items) == list(range(5))
    status, problem = search(limit=2, offset=1, cursor=first)
    assert (status, problem["kind"]) == (400, "invalid_input")


def test_space_that_is_no_memory_is_not_found(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        store.space("did:web:plain")
    for method in ("GET", "PUT"):
        response = served.ask(method, "/v1/spaces/did:web:plain/memory")
        assert response.status == 404, method

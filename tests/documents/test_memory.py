"""Memories: items under namespaces, their words, their times to live and their history."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta

import pytest

import fourfold
from fourfold.content.namespaces import decode_id, decode_namespace, encode_id, encode_namespace
from fourfold.errors import ContentError, HistoryTruncated, InvalidInput, LimitExceeded, NotFound
from fourfold.models.documents import memory as memory_module
from fourfold.models.documents.memory import Memory
from fourfold.models.documents.memory_items import MemoryPut

ADA, BOB = ("users", "ada"), ("users", "bob")
START = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def memory(store):
    return store.memory("assistant")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(memory, clock):
    return Memory(memory.space, clock)


def keys(hits):
    return [hit.item.key for hit in hits]


def test_item_is_put_read_overwritten_and_forgotten(memory):
    first = memory.put(ADA, "food", {"likes": "leek soup"})
    created = memory.get(ADA, "food").created_at
    memory.put(ADA, "food", {"likes": "tomatoes"})
    item = memory.get(ADA, "food")
    assert (item.namespace, item.key, item.value) == (ADA, "food", {"likes": "tomatoes"})
    assert item.created_at == created < item.updated_at
    assert memory.get(ADA, "food", at=first).value == {"likes": "leek soup"}
    assert memory.forget(ADA, "food") is True
    assert memory.forget(ADA, "food") is False
    assert memory.get(ADA, "food") is None
    assert [version.value for version in memory.history(ADA, "food")] == [
        {"likes": "leek soup"},
        {"likes": "tomatoes"},
        None,
    ]
    memory.put(ADA, "food", {"likes": "again"})
    assert memory.get(ADA, "food").created_at > item.updated_at


def test_values_handed_out_belong_to_the_caller(memory):
    value = {"list": [1]}
    memory.put(ADA, "k", value)
    value["list"].append(2)
    memory.get(ADA, "k").value["list"].append(3)
    memory.search(namespace=ADA)[0].item.value["list"].append(4)
    assert memory.get(ADA, "k").value == {"list": [1]}


@pytest.mark.parametrize(
    ("namespace", "key"),
    [
        (("a", "b"), "c"),
        (("a",), "b/c"),
        (("a/b",), "c"),
        (("a%2Fb",), "c"),
        (("a",), "/b"),
        (("a",), ""),
        (("a", "0"), "%"),
        (("ä", "\U0010ffff"), "\U0010ffff"),
    ],
)
def test_ids_keep_namespaces_and_keys_apart(namespace, key):
    assert decode_id(encode_id(namespace, key)) == (namespace, key)
    assert decode_namespace(encode_namespace(namespace)) == namespace


def test_search_ranks_items_with_more_and_rarer_words_first(memory):
    for number in range(8):
        memory.put(BOB, f"filler-{number}", {"text": "soup of the day"})
    memory.put(ADA, "both", {"text": "leek soup", "deep": [{"more": "warm"}]})
    memory.put(ADA, "none", {"text": "salad"})
    hits = memory.search("leek soup dinner", limit=3)
    assert keys(hits)[0] == "both"
    assert hits[0].score > hits[1].score > 0
    assert hits[0].snippets == ("leek soup",)
    assert keys(memory.search("warm")) == ["both"]
    assert keys(memory.search("soup -day")) == ["both"]
    assert keys(memory.search("soup", namespace=ADA)) == ["both"]
    assert len(memory.search("soup", namespace=("users",))) == 9
    assert len(memory.search("soup", limit=4, offset=6)) == 3
    assert keys(memory.search("nothing")) == []


def test_search_reads_only_the_text_that_put_declares(memory):
    memory.put(ADA, "a", {"title": "leek", "secret": "onion"}, text=["/title"])
    memory.put(ADA, "b", {"title": "leek"}, text=False)
    assert keys(memory.search("leek")) == ["a"]
    assert keys(memory.search("onion")) == []


def test_filters_select_values_by_the_common_grammar(memory):
    for number in range(40):
        memory.put(ADA, f"k{number:02}", {"n": number, "text": "word", "tags": [number % 3]})
    assert keys(memory.search(where={"n": {"$lt": 2}})) == ["k01", "k00"]
    assert keys(memory.search("word", where={"n": {"$gte": 39}})) == ["k39"]
    assert len(memory.list(where={"/tags": {"$any": 0}})) == 14
    with pytest.raises(InvalidInput):
        memory.search(where={"n": {"$like": 1}})


def test_search_that_compares_too_many_items_is_refused(memory, monkeypatch):
    monkeypatch.setattr(memory_module, "MEMORY_SCAN_MAX", 10)
    memory.put_many([MemoryPut(ADA, f"k{n}", {"n": n}) for n in range(12)])
    assert len(memory.search(limit=10)) == 10
    with pytest.raises(LimitExceeded):
        memory.search(where={"n": -1})


def test_namespaces_are_listed_with_prefix_and_depth(memory):
    names = [("a",), ("a", "-"), ("a", "0"), ("a", "b"), ("a", "b", "c"), ("a/b",), ("ab",)]
    for name in names:
        memory.put(name, "k", {})
    memory.put(("a", "b"), "second", {})
    assert list(memory.namespaces()) == sorted(names)
    assert list(memory.namespaces(("a",))) == sorted(name for name in names if name[0] == "a")
    assert list(memory.namespaces(max_depth=1)) == [("a",), ("a/b",), ("ab",)]
    memory.forget(("ab",), "k")
    assert ("ab",) not in memory.namespaces()
    assert ("ab",) in memory.namespaces(at=len(names))


def test_expired_items_are_not_found_and_swept(timed, clock):
    timed.put(ADA, "short", {"text": "word"}, ttl_s=10)
    timed.put(ADA, "long", {"text": "word"})
    clock.advance(10)
    assert timed.get(ADA, "short") is None
    assert keys(timed.search("word")) == keys(timed.search()) == ["long"]
    assert timed.sweep() == 1
    assert timed.sweep() == 0
    assert [version.value for version in timed.history(ADA, "short")] == [{"text": "word"}, None]


def test_put_of_an_expired_item_creates_it_again(timed, clock):
    timed.put(ADA, "k", {"n": 1}, ttl_s=10)
    clock.advance(11)
    timed.put(ADA, "k", {"n": 2})
    item = timed.get(ADA, "k")
    assert (item.created_at, item.expires_at) == (clock.now, None)


def test_reads_extend_the_time_to_live(timed, clock):
    timed.put(ADA, "k", {"text": "word"}, ttl_s=10)
    for _ in range(5):
        clock.advance(8)
        assert timed.get(ADA, "k").expires_at == clock.now + timedelta(seconds=10)
    clock.advance(8)
    assert keys(timed.search("word")) == ["k"]
    clock.advance(8)
    assert timed.get(ADA, "k", refresh=False) is not None
    clock.advance(2)
    assert timed.get(ADA, "k") is None
    assert len(timed.history(ADA, "k")) == 1


def test_reads_write_at_most_ten_times_per_ttl(timed, clock):
    timed.put(ADA, "k", {}, ttl_s=100)
    before = timed.space.position()
    for _ in range(500):
        clock.advance(0.2)
        timed.get(ADA, "k")
    assert 0 < timed.space.position() - before <= 10


def test_refresh_never_restores_a_forgotten_item(timed, clock):
    timed.put(ADA, "k", {}, ttl_s=10)
    clock.advance(5)
    state = timed.space.read(encode_id(ADA, "k"))
    timed.forget(ADA, "k")
    timed._refresh(encode_id(ADA, "k"), state.document, state.seq, clock.now)
    assert timed.get(ADA, "k") is None
    assert timed.space.read(encode_id(ADA, "k")).deleted


def test_diff_lists_changed_values_and_no_refreshes(timed, clock):
    timed.put(ADA, "same", {"n": 1}, ttl_s=10)
    timed.put(ADA, "changed", {"n": 1})
    seq = timed.put(BOB, "gone", {"n": 1})
    clock.advance(5)
    assert timed.get(ADA, "same") is not None
    timed.put(ADA, "changed", {"n": 2})
    timed.forget(BOB, "gone")
    changes = [(change.key, change.before, change.after) for change in timed.diff(seq)]
    assert changes == [("changed", {"n": 1}, {"n": 2}), ("gone", {"n": 1}, None)]
    assert [change.key for change in timed.diff(seq, namespace=BOB)] == ["gone"]


def test_purge_erases_the_history(memory):
    memory.put(ADA, "secret", {"text": "an old secret"})
    memory.put(ADA, "secret", {"text": "a new secret"})
    memory.put(BOB, "kept", {"text": "earlier"})
    memory.put(BOB, "kept", {"text": "now"})
    assert memory.purge(ADA) == 1
    assert memory.get(BOB, "kept").value == {"text": "now"}
    assert keys(memory.search("secret")) == []
    with pytest.raises(HistoryTruncated):
        memory.get(ADA, "secret", at=1)
    with pytest.raises(HistoryTruncated):
        memory.history(ADA, "secret")
    assert memory.space.verify() == []
    texts = " ".join(str(row) for row in memory.space.log())
    assert "old secret" not in texts
    assert "new secret" not in texts
    assert "earlier" not in texts


@pytest.mark.parametrize(
    ("namespace", "key", "value", "options"),
    [
        ((), "k", {}, {}),
        (("a", ""), "k", {}, {}),
        ((1,), "k", {}, {}),
        (("a",) * 33, "k", {}, {}),
        (ADA, 1, {}, {}),
        (ADA, "k" * 2_000, {}, {}),
        (ADA, "k", [], {}),
        (ADA, "k", {"n": float("nan")}, {}),
        (ADA, "k", {}, {"ttl_s": 0}),
        (ADA, "k", {}, {"ttl_s": float("inf")}),
        (ADA, "k", {}, {"ttl_s": True}),
        (ADA, "k", {}, {"text": "/a"}),
    ],
)
def test_bad_items_are_refused_before_anything_is_written(memory, namespace, key, value, options):
    with pytest.raises((InvalidInput, ContentError)):
        memory.put(namespace, key, value, **options)
    assert memory.space.position() == 0


def test_changes_of_one_call_are_one_commit(memory):
    memory.put(ADA, "b", {"n": 0})
    seq = memory.put_many(
        [
            MemoryPut(ADA, "a", {"n": 1}),
            MemoryPut(ADA, "b", None),
            MemoryPut(ADA, "a", {"n": 2}),
            MemoryPut(ADA, "never", None),
        ]
    )
    assert seq == memory.space.position() == 2
    assert memory.get(ADA, "a").value == {"n": 2}
    assert memory.get(ADA, "b") is None
    with pytest.raises(InvalidInput):
        memory.put_many([MemoryPut(ADA, "a", {"n": 3}), MemoryPut((), "a", {})])
    assert memory.get(ADA, "a").value == {"n": 2}
    assert memory.put_many([]) == 2


def test_memories_of_a_store_are_named_and_reopened(store, root):
    store.memory("b").put(ADA, "k", {"text": "word"}, ttl_s=1)
    store.memory("a")
    store.space("did:web:other.example")
    assert store.memories() == ["a", "b"]
    for name in ("", "a/b", "a..b", 5):
        with pytest.raises(InvalidInput):
            store.memory(name)
    store.close()
    with fourfold.open(root, mode="r") as reader:
        assert len(reader.memory("b").history(ADA, "k")) == 1
        with pytest.raises(NotFound):
            reader.memory("c")


def test_readers_do_not_extend_times_to_live(store, root, clock):
    Memory(store.memory("a").space, clock).put(ADA, "k", {"text": "word"}, ttl_s=10)
    clock.advance(8)
    with fourfold.open(root, mode="r") as reader:
        opened = Memory(reader.memory("a").space, clock)
        assert opened.get(ADA, "k").expires_at == START + timedelta(seconds=10)
        assert keys(opened.search("word")) == ["k"]


def test_calls_work_inside_a_transaction(memory):
    with memory.space.database.write():
        memory.put(ADA, "k", {"text": "word"})
        memory.put(ADA, "kept", {"text": "word"})
        memory.forget(ADA, "k")
        memory.put(ADA, "other", {"text": "word"})
        memory.put_many([MemoryPut(ADA, "other", None), MemoryPut(ADA, "never", None)])
        assert memory.search("word") == []
        assert memory.get(ADA, "kept") is None, "reads show what is committed"
    assert memory.get(ADA, "k") is None
    assert keys(memory.search("word")) == ["kept"]


def test_concurrent_writers_lose_nothing(memory):
    def write(name):
        for number in range(20):
            memory.put(("users", name), f"k{number}", {"text": name})

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory) == 80
    assert all(len(memory.search(f"t{n}", limit=100)) == 20 for n in range(4))


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_agree_with_a_dictionary_at_every_seq(memory, seed):
    rng = random.Random(seed)
    names = [("a",), ("a", "b"), ("a", "b", "c"), ("b",), ("a/b",)]
    words = ["red", "green", "blue"]
    model, past = {}, []
    for _ in range(60):
        place = (rng.choice(names), rng.choice("xyz"))
        if rng.random() < 0.7:
            value = {"n": rng.randrange(4), "text": " ".join(rng.sample(words, 2))}
            memory.put(*place, value)
            model[place] = value
        elif memory.forget(*place):
            del model[place]
        past.append((memory.space.position(), dict(model)))
    for seq, expected in [*rng.sample(past, 8), (None, model)]:
        _compare(memory, seq, expected, names, words)
    assert memory.space.verify() == []


def _compare(memory, seq, expected, names, words):
    items = {(item.namespace, item.key): item.value for item in memory.list(limit=1_000, at=seq)}
    assert items == expected
    assert list(memory.namespaces(at=seq)) == sorted({name for name, _ in expected})
    for prefix in names:
        below = {place: value for place, value in expected.items() if is_below(place[0], prefix)}
        for word in words:
            hits = memory.search(word, namespace=prefix, limit=1_000, at=seq, where={"n": 1})
            assert {(hit.item.namespace, hit.item.key) for hit in hits} == {
                place
                for place, value in below.items()
                if word in value["text"].split() and value["n"] == 1
            }
    for name in names:
        for key in "xyz":
            item = memory.get(name, key, at=seq)
            assert (None if item is None else item.value) == expected.get((name, key))


def is_below(namespace, prefix):
    return namespace[: len(prefix)] == prefix

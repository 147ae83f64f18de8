"""The LangGraph store: random programs against InMemoryStore, and what it adds."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served

import fourfold
from fourfold.adapters.langgraph import FourfoldStore
from fourfold.errors import FourfoldError, Refused
from fourfold.models.documents.memory import Memory

ADA = ("users", "ada")
NAMES = [("a",), ("a", "b"), ("a", "b", "c"), ("b", "c"), ("b",)]
KEYS = ["x", "y", "z/1"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    with fourfold.connect(f"http://127.0.0.1:{server.port}") as connected:
        yield connected
    server.kill()


@pytest.fixture
def memory(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened.memory("assistant")


@pytest.fixture(params=["folder", "server"])
def store(request):
    """Return a store over a memory of a folder, and over one of a server."""
    if request.param == "folder":
        return FourfoldStore(request.getfixturevalue("memory"))
    connected = request.getfixturevalue("served")
    return FourfoldStore(connected.memory(f"m-{uuid.uuid4().hex}"))


def drawn_value(rng):
    return {
        "n": rng.randrange(4),
        "tag": rng.choice(["red", "blue", None]),
        "deep": {"x": rng.randrange(2), "list": [rng.randrange(2), "s"]},
        **({"rare": 1.5} if rng.random() < 0.3 else {}),
    }


def drawn_filter(rng):
    return rng.choice(
        [
            None,
            {"n": rng.randrange(4)},
            {"n": {"$gte": 1, "$lt": 3}},
            {"n": {"$ne": 2}, "tag": "red"},
            {"tag": None},
            {"tag": {"$ne": None}},
            {"rare": None},
            {"rare": {"$eq": 1.5}},
            {"deep": {"x": 1}},
            {"deep": {"list": [1, "s"]}},
            {"deep": {"missing": None}},
            {"missing": {"$eq": None}},
        ]
    )


def drawn_op(rng, filters=None):
    kind = rng.randrange(10)
    name, key = rng.choice(NAMES), rng.choice(KEYS)
    if kind < 5:
        return PutOp(name, key, drawn_value(rng))
    if kind == 5:
        return PutOp(name, key, None)
    if kind == 6:
        return GetOp(name, key)
    if kind == 7:
        match = rng.choice(
            [
                (),
                (MatchCondition("prefix", rng.choice([("a",), ("*", "c"), ("a", "*", "c")])),),
                (MatchCondition("suffix", rng.choice([("c",), ("b", "*")])),),
                (MatchCondition("prefix", ("a",)), MatchCondition("suffix", ("c",))),
            ]
        )
        depth = rng.choice([None, 1, 2])
        return ListNamespacesOp(match, depth, limit=rng.choice([2, 100]), offset=rng.randrange(2))
    where = rng.choice(filters) if filters else drawn_filter(rng)
    return SearchOp(rng.choice([(), *NAMES]), where, limit=1_000)


def shown(op, result):
    """Return a result without times and order; only ours has an order by time."""
    if isinstance(op, SearchOp):
        return sorted(
            (item.namespace, item.key, json.dumps(item.value, sort_keys=True)) for item in result
        )
    if isinstance(op, GetOp):
        return None if result is None else (result.namespace, result.key, result.value)
    return result


class TidyStore(InMemoryStore):
    """InMemoryStore that lists a namespace only while it has items: it never removes one."""

    def _handle_list_namespaces(self, op):
        for name in [name for name, items in self._data.items() if not items]:
            del self._data[name]
        return super()._handle_list_namespaces(op)


PLAIN_FILTERS = [None, {"n": 1}, {"n": {"$gte": 1, "$lt": 3}}, {"n": {"$ne": 2}, "tag": "red"}]
"""Filters that SqliteStore compares as values, not as the text of JSON."""


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_agree_with_the_store_in_sqlite(store, seed):
    sqlite = pytest.importorskip(
        "langgraph.store.sqlite", reason="langgraph-checkpoint-sqlite is not installed"
    )
    rng = random.Random(seed)
    with sqlite.SqliteStore.from_conn_string(":memory:") as peer:
        peer.setup()
        for _ in range(40):
            ops = [drawn_op(rng, PLAIN_FILTERS) for _ in range(rng.randrange(1, 5))]
            for op, mine, other in zip(ops, store.batch(ops), peer.batch(ops), strict=True):
                assert shown(op, mine) == shown(op, other), op


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_async", [False, True])
def test_random_programs_agree_with_the_store_in_memory(store, seed, is_async):
    rng = random.Random(seed)
    peer = TidyStore()
    for _ in range(40):
        ops = [drawn_op(rng) for _ in range(rng.randrange(1, 5))]
        ours = asyncio.run(store.abatch(ops)) if is_async else store.batch(ops)
        theirs = peer.batch(ops)
        for op, mine, other in zip(ops, ours, theirs, strict=True):
            assert shown(op, mine) == shown(op, other), op
    if not is_async and isinstance(store.memory, Memory):
        assert store.memory.space.verify() == []


def test_search_pages_cover_every_item_newest_first(store):
    for number in range(25):
        store.put(ADA, str(number), {"n": number})
    pages = [store.search(ADA, limit=10, offset=offset) for offset in (0, 10, 20)]
    assert [int(item.key) for page in pages for item in page] == list(range(24, -1, -1))
    assert len(store.search(("users",), limit=5_000)) == 25
    assert store.search(ADA, limit=0) == []


def test_query_ranks_by_words_with_scores(store):
    for number in range(6):
        store.put(ADA, f"filler-{number}", {"text": "soup of the day"})
    store.put(ADA, "best", {"text": "leek soup"})
    store.put(ADA, "hidden", {"text": "leek soup"}, index=False)
    hits = store.search(("users",), query="What about -- a LEEK soup?")
    assert hits[0].key == "best"
    assert hits[0].score > hits[-1].score > 0
    assert "hidden" not in {hit.key for hit in hits}
    store.put(ADA, "part", {"meta": {"title": "leek"}, "text": "onion"}, index=["meta.title"])
    assert {hit.key for hit in store.search(ADA, query="leek")} == {"best", "part"}
    assert store.search(ADA, query="onion") == []
    assert len(store.search(ADA, query="?!")) == 9, "a query without words ranks nothing"
    assert store.search(ADA, query="leek " * 5_000)[0].key in {"best", "part"}


DIRECTIONS = {"cat": [1.0, 0.1], "kitten": [1.0, 0.2], "car": [0.1, 1.0], "pet": [1.0, 0.0]}


def embed(texts):
    """Return the direction of the first known word of each text."""
    return [next(DIRECTIONS[word] for word in text.split() if word in DIRECTIONS) for text in texts]


async def embed_async(texts):
    return embed(texts)


@pytest.mark.parametrize("is_async", [False, True])
def test_items_are_found_by_their_vectors(store, is_async):
    index = {"dims": 2, "embed": embed_async if is_async else embed, "fields": ["text"]}
    embedded = FourfoldStore(store.memory, index=index)
    peer = InMemoryStore(index=index)

    def run(store, ops):
        return asyncio.run(store.abatch(ops)) if is_async else store.batch(ops)

    puts = [PutOp(ADA, word, {"text": word, "note": "car"}) for word in ("car", "cat", "kitten")]
    hidden = PutOp(ADA, "hidden", {"text": "pet"}, index=False)
    for used in (embedded, peer):
        run(used, [*puts, hidden])
    for query in ("pet", "kitten"):
        found, expected = (
            run(used, [SearchOp(("users",), query=query, limit=3)])[0] for used in (embedded, peer)
        )
        assert [item.key for item in found] == [item.key for item in expected], query
        assert found[0].score > found[-1].score > 0
    [plain] = run(embedded, [SearchOp(("users",), {"text": "pet"})])
    assert [item.key for item in plain] == ["hidden"]
    run(embedded, [PutOp(ADA, "car", {"text": "pet"})])
    assert run(embedded.at(1), [SearchOp((), query="pet")])[0][-1].key == "car"
    assert run(embedded, [SearchOp((), query="pet")])[0][0].key == "car"


def test_times_to_live_are_minutes_and_reads_extend_them(memory):
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    store = FourfoldStore(Memory(memory.space, lambda: now[0]), ttl={"default_ttl": 10})
    store.put(ADA, "default", {})
    store.put(ADA, "short", {}, ttl=1)
    store.put(ADA, "always", {}, ttl=None)
    now[0] += timedelta(minutes=2)
    assert {item.key for item in store.search(ADA, refresh_ttl=False)} == {"always", "default"}
    now[0] += timedelta(minutes=7)
    assert store.get(ADA, "default") is not None
    now[0] += timedelta(minutes=9)
    assert store.get(ADA, "default", refresh_ttl=False) is not None
    now[0] += timedelta(minutes=1)
    assert store.get(ADA, "default") is None
    assert store.sweep_ttl() == 2
    assert [item.key for item in store.search(())] == ["always"]


def test_store_of_the_past_reads_and_refuses_to_write(store):
    store.put(ADA, "food", {"likes": "soup"})
    seq = store.memory.position()
    store.put(ADA, "food", {"likes": "pizza"})
    store.put(("later",), "k", {})
    past = store.at(seq)
    assert past.get(ADA, "food").value == {"likes": "soup"}
    assert [item.value for item in past.search((), query="soup")] == [{"likes": "soup"}]
    assert past.list_namespaces() == [ADA]
    with pytest.raises(Refused):
        past.put(ADA, "food", {})
    assert store.get(ADA, "food").value == {"likes": "pizza"}
    assert store.at(datetime.now(UTC)).get(ADA, "food").value == {"likes": "pizza"}


def test_overwriting_keeps_the_time_of_creation(store):
    store.put(ADA, "k", {"n": 1})
    first = store.get(ADA, "k")
    store.put(ADA, "k", {"n": 2})
    second = store.get(ADA, "k")
    assert second.created_at == first.created_at < second.updated_at


def test_values_are_copies_and_tuples_become_lists(store):
    value = {"list": [1], "pair": (1, 2)}
    store.put(ADA, "k", value)
    value["list"].append(2)
    store.get(ADA, "k").value["list"].append(3)
    assert store.get(ADA, "k").value == {"list": [1], "pair": [1, 2]}


def test_bad_operations_are_refused_before_anything_is_written(store):
    good = PutOp(ADA, "k", {})
    for bad in (
        PutOp(ADA, "nan", {"n": float("nan")}),
        PutOp(("a.b",), "k", {}),
        PutOp((), "k", {}),
        PutOp(ADA, "k", [1]),
        SearchOp((), {"n": {"$like": 1}}),
        "put",
    ):
        with pytest.raises((FourfoldError, InvalidNamespaceError)):
            store.batch([good, bad])
    assert store.memory.position() == 0


def test_graph_remembers_across_threads(store):
    class State(TypedDict):
        text: str

    def remember(state: State, *, store: BaseStore) -> State:
        known = store.search(("facts",), query=state["text"])
        store.put(("facts",), state["text"], {"text": state["text"]})
        return {"text": ",".join(item.key for item in known)}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    graph = builder.compile(store=store)
    assert graph.invoke({"text": "green tea"})["text"] == ""
    assert graph.invoke({"text": "tea time"})["text"] == "green tea"
    assert asyncio.run(graph.ainvoke({"text": "time"}))["text"] == "tea time"

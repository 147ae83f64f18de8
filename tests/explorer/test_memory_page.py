"""Pages of memories: the list, search by words, namespace and filter, and an item in time."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

import fourfold
from server.served_streams import Served

DID = "did:memory:assistant"
FOOD = "users/ada//food"
HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("memories") / "store"
    with fourfold.open(root) as store:
        memory = store.memory("assistant")
        memory.put(("users", "ada"), "food", {"likes": "leek soup"})
        memory.put(("users", "ada"), "food", {"likes": "potato soup", "since": 2026})
        memory.put(("users", "alan"), "food", {"likes": "apples"})
        memory.put(("users", "alan"), "city", {"name": "Paris"}, ttl_s=90_000)
        memory.put(("users", "alan"), "city", {"name": "Oslo"}, ttl_s=90_000)
        memory.forget(("users", "alan"), "city")
        memory.put(("a/b", "100%"), "key/1", {"n": 1}, ttl_s=90_000)
        store.memory("other")
        store.space("did:web:shop.example").set("note", {"n": 1})
    server = Served(root)
    yield server
    server.kill()


def read(served, path, **query):
    answer = served.ask("GET", f"{path}.json?{urlencode(query)}")
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def show(served, path, **query):
    answer = served.ask("GET", f"{path}?{urlencode(query)}", headers=HTML)
    assert answer.status == 200, answer.text
    return answer.text.decode()


def keys(page):
    return [(row["namespace"], row["key"]) for row in page["items"]]


def test_memories_are_listed_by_name(served):
    assert [row["name"] for row in read(served, "/memories")["memories"]] == ["assistant", "other"]
    assert [row["name"] for row in read(served, "/memories", prefix="o")["memories"]] == ["other"]
    shown = show(served, "/documents")
    assert f"/memory?{urlencode({'did': DID})}" in shown
    assert "/space?did=did%3Aweb%3Ashop.example" in shown


def test_items_are_found_by_words_namespace_and_filter(served):
    items = [("a%2Fb/100%25", "key/1"), ("users/alan", "food"), ("users/ada", "food")]
    assert keys(read(served, "/memory", did=DID)) == items
    assert keys(read(served, "/memory", did=DID, q="soup")) == [("users/ada", "food")]
    below = read(served, "/memory", did=DID, namespace="users/alan")
    assert keys(below) == [("users/alan", "food")]
    assert below["namespaces"] == ["users/alan"]
    assert below["labels"] == [
        {"name": "users", "namespace": "users"},
        {"name": "alan", "namespace": "users/alan"},
    ]
    where = json.dumps({"/since": 2026})
    assert keys(read(served, "/memory", did=DID, where=where)) == [("users/ada", "food")]
    escaped = read(served, "/memory", did=DID, namespace="a%2Fb")
    assert keys(escaped) == [("a%2Fb/100%25", "key/1")]
    assert "in 1 day" in show(served, "/memory", did=DID, namespace="a%2Fb")


def test_memory_is_shown_as_of_an_earlier_seq(served):
    page = read(served, "/memory", did=DID, at=4)
    assert keys(page) == [("users/alan", "city"), ("users/alan", "food"), ("users/ada", "food")]
    assert [row["change"] for row in page["commits"]] == ["stored"] * 4
    assert [row["seq"] for row in page["commits"]] == [4, 3, 2, 1]
    newest = read(served, "/memory", did=DID)["commits"]
    assert [row["change"] for row in newest[:2]] == ["stored", "forgotten"]
    assert newest[1]["items"] == [
        {"id": "users/alan//city", "namespace": "users/alan", "key": "city"}
    ]


@pytest.mark.parametrize(
    ("query", "problem"),
    [({"where": "{"}, "filter"), ({"q": "-soup"}, "word"), ({"namespace": "a//b"}, "namespace")],
)
def test_invalid_search_says_why(served, query, problem):
    page = read(served, "/memory", did=DID, **query)
    assert page["items"] == []
    assert problem in page["problem"]


def test_item_shows_values_and_changes_at_any_seq(served):
    now = read(served, "/item", did=DID, id=FOOD)
    assert now["state"]["document"] == {"likes": "potato soup", "since": 2026}
    assert now["seqs"] == [1, 2]
    assert [(row["sign"], row["path"]) for row in now["changes"]] == [
        ("~", "/likes"),
        ("+", "/since"),
    ]
    assert (now["key"], now["namespace"], now["expires_at_ms"]) == ("food", "users/ada", None)
    assert f"/item?did=did%3Amemory%3Aassistant&amp;id={FOOD.replace('/', '%2F')}&amp;at=1" in show(
        served, "/item", did=DID, id=FOOD
    )
    then = read(served, "/item", did=DID, id=FOOD, at=1)
    assert then["state"]["document"] == {"likes": "leek soup"}
    step = served.ask("GET", f"/item.part?{urlencode({'did': DID, 'id': FOOD, 'at': 1})}")
    assert b"leek soup" in step.text
    assert b"created_at" not in step.text


def test_a_forgotten_item_keeps_its_history(served):
    page = read(served, "/item", did=DID, id="users/alan//city")
    assert page["state"]["document"] is None
    assert page["changes"] == [{"sign": "-", "path": "", "before": {"name": "Oslo"}, "after": None}]
    assert "forgotten" in show(served, "/item", did=DID, id="users/alan//city")
    assert "Expires" in show(served, "/item", did=DID, id="users/alan//city", at=5)


def test_pages_of_memories_refuse_other_spaces(served):
    space = "did:web:shop.example"
    for path, query in (
        ("/memory", {"did": space}),
        ("/memory", {"did": "did:memory:unknown"}),
        ("/item", {"did": space, "id": "note"}),
        ("/item.part", {"did": space, "id": "note"}),
        ("/item", {"did": DID, "id": "users/ada//unknown"}),
    ):
        assert served.ask("GET", f"{path}?{urlencode(query)}").status == 404, (path, query)
    # The id of an item has a namespace and a key.
    path = f"/item?{urlencode({'did': DID, 'id': 'no-separator'})}"
    assert served.ask("GET", path).status in {400, 404}

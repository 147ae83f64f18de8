"""Search by vector on the page of a space."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

import fourfold
from server.served_streams import Served

DID = "did:web:kitchen.example"
OTHER = "did:web:plain.example"
PROBE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("vectors") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.set("soup", {"title": "leek soup", "at": [1.0, 0.0], "kind": "hot"})
        space.set("pie", {"title": f"leek pie {PROBE}", "at": [0.6, 0.8], "kind": "hot"})
        space.set("salad", {"title": "salad", "at": [0.0, 1.0], "kind": "cold"})
        space.set("water", {"title": "water", "kind": "cold"})
        space.indexes.create("meaning", "/at", kind="vector")
        space.indexes.create("words", "/title", kind="text")
        space.set("soup", {"title": "leek soup", "at": [-1.0, 0.0], "kind": "hot"})
        store.space(OTHER).set("a", {})
    server = Served(root)
    yield server
    server.kill()


def read(served, did=DID, **query):
    answer = served.ask("GET", f"/space.json?{urlencode({'did': did, **query})}")
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def hits(page):
    return [(hit["id"], round(hit["score"], 3)) for hit in page["hits"]]


def test_nearest_documents_come_first_with_their_scores(served):
    page = read(served, vector="[0, 1]")
    assert hits(page) == [("salad", 1.0), ("pie", 0.8), ("soup", 0.0)]
    assert page["total"] == 3
    html = served.ask("GET", f"/space?{urlencode({'did': DID, 'vector': '[0, 1]'})}").text
    assert b"0.8000" in html
    assert b'name="vector" value="[0, 1]"' in html


def test_document_is_the_example_of_a_search(served):
    assert hits(read(served, like="salad")) == [("salad", 1.0), ("pie", 0.8), ("soup", 0.0)]
    page = read(served, like="water")
    assert page["hits"] == []
    assert "no vector at /at" in page["search_problem"]
    assert "no vector" in read(served, like="nothing")["search_problem"]


def test_search_combines_words_vectors_and_a_filter(served):
    body = json.dumps({"q": "leek", "vector": [0, 1]})
    kind = {"Content-Type": "application/json"}
    answer = served.ask("POST", f"/v1/spaces/{DID}/search", body, kind)
    page = read(served, q="leek", vector="[0, 1]")
    assert hits(page) == hits({"hits": json.loads(answer.text)["items"]})
    assert {hit["id"] for hit in page["hits"]} == {"pie", "soup", "salad"}
    page = read(served, vector="[0, 1]", where='{"kind": "hot"}')
    assert [hit["id"] for hit in page["hits"]] == ["pie", "soup"]
    page = read(served, q="leek", where='{"title": "leek soup"}')
    assert [hit["id"] for hit in page["hits"]] == ["soup"]


def test_search_of_the_past_uses_the_vectors_of_then(served):
    assert hits(read(served, vector="[1, 0]", at=4))[0] == ("soup", 1.0)
    assert hits(read(served, vector="[1, 0]"))[0] == ("pie", 0.6)
    assert hits(read(served, like="soup", at=4))[0] == ("soup", 1.0)


@pytest.mark.parametrize("vector", ["[", "1", '["a"]', "[0, 0]", "[]", '{"a": 1}'])
def test_invalid_vector_is_explained_on_the_page(served, vector):
    page = read(served, vector=vector)
    assert page["hits"] == []
    assert page["search_problem"]


def test_only_a_space_with_a_vector_index_offers_the_search(served):
    page = read(served)
    assert [row["name"] for row in page["vectors"]] == ["meaning"]
    assert {row["name"] for row in page["indexes"]} == {"meaning", "words"}
    assert page["hits"] is None
    html = served.ask("GET", f"/space?did={OTHER}").text
    assert b'name="vector"' not in html
    assert "no index" in read(served, OTHER, like="a")["search_problem"]
    assert read(served, OTHER, vector="[1]")["search_problem"]


def test_search_by_vector_works_without_scripts_and_shows_text(visit, served):
    visitor = visit(served, java_script_enabled=False)
    visitor.open(f"/space?did={DID}")
    visitor.page.get_by_label("Vector").fill("[0, 1]")
    visitor.page.get_by_role("button", name="Search", exact=True).click()
    assert visitor.page.get_by_text("most similar first").is_visible()
    visitor.page.get_by_role("link", name="like this").first.click()
    assert visitor.page.get_by_label("or like").input_value() == "salad"
    scripted = visit(served, viewport={"width": 390, "height": 800})
    scripted.open(f"/space?{urlencode({'did': DID, 'vector': '[0, 1]'})}")
    assert scripted.problems == []
    assert not scripted.has_sideways_scroll()

"""Documents are found alike in a folder and on a server."""

from __future__ import annotations

import uuid

import pytest
from same_program import refused

from fourfold import errors


@pytest.fixture
def space(store):
    return store.space(f"did:web:{uuid.uuid4().hex}.example")


def test_documents_are_found_alike(space):
    for number in range(5):
        space.set(f"o{number}", {"n": number, "tags": ["x", str(number % 2)]})
    assert space.indexes.create("by_n", "/n").state == "ready"
    space.indexes.create("by_tag", ["/tags/*", "/n"])
    assert [info.name for info in space.indexes.list()] == ["by_n", "by_tag"]
    assert space.indexes.wait("by_n") == space.indexes.get("by_n")
    page = space.find({"n": {"$lt": 4}}, order_by="-n", limit=3)
    assert [(match.id, match.document["n"], match.seq) for match in page] == [
        *(("o3", 3, 4), ("o2", 2, 3), ("o1", 1, 2))
    ]
    assert (page.plan.index, page.plan.access, page.seq) == ("by_n", "range", 5)
    space.set("o0", {"n": 10})
    rest = space.find({"n": {"$lt": 4}}, order_by="-n", limit=3, after=page.next)
    assert [match.id for match in rest] == ["o0"]
    assert rest.next is None
    assert space.count({"tags": {"$any": "0"}}) == 2
    assert space.count({"tags": {"$any": "0"}}, at=5) == 3
    assert [(facet.value, facet.count) for facet in space.facets("/tags/*", limit=2)] == [
        *(("x", 4), ("0", 2))
    ]
    assert space.explain({"tags": {"$any": "0"}}).index == "by_tag"
    assert space.indexes.rebuild("by_n").state == "ready"
    space.indexes.drop("by_tag")
    refused(
        errors.Refused,
        "no index serves this query",
        lambda: space.find({"tags": {"$any": "0"}}, scan=False),
    )
    refused(errors.NotFound, "unknown index 'by_tag'", lambda: space.indexes.get("by_tag"))
    refused(
        errors.AlreadyExists,
        "index 'by_n' already exists",
        lambda: space.indexes.create("by_n", "/m"),
    )
    for call in (
        lambda: space.find({"n": {"$near": 1}}),
        lambda: space.find(order_by=""),
        lambda: space.find(after="x"),
        lambda: space.find(limit=0),
        lambda: space.facets(""),
        lambda: space.indexes.create("1", "/n"),
        lambda: space.indexes.create("a", "n"),
        lambda: space.indexes.create("a", "/n", history="some"),
    ):
        with pytest.raises(errors.InvalidInput):
            call()
    space.indexes.create("one", "/n", unique=True)
    with pytest.raises(errors.UniqueViolation) as caught:
        space.set("new", {"n": 10.0})
    assert caught.value.details["other"] == "o0"


def test_nearest_vectors_are_found_alike(space):
    for number in range(4):
        space.set(f"o{number}", {"v": [1, number]})
    assert space.indexes.create("near", "/v", kind="vector").kind == "vector"
    page = space.search(vector=[0, 1], limit=3)
    assert [hit.id for hit in page] == ["o3", "o2", "o1"]
    assert (page.total, page.index, page.seq) == (4, "near", 4)
    space.set("o0", {"v": [0, 1]})
    rest = space.search(vector=[0, 1], limit=3, after=page.next)
    assert [(hit.id, hit.score, hit.snippets) for hit in rest] == [("o0", 0.0, ())]
    assert [hit.id for hit in space.search(vector=(0, 1), index="near", at=2)] == ["o1", "o0"]
    refused(
        errors.NotFound, "unknown vector index 'x'", lambda: space.search(vector=[1], index="x")
    )
    refused(errors.Refused, "no text index", lambda: space.search("word", vector=[1, 0]))
    refused(errors.Refused, "no text index", lambda: space.search("word"))
    for call in (
        lambda: space.search(vector=[]),
        lambda: space.search(vector=[0, 0]),
        lambda: space.search(vector=[1, 0], where={"v": {"$no": 1}}),
        lambda: space.search(vector=[1, 1], after=page.next),
    ):
        with pytest.raises(errors.InvalidInput):
            call()
    with pytest.raises(errors.InvalidInput):
        space.indexes.create("two", ["/a", "/b"], kind="vector")


def test_words_vectors_and_filters_are_combined_alike(space):
    for number in range(4):
        space.set(f"o{number}", {"v": [1, number], "n": number, "text": "tea " * (4 - number)})
    space.indexes.create("near", "/v", kind="vector")
    space.indexes.create("words", "/text", kind="text")
    where = {"n": {"$gt": 0}}
    assert [hit.id for hit in space.search(vector=[0, 1], where=where)] == ["o3", "o2", "o1"]
    page = space.search("tea", where=where, paths=["/text"], order="newest", limit=2)
    assert ([hit.id for hit in page], page.total) == (["o3", "o2"], 3)
    page = space.search("tea", vector=[0, 1], where=where)
    assert sorted(hit.id for hit in page) == ["o1", "o2", "o3"]
    assert page.index == "words, near"
    assert all(hit.snippets and hit.score > 0 for hit in page)

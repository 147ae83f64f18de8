"""`fourfold space find`, `count`, `facets` and `index`."""

from __future__ import annotations

import pytest


@pytest.fixture
def orders(on):
    for number in range(3):
        on("set", f"o{number}", f'{{"status": "{"open" if number else "paid"}", "n": {number}}}')
    return on


def test_documents_are_found_by_a_filter(orders):
    assert orders("find", '{"status": "open"}').out.splitlines() == [
        "ID  SEQ  DOCUMENT",
        'o1  2    {"n": 1, "status": "open"}',
        'o2  3    {"n": 2, "status": "open"}',
    ]
    page = orders("find", "--order-by", "-n", "--limit", "2", "--json").document
    assert [row["id"] for row in page["documents"]] == ["o2", "o1"]
    page = orders("find", "--order-by", "-n", "--limit", "2", "--after", page["next"], "--json")
    assert [row["id"] for row in page.document["documents"]] == ["o0"]
    assert orders("find", '{"n": 9}').out == "no documents match\n"
    assert orders("find", "--at", "1", "--csv").out.splitlines()[1].startswith("o0,")


def test_documents_are_counted(orders):
    assert orders("count").out == "3\n"
    assert orders("count", '{"status": "open"}', "--at", "2", "--json").document == {"count": 1}
    assert orders("facets", "status").out.splitlines() == [
        "VALUE   COUNT",
        '"open"  2',
        '"paid"  1',
    ]


def test_indexes_are_declared_listed_and_dropped(orders, refused):
    assert orders("index create", "by_status", "/status", "/n").out == (
        "created index by_status over /status /n\n"
    )
    assert orders("find", '{"status": "open"}', "--explain").out == (
        "reads index by_status (equality)\n"
    )
    assert orders("find", '{"m": 1}', "--explain").out == "reads every document\n"
    assert refused("find", '{"m": 1}', "--no-scan")["kind"] == "refused"
    assert orders("index list").out.splitlines() == [
        "NAME       PATHS       UNIQUE  HISTORY  STATE",
        "by_status  /status /n  no      all      ready",
    ]
    assert orders("index rebuild", "by_status").out.startswith("rebuilt index by_status")
    assert "not enforced" in orders("index create", "one", "/status", "--unique").out
    assert orders("index drop", "by_status").out == "dropped index by_status\n"
    assert refused("index drop", "by_status")["kind"] == "not_found"
    assert [row["name"] for row in orders("index list", "--json").document["indexes"]] == ["one"]


def test_nearest_vectors_are_found(on, refused):
    for number in range(3):
        on("set", f"o{number}", f'{{"v": [1, {number}]}}')
    assert on("index create", "near", "/v", "--vector").out == "created index near over /v\n"
    page = on("search", "--vector", "[0, 1]", "--limit", "2", "--json").document
    assert [hit["id"] for hit in page["hits"]] == ["o2", "o1"]
    assert on("search", "--vector", "[0, 1]", "--at", "1").out.splitlines() == [
        "ID  SCORE  TEXT",
        "o0  0",
    ]
    assert refused("search", "--vector", "x")["kind"] == "invalid_input"
    assert refused("search", "word", "--vector", "[1]")["kind"] == "refused"
    assert refused("search", "--vector", "[1, 1]", "--where", "{")["kind"] == "invalid_input"
    where = '{"v": {"$exists": false}}'
    assert on("search", "--vector", "[0, 1]", "--where", where).out == "no hits\n"
    assert refused("search")["kind"] == "invalid_input"
    assert refused("index create", "i", "/v", "--vector", "--text")["kind"] == "invalid_input"


@pytest.mark.parametrize("text", ["[]", "{", '{"n": {"$near": 1}}'])
def test_filters_that_are_not_filters_are_refused(refused, text):
    assert refused("find", text)["kind"] == "invalid_input"

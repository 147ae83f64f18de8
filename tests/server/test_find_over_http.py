"""Documents are found over HTTP by a filter, in pages of one state; indexes are declared there."""

from __future__ import annotations

import pytest
from both_fronts import Front
from served_spaces import Spaces


@pytest.fixture(scope="module")
def spaces(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("spaces") / "store", fast=True)
    yield Spaces(front.port)
    front.stop()


@pytest.fixture
def space(spaces):
    created = spaces.create()
    for number in range(7):
        created.put(f"o{number}", {"n": number, "status": "open" if number % 2 else "paid"})
    return created


def test_pages_of_a_query_show_one_state(space):
    assert space.ask("POST", "/indexes", {"name": "by_n", "paths": ["/n"]}).status == 201
    query = {"where": {"n": {"$gte": 2}}, "limit": 2, "order_by": "-n"}
    items, cursor = [], None
    while True:
        page = space.ask("POST", "/find", query | ({"cursor": cursor} if cursor else {}))
        assert page.status == 200, page.text
        items += page.value["items"]
        assert page.value["seq"] == 7
        assert page.value["plan"]["index"] == "by_n"
        cursor = page.value["next_cursor"]
        if cursor is None:
            break
        space.put("o9", {"n": 9})
        space.delete("o3")
    assert [row["id"] for row in items] == ["o6", "o5", "o4", "o3", "o2"]
    assert items[0] == {"id": "o6", "document": {"n": 6, "status": "paid"}, "seq": 7}


def test_counts_facets_and_plans(space):
    assert space.ask("POST", "/count", {"where": {"status": "open"}}).value == {"count": 3}
    assert space.ask("POST", "/count", {"at": "2"}).value == {"count": 2}
    assert space.ask("POST", "/facets", {"path": "status"}).value["items"] == [
        {"value": "paid", "count": 4},
        {"value": "open", "count": 3},
    ]
    plan = space.ask("POST", "/explain", {"where": {"status": "open"}, "order_by": "n"}).value
    assert (plan["access"], plan["sorts"]) == ("scan", True)


def test_life_of_an_index(space):
    made = space.ask("POST", "/indexes", {"name": "u", "paths": ["/n"], "unique": True})
    assert made.status == 201
    assert made.headers["location"].endswith("/indexes/u")
    expected = {
        "name": "u",
        "kind": "value",
        "paths": ["/n"],
        "unique": True,
        "history": "all",
        "state": "ready",
        "error": None,
    }
    assert made.value == expected
    assert space.ask("GET", "/indexes").value["items"] == [expected]
    assert space.ask("GET", "/indexes/u").value == expected
    refused = space.put("o9", {"n": 1.0})
    assert (refused.status, refused.value["kind"]) == (409, "unique_violation")
    assert space.ask("POST", "/indexes/u/rebuild").value == expected
    assert space.ask("POST", "/indexes", {"name": "u", "paths": ["/n"]}).status == 409
    assert space.ask("DELETE", "/indexes/u").status == 204
    assert space.ask("DELETE", "/indexes/u").status == 404
    assert space.put("o9", {"n": 1.0}).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/find", {"where": {"n": {"$near": 1}}}, 400),
        ("/find", {"limit": 0}, 400),
        ("/find", {"limit": 1001}, 400),
        ("/find", {"cursor": "x"}, 400),
        ("/find", {"where": []}, 400),
        ("/find", {"unknown": 1}, 400),
        ("/find", {"branch": "none"}, 404),
        ("/find", {"at": "99"}, 400),
        ("/find", {"scan": False}, 409),
        ("/facets", {}, 400),
        ("/indexes", {"name": "1", "paths": ["/a"]}, 400),
        ("/indexes", {"name": "a", "paths": []}, 400),
        ("/indexes", {"name": "a", "paths": ["/a"], "unique": True, "history": "now"}, 400),
    ],
)
def test_bad_requests_are_refused(space, path, body, status):
    assert space.ask("POST", path, body).status == status

"""Lists, history and differences over HTTP: every page shows one state."""

from __future__ import annotations

import json

import pytest
from both_fronts import Front
from served_spaces import Spaces

from fourfold import limits
from fourfold.server import space_reads


@pytest.fixture(scope="module")
def spaces(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("spaces") / "store", fast=True)
    yield Spaces(front.port)
    front.stop()


@pytest.fixture
def space(spaces):
    return spaces.create()


def follow_links(space, path, query, between=lambda: None):
    """Return the items of all pages by their Link headers."""
    items = []
    while True:
        page = space.ask("GET", path, query=query)
        assert page.status == 200, page.text
        items += page.value["items"]
        assert (page.value["next_cursor"] is None) == ("link" not in page.headers)
        if "link" not in page.headers:
            return items
        target, _, relation = page.headers["link"].partition("; ")
        assert relation == 'rel="next"'
        query = target[1:-1].partition("?")[2]
        between()


def test_pages_show_the_state_of_the_first_page(space):
    for number in range(7):
        space.put(f"note:{number}", {"n": number})

    def change():
        space.delete("note:6")
        space.put("note:5x", {})

    listed = follow_links(space, "/ids", "prefix=note:&limit=3", change)
    assert listed == [f"note:{number}" for number in range(7)]
    assert space.ask("GET", "/ids").value["items"] == [
        *(f"note:{number}" for number in range(6)),
        "note:5x",
    ]
    assert follow_links(space, "/ids", "at=2&limit=1") == ["note:0", "note:1"]


def test_page_is_sent_as_lines_on_request(space):
    for number in range(3):
        space.put(f"note:{number}", {"n": number})
    page = space.ask("GET", "/log", query="limit=2", accept="application/x-ndjson")
    assert page.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["seq"] for line in page.text.splitlines()] == [1, 2]
    assert 'rel="next"' in page.headers["link"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "order=asc"])
def test_invalid_page_is_refused(space, query):
    for path in ("/ids", "/log", "/history/a", "/diff", "/branches", "/blobs"):
        response = space.ask("GET", path, query=query)
        assert (response.status, response.value["kind"]) == (400, "invalid_input"), path


def test_cursor_of_other_filters_is_refused(space):
    for number in range(3):
        space.put(f"note:{number}", {"n": number})
    cursor = space.ask("GET", "/ids", query="limit=1").value["next_cursor"]
    for query in ("prefix=n", "branch=w", "at=3"):
        assert space.ask("GET", "/ids", query=f"cursor={cursor}&{query}").status == 400
    assert space.ask("GET", "/log", query=f"cursor={cursor}").status == 400


def test_several_documents_are_read_at_one_seq(space):
    space.put("a", {"n": 1})
    space.put("b/c", {"n": 2})
    space.delete("a")
    value = space.ask("POST", "/read", {"ids": ["b/c", "a", "never"]}).value
    assert value == {
        "seq": 3,
        "states": {
            "b/c": {"id": "b/c", "seq": 2, "op": "set", "document": {"n": 2}},
            "a": {"id": "a", "seq": 3, "op": "delete", "document": None},
            "never": None,
        },
    }
    assert space.ask("POST", "/read", {"ids": ["a"]}, "at=1").value["states"]["a"]["seq"] == 1
    assert space.ask("POST", "/read", {"ids": []}).value == {"seq": 3, "states": {}}
    assert space.ask("POST", "/read", {"ids": []}, "branch=unknown").status == 404
    many = [str(number) for number in range(limits.PAGE_ITEMS_MAX + 1)]
    assert space.ask("POST", "/read", {"ids": many}).status == 400


def test_documents_that_are_too_large_together_are_refused(space, monkeypatch):
    monkeypatch.setattr(space_reads, "READ_MANY_BYTES", 1000)
    for name in ("a", "b"):
        space.put(name, {"text": "x" * 600})
    assert space.ask("POST", "/read", {"ids": ["a"]}).status == 200
    refused = space.ask("POST", "/read", {"ids": ["a", "b"]})
    assert (refused.status, refused.value["kind"]) == (413, "too_large")


def test_page_ends_by_its_size(space, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_BYTES", 1000)
    for number in range(40):
        space.put("note", {"n": number, "text": "x" * 50})
    for path in ("/log", "/history/note"):
        page = space.ask("GET", path, query="limit=1000").value
        assert 0 < len(page["items"]) < 40
        assert [row["seq"] for row in follow_links(space, path, "limit=1000")] == list(range(1, 41))


def test_history_has_every_operation_with_its_time(space):
    space.put("a/b", {"n": 1})
    # More operations in one commit than a page has: they are not split.
    patch = {"op": "patch", "id": "a/b", "patches": [{"op": "increment", "path": "/n", "by": 1}]}
    space.transact([patch] * 5)
    space.put("other", {})
    space.delete("a/b")
    for limit in (1, 2, 3, 100):
        rows = follow_links(space, "/history/a/b", f"limit={limit}")
        assert [(row["seq"], row["op_index"], row["op"]) for row in rows] == [
            (1, 0, "set"),
            *((2, index, "patch") for index in range(5)),
            (4, 0, "delete"),
        ]
    times = [row["created_at"] for row in rows]
    assert times == sorted(times)
    assert [row["seq"] for row in follow_links(space, "/history/a/b", "after=2")] == [4]
    assert [row["seq"] for row in follow_links(space, "/history/a/b", "at=1")] == [1]
    assert follow_links(space, "/history/never", "") == []


def test_log_is_of_all_branches_or_of_one(space):
    space.put("a", {})
    space.ask("POST", "/branches", {"name": "w"})
    space.put("a", {"n": 1}, "branch=w")
    space.put("b", {})
    rows = follow_links(space, "/log", "limit=1")
    assert [(row["seq"], row["branch"]) for row in rows] == [(1, ""), (2, "w"), (3, "w"), (4, "")]
    assert [row["seq"] for row in follow_links(space, "/log", "branch=w&limit=1")] == [2, 3]
    assert [row["seq"] for row in follow_links(space, "/log", "after=1&at=3")] == [2, 3]
    assert space.ask("GET", "/log", query="branch=unknown").status == 404


def test_difference_of_two_points_turns_one_into_the_other(space):
    for name in ("a", "b", "c"):
        space.put(name, {"n": 0, "list": [1]})
    space.patch("a", [{"op": "replace", "path": "/n", "value": 1}])
    space.delete("b")
    space.put("d", {"n": 2})
    rows = follow_links(space, "/diff", "a=3&limit=1")
    assert [(row["id"], row["changed_on"]) for row in rows] == [
        *(("a", "b"), ("b", "b"), ("d", "b")),
    ]
    assert rows[0]["patches"] == [{"op": "replace", "path": "/n", "value": 1}]
    assert (rows[1]["b"]["op"], rows[2]["a"]) == ("delete", None)
    chosen = space.ask("GET", "/diff", query="a=3&id=a&id=c&id=never").value
    assert [row["id"] for row in chosen["items"]] == ["a"]
    assert (chosen["a"], chosen["b"]) == ({"branch": "", "seq": 3}, {"branch": "", "seq": 6})
    assert space.ask("GET", "/diff", query="a=9").status == 400


def test_difference_of_two_branches(space):
    space.put("a", {"n": 0})
    space.ask("POST", "/branches", {"name": "w"})
    space.put("a", {"n": 1}, "branch=w")
    space.put("b", {"n": 1})
    rows = follow_links(space, "/diff", "branch=&branch_b=w&limit=1")
    assert [(row["id"], row["changed_on"]) for row in rows] == [("a", "b"), ("b", "a")]


def test_reads_show_a_branch(space):
    space.put("a", {"n": 0})
    space.ask("POST", "/branches", {"name": "w"})
    space.put("b", {"n": 1}, "branch=w")
    assert space.get("b").status == 404
    assert space.get("b", "branch=w").value["document"] == {"n": 1}
    assert space.ask("GET", "/ids", query="branch=w").value["items"] == ["a", "b"]
    assert space.ask("POST", "/read", {"ids": ["b"]}, "branch=w").value["states"]["b"]["seq"] == 3
    assert len(follow_links(space, "/history/b", "branch=w")) == 1
    for path in ("/documents/a", "/ids", "/history/a", "/diff"):
        assert space.ask("GET", path, query="branch=unknown").status == 404

"""Branches and merges over HTTP: preview, ETag, resolutions and idempotency."""

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
    """Return a space with one document, changed on the branch `work/1`."""
    space = spaces.create()
    space.put("a", {"n": 0, "m": 0})
    space.ask("POST", "/branches", {"name": "work/1"})
    space.patch("a", [{"op": "replace", "path": "/n", "value": 1}], "branch=work/1")
    return space


def merge(space, body=None, **headers):
    return space.ask("POST", "/merges", {"source": "work/1", **(body or {})}, **headers)


def test_branch_is_created_read_and_deleted(space):
    created = space.ask("POST", "/branches", {"name": "x/y", "parent": "work/1", "at": 3})
    assert created.status == 201
    assert created.headers["location"].endswith("/branches/x/y")
    assert (created.value["parent"], created.value["fork_seq"]) == ("work/1", 3)
    distance = {"ahead": 0, "missing": 0}
    assert space.ask("GET", "/branches/x/y").value == {**created.value, **distance}
    assert (created.value["ahead"], created.value["missing"]) == (None, None)
    names = [row["name"] for row in space.ask("GET", "/branches").value["items"]]
    assert names == ["", "work/1", "x/y"]
    assert space.ask("DELETE", "/branches/x/y").value["status"] == "deleted"
    again = space.ask("DELETE", "/branches/x/y")
    assert (again.status, again.value["kind"]) == (409, "branch_ended")
    assert len(space.ask("GET", "/branches").value["items"]) == 2
    assert len(space.ask("GET", "/branches", query="deleted=true&limit=1").value["items"]) == 1
    assert len(space.ask("GET", "/branches", query="deleted=true").value["items"]) == 3
    written = space.put("a", {}, "branch=x/y")
    assert (written.status, written.value["kind"]) == (409, "branch_ended")


def test_branch_of_time_or_of_invalid_name_or_point(space):
    at = space.ask("GET", "/log").value["items"][0]["created_at"]
    made = space.ask("POST", "/branches", {"name": "then", "at": at})
    assert (made.status, made.value["fork_seq"]) == (201, 1)
    for body, status in (
        ({"name": "then"}, 409),
        ({"name": "../x"}, 400),
        ({"name": ""}, 400),
        ({"name": "y", "at": 99}, 400),
        ({"name": "y", "at": "soon"}, 400),
        ({"name": "y", "parent": "unknown"}, 404),
        ({"name": "y", "from": 1}, 400),
    ):
        assert space.ask("POST", "/branches", body).status == status, body


def test_creation_and_deletion_of_a_branch_are_idempotent(space):
    body = {"name": "once"}
    first = space.ask("POST", "/branches", body, idempotency_key="create")
    space.put("a", {"n": 5})
    again = space.ask("POST", "/branches", body, idempotency_key="create")
    assert (first.status, again.status) == (201, 201)
    assert first.value == again.value
    other = space.ask("POST", "/branches", {"name": "other"}, idempotency_key="create")
    assert (other.status, other.value["kind"]) == (422, "replay_mismatch")
    for _ in range(2):
        deleted = space.ask("DELETE", "/branches/once", idempotency_key="delete")
        assert (deleted.status, deleted.value["status"]) == (200, "deleted")
    assert space.ask("DELETE", "/branches/once", idempotency_key="create").status == 422
    assert space.ask("GET", "").value["seq"] == 6


def test_merge_is_shown_first_and_then_done_as_shown(space):
    space.patch("a", [{"op": "replace", "path": "/m", "value": 2}])
    shown = merge(space, {"dry_run": True})
    assert shown.value["commit"] is None
    assert shown.value["operations"] == [{"op": "set", "id": "a", "value": {"n": 1, "m": 2}}]
    assert space.get("a").value["document"] == {"n": 0, "m": 2}
    done = merge(space, if_match=shown.headers["etag"])
    assert (done.status, done.value["commit"]["seq"]) == (200, 5)
    assert space.get("a").value["document"] == {"n": 1, "m": 2}


@pytest.mark.parametrize("branch", ["", "branch=work/1"])
def test_merge_of_something_else_than_was_shown_is_refused(space, branch):
    etag = merge(space, {"dry_run": True}).headers["etag"]
    space.put("other", {}, branch)
    refused = merge(space, if_match=etag)
    assert (refused.status, refused.value["kind"]) == (412, "precondition_failed")
    assert space.get("a").value["document"]["n"] == 0
    shown = merge(space, {"dry_run": True})
    assert merge(space, if_match=shown.headers["etag"]).status == 200


def test_write_to_a_third_branch_does_not_change_the_etag(space):
    space.ask("POST", "/branches", {"name": "third"})
    etag = merge(space, {"dry_run": True}).headers["etag"]
    space.put("other", {}, "branch=third")
    assert merge(space, if_match=etag).status == 200


@pytest.mark.parametrize("etag", ['"x"', '"1"', '"1-x"', '"99999999999999999999999-1"'])
def test_etag_that_is_not_of_a_merge_is_refused(space, etag):
    assert merge(space, if_match=etag).status == 412


def test_conflict_is_listed_and_resolved(space):
    space.patch("a", [{"op": "replace", "path": "/n", "value": 2}])
    [conflict] = merge(space, {"dry_run": True}).value["conflicts"]
    assert (conflict["id"], conflict["paths"]) == ("a", ["/n"])
    assert [conflict[side]["document"]["n"] for side in ("base", "source", "target")] == [0, 1, 2]
    refused = merge(space)
    assert (refused.status, refused.value["kind"]) == (409, "merge_conflicted")
    for resolution, n in (
        ({"choice": "ours"}, 2),
        ({"choice": "theirs"}, 1),
        ({"path": "/n", "value": 9}, 9),
        ({"path": "/n", "choice": "delete"}, None),
        ({"value": {"n": 7}}, 7),
    ):
        body = {"dry_run": True, "resolutions": [{"id": "a", **resolution}]}
        shown = merge(space, body).value
        assert shown["conflicts"] == []
        [operation] = shown["operations"] or [{"value": {"n": 2}}]
        document = operation.get("value")
        if document is None:
            [patch] = operation["patches"]
            document = {} if patch["op"] == "remove" else {"n": patch["value"]}
        assert document.get("n") == n, resolution
    deleted = merge(space, {"resolutions": [{"id": "a", "choice": "delete"}]})
    assert deleted.value["operations"] == [{"op": "delete", "id": "a"}]
    assert space.get("a").status == 404


@pytest.mark.parametrize(
    "resolution",
    [
        {"id": "a"},
        {"id": "a", "choice": "ours", "value": {}},
        {"id": "a", "choice": "mine"},
        {"id": "a", "value": 7},
        {"id": "", "choice": "ours"},
        {"id": "a", "choice": "ours", "where": "/n"},
    ],
)
def test_invalid_resolution_is_refused(space, resolution):
    space.patch("a", [{"op": "replace", "path": "/n", "value": 2}])
    refused = merge(space, {"resolutions": [resolution]})
    assert (refused.status, refused.value["kind"]) == (400, "invalid_input")


def test_merge_is_idempotent(space):
    shown = merge(space, {"dry_run": True})
    first, again = (
        merge(space, if_match=shown.headers["etag"], idempotency_key="m") for _ in range(2)
    )
    assert (first.status, again.status) == (200, 200)
    assert first.value["commit"]["seq"] == again.value["commit"]["seq"]
    assert again.value["commit"]["replayed"]
    assert merge(space, {"field_level": False}, idempotency_key="m").status == 422
    assert merge(space, {"target": "work/1"}).status == 400
    assert merge(space, {"target": "unknown"}).status == 404

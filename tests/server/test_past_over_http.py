"""Reads at a point in history: every read takes `at`, or says why it cannot."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from both_fronts import store_protocol
from served_streams import Served

import fourfold

with fourfold.open(":memory:") as store:
    TABLE = store_protocol(store).routes

FEEDS = {"watch", "graph_feed", "app_feed", "follow_sessions", "follow_session"}
"""Live feeds, which continue after a position."""
BOUNDED = {"diff", "diff_memory"}
"""Reads of two points, each with a parameter of its own."""
READS = [
    route
    for route in TABLE.routes
    if route.method == "GET"
    and route.scope == "read"
    and route.model in {"documents", "graphs", "sessions", "store"}
    and route.operation not in FEEDS | BOUNDED
]


@pytest.mark.parametrize("route", READS, ids=lambda route: route.operation)
def test_a_read_takes_at_or_has_a_reason(route):
    fields = () if route.query is None else route.query.__struct_fields__
    assert ("at" in fields) != bool(route.no_past)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("past") / "store"
    with fourfold.open(root) as store:
        store.space("did:web:a").set("x", {"n": 1})
        store.space("did:web:b")
        store.graphs.create("notes")
        store.sessions.create({"id": "s"})
        store.publish()
    server = Served(root)
    yield server
    server.kill()


def read(served, path, **query):
    pairs = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    response = served.ask("GET", f"{path}?{pairs}")
    return response.status, json.loads(response.text)


LISTS = ["/v1/spaces", "/v1/apps", "/v1/sessions"]


@pytest.mark.parametrize("path", LISTS)
def test_lists_take_a_time_or_a_restore_point(served, path):
    _, points = read(served, "/v1/points")
    point = points["items"][0]["id"]
    _, now = read(served, path)
    for at in (point, datetime.now(UTC).isoformat()):
        status, page = read(served, path, at=at)
        assert status == 200
        assert len(page["items"]) == len(now["items"]) > 0
    assert read(served, path, at="2001-01-01T00:00:00Z")[1]["items"] == []
    assert read(served, path, at="20010101T000000.000Z-0000")[0] == 404
    for wrong in ("7", "yesterday", "2001-13-01T00:00:00Z"):
        status, problem = read(served, path, at=wrong)
        assert (status, problem["kind"]) == (400, "invalid_input")


def test_a_cursor_belongs_to_its_time(served):
    at = datetime.now(UTC).isoformat()
    _, page = read(served, "/v1/spaces", at=at, limit=1)
    assert page["next_cursor"]
    assert read(served, "/v1/spaces", at=at, limit=1, cursor=page["next_cursor"])[0] == 200
    assert read(served, "/v1/spaces", limit=1, cursor=page["next_cursor"])[0] == 400


def test_a_space_of_the_past_has_no_size(served):
    status, info = read(served, "/v1/spaces/did:web:a", at=0)
    assert (status, info["seq"], info["size_bytes"]) == (200, 0, None)
    status, problem = read(served, "/v1/spaces/did:web:a", at="2001-01-01T00:00:00Z")
    assert (status, problem["kind"]) == (404, "not_found")
    assert "did not exist" in problem["detail"]


def test_the_overview_of_the_past_counts_what_existed(served):
    _, past = read(served, "/v1/store", at="2001-01-01T00:00:00Z")
    assert {model["count"] for model in past["models"]} == {0}
    assert past["bytes"] is None
    assert {model["newest"] for model in past["models"]} == {None}
    _, recent = read(served, "/v1/store", at=datetime.now(UTC).isoformat())
    counts = {model["model"]: model["count"] for model in recent["models"]}
    assert counts == {"documents": 2, "streams": 0, "graphs": 2, "sessions": 1}


@pytest.mark.parametrize("route", [r for r in READS if r.no_past], ids=lambda r: r.operation)
def test_a_read_without_a_past_refuses_at_with_the_reason(served, route):
    path = route.path
    for name, value in {
        "{did}": "did:web:a",
        "{hash}": f"sha256:{'0' * 64}",
        "{index}": "i",
        "{app}": "notes",
        "{sid:name}": "s",
        "{head}": f"sha256:{'0' * 64}",
        "{other}": f"sha256:{'1' * 64}",
    }.items():
        path = path.replace(name, value)
    status, problem = read(served, path, at="2030-01-01T00:00:00Z")
    assert (status, problem["kind"]) == (400, "invalid_input")
    assert route.no_past in problem["detail"]

"""Caching and preflight requests on a server with keys."""

from __future__ import annotations

import pytest
from both_fronts import Front, request

from fourfold.server.origins import Origins

PUBLIC = "public, max-age=60, stale-while-revalidate=300"
PRIVATE = "private, max-age=60, stale-while-revalidate=300"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    root = tmp_path_factory.mktemp("guarded") / "store"
    front = Front(root, fast=True, access=True, origins=Origins(["*"]))
    front.streams.create("s", "text/plain", body=b"x")
    yield front
    front.stop()


def read(front, query="", **headers):
    """Return the status and the headers of a read."""
    [(status, response, _)] = front.ask(request("GET", f"s{query}", **headers))
    return status, dict(response)


def test_only_public_responses_are_publicly_cacheable(guarded):
    reads = ("", "?offset=-1", "?offset=-1&live=long-poll")
    for query in reads:
        assert read(guarded, query)[1]["cache-control"] == PUBLIC
    key, secret = guarded.access.add(("read",))
    own = {"authorization": f"Bearer {secret}"}
    try:
        for query in reads:
            status, response = read(guarded, query, **own)
            assert (status, response["cache-control"]) == (200, PRIVATE)
        status, response = read(guarded, if_none_match=response["etag"], **own)
        assert (status, response["cache-control"]) == (304, PRIVATE)
    finally:
        guarded.access.remove(key.id)


def test_preflight_request_needs_no_key(guarded):
    key, _ = guarded.access.add(("read",))
    names = ("s", "__ds/subscriptions/a", "__ds/subscriptions/a/claim", "__ds/jwks.json")
    try:
        for name in names:
            [(status, response, _)] = guarded.ask(request("OPTIONS", name))
            assert status == 204, name
            assert "PUT" in dict(response)["access-control-allow-methods"]
        [(status, _, _)] = guarded.ask(request("GET", "__ds/subscriptions/a"))
        assert status == 401
    finally:
        guarded.access.remove(key.id)

"""Browsers do not run the content of a stream."""

from __future__ import annotations

import pytest
from both_fronts import JSON, Front, request

SANDBOX = "default-src 'none'; sandbox"
ACTIVE = [
    "text/html",
    "TEXT/HTML; charset=utf-8",
    "image/svg+xml",
    "application/xhtml+xml",
    "text/xml",
]
PASSIVE = [JSON, "text/plain", "text/plain; charset=utf-8", "application/octet-stream"]


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    made = Front(tmp_path_factory.mktemp("front") / "store", fast=request.param)
    yield made
    made.stop()


def policies(front, kind):
    """Return the content policy of each kind of read of a stream."""
    name = f"s{abs(hash(kind))}"
    front.streams.create(name, kind)
    front.streams.open(name).append(b'"<script>"', key=b"k")
    result = {}
    for query in ("", "?offset=-1", "?offset=-1&live=long-poll", "?offset=-1&key=k"):
        status, headers, _ = front.ask(request("GET", f"{name}{query}"))[0]
        assert status == 200
        result[query] = dict(headers).get("content-security-policy")
    return result


@pytest.mark.parametrize("kind", ACTIVE)
def test_active_content_is_sent_in_a_sandbox(front, kind):
    assert set(policies(front, kind).values()) == {SANDBOX}


@pytest.mark.parametrize("kind", PASSIVE)
def test_passive_content_is_sent_without_a_sandbox(front, kind):
    assert set(policies(front, kind).values()) == {None}

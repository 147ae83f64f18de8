"""PATCH of a stream, and the required scope."""

from __future__ import annotations

import pytest
from both_fronts import Front, request


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path):
    result = Front(tmp_path / "store", fast=request.param, access=True)
    result.streams.create("s", "text/plain", ttl=1000)
    yield result
    result.stop()


def patch(front, **headers):
    (answer,) = front.ask(request("PATCH", "s", **headers))
    status, response, body = answer
    return status, dict(response), body


def test_patch_changes_and_removes_settings(front):
    status, response, _ = patch(front, stream_ttl="60", stream_retention_bytes="5")
    assert (status, response["stream-ttl"], response["stream-retention-bytes"]) == (200, "60", "5")
    status, response, _ = patch(
        front, stream_ttl="none", stream_expires_at="2999-01-01T00:00:00Z", stream_closed="true"
    )
    assert (status, response["stream-expires-at"]) == (200, "2999-01-01T00:00:00Z")
    assert "stream-closed" not in response
    assert response["stream-retention-bytes"] == "5"
    status, response, _ = patch(front, stream_expires_at="none", stream_retention_bytes="none")
    assert status == 200
    assert not {"stream-ttl", "stream-expires-at", "stream-retention-bytes"} & response.keys()
    info = front.streams.info("s")
    assert (info.ttl_seconds, info.expires_at_ms, info.retention_bytes) == (None, None, None)


def test_patch_without_valid_settings_is_refused(front):
    before = front.streams.info("s")
    for headers in ({}, {"stream_ttl": "x"}, {"stream_ttl": "1", "stream_expires_at": "none"}):
        status, _, body = patch(front, **headers)
        assert status == (200 if len(headers) == 2 else 400), body
    (answer,) = front.ask(request("PATCH", "s", b"{}", stream_ttl="1", content_length=2))
    assert answer[0] == 400
    assert front.streams.info("s").name == before.name
    (missing,) = front.ask(request("PATCH", "nothing", stream_ttl="1"))
    assert missing[0] == 404


def test_patch_requires_the_admin_scope(front):
    _, writer = front.access.add(("read", "write"))
    _, admin = front.access.add(("admin",))
    assert patch(front, stream_ttl="1", authorization=f"Bearer {writer}")[0] == 403
    assert patch(front, stream_ttl="60", authorization=f"Bearer {admin}")[0] == 200

"""A server mounted in another application under a path and https: all its URLs are valid."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import unquote, urlsplit

import pytest

import fourfold
from fourfold.server.app import StreamsApp
from fourfold.server.streams import StreamProtocol
from fourfold.server.webhooks import address

HOOK = {"type": "webhook", "pattern": "a", "webhook": {"url": "https://hooks.example/in"}}
SUBSCRIPTION = "/v1/stream/__ds/subscriptions/s"


class Mount:
    """An application that forwards what arrives under a path.

    With `whole` it keeps the path as the client sent it, as ASGI requires; older ones remove their
    part.
    """

    def __init__(self, app, root, *, scheme="https", whole=True):
        self._app, self._root, self._scheme, self._whole = app, root, scheme, whole

    def ask(self, method, raw, body=b"", **headers):
        """Send one request and return (status, headers, body)."""
        request_headers = {"host": "ex.org"} | {
            key.replace("_", "-"): it for key, it in headers.items()
        }
        path = unquote(raw)
        assert path.startswith(f"{self._root}/"), "the path is outside of the mount"
        scope = {
            "type": "http",
            "method": method,
            "scheme": self._scheme,
            "path": path if self._whole else path.removeprefix(self._root),
            "raw_path": raw.encode(),
            "root_path": self._root,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in request_headers.items()],
        }
        sent = []

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))
        result = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], result, b"".join(item.get("body", b"") for item in sent)


@pytest.fixture
def streams(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store.streams


@pytest.fixture
def app(streams):
    return StreamsApp(StreamProtocol(streams))


@pytest.mark.parametrize(
    ("root", "whole"),
    [("/mnt", True), ("/mnt", False), ("/a/é b", True), ("/a/é b", False), ("/v1", True)],
)
def test_stream_is_at_its_location(app, root, whole):
    mounted = Mount(app, root, whole=whole)
    status, response, _ = mounted.ask(
        "PUT", f"{root}/v1/stream/a%20b", b"x", content_type="text/plain"
    )
    assert status == 201
    where = urlsplit(response["location"])
    assert (where.scheme, where.netloc) == ("https", "ex.org")
    assert mounted.ask("GET", where.path)[::2] == (200, b"x")


def test_stream_is_forked_by_path_with_or_without_the_mount(app):
    mounted = Mount(app, "/mnt")
    mounted.ask("PUT", "/mnt/v1/stream/a", b"x", content_type="text/plain")
    for number, source in enumerate(("/mnt/v1/stream/a", "/v1/stream/a", "a")):
        fork = f"/mnt/v1/stream/fork-{number}"
        assert mounted.ask("PUT", fork, stream_forked_from=source)[0] == 201
        assert mounted.ask("GET", fork)[2] == b"x"


def test_webhooks_call_back_under_the_mount(app, streams):
    mounted = Mount(app, "/mnt")
    status, _, body = mounted.ask("PUT", f"/mnt{SUBSCRIPTION}", json.dumps(HOOK).encode())
    assert status == 201
    jwks = json.loads(body)["webhook"]["signing"]["jwks_url"]
    assert jwks == "https://ex.org/mnt/v1/stream/__ds/jwks.json"
    assert mounted.ask("GET", urlsplit(jwks).path)[0] == 200
    result = streams.subscriptions.get("s")
    response = address(result.address, result.id, "callback")
    assert response == f"https://ex.org/mnt{SUBSCRIPTION}/callback"


def test_openapi_names_the_mount(app):
    for root, url in (("/mnt", "/mnt"), ("/é", "/%C3%A9"), ("", "/")):
        _, _, body = Mount(app, root).ask("GET", f"{root}/openapi.json")
        assert json.loads(body)["servers"] == [{"url": url}]


def test_path_that_only_starts_like_the_mount_is_unchanged(app):
    async def elsewhere(scope, receive, send):
        await app({**scope, "root_path": "/v1/stream/own"}, receive, send)

    mounted = Mount(elsewhere, "")
    assert mounted.ask("PUT", "/v1/stream/owner", content_type="text/plain")[0] == 201


def test_address_without_a_host_is_a_path(app):
    mounted = Mount(app, "/mnt")
    _, response, _ = mounted.ask("PUT", "/mnt/v1/stream/b", host="", content_type="text/plain")
    assert response["location"] == "/mnt/v1/stream/b"


def test_server_without_raw_path_is_supported(app):
    async def bare(scope, receive, send):
        del scope["raw_path"], scope["scheme"]
        await app(scope, receive, send)

    mounted = Mount(bare, "")
    _, response, _ = mounted.ask("PUT", "/v1/stream/c", content_type="text/plain")
    assert response["location"] == "http://ex.org/v1/stream/c"

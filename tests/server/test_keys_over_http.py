"""Keys that are created and deleted over HTTP: who may, what a key can grant, where secrets are."""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest

import fourfold
from fourfold.server import key_store
from fourfold.server.auth import Access, make_key
from fourfold.server.key_store import MODELS, SCOPES
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol

ADMIN = {"scopes": list(SCOPES), "label": "operator"}


class KeyServer:
    """The protocol of a store, called with the secret of a key."""

    def __init__(self, root, store, **options):
        self.root = root
        self.access = Access(root, **options)
        self.protocol = StreamProtocol(store.streams, access=self.access)

    def ask(self, method, path, body=None, secret=None, once=None):
        headers = {"host": "localhost", "content-type": "application/json"}
        if secret is not None:
            headers["authorization"] = f"Bearer {secret}"
        if once is not None:
            headers["idempotency-key"] = once
        data = b"" if body is None else json.dumps(body).encode()
        response = asyncio.run(self.protocol.handle(Request(method, path, "", headers, data)))
        return response.status, json.loads(response.body)

    def create(self, body, secret=None, once=None):
        status, key = self.ask("POST", "/v1/keys", body, secret, once)
        assert status == 201, key
        return key


@pytest.fixture
def server(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        server = KeyServer(root, store)
        yield server
        server.access.close()


@pytest.fixture
def admin(server):
    """Secret of a key that is allowed everything."""
    return server.create(ADMIN)["key"]


def test_first_key_must_be_able_to_create_others(server):
    for body in (
        {"scopes": ["read", "write"]},
        {"scopes": ["admin"], "models": ["documents"]},
        {"scopes": ["admin"], "prefix": "shop"},
    ):
        status, problem = server.ask("POST", "/v1/keys", body)
        assert (status, problem["kind"]) == (409, "refused")
    assert server.ask("GET", "/v1/keys") == (200, {"required": False, "keys": []})
    key = server.create(ADMIN)
    assert {grant["model"] for grant in key["grants"]} == set(MODELS)
    assert server.ask("GET", "/v1/keys")[0] == 401
    status, keys = server.ask("GET", "/v1/keys", secret=key["key"])
    assert (status, keys["required"], len(keys["keys"])) == (200, True, 1)


def test_created_key_has_its_scopes_and_records_its_origin(server, admin):
    own = server.ask("GET", "/v1/key", secret=admin)[1]["key"]["id"]
    body = {"scopes": ["read"], "models": ["streams"], "prefix": "shop/", "label": "till"}
    key = server.create(body, admin)
    assert key["grants"] == [{"model": "streams", "scopes": ["read"], "prefix": "shop/"}]
    assert (key["label"], key["created_by"]) == ("till", own)
    assert key["created_at_ms"] > 0
    assert server.ask("HEAD", "/v1/stream/other", secret=key["key"])[0] == 403


def test_secret_is_shown_once_and_stored_nowhere(server, admin):
    body = {"scopes": ["read"]}
    first = server.create(body, admin, once="k-1")
    again = server.create(body, admin, once="k-1")
    assert again == {**first, "key": None}
    listed = server.ask("GET", "/v1/keys", secret=admin)[1]
    assert len(listed["keys"]) == 2
    assert first["key"] not in json.dumps(listed)
    stored = b"".join(path.read_bytes() for path in server.root.glob("server.sqlite*"))
    for secret in (admin, first["key"]):
        assert secret.encode() not in stored


def test_repeated_request_for_a_deleted_key_creates_no_other(server, admin):
    key = server.create({"scopes": ["read"]}, admin, once="k-1")
    assert server.ask("DELETE", f"/v1/keys/{key['id']}", secret=admin)[0] == 200
    status, _ = server.ask("POST", "/v1/keys", {"scopes": ["read"]}, admin, once="k-1")
    assert status == 404
    assert server.ask("POST", "/v1/keys", {"scopes": ["write"]}, admin, once="k-1")[0] == 422
    assert len(server.access.stored_keys()) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"scopes": ["write"]},
        {"scopes": ["read"], "models": ["documents"]},
        {"scopes": ["read"], "models": ["streams"]},
        {"scopes": ["read"], "models": ["streams"], "prefix": "sho"},
        {"scopes": ["admin"], "models": ["streams"], "prefix": "shop/"},
    ],
    ids=lambda body: "-".join(map(str, body.values())),
)
def test_key_cannot_grant_more_than_it_has(server, body):
    # It administers the store, and reads the streams of one shop.
    secret = add_with_grants(
        server.root, (("store", ("admin", "read"), ""), ("streams", ("read",), "shop/"))
    )
    status, problem = server.ask("POST", "/v1/keys", body, secret)
    assert (status, problem["kind"]) == (403, "forbidden")
    own = {"scopes": ["read"], "models": ["streams"], "prefix": "shop/till-1"}
    assert server.create(own, secret)["grants"][0]["prefix"] == "shop/till-1"


def add_with_grants(root, grants):
    key, secret = key_of(grants)
    key_store.KeyStore(root).add(key)
    return secret


def key_of(grants):
    key, secret = make_key(("read",))
    rows = tuple(key_store.Grant(*grant) for grant in grants)
    return key_store.Key(key.id, key.sha256, rows), secret


@pytest.mark.parametrize("scopes", [["read", "write", "query", "metrics"], ["admin"]])
def test_only_administrators_of_the_store_manage_keys(server, admin, scopes):
    models = ["store"] if "admin" not in scopes else ["documents", "streams", "graphs", "sessions"]
    secret = server.create({"scopes": scopes, "models": models}, admin)["key"]
    for method, path, body in (
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"scopes": ["read"]}),
        ("DELETE", "/v1/keys/x", None),
    ):
        assert server.ask(method, path, body, secret)[0] == 403
        assert server.ask(method, path, body)[0] == 401


def test_deleted_key_is_refused_at_once_and_own_one_stays(server, admin):
    other = server.create(ADMIN, admin)
    own = server.ask("GET", "/v1/key", secret=admin)[1]["key"]["id"]
    status, problem = server.ask("DELETE", f"/v1/keys/{own}", secret=admin)
    assert (status, problem["kind"]) == (409, "refused")
    assert server.ask("GET", "/v1/keys", secret=other["key"])[0] == 200
    status, deleted = server.ask("DELETE", f"/v1/keys/{other['id']}", secret=admin)
    assert (status, deleted) == (200, {"id": other["id"], "left": 1})
    assert server.ask("GET", "/v1/keys", secret=other["key"])[0] == 401
    assert server.ask("DELETE", f"/v1/keys/{other['id']}", secret=admin)[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scopes": []},
        {"scopes": ["all"]},
        {"scopes": ["read"], "models": ["tables"]},
        {"scopes": ["read"], "models": ["store"], "prefix": "a"},
        {"scopes": ["read"], "label": "x" * 201},
        {"scopes": ["read"], "secret": "ff_mine"},
    ],
    ids=str,
)
def test_invalid_key_is_refused(server, admin, body):
    assert server.ask("POST", "/v1/keys", body, admin)[0] == 400
    assert len(server.access.stored_keys()) == 1


def test_keys_are_bounded(server, admin, monkeypatch):
    monkeypatch.setattr(key_store, "KEYS_MAX", 2)
    server.create({"scopes": ["read"]}, admin)
    status, problem = server.ask("POST", "/v1/keys", {"scopes": ["read"]}, admin)
    assert (status, problem["kind"]) == (409, "refused")


def test_server_without_keys_creates_none(tmp_path):
    with fourfold.open(tmp_path) as store:
        protocol = StreamProtocol(store.streams)
        headers = {"host": "localhost", "content-type": "application/json"}
        request = Request("POST", "/v1/keys", "", headers, json.dumps(ADMIN).encode())
        assert asyncio.run(protocol.handle(request)).status == 409


def test_keys_of_an_older_version_have_no_origin(tmp_path):
    with fourfold.open(tmp_path / "store"):
        pass
    with Access(tmp_path / "store") as access:
        _, secret = access.add(("admin",))
    path = tmp_path / "store" / "server.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE api_key SET created_at_ms = NULL")
    with fourfold.open(tmp_path / "store") as store:
        server = KeyServer(tmp_path / "store", store)
        (key,) = server.ask("GET", "/v1/keys", secret=secret)[1]["keys"]
    assert (key["created_at_ms"], key["created_by"]) == (None, "")

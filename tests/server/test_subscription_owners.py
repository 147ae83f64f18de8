"""A subscription has an owner: a key and its prefix. Everything else is refused by default."""

from __future__ import annotations

import json

import pytest
from served_streams import Served

import fourfold
from fourfold.models.streams.subscriptions import Subscribe
from fourfold.server.auth import Access

JSON = "application/json"
SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Return a server with a key for everything, and full keys of two tenants."""
    root = tmp_path_factory.mktemp("owners") / "store"
    fourfold.open(root).close()
    access = Access(root)
    every = ("read", "write", "admin")
    keys = {
        "all": access.add(every)[1],
        "a": access.add(every, prefix="a/")[1],
        "a-reader": access.add(("read",), prefix="a/")[1],
        "a-deeper": access.add(every, prefix="a/x/")[1],
        "b": access.add(every, prefix="b/")[1],
    }
    server = Served(root)
    server.keys = keys
    server.root = root
    for name in ("a/one", "b/one", "z/one"):
        send(server, "all", "PUT", f"/v1/stream/{name}")
    yield server
    server.kill()


def send(guarded, key, method, path, body=None):
    headers = {"content-type": JSON}
    if key is not None:
        headers["authorization"] = f"Bearer {guarded.keys[key]}"
    raw = None if body is None else json.dumps(body).encode()
    return guarded.ask(method, path, raw, headers)


def subscribe(guarded, key, name, **body):
    options = {"type": "webhook", "webhook": {"url": "https://example.com/hook"}, **body}
    return send(guarded, key, "PUT", f"{SUBSCRIPTIONS}/{name}", options).status


@pytest.mark.parametrize("name", ["empty", "ack", "callback", "release"])
def test_subscription_without_streams_stays_with_its_owner(guarded, name):
    assert subscribe(guarded, "b", name, streams=["b/one"]) == 201
    path = f"{SUBSCRIPTIONS}/{name}"
    assert send(guarded, "b", "DELETE", f"{path}/streams/b/one").status == 204
    for key, status in ((None, 401), ("a", 403), ("a-deeper", 403)):
        assert send(guarded, key, "GET", path).status == status
        assert send(guarded, key, "DELETE", path).status == status
        body = {"streams": ["a/one"]}
        assert send(guarded, key, "POST", f"{path}/streams", body).status == status
    assert send(guarded, "b", "GET", path).status == 200
    assert send(guarded, "all", "GET", path).status == 200
    assert send(guarded, "b", "DELETE", path).status == 204


def test_every_link_is_checked_however_many_there_are(guarded):
    for number in range(1_005):
        send(guarded, "all", "PUT", f"/v1/stream/a/p{number:05}")
    assert subscribe(guarded, "all", "wide", pattern="a/p*", streams=["z/one"]) == 201
    path = f"{SUBSCRIPTIONS}/wide"
    assert send(guarded, "a", "GET", f"{path}?after=a/p01000").status == 403
    assert send(guarded, "a", "DELETE", f"{path}/streams/z/one").status == 403
    assert send(guarded, "a", "DELETE", path).status == 403
    assert send(guarded, "all", "DELETE", path).status == 204


def test_legacy_subscription_with_a_link_outside_the_prefix_is_refused(guarded):
    """Rows of earlier versions have no owner: then every link decides."""
    links = {
        "legacy-in": ["a/one"],
        "legacy-out": [*(f"a/p{n:05}" for n in range(999)), "z/one"],
        "legacy-none": ["a/removed"],
    }

    def add(store):
        for name, streams in links.items():
            add_legacy(store, name, streams)
        store.streams.subscriptions.remove_stream("legacy-none", "a/removed")

    guarded.stop_and(add)
    assert send(guarded, "a", "GET", f"{SUBSCRIPTIONS}/legacy-none").status == 403
    assert send(guarded, "a", "DELETE", f"{SUBSCRIPTIONS}/legacy-none").status == 403
    assert send(guarded, "all", "GET", f"{SUBSCRIPTIONS}/legacy-none").status == 200
    assert send(guarded, "a", "GET", f"{SUBSCRIPTIONS}/legacy-in").status == 200
    assert send(guarded, "a", "GET", f"{SUBSCRIPTIONS}/legacy-out").status == 403
    assert send(guarded, "b", "GET", f"{SUBSCRIPTIONS}/legacy-in").status == 403
    assert send(guarded, "all", "GET", f"{SUBSCRIPTIONS}/legacy-out").status == 200


def add_legacy(store, name, streams):
    store.streams.subscriptions.create(
        Subscribe(name, "webhook", streams=streams, webhook_url="https://example.com/")
    )


def test_key_of_same_or_shorter_prefix_may_use_a_subscription(guarded):
    assert subscribe(guarded, "a-deeper", "deep", pattern="a/x/*") == 201
    path = f"{SUBSCRIPTIONS}/deep"
    assert send(guarded, "a", "GET", path).status == 200
    assert send(guarded, "a-reader", "GET", path).status == 200
    assert send(guarded, "a-reader", "DELETE", path).status == 403
    assert send(guarded, "b", "GET", path).status == 403


def test_streams_outside_the_owners_prefix_are_not_added(guarded):
    assert subscribe(guarded, "a", "tenant", streams=["a/one"]) == 201
    path = f"{SUBSCRIPTIONS}/tenant"
    assert send(guarded, "a", "POST", f"{path}/streams", {"streams": ["z/one"]}).status == 403
    assert send(guarded, "all", "POST", f"{path}/streams", {"streams": ["z/one"]}).status == 403
    assert send(guarded, "a", "GET", path).status == 200


def test_subscription_of_another_owner_is_not_replaced(guarded):
    assert subscribe(guarded, "all", "shared", pattern="a/*") == 201
    assert subscribe(guarded, "all", "shared", pattern="a/*") == 200
    assert subscribe(guarded, "a", "shared", pattern="a/*") == 403


def test_unknown_subscription_looks_like_one_of_another_owner(guarded):
    assert subscribe(guarded, "b", "known", streams=["b/one"]) == 201
    answers = [send(guarded, "a", "GET", f"{SUBSCRIPTIONS}/{name}") for name in ("known", "nope")]
    assert [answer.status for answer in answers] == [403, 403]
    texts = [answer.text.replace(b"known", b"X").replace(b"nope", b"X") for answer in answers]
    assert texts[0] == texts[1]

"""Every route of the server against keys that do not allow it, and against keys that do.

A key of the tests has a prefix in each model. `mine` is inside of it, `other` is not.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from hashlib import sha256
from types import SimpleNamespace

import pytest
from both_fronts import Front

import fourfold
from fourfold.content import content_id, encode
from fourfold.server.key_store import MODELS, NAMED_MODELS, SCOPES, Grant, Key, KeyStore
from fourfold.server.request import Request

PREFIXES = {
    "documents": "did:web:mine",
    "streams": "mine/",
    "graphs": "mine",
    "sessions": "mine/",
}
NAMES = {
    "mine": {"did": "did:web:mine.example", "name": "mine/a", "app": "mine-app", "sid": "mine/a"},
    "used": {"did": "did:web:mine.used", "name": "mine/u", "app": "mine-used", "sid": "mine/u"},
    "other": {"did": "did:web:other", "name": "minor", "app": "mi", "sid": "mina/a"},
}
"""Names inside of the prefixes, those that tests change, and names outside."""
DECIDED_BY_HANDLER = {
    *("create_session", "get_head", "list_ancestors", "list_descendants", "compare_heads"),
    *("create_payload", "put_payload", "get_payload", "import_bundle", "run_sql"),
    "list_sql_tables",
    *("sync_heads", "sync_pull", "sync_push", "sync_reconcile", "sync_refusals", "sync_events"),
}
"""Routes for keys with any prefix; each has a test below, queries in `test_sql_over_http`,
and those of sync, whose keys are for one peer, in `test_sync_over_http`."""
DECIDED_BY_OWNER = {
    "subscribe": {"type": "pull-wake", "streams": ["mine/a"], "wake_stream": "mine/w"},
    "subscription": b"",
    "unsubscribe": b"",
    "follow": {"streams": ["mine/a"]},
    "unfollow": b"",
    "claim": {"worker": "w"},
}
"""Routes of subscriptions, with a body for each."""
DECIDED_BY_TOKEN = {"callback", "ack", "release"}
UNKNOWN = "sha256:" + "0" * 64
TURN = {"type": "message/appended", "message": {"content": "hello"}}


def add_key(root, *grants):
    """Store a key with a prefix for each model, and return its secret."""
    secret = f"ff_{len(KeyStore(root).read()[0])}"
    with_id = Key(secret, sha256(secret.encode()).hexdigest(), tuple(grants))
    KeyStore(root).add(with_id)
    return secret


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("keys") / "store"
    front = Front(root, fast=False, access=True)
    store = front.store
    for names in NAMES.values():
        store.space(names["did"]).set("note", {"n": 1})
        store.streams.create(names["name"], "application/json")
        store.graphs.create(names["app"], names["app"])
        store.sessions.create({"id": names["sid"]}).append(TURN)
    store.streams.create("mine/w", "application/json")
    secrets = {
        "nothing": add_key(root),
        "mine": add_key(root, *(Grant(model, SCOPES, PREFIXES[model]) for model in NAMED_MODELS)),
        "all": add_key(root, *(Grant(model, SCOPES) for model in MODELS)),
        **{
            f"not {model}": add_key(root, *(Grant(m, SCOPES) for m in MODELS if m != model))
            for model in MODELS
        },
    }
    # What is open in the server belongs to its event loop.
    loop = front.server.servers[0].get_loop()
    made = SimpleNamespace(front=front, store=store, secrets=secrets, port=front.port, loop=loop)
    path = "/v1/stream/__ds/subscriptions/s"
    assert ask(made, "mine", "PUT", path, DECIDED_BY_OWNER["subscribe"]).status == 201
    yield made
    front.stop()


def ask(served, key, method, path, body=b"", query=""):
    """Return the response of the protocol, without the events of feeds."""
    headers = {"host": "localhost", "content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {served.secrets[key]}"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(method, path, query, headers, data)

    async def handle():
        response = await served.front.protocol.handle(request)
        if response.pieces is not None:
            await response.pieces.aclose()
        return response

    return asyncio.run_coroutine_threadsafe(handle(), served.loop).result(30)


def routes(served):
    return [route for route in served.front.protocol.routes.routes if route.scope != "public"]


def path_of(route, where):
    """Return a path of a route whose object is inside or outside of the prefix."""
    values = {
        **NAMES[where],
        "entity": "note",
        "branch": "draft",
        "index": "by_n",
        "hash": UNKNOWN,
        "object_id": "1",
        "job_id": "1",
        "key_id": "unknown",
        "upload": "unknown",
        "point": "unknown",
        "head": UNKNOWN,
        "other": UNKNOWN,
        "subscription": "s",
        "domain": "talk",
    }
    path = route.path
    for name, value in values.items():
        for convertor in ("", ":name", ":stream"):
            path = path.replace(f"{{{name}{convertor}}}", value)
    assert "{" not in path, path
    return path


def query_of(route, where):
    return f"prefix={PREFIXES[route.model]}{where}" if route.resource == "prefix" else ""


def test_every_route_states_what_its_key_is_for(served):
    kinds = {"any": set(), "owner": set(), "token": set()}
    for route in routes(served):
        if route.scope in kinds:
            kinds[route.scope].add(route.operation)
        elif route.resource == "any":
            kinds["any"].add(route.operation)
        elif route.resource not in {"all", "prefix"}:
            assert route.resource in NAMES["mine"], route.operation
            assert f"{{{route.resource}" in route.path, route.operation
    assert kinds["any"] == DECIDED_BY_HANDLER
    assert kinds["owner"] == DECIDED_BY_OWNER.keys() | {"get_key"}
    assert kinds["token"] == DECIDED_BY_TOKEN


def test_every_route_requires_a_key(served):
    for route in routes(served):
        for where in ("mine", "other"):
            response = ask(served, None, route.method, path_of(route, where))
            assert response.status == 401, route.operation


def test_every_route_refuses_a_key_without_its_model(served):
    for route in routes(served):
        if route.operation == "get_key" or route.scope == "token":
            continue
        body = DECIDED_BY_OWNER.get(route.operation, b"")
        keys = {"nothing", "nothing" if route.model == "any" else f"not {route.model}"}
        for key in keys:
            response = ask(served, key, route.method, path_of(route, "mine"), body)
            assert response.status == 403, (route.operation, response.body)


def test_every_route_refuses_names_outside_of_the_prefix(served):
    for route in routes(served):
        if route.operation in DECIDED_BY_HANDLER or route.scope in {"owner", "token"}:
            continue
        path = path_of(route, "other")
        queries = ("",) if route.resource != "prefix" else ("", "prefix=", "prefix=mi", "prefix=n")
        for query in queries:
            response = ask(served, "mine", route.method, path, query=query)
            assert response.status == 403, (route.operation, query, response.body)


def test_every_route_admits_the_key_of_its_prefix(served):
    for route in routes(served):
        if route.scope in {"owner", "token"} or route.resource == "all":
            continue
        for key in ("mine", "all"):
            path, query = path_of(route, "used"), query_of(route, "x")
            response = ask(served, key, route.method, path, query=query)
            assert response.status not in {401, 403}, (route.operation, response.body)


def test_routes_of_the_store_need_a_key_for_it(served):
    for route in routes(served):
        if route.resource == "all" and route.scope not in {"owner", "token"}:
            assert ask(served, "mine", route.method, path_of(route, "mine")).status == 403
            response = ask(served, "all", route.method, path_of(route, "mine"))
            assert response.status not in {401, 403}, route.operation


# Sessions: heads and payloads are named by hashes, which have no prefix


@pytest.fixture(scope="module")
def heads(served):
    """Heads by name: two sessions inside of the prefix continue one outside of it."""
    sessions = served.store.sessions
    root = sessions.create({"id": "mina/root"})
    made = {"root": root.publish_head({"kind": "turn-final"}, events=[TURN]).id}
    for name in ("one", "two"):
        made[name] = sessions.fork("mina/root", {"id": f"mine/{name}"}).view().current_head
    return made


def value(response):
    assert response.status == 200, response.body
    return json.loads(response.body)


def test_heads_outside_of_the_prefix_are_unknown(served, heads):
    missing = ask(served, "mine", "GET", f"/v1/sessions/head/{UNKNOWN}")
    for verb in ("head", "ancestors", "descendants"):
        response = ask(served, "mine", "GET", f"/v1/sessions/{verb}/{heads['root']}")
        assert response.status == missing.status == 404
        assert ask(served, "all", "GET", f"/v1/sessions/{verb}/{heads['root']}").status == 200
        assert ask(served, "mine", "GET", f"/v1/sessions/{verb}/{heads['one']}").status == 200


def test_relatives_outside_of_the_prefix_are_not_listed(served, heads):
    one = f"/v1/sessions/ancestors/{heads['one']}"
    assert value(ask(served, "all", "GET", one))["items"] == [heads["root"]]
    assert value(ask(served, "mine", "GET", one))["items"] == []
    graph = value(ask(served, "mine", "GET", "/v1/sessions/lineage/mine/one"))
    assert {head["session"] for head in graph["heads"]} == {"mine/one", "mine/two"}
    assert "mina" not in json.dumps(graph)


def test_descendants_outside_of_the_prefix_are_not_listed(served, heads):
    sessions = served.store.sessions
    outside = sessions.fork("mine/two", {"id": "mina/later"}).view().current_head
    path = f"/v1/sessions/descendants/{heads['two']}"
    assert value(ask(served, "all", "GET", path))["items"] == [outside]
    assert value(ask(served, "mine", "GET", path))["items"] == []


def test_comparison_does_not_show_common_head_outside_of_prefix(served, heads):
    path = f"/v1/sessions/compare/{heads['one']}/{heads['two']}"
    assert value(ask(served, "all", "GET", path))["common"] == heads["root"]
    assert value(ask(served, "mine", "GET", path))["common"] is None
    for pair in (("one", "root"), ("root", "one")):
        path = f"/v1/sessions/compare/{heads[pair[0]]}/{heads[pair[1]]}"
        assert ask(served, "mine", "GET", path).status == 404


def test_new_sessions_are_in_the_prefix(served):
    made = ask(served, "mine", "POST", "/v1/sessions", {})
    assert made.status == 201
    assert json.loads(made.body)["id"].startswith("mine/")
    assert ask(served, "mine", "POST", "/v1/sessions", {"id": "mina/new"}).status == 403
    fork = {"session": {"id": "mina/fork"}}
    assert ask(served, "mine", "POST", "/v1/sessions/forks/mine/a", fork).status == 403
    assert ask(served, "mine", "POST", "/v1/sessions/forks/mine/a", {}).status == 201


def test_payload_is_for_every_reader_who_has_its_hash(served):
    data = encode({"text": "x" * 600})
    path = f"/v1/sessions/payloads/{content_id(data)}"
    assert ask(served, "not sessions", "PUT", path, data).status == 403
    assert ask(served, "mine", "PUT", path, data).status == 201
    assert ask(served, "mine", "POST", "/v1/sessions/payloads", {"a": 1}).status == 201
    for key in ("mine", "all"):
        assert ask(served, key, "GET", path).status == 200


def test_bundles_have_sessions_of_the_prefix_only(served, heads):
    sessions = served.store.sessions
    sessions.fork("mine/one", {"id": "mine/bundled"})
    sessions.fork("mine/one", {"id": "mina/bundled"})
    assert ask(served, "mine", "GET", "/v1/sessions/bundles/mina/bundled").status == 403
    names = {}
    for key in ("mine", "all"):
        lines = read_bundle(served, key, "mine/one")
        documents = [json.loads(line) for line in lines.splitlines()]
        names[key] = {row["id"] for row in documents if row["kind"] == "session"}
        imported = ask(served, key, "POST", "/v1/sessions/bundles", lines)
        assert value(imported)["sessions"] == len(names[key])
    assert names["all"] - names["mine"] == {"mina/bundled"}
    assert {"mine/one", "mine/bundled"} <= names["mine"]
    # The bundle with a session outside of the prefix is refused as a whole.
    refused = ask(served, "mine", "POST", "/v1/sessions/bundles", lines)
    assert (refused.status, b"mina/bundled" in refused.body) == (403, True)
    assert ask(served, "not sessions", "POST", "/v1/sessions/bundles", lines).status == 403


def read_bundle(served, key, sid):
    headers = {"host": "x", "authorization": f"Bearer {served.secrets[key]}"}
    request = Request("GET", f"/v1/sessions/bundles/{sid}", headers=headers)

    async def read():
        response = await served.front.protocol.handle(request)
        assert response.status == 200
        return b"".join([piece async for piece in response.pieces])

    return asyncio.run_coroutine_threadsafe(read(), served.loop).result(30)


def test_errors_of_bundles_show_no_path_of_the_server(served):
    for body in (b"x", b'{"kind": "bundle", "version": 1}\n{"kind": "end"}\n'):
        response = ask(served, "all", "POST", "/v1/sessions/bundles", body)
        assert response.status == 400
        assert b"/tmp" not in response.body
        assert b"/dev" not in response.body


def test_live_feed_of_a_prefix_has_no_other_sessions(served):
    async def first_event():
        headers = {"host": "x", "authorization": f"Bearer {served.secrets['mine']}"}
        request = Request("GET", "/v1/sessions/live", "prefix=mine/", headers)
        response = await served.front.protocol.handle(request)
        assert response.status == 200
        served.store.sessions.open("mina/a").append(TURN)
        served.store.sessions.open("mine/a").append(TURN)
        async for piece in response.pieces:
            if b"data:" in piece:
                await response.pieces.aclose()
                return piece
        return b""

    piece = asyncio.run_coroutine_threadsafe(first_event(), served.loop).result(30)
    assert b"mine/a" in piece
    assert b"mina" not in piece


# The key itself, and clients


def test_request_learns_what_its_key_allows(served):
    own = value(ask(served, "mine", "GET", "/v1/key"))
    assert own["required"] is True
    grants = {grant["model"]: grant["prefix"] for grant in own["key"]["grants"]}
    assert grants == PREFIXES
    assert value(ask(served, "nothing", "GET", "/v1/key"))["key"]["grants"] == []
    assert "sha256" not in json.dumps(own)
    assert served.secrets["mine"] != own["key"]["label"]


@contextmanager
def connected(served, key):
    with fourfold.connect(f"http://127.0.0.1:{served.port}", key=served.secrets[key]) as store:
        yield store


def test_one_key_reads_all_models_of_a_server(served):
    with connected(served, "mine") as store:
        assert store.space(NAMES["mine"]["did"]).read("note").document == {"n": 1}
        store.streams.open("mine/a").append({"id": 1})
        assert store.graphs.app("mine-app").title == "mine-app"
        assert store.sessions.open("mine/a").view().messages
        for forbidden in (
            lambda: store.documents.open(NAMES["other"]["did"]).read("note"),
            lambda: store.streams.open("minor").append({"id": 1}),
            lambda: store.graphs.app("mi"),
            lambda: store.sessions.open("mina/a").view(),
        ):
            with pytest.raises(fourfold.errors.Forbidden):
                forbidden()

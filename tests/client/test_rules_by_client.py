"""Schemas, profiles and waiting for changes with both clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time

import pytest
from cutting_proxy import CuttingProxy
from served_streams import Served

from fourfold import client as clients
from fourfold.client import (
    AsyncStreamClient,
    Boundary,
    EntityKey,
    RoutingKey,
    RowKey,
    StreamClient,
    StreamProfile,
    Template,
    TemplateKey,
    rules,
)
from fourfold.client.requests import Address
from fourfold.client.responses import Response
from fourfold.client.rules import TouchWaiter
from fourfold.errors import BadAnswer, InvalidInput, NotFound, Refused
from fourfold.models.streams import touch

OFFSET = "0000000000000000_000000000000000"
ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
RENAMED = {"type": "object", "properties": {"no": {"type": "integer"}}, "required": ["no"]}
CLOSED = {"additionalProperties": False}
RENAME = {"ops": [{"op": "rename", "from": "id", "to": "no"}]}


def change(key, value, operation="upsert", **more):
    return {
        "type": "todo",
        "key": key,
        "value": value,
        "headers": {"operation": operation},
        **more,
    }


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """Return a server with a short limit for waiting requests."""
    server = Served(tmp_path_factory.mktemp("impatient") / "store", long_poll="0.1")
    yield server
    server.kill()


@pytest.fixture
def quick(impatient):
    with StreamClient(f"http://127.0.0.1:{impatient.port}") as made:
        yield made


def todos(client, name):
    stream = client.create(name)
    client.set_profile(name, "state-protocol", touch=True)
    return stream


def test_schema_versions_apply_and_messages_are_read_in_the_newest(client, name):
    stream = client.create(name)
    empty = client.schema(name)
    assert (empty.current_version, empty.schema, empty.schemas) == (0, None, {})
    assert (empty.boundaries, empty.routing_key, empty.search) == ((), None, None)
    first = client.set_schema(name, {**ORDER, **CLOSED})
    assert (first.current_version, first.schema) == (1, {**ORDER, **CLOSED})
    stream.append_json([{"id": 1}])
    with pytest.raises(InvalidInput, match="violates version 1"):
        stream.append_json([{"id": "1"}])
    with pytest.raises(InvalidInput, match="requires a lens"):
        client.set_schema(name, {**RENAMED, **CLOSED})
    second = client.set_schema(name, {**RENAMED, **CLOSED}, lens=RENAME)
    assert second.boundaries == (Boundary(f"{OFFSET}0", 1), Boundary(f"{OFFSET}1", 2))
    assert second.lenses == {1: RENAME}
    assert sorted(second.schemas) == [1, 2]
    assert client.set_schema(name, {**RENAMED, **CLOSED}) == second
    assert client.schema(name) == second
    assert list(stream.items()) == [{"no": 1}]


def test_omitted_settings_stay_and_none_removes(client, name):
    stream = client.create(name)
    client.set_schema(name, routing_key=RoutingKey("/by", required=True), search=["by"])
    assert client.set_schema(name, ORDER).routing_key == RoutingKey("/by", required=True)
    with pytest.raises(InvalidInput, match="routing key"):
        stream.append_json([{"id": 1}])
    optional = client.set_schema(name, routing_key="/by")
    assert (optional.routing_key, optional.search) == (RoutingKey("/by"), ("by",))
    assert optional.current_version == 1
    stream.append_json([{"id": 1, "by": "ann"}, {"id": 2, "by": "bob"}, {"id": 3}])
    assert [json.loads(message)["id"] for message in stream.messages(key="bob")] == [2]
    gone = client.set_schema(name, routing_key=None, search=None)
    assert (gone.routing_key, gone.search, gone.current_version) == (None, None, 1)


def test_errors_are_those_of_the_tree(client, name):
    with pytest.raises(NotFound):
        client.schema(name)
    with pytest.raises(NotFound):
        client.set_profile(name, "evlog")
    client.create(name).append_json([1])
    with pytest.raises(Refused, match="set the first schema"):
        client.set_schema(name, ORDER)
    with pytest.raises(InvalidInput, match="no change of the registry"):
        client.set_schema(name)
    with pytest.raises(Refused, match="evlog"):
        client.set_profile(name, "evlog")
    with pytest.raises(NotFound, match="touch is not enabled"):
        client.touch(name)
    with pytest.raises(InvalidInput, match="list of names"):
        client.set_schema(name, search="by")


def test_profile_is_set_with_its_defaults(client, name):
    client.create(name)
    assert client.profile(name) == StreamProfile("generic", touch=False, redact=(), routing_key=())
    response = client.set_profile(name, "evlog", redact=["iban"])
    assert response == StreamProfile("evlog", False, ("iban",), ("requestId", "traceId"))
    assert client.profile(name) == response
    assert client.set_profile(name, "evlog", routing_key=["user"]).redact == ()
    assert client.set_profile(name, "state-protocol", touch=True).touch
    assert not client.set_profile(name, "state-protocol").touch


def test_wait_returns_touched_keys_and_continues_from_its_cursor(client, name):
    stream = todos(client, name)
    (template,) = client.touch_templates(name, [Template("todo", {"list": "string"})])
    assert (template.entity, template.fields) == ("todo", {"list": "string"})
    facts = client.touch(name)
    assert facts.templates == (template,)
    assert template.active_from_offset == f"{OFFSET}0"
    stream.append_json([change("7", {"list": "a"}, "insert")])
    keys = [
        EntityKey("other"),
        RowKey("todo", "7"),
        RowKey("todo", "8"),
        TemplateKey(template.id, {"list": "a"}),
        TemplateKey(template.id, {"list": "b"}),
        EntityKey("todo"),
    ]
    response = client.touch_wait(name, keys, cursor=facts.cursor, timeout=30)
    assert (response.touched, response.stale, response.keys) == (True, False, (1, 3, 5))
    again = client.touch_wait(name, keys, cursor=response.cursor, timeout=0)
    assert (again.touched, again.keys) == (False, ())
    stream.append_json([change("7", {"list": "b"}, old_value={"list": "a"})])
    assert client.touch_wait(name, keys, cursor=response.cursor).keys == (1, 3, 4, 5)


def test_cursor_of_another_stream_is_stale(client, name):
    todos(client, name)
    todos(client, f"{name}-2")
    other = client.touch(f"{name}-2").cursor
    response = client.touch_wait(name, [EntityKey("todo")], cursor=other)
    assert (response.touched, response.stale) == (True, True)
    assert response.cursor == client.touch(name).cursor


def test_wait_continues_beyond_the_limit_of_the_server(quick, name):
    stream = todos(quick, name)
    cursor = quick.touch(name).cursor
    later = threading.Timer(0.5, stream.append_json, [[change("7", 1)]])
    later.start()
    response = quick.touch_wait(name, [RowKey("todo", "7")], cursor=cursor)
    later.join()
    assert (response.touched, response.keys) == (True, (0,))


def test_wait_without_a_cursor_misses_nothing_between_requests(quick, name):
    stream = todos(quick, name)
    plain, answered = quick.send, []

    def send(call):
        answer = plain(call)
        if call.live and not answered:
            answered.append(call)
            stream.append_json([change("7", 1)])
        return answer

    quick.send = send
    response = quick.touch_wait(name, [RowKey("todo", "7")], timeout=30)
    assert (response.touched, response.keys) == (True, (0,))


def test_wait_continues_after_a_broken_connection(served, client, name):
    stream = todos(client, name)
    response, keys = [], [RowKey("todo", "7")]
    with (
        CuttingProxy(served.port, None) as proxy,
        StreamClient(f"http://127.0.0.1:{proxy.port}") as shaken,
    ):
        cursor = shaken.touch(name).cursor
        waiting = threading.Thread(
            target=lambda: response.append(shaken.touch_wait(name, keys, cursor=cursor))
        )
        waiting.start()
        time.sleep(0.2)
        proxy.cut()
        stream.append_json([change("7", 1)])
        waiting.join(60)
    assert response[0].keys == (0,)


def test_async_client_has_the_same_rule_calls(impatient, name):
    async def work():
        async with AsyncStreamClient(f"http://127.0.0.1:{impatient.port}") as client:
            stream = await client.create(name)
            assert (await client.set_schema(name, ORDER, search=["id"])).current_version == 1
            assert (await client.schema(name)).search == ("id",)
            other = await client.create(f"{name}-todos")
            profile = await client.set_profile(other.name, "state-protocol", touch=True)
            assert await client.profile(other.name) == profile
            expected = [Template("todo", {"n": "integer"}, inactivity_ttl_ms=60_000)]
            (template,) = await client.touch_templates(other.name, expected)
            facts = await client.touch(other.name)
            assert facts.templates[0].inactivity_ttl_ms == 60_000
            keys = [RowKey("todo", "1"), TemplateKey(template.id, {"n": 5})]
            waiting = asyncio.create_task(client.touch_wait(other.name, keys, cursor=facts.cursor))
            # Longer than the server lets it wait, so that it has to ask again.
            await asyncio.sleep(0.3)
            await other.append_json([change("2", {"n": 5}, "insert")])
            assert (await waiting).keys == (1,)
            over = await client.touch_wait(other.name, keys, timeout=0)
            assert (over.touched, over.keys) == (False, ())
            await stream.append_json([{"id": 1}])

    asyncio.run(work())


ADDRESS = Address("http://127.0.0.1:1")


def answered(touched, cursor, keys=()):
    response = {"touched": touched, "stale": False, "cursor": cursor, "keys": list(keys)}
    return Response(200, {}, json.dumps(response).encode())


def test_wait_without_a_cursor_fetches_one_first():
    now = [100.0]
    waiting = TouchWaiter(ADDRESS, "s", [EntityKey("e")], None, 50.5, clock=lambda: now[0])
    sent = json.loads(waiting.call().body)
    assert sent == {"keys": [{"entity": "e"}], "timeout_ms": 0}
    assert waiting.receive(answered(False, "i:1")) is None
    sent = json.loads(waiting.call().body)
    # No longer than the client would wait for the answer.
    assert (sent["cursor"], sent["timeout_ms"]) == ("i:1", 45_000)
    now[0] += 45
    assert waiting.receive(answered(False, "i:2")) is None
    sent = json.loads(waiting.call().body)
    assert (sent["cursor"], sent["timeout_ms"]) == ("i:2", 5_500)
    now[0] += 5.5
    assert waiting.receive(answered(False, "i:3")) == (False, False, "i:3", ())


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_wait_ends_after_its_timeout(timeout):
    with pytest.raises(InvalidInput, match="seconds"):
        TouchWaiter(ADDRESS, "s", [EntityKey("e")], None, timeout)


@pytest.mark.parametrize("keys", [RowKey("e", "1"), ["e"], [("e", "1")]])
def test_invalid_wait_is_refused_before_sending(keys):
    with pytest.raises(InvalidInput, match=r"must be a list|must be an Entity"):
        TouchWaiter(ADDRESS, "s", keys, None, 1).call()


def test_schema_is_not_sent_twice_but_other_changes_are():
    assert not rules.set_schema(ADDRESS, "s", {"schema": {}, "search": None}).repeatable
    assert rules.set_schema(ADDRESS, "s", {"routingKey": None}).repeatable
    assert rules.set_profile(ADDRESS, "s", {"kind": "generic"}).repeatable
    assert rules.touch_wait(ADDRESS, "s", [], "i:1", 0).repeatable
    assert rules.touch_templates(ADDRESS, "s", []).repeatable


def test_names_are_encoded_in_rule_urls():
    assert rules.schema(ADDRESS, "a/ü?").url.endswith("/v1/stream/a/%C3%BC%3F/_schema")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"templates": [{}]}', b"null"])
@pytest.mark.parametrize(
    "read",
    [
        rules.parse_registry,
        rules.parse_profile,
        rules.parse_touch_facts,
        rules.parse_touched,
        rules.parse_templates,
    ],
)
def test_unexpected_responses_of_other_servers_are_reported(read, body):
    with pytest.raises(BadAnswer):
        read(Response(200, {}, body))


def test_unknown_fields_of_a_newer_server_are_ignored():
    response = {"kind": "new", "touch": {"enabled": True, "more": 1}, "more": []}
    assert rules.parse_profile(Response(200, {}, json.dumps(response).encode())).kind == "new"


def test_client_imports_no_database():
    program = (
        "import sys, fourfold.client.threads.streams, fourfold.client.coroutines.streams\n"
        "print({'apsw', 'sqlite3', 'fourfold.kernel'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_keys_and_results_are_those_of_the_library():
    """Code that waits on a folder works with a server without other changes."""
    for name in ("EntityKey", "RowKey", "TemplateKey", "Template", "WaitResult"):
        assert getattr(clients, name) is getattr(touch, name)

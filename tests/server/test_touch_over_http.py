"""Waiting for changes over HTTP, and the names reserved for it."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from concurrent.futures import Executor

import pytest
from both_fronts import JSON, Front, request
from ruled_streams import TOUCHABLE, Area, call, done

import fourfold
from fourfold.models.streams.touch.keys import TOUCH_KEYS_MAX
from fourfold.models.streams.validation import format_offset
from fourfold.server.request import Request
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.server.streams import StreamProtocol


@pytest.fixture(scope="module", params=["fast", "plain"])
def server(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("ruled") / "store"
    made = Front(root, fast=request.param == "fast")
    yield made
    made.stop()


@pytest.fixture
def front(server):
    return Area(server, f"{uuid.uuid4().hex}-")


def change(key, value, entity="todo", operation="insert", **more):
    return {
        "type": entity,
        "key": key,
        "value": value,
        "headers": {"operation": operation},
        **more,
    }


def touchable(front, name="s"):
    done(front, "PUT", name)
    done(front, "POST", f"{name}/_profile", TOUCHABLE)
    return done(front, "GET", f"{name}/_touch")["cursor"]


def wait(front, cursor, *keys, timeout_ms=0):
    body = {"cursor": cursor, "keys": list(keys), "timeout_ms": timeout_ms}
    return done(front, "POST", "s/_touch/wait", body)


def test_wait_returns_which_keys_were_touched(front):
    begin = touchable(front)
    keys = ({"entity": "todo"}, {"entity": "todo", "key": "7"}, {"entity": "user"})
    none = wait(front, begin, *keys)
    assert none == {"touched": False, "stale": False, "cursor": begin, "keys": []}
    done(front, "POST", "s", change("8", {}))
    other = wait(front, begin, *keys)
    assert (other["touched"], other["keys"]) == (True, [0])
    done(front, "POST", "s", change("7", {}))
    assert wait(front, other["cursor"], *keys)["keys"] == [0, 1]
    done(front, "POST", "s", {"headers": {"control": "reset"}})
    last = wait(front, begin, *keys)
    assert last["keys"] == [0, 1, 2]
    assert done(front, "GET", "s/_touch")["processed_offset"] == format_offset(3)
    stale = wait(front, f"other{begin[5:]}", *keys)
    assert (stale["touched"], stale["stale"], stale["cursor"]) == (True, True, last["cursor"])


def test_rows_are_waited_for_by_a_template(front):
    begin = touchable(front)
    expected = [{"entity": "todo", "fields": {"list": "string"}, "inactivity_ttl_ms": 120_000}]
    (made,) = done(front, "POST", "s/_touch/templates", {"templates": expected})["templates"]
    assert (made["entity"], made["fields"], made["state"]) == ("todo", {"list": "string"}, "active")
    assert (made["active_from_offset"], made["inactivity_ttl_ms"]) == (format_offset(0), 120_000)
    assert [item["id"] for item in done(front, "GET", "s/_touch")["templates"]] == [made["id"]]
    done(front, "POST", "s", change("7", {"list": "a"}))
    rows = [{"template": made["id"], "values": {"list": item}} for item in ("b", "a", None)]
    assert wait(front, begin, *rows)["keys"] == [1]


def test_waiting_request_is_answered_after_a_change(front):
    begin = touchable(front)
    result = []
    body = {"cursor": begin, "keys": [{"entity": "todo"}]}

    def waits():
        # Without a time it is the server's: a wait that ends in it goes on from its cursor.
        change = {"touched": False}
        while not change["touched"]:
            change = done(front, "POST", "s/_touch/wait", body)
            body["cursor"] = change["cursor"]
        result.append(change)

    waiter = threading.Thread(target=waits)
    waiter.start()
    done(front, "POST", "s", change("1", {}, "user"))
    done(front, "POST", "s", change("1", {}))
    waiter.join(30)
    assert result[0]["keys"] == [0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("wait", "{"),
        ("wait", "[]"),
        ("wait", "{}"),
        ("wait", {"keys": []}),
        ("wait", {"keys": [{}]}),
        ("wait", {"keys": [{"key": "7"}]}),
        ("wait", {"keys": [{"entity": "todo", "id": "7"}]}),
        ("wait", {"keys": [{"entity": "todo", "template": "t", "values": {}}]}),
        ("wait", {"keys": [{"entity": "todo", "values": {}}]}),
        ("wait", {"keys": [{"template": "t"}]}),
        ("wait", {"keys": [{"entity": "todo", "key": 7}]}),
        ("wait", {"keys": [{"entity": ""}]}),
        ("wait", {"keys": [{"entity": "todo"}], "timeout": 1}),
        ("wait", {"keys": [{"entity": "todo"}], "timeout_ms": -1}),
        ("wait", {"keys": [{"entity": "todo"}], "timeout_ms": "1"}),
        ("wait", {"keys": [{"entity": "todo"}], "cursor": "x"}),
        ("wait", {"keys": [{"entity": "todo"}] * (TOUCH_KEYS_MAX + 1)}),
        ("templates", "{"),
        ("templates", {"templates": []}),
        ("templates", {"templates": [{"entity": "todo"}]}),
        ("templates", {"templates": [{"entity": "todo", "fields": {}}]}),
        ("templates", {"templates": [{"entity": "todo", "fields": {"list": "text"}}]}),
        ("templates", {"templates": [{"entity": "todo", "fields": {"a": "string"}, "ttl": 1}]}),
        (
            "templates",
            {"templates": [{"entity": "todo", "fields": {"a": "string"}, "inactivity_ttl_ms": 1}]},
        ),
    ],
)
def test_invalid_wait_is_refused(front, path, body):
    touchable(front)
    sent = body.encode() if isinstance(body, str) else body
    status, _, response = call(front, "POST", f"s/_touch/{path}", sent)
    assert (status, response["error"]["kind"]) == (400, "invalid_input")
    assert done(front, "GET", "s/_touch")["templates"] == []


def test_wait_requires_a_stream_with_touch_enabled(front):
    body = {"keys": [{"entity": "todo"}]}
    for name in ("s", "none"):
        assert call(front, "GET", f"{name}/_touch")[0] == 404
        assert call(front, "POST", f"{name}/_touch/wait", body)[0] == 404
        templates = {"templates": [{"entity": "todo", "fields": {"list": "string"}}]}
        assert call(front, "POST", f"{name}/_touch/templates", templates)[0] == 404
        front.create("s")
    touchable(front)
    unknown = {"keys": [{"template": "none", "values": {}}]}
    status, _, response = call(front, "POST", "s/_touch/wait", unknown)
    assert (status, "none" in response["error"]["message"]) == (404, True)


class NoThreads(Executor):
    """A thread pool without threads."""

    def submit(self, *given, **named):
        raise AssertionError(f"a thread was requested: {given}, {named}")


def waiting(protocol, name, keys, cursor=None):
    body = json.dumps({"keys": keys, "cursor": cursor}).encode()
    return asyncio.ensure_future(
        protocol.handle(Request("POST", f"/v1/stream/{name}/_touch/wait", body=body))
    )


async def until_waiting(streams, name, count):
    async with asyncio.timeout(60):
        while streams.touches.meta(name).waiting < count:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


def test_waits_hold_no_threads_and_end_when_the_server_stops(tmp_path):
    async def scene(streams):
        asyncio.get_running_loop()._default_executor = NoThreads()
        # For ever, as far as a test is concerned.
        protocol = StreamProtocol(streams, ReadTimeouts(long_poll_s=3_600))
        waits = [
            waiting(protocol, "s", [{"entity": "todo", "key": str(number)}])
            for number in range(100)
        ]
        await until_waiting(streams, "s", 100)
        streams.open("s").append(json.dumps(change("42", {})).encode())
        response = json.loads((await waits[42]).body)
        assert (response["touched"], response["keys"]) == (True, [0])
        assert sum(item.done() for item in waits) == 1
        protocol.stop()
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*waits)
        assert {item.status for item in answers} == {200}
        left = [json.loads(item.body) for item in answers]
        assert sum(item["touched"] for item in left) == 1
        assert {item["cursor"] for item in left} == {response["cursor"]}
        assert streams.touches.meta("s").waiting == 0

    with fourfold.open(tmp_path / "store") as store:
        store.streams.create("s", JSON)
        store.streams.profiles.put("s", TOUCHABLE)
        asyncio.run(scene(store.streams))


def test_wait_is_limited_by_the_server(front):
    """The fixture's limit is 0.3 s; the requested hour would exceed the test's timeout."""
    cursor = touchable(front)
    response = wait(front, cursor, {"entity": "todo"}, timeout_ms=3_600_000)
    assert (response["touched"], response["cursor"]) == (False, cursor)


# Names


SUFFIXES = ("_schema", "_profile", "_touch", "_touch/wait", "_touch/templates")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stream_with_a_reserved_name_is_not_created(front, suffix):
    for name in (f"s/{suffix}", f"s%2F{suffix}"):
        status, _, response = call(front, "PUT", name)
        assert (status, response["error"]["kind"]) == (400, "invalid_input")
        assert f"'/{suffix}'" in response["error"]["hint"]
    # Not made here, but there: methods that mean nothing else mean it.
    name = f"s/{suffix}"
    front.create(name, body=b"[1]")
    front.create("s")
    with front.connect() as connection:
        connection.send(request("HEAD", front.prefix + name))
        status, response, _ = connection.answer(head=True)
    assert (status, dict(response)["stream-next-offset"]) == (200, format_offset(1))
    if suffix.startswith("_touch"):
        assert call(front, "POST", "s/_touch/wait", {"keys": [{"entity": "a"}]})[0] == 404
    assert front.stored(name) == [b"1"]
    done(front, "DELETE", name)
    assert call(front, "DELETE", name)[0] == 404
    assert call(front, "PURGE", name)[0] == 405
    assert front.stored("s") == []


def test_names_similar_to_reserved_ones_are_allowed(server):
    front = Area(server, "")
    for name in ("_schema", "s/_schemas", "s/x_schema", "s/_touch/other", "s/_schema/x"):
        done(front, "PUT", name, [1])
        assert done(front, "GET", name) == [1], name
        done(front, "POST", name, 2)
        assert done(front, "GET", name) == [1, 2], name

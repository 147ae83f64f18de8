"""Routing keys over HTTP: sent with a header, read by a query, with both clients."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from fourfold.client import AsyncStreamClient
from fourfold.errors import InvalidInput

HEADERS = {"content-type": "text/plain"}


@pytest.fixture
def stream(client, name):
    made = client.create(name, "text/plain")
    for number in range(12):
        made.append(f"{number};", key=("red", "green/é ")[number % 2] if number % 3 else None)
    return made


def test_read_by_key_returns_matching_records(stream):
    assert stream.read(key="red").body == b"2;4;8;10;"
    part = stream.read(key="green/é ")
    assert part.body == b"1;5;7;11;"
    assert part.up_to_date
    assert stream.read().body == b"".join(b"%d;" % number for number in range(12))


def test_read_by_key_continues_after_its_offset(stream):
    first = stream.read(key="red")
    assert stream.read(first.next_offset, key="red").body == b""
    stream.append("12;")
    stream.append("13;", key="red")
    again = stream.read(first.next_offset, key="red")
    assert again.body == b"13;"
    assert b"".join(stream.read_bytes(key="red")) == b"2;4;8;10;13;"
    assert "".join(stream.read_text(key="unknown")) == ""


def test_messages_are_read_by_key_and_by_field(client, served, name):
    stream = client.create(name, "application/json")
    for number in range(6):
        stream.append_json([{"n": number, "who": ["Ada", "Bob"][number % 2]}], key=f"k{number % 3}")
    assert [json.loads(item)["n"] for item in stream.messages(key="k1")] == [1, 4]
    result = served.ask("GET", f"/v1/stream/{name}?field=who&value=%22Bob%22")
    assert [item["n"] for item in json.loads(result.text)] == [1, 3, 5]
    assert result.headers["stream-up-to-date"] == "true"
    assert result.headers["cache-control"] == "no-store"
    displayed = served.ask("GET", f"/v1/stream/{name}?key=k1&format=records&limit=1")
    assert [json.loads(item["text"])["n"] for item in json.loads(displayed.text)] == [1]
    assert "stream-up-to-date" not in displayed.headers


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_follower_by_key_receives_only_matching_records(client, name, live):
    stream = client.create(name, "application/octet-stream")
    stream.append(b"before", key="red")
    following = stream.follow(live=live, key="red")

    def write():
        stream.append(b"not for you")
        stream.append(b"after", key="red")
        stream.append(b"nor this", key="green", close=True)

    heard, writing = [], threading.Thread(target=write)
    for part in following:
        if not heard:
            writing.start()
        heard.append(part.body)
    writing.join()
    assert b"".join(heard) == b"beforeafter"


def test_async_client_supports_keys(served, name):
    async def work():
        async with AsyncStreamClient(f"http://127.0.0.1:{served.port}") as client:
            stream = await client.create(name, "text/plain")
            await stream.append("a", key="red")
            await stream.append("b")
            part = await stream.read(key="red")
            return part.body

    assert asyncio.run(work()) == b"a"


@pytest.mark.parametrize(
    "query", ["key=", "field=a", "value=1", "field=a&value=x", "key=a&field=b&value=1"]
)
def test_invalid_query_is_refused(served, stream, query):
    assert served.ask("GET", f"/v1/stream/{stream.name}?{query}").status == 400


def test_invalid_key_is_refused_before_writing(served, stream):
    for bad in ("", "x" * 2000):
        headers = {**HEADERS, "stream-key": bad}
        answer = served.ask("POST", f"/v1/stream/{stream.name}", b"x", headers)
        assert answer.status == 400
    with pytest.raises(InvalidInput):
        stream.append("x", key="")
    assert stream.read().body.endswith(b"11;")

"""Reads and followers with a filter of messages."""

from __future__ import annotations

import asyncio
import threading
from itertools import islice

import pytest
from opened_streams import JSON

from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput


@pytest.fixture
def log(streams, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.FIELD_READ_RECORDS", 10)
    stream = streams.create("log", JSON)
    stream.append([{"n": n, "kind": ["a", "b"][n % 2], "tags": [n, n + 1]} for n in range(50)])
    return stream


def read_all(stream, **options):
    """Read chunk by chunk; return the numbers and how many chunks there were."""
    numbers, at, chunks = [], "-1", 0
    while True:
        chunk = stream.read(at, **options)
        chunks += 1
        numbers += [record.value["n"] for record in chunk]
        if chunk.up_to_date:
            return numbers, chunks
        assert chunk.offset > at or at == "-1"
        at = chunk.offset


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, list(range(50))),
        ({"kind": "b"}, list(range(1, 50, 2))),
        ({"n": {"$gte": 47}, "/kind": "b"}, [47, 49]),
        ({"/tags": {"$any": 30}}, [29, 30]),
        ({"/tags/0": {"$lt": 1}}, [0]),
        ({"missing": {"$exists": True}}, []),
        (parse_filter({"$not": {"n": {"$gt": 1}}}), [0, 1]),
    ],
)
def test_read_returns_matching_messages_in_bounded_steps(log, where, expected):
    numbers, chunks = read_all(log, where=where)
    assert numbers == expected
    assert chunks >= 5
    assert read_all(log, where=where, limit=1)[0] == expected


def test_filter_is_combined_with_a_routing_key(log):
    log.append([{"n": n} for n in range(100, 130)], key="k")
    assert read_all(log, key="k", where={"n": {"$gte": 127}})[0] == [127, 128, 129]
    # Messages with the key are examined in bounded steps too.
    assert read_all(log, key="k", where={"n": -1})[1] >= 3


def test_field_and_value_select_as_before(log):
    assert read_all(log, where=("kind", "b"))[0] == list(range(1, 50, 2))
    with pytest.raises(InvalidInput):
        log.read(key="k", where=("kind", "b"))


@pytest.mark.parametrize("where", [{"n": {"$above": 1}}, {"$nor": []}, [1], "n > 1"])
def test_invalid_filter_is_refused(log, where):
    with pytest.raises(InvalidInput):
        log.read(where=where)


def test_filter_requires_messages(streams):
    raw = streams.create("raw", "application/octet-stream")
    raw.append(b"1")
    with pytest.raises(InvalidInput):
        raw.read(where={})


def test_message_that_cannot_be_decoded_does_not_match(streams):
    stream = streams.create("big", JSON)
    stream.append_bytes([b"1e400", b'{"n": 1}', b'{"n": "\\ud83d"}'])
    assert [record.offset for record in stream.read(where={"n": {"$exists": True}})] == [1, 2]


def test_follower_receives_matching_messages(log):
    follower = log.follow(where={"n": {"$in": [3, 49, 1000]}})
    assert [record.value["n"] for chunk in islice(follower, 2) for record in chunk] == [3, 49]

    def write():
        log.append([{"n": n} for n in range(60, 100)])
        log.append({"n": 1000})
        log.append({"n": 1001}, close=True)

    writing = threading.Thread(target=write)
    writing.start()
    assert [record.value["n"] for chunk in follower for record in chunk] == [1000]
    writing.join()


def test_follower_for_coroutines_receives_matching_messages(log):
    log.append({"n": 1000, "kind": "a"}, close=True)

    async def follow():
        chunks = [chunk async for chunk in log.follow_async(where={"n": {"$in": [3, 49, 1000]}})]
        return [record.value["n"] for chunk in chunks for record in chunk]

    assert asyncio.run(follow()) == [3, 49, 1000]


def test_follower_for_coroutines_ends_after_silence(log):
    async def follow(**options):
        return [chunk async for chunk in log.follow_async(**options)]

    [chunk] = asyncio.run(follow(timeout=0))
    assert len(chunk) == 50
    assert asyncio.run(follow(offset=log.position(), timeout=0.01)) == []


def test_filter_sees_the_writes_of_its_transaction(opened, log):
    with opened.database.write():
        log.append({"n": 50})
        assert read_all(log, where={"n": {"$gte": 49}})[0] == [49, 50]


def test_filter_sees_the_current_version(streams):
    def schema(name):
        fields = {name: {"type": "integer"}}
        return {
            "type": "object",
            "properties": fields,
            "required": [name],
            "additionalProperties": False,
        }

    stream = streams.create("versions", JSON)
    stream.set_schema(schema("n"))
    stream.append([{"n": 1}, {"n": 2}])
    stream.set_schema(schema("m"), lens=[{"op": "rename", "from": "n", "to": "m"}])
    stream.append({"m": 2})
    assert [record.value for record in stream.read(where={"m": 2})] == [{"m": 2}, {"m": 2}]
    assert not stream.read(where={"n": {"$exists": True}}).records
    # A field is compared as it is stored.
    assert [record.offset for record in stream.read(where=("n", 2))] == [1]

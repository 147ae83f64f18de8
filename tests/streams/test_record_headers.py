"""Headers of records: stored beside the payload, and read with it."""

from __future__ import annotations

import asyncio

import pytest
from opened_streams import JSON

from fourfold.errors import InvalidInput
from fourfold.models.streams import Append, Producer
from fourfold.models.streams.record_headers import (
    RECORD_HEADERS_BYTES_MAX,
    encode_headers,
    parse_headers,
)


@pytest.fixture
def log(streams):
    return streams.create("log", JSON)


def headers(chunk):
    return [record.headers for record in chunk]


def test_each_record_of_an_append_has_its_headers(log):
    log.append({"n": 1})
    log.append([{"n": 2}, {"n": 3}], headers={"trace": "4bf9", "ü": "é\n"})
    log.append({"n": 4}, headers={})
    one, two = {}, {"trace": "4bf9", "ü": "é\n"}
    assert headers(log.read()) == [one, two, two, one]
    assert headers(log) == [one, two, two, one]
    assert headers(log.read(where={"n": 3})) == [two]
    assert headers(log.read(where=("n", 2))) == [two]


def test_headers_are_those_of_the_reader(log):
    log.append(1, headers={"a": "b"})
    (record,) = log.read()
    record.headers["a"] = "changed"
    assert record.headers == {"a": "b"}
    given = {"a": "1"}
    log.append(2, headers=given)
    given["a"] = "2"
    assert headers(log.read(1)) == [{"a": "1"}]


def test_appends_with_and_without_headers_and_keys_share_a_commit(log):
    async def append_all():
        await asyncio.gather(
            log.append_async("a"),
            log.append_async("b", headers={"h": "1"}),
            log.append_async("c", key="k"),
            log.append_async(["d", "e"], key="k", headers={"h": "2"}),
            log.append_async(["f"] * 5),
        )

    asyncio.run(append_all())
    expected = {"a": {}, "b": {"h": "1"}, "c": {}, "d": {"h": "2"}, "e": {"h": "2"}, "f": {}}
    records = list(log.read())
    assert len(records) == 10
    assert all(record.headers == expected[record.value] for record in records)
    assert headers(log.read(key="k")) == [{}, {"h": "2"}, {"h": "2"}]


def test_forks_and_schemas_keep_headers(streams, log):
    log.append([1, 2], headers={"h": "1"})
    fork = log.fork("fork", 1)
    fork.append(3)
    assert headers(fork.read()) == [{"h": "1"}, {}]
    text = streams.create("text", "text/plain")
    text.append(["abc", "def"], headers={"h": "1"})
    # A part of a record is a record of the fork's own.
    assert headers(text.fork("part", 1, sub_offset=2).read()) == [{"h": "1"}, {}]


def test_duplicate_of_a_producer_keeps_the_first_headers(log):
    log.append(1, producer=Producer("p", 0, 0), headers={"h": "1"})
    assert log.append(1, producer=Producer("p", 0, 0), headers={"h": "2"}).duplicate
    assert headers(log.read()) == [{"h": "1"}]


def test_feed_and_live_readers_have_headers(streams, log):
    cursor = streams.read_feed().cursor

    async def follow():
        reading = asyncio.ensure_future(anext(log.follow_async(log.position())))
        await log.append_async(1, headers={"h": "1"})
        return headers(await reading)

    log.append(0, headers={"h": "0"})
    follower = log.follow()
    assert headers(next(follower)) == [{"h": "0"}]
    assert asyncio.run(asyncio.wait_for(follow(), 30)) == [{"h": "1"}]
    assert headers(next(follower)) == [{"h": "1"}]
    items = streams.read_feed(cursor).items
    assert [item.record.headers for item in items] == [{"h": "0"}, {"h": "1"}]


@pytest.mark.parametrize(
    "given",
    [
        {"a": 1},
        {"a": None},
        {"": "x"},
        {1: "x"},
        {"a" * 200: "x"},
        {"a": "\ud800"},
        {"a": "x" * RECORD_HEADERS_BYTES_MAX},
        {str(n): "" for n in range(100)},
        ["a"],
        "a",
    ],
)
def test_invalid_headers_are_refused(log, given):
    with pytest.raises(InvalidInput):
        log.append(1, headers=given)
    assert len(log) == 0


def test_headers_of_a_request_are_json():
    assert parse_headers('{"a": "\\u00e9"}') == encode_headers({"a": "é"})
    for text in ("", "[]", '{"a": 1}', "{", '"a"'):
        with pytest.raises(InvalidInput):
            parse_headers(text)


def test_headers_count_towards_the_size_of_a_read(streams, log):
    log.append([1] * 20, headers={"h": "x" * 1000})
    _, chunk = streams.read("log", bytes_max=5_000)
    assert 0 < len(chunk.records) < 6


def test_encoded_headers_of_a_request_are_checked(streams, log):
    for given in (b"", b"x" * (RECORD_HEADERS_BYTES_MAX + 1)):
        with pytest.raises(InvalidInput):
            streams.append("log", Append([b"1"], None, headers=given))

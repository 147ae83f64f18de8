"""Appending Python values, and reading them back."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import UTC, datetime

import pytest

import fourfold
from fourfold.errors import InvalidInput, StreamRecreated


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def stream(store):
    return store.streams.create("orders", "application/json")


def values(stream):
    return [record.value for record in stream.read()]


@pytest.mark.parametrize(
    "value",
    [{"id": 1}, "text", 3, 1.5, True, None, {"nested": [1, {"a": None}]}, {"é": "ü\n"}, "\ud800"],
)
def test_append_writes_one_message_for_a_json_value(stream, value):
    stream.append(value)
    assert values(stream) == [value]


@pytest.mark.parametrize("limit", [-1, 0, 1.0, "1", True])
@pytest.mark.parametrize("where", [None, {"id": 1}])
def test_read_refuses_a_limit_that_is_not_positive(stream, limit, where):
    """Its chunk would be empty and not the end, so a loop of reads would never end."""
    stream.append({"id": 1})
    with pytest.raises(InvalidInput, match="limit must be a positive integer"):
        stream.read(limit=limit, where=where)


@pytest.mark.parametrize("several", [list, tuple, iter])
def test_append_writes_one_message_for_each_value_of_a_list(stream, several):
    appended = stream.append(several([{"id": 1}, 2, "three", None, [4, 5]]))
    assert appended.next_offset == 5
    assert values(stream) == [{"id": 1}, 2, "three", None, [4, 5]]


def test_bytes_are_json_text_whose_array_is_several_messages(stream):
    stream.append(b'[{"id":1},{"id":2}]')
    stream.append_bytes([b'{"id":3}', b"[4,5]"])
    assert values(stream) == [{"id": 1}, {"id": 2}, {"id": 3}, 4, 5]


@pytest.mark.parametrize(
    "value",
    [datetime.now(UTC), object(), float("nan"), [float("inf")], {"a": b"bytes"}, [{1, 2}]],
)
def test_append_refuses_what_is_not_a_json_value(stream, value):
    with pytest.raises(InvalidInput, match="orders"):
        stream.append(value)
    assert stream.info.next_offset == 0


@pytest.mark.parametrize("value", [{"id": 1}, 1, None, [1], True, 1.5])
def test_append_refuses_values_on_a_stream_of_bytes(store, value):
    stream = store.streams.create("raw", "application/octet-stream")
    with pytest.raises(InvalidInput, match="must be bytes") as caught:
        stream.append(value)
    assert "application/json" in caught.value.hint


def test_append_takes_text_on_a_stream_of_text(store):
    stream = store.streams.create("lines", "text/plain; charset=utf-8")
    stream.append("grüße\n")
    stream.append(["a", b"b", bytearray(b"c"), memoryview(b"d")])
    assert [record.payload for record in stream.read()] == [
        "grüße\n".encode(),
        b"a",
        b"b",
        b"c",
        b"d",
    ]
    with pytest.raises(InvalidInput, match="is not JSON"):
        stream.read().records[0].value  # noqa: B018


def test_append_bytes_refuses_other_types(stream):
    with pytest.raises(InvalidInput, match="got dict"):
        stream.append_bytes([{"id": 1}])


def test_offset_of_a_read_is_accepted_by_reads(stream):
    stream.append([1, 2, 3])
    chunk = stream.read(limit=2)
    assert len(chunk) == 2
    assert [record.value for record in stream.read(chunk.offset)] == [3]
    assert [record.value for record in stream.read(chunk.next_offset)] == [3]
    assert bool(stream.read("now"))
    assert not list(stream.read("now"))


def test_coroutines_append_values(stream):
    asyncio.run(stream.append_async({"id": 9}))
    assert values(stream) == [{"id": 9}]


def test_offset_is_the_text_of_the_protocol(stream):
    stream.append([1, 2])
    offset = stream.read(limit=1).offset
    assert offset == str(offset) == "0000000000000000_0000000000000001"
    assert (offset.record, offset.incarnation_number) == (1, 0)
    assert repr(offset) == "Offset(1, 0)"
    assert offset < stream.read().offset
    assert pickle.loads(pickle.dumps(offset)).record == 1
    assert copy.deepcopy(offset) == offset


@pytest.mark.parametrize("make", [str, int, lambda offset: offset], ids=["text", "int", "offset"])
def test_offset_is_accepted_in_every_form(stream, make):
    stream.append([1, 2, 3])
    offset = stream.read(limit=1).offset
    given = make(offset) if make is not int else offset.record
    assert [record.value for record in stream.read(given)] == [2, 3]
    assert next(iter(stream.follow(given))).records[0].value == 2
    assert stream.fork("fork", given).info.next_offset == 1


def test_offset_of_another_incarnation_is_refused(store, stream):
    stream.append([1, 2])
    offset = stream.read(limit=1).offset
    store.streams.delete("orders")
    recreated = store.streams.create("orders", "application/json")
    recreated.append([7, 8])
    with pytest.raises(StreamRecreated):
        recreated.read(offset)

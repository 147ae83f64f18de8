"""JSON with escaped lone surrogates, such as text cut in the middle of an emoji."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.client.responses import split_messages
from fourfold.errors import InvalidInput
from fourfold.models.streams import json_messages
from fourfold.models.streams.validation import JSON

LONE = rb'{"t":"abc\ud83d"}'


@pytest.fixture
def stream(opened):
    return opened.streams.create("j", JSON)


def payloads(chunk):
    return [record.payload for record in chunk.records]


@pytest.mark.parametrize(
    "message",
    [LONE, rb'"\uDE00"', rb'"\ud83d\ud83d\ude00"', rb'"\\\udc00"', rb'{"\ud800":[1, "\ud83d x"]}'],
)
def test_lone_surrogate_is_stored_as_received(stream, message):
    stream.append(message)
    stream.append(b'[{"n":1} ,' + message + b"\n, 2]")
    assert payloads(stream.read()) == [message, b'{"n":1}', message, b"2"]


@pytest.mark.parametrize(
    "body", [rb'"\ud83', rb'"\ud83g"', rb'["\ud83d",]', rb'{"a":"\ud83d"', rb"\ud83d"]
)
def test_invalid_json_with_surrogates_is_rejected(stream, body):
    with pytest.raises(InvalidInput, match="not JSON"):
        stream.append(body)


def test_escaped_backslash_before_u_is_not_a_surrogate():
    assert not json_messages.has_lone_surrogate(rb'"\\ud83d"')
    assert not json_messages.has_lone_surrogate(rb'"\ud83d\ude00"')
    assert json_messages.has_lone_surrogate(rb'"\\\ud83d"')


@given(st.lists(st.recursive(st.text(st.characters()), st.lists, max_leaves=5), min_size=1))
def test_split_agrees_with_json_module(values):
    """Includes lone surrogates, which `json.dumps` writes as escapes."""
    body = json.dumps(values).encode()
    found = json_messages.split(body, JSON)
    assert [json.loads(each) for each in found] == values
    assert [json_messages.decode(each) for each in found] == values
    assert split_messages(body) == found


def test_field_search_finds_messages_with_lone_surrogates(stream):
    stream.append(b"[" + LONE + rb',{"t":"abc\ud83e"},{"t":"\ud83d","n":7}]')
    assert payloads(stream.read(where=("n", 7))) == [rb'{"t":"\ud83d","n":7}']
    assert payloads(stream.read(where=("t", "abc\ud83d"))) == [LONE]


def test_state_keeps_lone_surrogates_apart(opened, stream):
    for half in (rb"\ud83d", rb"\ud83e"):
        change = {"type": "t", "key": "K", "value": 1, "headers": {"operation": "upsert"}}
        stream.append(json.dumps(change).encode().replace(b'"K"', b'"' + half + b'"'))
    assert set(opened.streams.state("j")) == {("t", "\ud83d"), ("t", "\ud83e")}


def test_stream_with_rules_rejects_lone_surrogates(opened, stream):
    stream.set_schema({"type": "object"})
    with pytest.raises(InvalidInput, match="message 2: escapes a lone surrogate"):
        stream.append(b"[{}," + LONE + b"]")
    assert payloads(stream.read()) == []


def test_deeply_nested_body_is_rejected(stream):
    with pytest.raises(InvalidInput, match="nested too deeply"):
        stream.append(b"[" * 5000 + b"]" * 5000)

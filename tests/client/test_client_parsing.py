"""Bytes are parsed into messages, events and errors, however they are split."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold import errors
from fourfold.client import requests, responses
from fourfold.client.reader import (
    EventParser,
    EventReader,
    FeedItem,
    MessageSplitter,
    ServerSentEvent,
)
from fourfold.client.requests import Address
from fourfold.client.responses import Response
from fourfold.errors import BadAnswer, InvalidInput
from fourfold.models.streams import Producer

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(['"', "\\", '\\"]', ","]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ADDRESS = Address("http://127.0.0.1:1")
APPEND = requests.append(ADDRESS, "s", "text/plain", b"x")
NUMBERED = requests.append(ADDRESS, "s", "text/plain", b"x", producer=Producer("p", 0, 0))
READ = requests.read(ADDRESS, "s", "-1")
CREATE = requests.create(ADDRESS, "s", "text/plain")


def pieces(data, cuts):
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(JSON, max_size=5), st.lists(st.integers(0, 1 << 16), max_size=8), st.booleans())
def test_messages_are_the_elements_however_an_array_is_split(values, cuts, ascii_only):
    texts = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in values]
    body = b" [ " + b" , ".join(texts) + b" ] "
    splitter = MessageSplitter()
    result = [message for piece in pieces(body, cuts) for message in splitter.feed(piece)]
    splitter.end()
    assert result == texts
    assert result == [text.strip() for text in responses.split_messages(body)]


@pytest.mark.parametrize("body", [b"{}", b"1", b"x[1]", b"[1]2", b"[1", b'["', b""])
def test_other_json_than_an_array_is_a_bad_answer(body):
    splitter = MessageSplitter()
    with pytest.raises(BadAnswer):
        _ = splitter.feed(body), splitter.end()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["data", "control"]),
            st.lists(
                st.text(st.characters(codec="utf-8", exclude_characters="\r\n")).filter(bool),
                min_size=1,
            ),
        )
    ),
    st.lists(st.integers(0, 1 << 16), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_events_are_equal_however_they_are_split(events, cuts, end):
    text = f": a comment{end}{end}"
    for name, lines in events:
        text += f"event: {name}{end}" + "".join(f"data: {line}{end}" for line in lines) + end
    # A return at the end of all could be the first half of a line's end; the next line tells.
    text += f": bye{end}"
    parser = EventParser()
    result = [event for piece in pieces(text.encode(), cuts) for event in parser.feed(piece)]
    assert result == [ServerSentEvent(name, "\n".join(lines).encode()) for name, lines in events]


def test_feed_continues_after_the_last_id():
    reader = EventReader(READ, lambda name, data: (name, data))
    assert "last-event-id" not in reader.call().headers
    reader.begin({})
    assert not reader.progress
    assert reader.feed(b"retry: 1\nid: 4\n\n: keep-alive\nid: 5\n\nid: 6\nevent: a\nda") == [
        FeedItem("4", None),
        FeedItem("5", None),
    ]
    assert reader.progress
    # The connection breaks within an event: it is sent again.
    assert reader.call().headers["last-event-id"] == "5"
    reader.begin({})
    assert reader.feed(b"id: 6\nevent: a\ndata: 1\n\nevent: token\ndata: 2\n\n") == [
        FeedItem("6", ("a", b"1")),
        FeedItem("6", ("token", b"2")),
    ]
    assert not reader.ended()
    reader.feed(b"id: 7\nevent: end\ndata: {}\n\n")
    assert reader.ended()


def test_problem_document_becomes_its_error():
    document = {
        "kind": "stale_read",
        "detail": "'a' has changed",
        "hint": "Read again.",
        "details": {"entity": "a"},
    }
    error = responses.parse_error(READ, Response(409, {}, json.dumps(document).encode()))
    assert type(error) is errors.StaleRead
    assert (error.message, error.hint) == ("'a' has changed", "Read again.")
    assert error.details == {"entity": "a"}


@pytest.mark.parametrize(
    ("call", "status", "headers", "kind"),
    [
        (APPEND, 400, {}, "invalid_input"),
        (APPEND, 401, {}, "unauthorized"),
        (APPEND, 403, {}, "forbidden"),
        (NUMBERED, 403, {"producer-epoch": "7"}, "producer_fenced"),
        (APPEND, 404, {}, "not_found"),
        (APPEND, 409, {"stream-closed": "true"}, "stream_closed"),
        (NUMBERED, 409, {"producer-expected-seq": "3"}, "producer_gap"),
        (APPEND, 409, {}, "conflict"),
        (CREATE, 409, {}, "already_exists"),
        (READ, 410, {}, "offset_gone"),
        (APPEND, 410, {}, "stream_gone"),
        (APPEND, 413, {}, "too_large"),
        (APPEND, 429, {"retry-after": "1"}, "overloaded"),
        (APPEND, 503, {}, "busy"),
        (READ, 502, {}, "server_unreachable"),
        (NUMBERED, 504, {}, "server_unreachable"),
        (APPEND, 500, {}, "outcome_unknown"),
        (READ, 302, {}, "bad_answer"),
    ],
)
def test_error_of_any_server_maps_to_the_error_tree(call, status, headers, kind):
    error = responses.parse_error(call, Response(status, headers, b"<html>"))
    assert error.kind == kind
    for name, key in (("producer-epoch", "epoch"), ("producer-expected-seq", "expected")):
        if name in headers:
            assert error.details[key] == int(headers[name])


def test_kind_sent_by_a_server_is_used():
    problem = {
        "kind": "stream_seq_behind",
        "message": "no",
        "hint": "go on",
        "details": {"a": 1},
    }
    error = responses.parse_error(
        APPEND, Response(409, {}, json.dumps({"error": problem}).encode())
    )
    assert type(error) is errors.StreamSeqOutOfOrder
    assert (error.hint, error.details) == ("go on", {"a": 1})
    for odd in ({"kind": "of tomorrow"}, {"kind": 7, "details": 3}, [], "text"):
        answer = Response(404, {}, json.dumps({"error": odd}).encode())
        assert responses.parse_error(APPEND, answer).kind == "not_found"


@pytest.mark.parametrize("url", ["127.0.0.1:4437", "ftp://x", "http://", "http://x?y", ""])
def test_invalid_address_is_refused(url):
    with pytest.raises(InvalidInput):
        Address(url)


@pytest.mark.parametrize("name", ["", "a/../b", "a\nb", "/a"])
def test_invalid_name_is_refused_before_sending(name):
    with pytest.raises(InvalidInput):
        requests.head(ADDRESS, name)


def test_line_breaks_in_headers_are_refused():
    for bad in ({"seq": "a\r\nx: y"}, {"producer": Producer("p\nq", 0, 0)}):
        with pytest.raises(InvalidInput):
            requests.append(ADDRESS, "s", "text/plain", b"x", **bad)

"""A head that equals an earlier one is not parsed again; nothing else changes."""

from __future__ import annotations

import itertools
import time

import pytest
from both_fronts import JSON, Front, append, comparable, request, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.server.fast_append import HTTP_HEAD_REMEMBERED_BYTES
from fourfold.server.http_protocol import HttpProtocol
from support.properties import examples

numbers = itertools.count()


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    made = {
        fast: Front(tmp_path_factory.mktemp("repeated") / "store", fast=fast)
        for fast in (True, False)
    }
    yield made
    for front in made.values():
        front.stop()


@pytest.fixture
def parsed(monkeypatch):
    """Record what the parser received."""
    result = []
    on_the_way = HttpProtocol.data_received

    def noted(self, data):
        result.append(bytes(data))
        on_the_way(self, data)

    monkeypatch.setattr(HttpProtocol, "data_received", noted)
    return result


@pytest.fixture
def heads(fronts):
    known = fronts[True].server.config.http_protocol_class.heads
    known.clear()
    return known


def one_by_one(front, *sent):
    with front.connect() as connection:
        result = []
        for item in sent:
            connection.send(item)
            result.append(connection.answer()[0])
        return result


def test_head_is_parsed_once_for_all_connections_and_streams(fronts, heads, parsed):
    front = fronts[True]
    for name in ("one", "two"):
        front.streams.create(name, JSON)
    wire = [append("one"), append("two"), append("one"), append("two", b'{"n": 2}')]
    assert one_by_one(front, *wire) == [204] * 4
    assert one_by_one(front, append("one")) == [204]
    # The first of each stream: its path was not looked at before.
    assert parsed == wire[:2]
    assert (len(stored(front, "one")), len(stored(front, "two"))) == (3, 2)


def test_body_of_another_length_does_not_match_a_known_head(fronts, heads, parsed):
    front = fronts[True]
    front.streams.create("lengths", JSON)
    known = append("lengths", b"1")
    longer = append("lengths", b"[1,\r\n\r\n2]")
    # A second request, or a part of one, after the first.
    both = known + longer
    with front.connect() as connection:
        for sent in (known, known, longer, longer, both):
            connection.send(sent)
            assert connection.answer()[0] == 204
        assert connection.answer()[0] == 204
        connection.send(known[:-1])
        time.sleep(0.05)
        connection.send(known[-1:])
        assert connection.answer()[0] == 204
    assert stored(front, "lengths") == [b"1", b"1", *[b"1", b"2"] * 2, b"1", b"1", b"2", b"1"]
    assert known not in parsed[1:]
    assert both in parsed


@pytest.mark.parametrize(
    "sent",
    [
        request("POST", "odd", b"[1]", chunks=2, content_type=JSON),
        append("odd", connection="close"),
        append("odd", x_filler="x" * HTTP_HEAD_REMEMBERED_BYTES),
        request("PUT", "odd", b"1", content_type=JSON),
        request("GET", "odd"),
        append("odd").replace(b"HTTP/1.1", b"HTTP/1.0"),
        append("odd").replace(b"/odd ", b"/odd?a=1 "),
    ],
    ids=["chunked", "closing", "long", "put", "get", "older", "query"],
)
def test_special_requests_are_parsed_each_time(fronts, heads, parsed, sent):
    front = fronts[True]
    front.streams.create("odd", JSON)
    one_by_one(front, sent)
    one_by_one(front, sent)
    assert parsed == [sent, sent]
    assert not heads


def test_number_of_heads_is_bounded(fronts, heads, monkeypatch):
    monkeypatch.setattr("fourfold.server.fast_append.HTTP_HEADS_REMEMBERED", 3)
    front = fronts[True]
    front.streams.create("many", JSON)
    for number in range(10):
        assert one_by_one(front, append("many", b"1" * (number + 1))) == [204]
        assert len(heads) <= 3
    assert stored(front, "many") == [b"1" * (number + 1) for number in range(10)]


def test_known_head_waits_for_a_uvicorn_request_in_flight(fronts, heads):
    """Responses are in the order of requests: the empty long-poll ends first."""
    front = fronts[True]
    front.streams.create("order", JSON)
    assert one_by_one(front, append("order"), append("order")) == [204, 204]
    end = front.streams.info("order").next_offset
    poll = request("GET", f"order?offset={0:016d}_{end:016d}&live=long-poll")
    with front.connect() as connection:
        connection.send(poll)
        time.sleep(0.05)
        connection.send(append("order"))
        first, second = connection.answer(), connection.answer()
    assert (first[0], dict(first[1]).get("stream-up-to-date")) == (204, "true")
    assert "stream-cursor" in dict(first[1])
    assert second[0] == 204
    assert len(stored(front, "order")) == 3


REQUESTS = st.sampled_from(
    [
        *[("POST", b"1", {"content_type": JSON})] * 5,
        ("POST", b"[1, 2]", {"content_type": JSON}),
        ("POST", b'"\r\n\r\n POST / HTTP/1.1\r\n"', {"content_type": JSON}),
        ("POST", b"{", {"content_type": JSON}),
        ("POST", b"1", {"content_type": JSON, "stream_seq": "a"}),
        ("PUT", b"", {"content_type": JSON}),
        ("GET", b"", {}),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(
    asked=st.lists(st.tuples(REQUESTS, st.sampled_from("aab")), min_size=2, max_size=7),
    cuts=st.lists(st.integers(1, 900), max_size=4),
)
def test_responses_equal_those_of_asgi_however_bytes_arrive(fronts, asked, cuts):
    prefix = f"cut{next(numbers)}"
    wire = b"".join(
        request(method, f"{prefix}{name}", body, **headers)
        for (method, body, headers), name in asked
    )
    ends = sorted({min(cut, len(wire)) for cut in cuts} | {len(wire)})
    pieces = [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    result = []
    for fast in (True, False):
        front = fronts[fast]
        for name in "ab":
            front.streams.create(f"{prefix}{name}", JSON)
        with front.connect() as connection:
            for piece in filter(None, pieces):
                connection.send(piece)
                time.sleep(0.001)
            answers = [comparable(connection.answer()) for _ in asked]
        result.append((answers, [stored(front, f"{prefix}{name}") for name in "ab"]))
    assert result[0] == result[1]

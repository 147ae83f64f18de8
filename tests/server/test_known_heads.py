"""A remembered request head is never mistaken for that of the next request."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from both_fronts import JSON, Front, append, comparable, request, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import split
from fourfold.server.fast_append import BusyPoll
from support.properties import examples

numbers = itertools.count()


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    """Return the fast append path and plain ASGI; keys are required once one exists."""
    made = {
        fast: Front(tmp_path_factory.mktemp("heads") / "store", fast=fast, access=True)
        for fast in (True, False)
    }
    yield made
    for front in made.values():
        front.stop()


def answers(front, prefix, wire):
    """Return the responses to requests on one connection, and what is stored."""
    for name in ("a", "b"):
        front.streams.create(f"{prefix}{name}", JSON)
    result = []
    with front.connect() as connection:
        for item in wire:
            connection.send(item)
            result.append(comparable(connection.answer()))
            if dict(result[-1][1]).get("connection") == "close":
                assert connection.is_ended()
                break
    return result, [stored(front, f"{prefix}{name}") for name in ("a", "b")]


PRODUCED = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
HEADS = st.sampled_from(
    [
        *([{"content_type": JSON}] * 6),
        {"content_type": "Application/JSON ; charset=utf-8"},
        {"content_type": "text/plain"},
        {},
        {"content_type": JSON, "stream_closed": "true"},
        {"content_type": JSON, "stream_closed": "false"},
        {"content_type": JSON, "stream_seq": "a"},
        {"content_type": JSON, "stream_key": "k"},
        {"content_type": JSON, "stream_key": ""},
        {"content_type": JSON, **PRODUCED},
        {"content_type": JSON, "producer_id": "p"},
        {"content_type": JSON, "connection": "keep-alive"},
        {"content_type": JSON, "connection": "close"},
        {"content_type": JSON, "connection": "upgrade", "upgrade": "other"},
        {"content_type": JSON, "expect": "nothing"},
    ]
)
BODIES = st.sampled_from([b"1", b"[1, 2]", b' {"a": 1}\r\n', b'"\xc3\xa9"', b'"\xe9"', b"{", b""])


@st.composite
def spoken(draw):
    """Draw a request: usually an append, usually with the head of the others."""
    method = draw(st.sampled_from(["POST"] * 12 + ["PUT", "GET"]))
    name, headers = draw(st.sampled_from("aaab")), draw(HEADS)
    chunks = draw(st.sampled_from([None, None, None, 2]))
    body = draw(BODIES) if method != "GET" else b""
    return method, name, body, chunks, headers, draw(st.sampled_from(["1.1"] * 9 + ["1.0"]))


@settings(max_examples=examples(80), deadline=None)
@given(requests=st.lists(spoken(), min_size=2, max_size=9))
def test_each_request_is_answered_by_its_own_head(fronts, requests):
    prefix = f"h{next(numbers)}"
    wire = []
    for method, name, body, chunks, headers, version in requests:
        retained = chunks if method == "POST" and version == "1.1" else None
        sent = request(method, f"{prefix}{name}", body, chunks=retained, **headers)
        wire.append(sent.replace(b"HTTP/1.1", b"HTTP/" + version.encode(), 1))
    fast, plain = (answers(fronts[item], prefix, wire) for item in (True, False))
    assert fast == plain


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"stream_seq": "a"}, [204, 204, 409]),
        ({"stream_closed": "true"}, [204, 204, 409]),
        ({"stream_closed": "false"}, [204, 204, 204]),
        ({"stream_key": ""}, [204, 400, 400]),
        (PRODUCED, [204, 200, 204]),
        ({"producer_epoch": "0"}, [204, 400, 400]),
        ({"producer_seq": "0"}, [204, 400, 400]),
    ],
)
def test_changed_header_is_noticed_after_a_known_head(fronts, headers, expected):
    prefix = f"seen{next(numbers)}"
    wire = [append(f"{prefix}a"), *[append(f"{prefix}a", b"2", **headers)] * 2]
    fast, plain = (answers(fronts[item], prefix, wire) for item in (True, False))
    assert fast == plain
    assert [answer[0] for answer in fast[0]] == expected


def test_request_passed_to_uvicorn_has_all_headers(fronts, monkeypatch):
    front, left = fronts[True], []
    on_the_way = HttpToolsProtocol.on_headers_complete

    def noted(self):
        left.append(dict(self.headers))
        on_the_way(self)

    monkeypatch.setattr(HttpToolsProtocol, "on_headers_complete", noted)
    front.streams.create("left", JSON)
    with front.connect() as connection:
        for headers in ({}, {}, {"expect": "nothing"}):
            connection.send(append("left", **headers))
            assert connection.answer()[0] == 204
    assert [head.get(b"content-length") for head in left] == [b"8"]


def test_known_head_in_http_1_0_stays_http_1_0(fronts):
    for number, headers in enumerate(({}, {"connection": "keep-alive"})):
        prefix = f"old{number}"
        one = append(f"{prefix}a", **headers)
        wire = [one, one, one.replace(b"HTTP/1.1", b"HTTP/1.0", 1)]
        fast, plain = (answers(fronts[item], prefix, wire) for item in (True, False))
        assert fast == plain
        assert dict(fast[0][2][1]).get("connection") == "close"


def test_first_key_applies_to_known_clients(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    try:
        front.streams.create("a", JSON)
        with front.connect() as connection:
            for _ in range(3):
                connection.send(append("a"))
                assert connection.answer()[0] == 204
            _, secret = front.access.add(("write",))
            connection.send(append("a"))
            assert connection.answer()[0] == 401
            for expected in (secret, "wrong", secret):
                connection.send(append("a", authorization=f"Bearer {expected}"))
                assert connection.answer()[0] == (204 if expected == secret else 401)
        assert len(stored(front, "a")) == 5
    finally:
        front.stop()


def test_known_head_with_a_key_is_checked_again(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    try:
        for name in ("mine/a", "mine/b", "other"):
            front.streams.create(name, JSON)
        key, secret = front.access.add(("write",), prefix="mine/")

        def statuses(connection, *names, body=b"1"):
            result = []
            for name in names:
                connection.send(append(name, body, authorization=f"Bearer {secret}"))
                result.append(connection.answer()[0])
            return result

        with front.connect() as connection:
            assert statuses(connection, "mine/a", "mine/b", "other") == [204, 204, 403]
            # Known now, by its bytes and with another length.
            assert statuses(connection, "mine/a", "other", "mine/b") == [204, 403, 204]
            assert statuses(connection, "mine/a", "other", body=b"[12]") == [204, 403]
            front.access.add(("read",))
            assert statuses(connection, "mine/a", "other") == [204, 403]
            front.access.remove(key.id)
            assert statuses(connection, "mine/a", "mine/b") == [401, 401]
            assert statuses(connection, "mine/a", body=b"123") == [401]
        assert stored(front, "mine/a") == [b"1", b"1", b"12", b"1"]
        assert stored(front, "other") == []
    finally:
        front.stop()


def test_number_of_remembered_paths_is_bounded(fronts, monkeypatch):
    monkeypatch.setattr("fourfold.server.fast_append.HTTP_PATHS_REMEMBERED", 2)
    front = fronts[True]
    kind = front.server.config.http_protocol_class
    with front.connect() as connection:
        for number in range(7):
            front.streams.create(f"path{number % 4}", JSON)
            connection.send(append(f"path{number % 4}", b"%d" % number))
            assert connection.answer()[0] == 204
            assert len(kind.names) <= 2
    assert stored(front, "path0") == [b"0", b"4"]


# Bodies


@given(text=st.text(max_size=20), around=st.sampled_from([b"", b" ", b"\r\n\t"]))
def test_message_is_stored_as_received(text, around):
    body = b'{"a" :"' + text.encode().hex().encode() + b'", "b":1e0}'
    assert split(around + body + around, JSON) == [body]
    assert split(bytearray(body), JSON) == [body]
    assert split(b"[" + body + b" ,2]", JSON) == [body, b"2"]


@pytest.mark.parametrize("body", [b'"\xff"', b"{", b"1 2", b"[1", b'{"a":"\xe9"}'])
def test_invalid_json_is_refused(body):
    with pytest.raises(InvalidInput):
        split(body, JSON)


# Staying awake


class Clock:
    """A clock that advances by a constant with every reading."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def watched(busy_poll, clock, *, answers, comes):
    """Return how often the clock was read during a number of responses.

    After each response the next request arrives in the first iteration of the loop, or only after
    the loop sleeps.
    """

    async def main():
        loop = asyncio.get_running_loop()
        before = clock.now
        for _ in range(answers):
            busy_poll.begin(loop)
            if comes:
                busy_poll.request_seen = True
            for _ in range(20):
                await asyncio.sleep(0)
        return round((clock.now - before) / clock.step)

    return asyncio.run(main())


def test_busy_poll_runs_only_while_requests_arrive():
    clock = Clock(1.0)
    busy_poll = BusyPoll(5.0, processors=2, clock=clock)
    assert watched(busy_poll, clock, answers=100, comes=True) == 100
    # Requests stop coming: it is tried a few more times, for as long as it may take each time.
    assert 3 * 5 <= watched(busy_poll, clock, answers=100, comes=False) <= 6 * 7
    # From then on it is tried once in a while.
    assert watched(busy_poll, clock, answers=640, comes=False) <= 10 * 7
    # They are sent again, and are found again.
    watched(busy_poll, clock, answers=64, comes=True)
    assert watched(busy_poll, clock, answers=100, comes=True) == 100


def test_busy_poll_is_off_with_one_processor():
    clock = Clock(1.0)
    busy_poll = BusyPoll(5.0, processors=1, clock=clock)

    async def main():
        loop = asyncio.get_running_loop()
        busy_poll.begin(loop)
        return busy_poll._polling

    assert asyncio.run(main()) is False

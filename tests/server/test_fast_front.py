"""The fast append path responds like plain ASGI, in order, also to misbehaving clients."""

from __future__ import annotations

import inspect
import itertools
import socket
import threading
import time

import pytest
from both_fronts import JSON, Front, append, comparable, request, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fourfold import limits
from fourfold.models.streams.validation import format_offset
from fourfold.server import run, uvicorn_check
from fourfold.server.fast_append import FastAppendProtocol
from fourfold.server.http_protocol import RequestTimeouts
from fourfold.server.streams import StreamProtocol
from support.properties import examples

TEXT = "text/plain"
numbers = itertools.count()


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    """Return both protocols, without and with keys."""
    made = {}
    for guarded in (False, True):
        for fast in (True, False):
            root = tmp_path_factory.mktemp("front") / "store"
            front = made[guarded, fast] = Front(root, fast=fast, access=guarded)
            if guarded:
                front.secrets = {
                    "all": front.access.add(("read", "write", "admin"))[1],
                    "reader": front.access.add(("read",))[1],
                    "a": front.access.add(("read", "write"), prefix="a")[1],
                }
    yield made
    for front in made.values():
        front.stop()


@pytest.fixture(scope="module")
def fast(fronts):
    return fronts[False, True]


@pytest.fixture
def name(fast):
    made = f"s{next(numbers)}"
    fast.streams.create(made, JSON)
    return made


# Equal responses on both paths

BODIES = st.sampled_from(
    [b'{"a": 1}', b"[1, 2,3]", b"[[]]", b"1", b"", b"[]", b"{", b'"\xff"', b"[1] 2", b"plain text"]
)
KINDS = st.sampled_from(
    [JSON, JSON, JSON, "Application/JSON; charset=utf-8", TEXT, "application/octet-stream", None]
)
NUMBERS = st.sampled_from(["0", "1", "2", "01", "-1", "x", ""])
PRODUCER = st.fixed_dictionaries(
    {},
    optional={
        "producer_id": st.sampled_from(["p", "q", ""]),
        "producer_epoch": NUMBERS,
        "producer_seq": NUMBERS,
    },
)
WHOLE_PRODUCER = st.fixed_dictionaries(
    {
        "producer_id": st.just("p"),
        "producer_epoch": st.sampled_from(["0", "0", "1"]),
        "producer_seq": st.sampled_from(["0", "1", "1", "2"]),
    }
)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "stream_seq": st.sampled_from(["a", "b", "B", "10", ""]),
        "stream_closed": st.sampled_from(["true", "TRUE", "false", "1"]),
        "origin": st.just("http://elsewhere"),
        "expect": st.sampled_from(["something"]),
        "connection": st.sampled_from(["keep-alive"]),
    },
)
KEYS = st.sampled_from([None, "all", "all", "all", "reader", "a", "wrong"])
NAMES = st.sampled_from(["a", "a", "a", "b", "closed", "missing", "a%2Db", "a?x=1", "a//b", "_x"])


@st.composite
def asked(draw):
    """Draw one request: an append in most cases."""
    name = draw(NAMES)
    headers = {**draw(CONDITIONS), **draw(st.one_of(st.just({}), WHOLE_PRODUCER, PRODUCER))}
    kind = draw(KINDS)
    if kind is not None:
        headers["content_type"] = kind
    method = draw(st.sampled_from(["POST"] * 9 + ["GET", "PUT", "DELETE", "OPTIONS"]))
    body = draw(BODIES) if method in {"POST", "PUT"} else b""
    return method, name, body, draw(st.sampled_from([None, None, 1, 3])), headers, draw(KEYS)


def on_the_wire(front, prefix, one):
    method, name, body, chunks, headers, key = one
    if hasattr(front, "secrets") and key is not None:
        secret = front.secrets.get(key, "ff_wrong")
        headers = {**headers, "authorization": f"Bearer {secret}"}
    return request(method, f"{name[0]}{prefix}{name[1:]}", body, chunks=chunks, **headers)


def life(front, prefix, requests, *, pipelined, cut):
    """Return the responses to requests on one connection, and the contents of the streams."""
    for name, kind in (("a", JSON), ("b", TEXT), ("closed", JSON)):
        front.streams.create(f"{name[0]}{prefix}{name[1:]}", kind, closed=name == "closed")
    wire = [on_the_wire(front, prefix, item) for item in requests]
    result = []
    with front.connect() as connection:
        if pipelined:
            whole = b"".join(wire)
            for at in range(0, len(whole), cut):
                connection.send(whole[at : at + cut])
            result = [connection.answer() for _ in wire]
        else:
            for item in wire:
                connection.send(item)
                result.append(connection.answer())
    held = [stored(front, f"{item}{prefix}") for item in "ab"]
    return [comparable(item) for item in result], held


@settings(max_examples=examples(60), deadline=None)
@given(
    requests=st.lists(asked().filter(lambda one: one[0] != "DELETE"), min_size=1, max_size=5),
    guarded=st.booleans(),
    pipelined=st.booleans(),
    cut=st.sampled_from([1 << 20, 700, 61]),
)
def test_both_protocols_give_the_same_responses(fronts, requests, guarded, pipelined, cut):
    prefix = f"{next(numbers)}"
    fast, plain = (
        life(fronts[guarded, item], prefix, requests, pipelined=pipelined, cut=cut)
        for item in (True, False)
    )
    assert fast == plain


PRODUCED = {"producer_id": "p", "producer_epoch": "0", "content_type": JSON}


@pytest.mark.parametrize(
    "requests",
    [
        [("", {**PRODUCED, "producer_seq": "0", "stream_closed": "true"})],
        [("[1]", {**PRODUCED, "producer_seq": "0"}), ("[1]", {**PRODUCED, "producer_seq": "0"})],
        [("[1]", {**PRODUCED, "producer_seq": "1"})],
        [("[1]", {**PRODUCED, "producer_seq": "0", "stream_closed": "true"})] * 2,
        [("", {"stream_closed": "true"}), ("", {"stream_closed": "true"}), ("1", PRODUCED)],
        [("1", {"content_type": JSON, "stream_seq": seq}) for seq in ("b", "a", "c")],
    ],
)
def test_producers_and_closing_get_the_same_responses(fronts, requests):
    asked = [("POST", "a", body.encode(), None, headers, None) for body, headers in requests]
    prefix = f"{next(numbers)}"
    fast, plain = (
        life(fronts[False, item], prefix, asked, pipelined=False, cut=1) for item in (True, False)
    )
    assert fast == plain


def test_fast_append_path_is_used(fronts, name, monkeypatch):
    """An append does not use uvicorn's path, or the comparison would compare it with itself."""
    reached = []
    on_the_way = HttpToolsProtocol.on_headers_complete

    def counted(self):
        reached.append(self.url)
        on_the_way(self)

    monkeypatch.setattr(HttpToolsProtocol, "on_headers_complete", counted)
    fast = fronts[False, True]
    assert fast.ask(append(name))[0][0] == 204
    assert reached == []
    assert fast.ask(request("GET", name))[0][0] == 200
    assert reached == [f"/v1/stream/{name}".encode()]


# Connections


def test_pipelined_appends_are_answered_in_order(fast, name):
    sent = b"".join(append(name, b"%d" % n) for n in range(50))
    result = fast.ask(sent, answers=50)
    offsets = [dict(headers)["stream-next-offset"] for _, headers, _ in result]
    assert offsets == [format_offset(n) for n in range(1, 51)]
    assert stored(fast, name) == [b"%d" % n for n in range(50)]


def test_appends_and_other_requests_are_answered_in_order(fast, name):
    wait = request("GET", f"{name}?offset=now&live=long-poll")
    result = fast.ask(
        append(name)
        + request("GET", name)
        + append(name)
        + wait
        + append(name)
        + append("missing")
        + request("HEAD", "missing")[:-4]
        + b"\r\nConnection: close\r\n\r\n",
        answers=6,
    )
    assert [answer[0] for answer in result] == [204, 200, 204, 204, 204, 404]
    assert len(stored(fast, name)) == 3


def test_malformed_input_is_answered_after_earlier_appends(fast, name):
    with fast.connect() as connection:
        connection.send(append(name) + append(name) + b"NO SUCH THING\r\n\r\n")
        result = [connection.answer() for _ in range(3)]
        assert [answer[0] for answer in result] == [204, 204, 400]
        assert dict(result[2][1])["connection"] == "close"
        assert connection.is_ended()
    assert len(stored(fast, name)) == 2


def test_body_may_arrive_byte_by_byte_or_be_large(fast, name):
    with fast.connect() as connection:
        for byte in append(name, b'{"slow": true}'):
            connection.send(bytes([byte]))
        assert connection.answer()[0] == 204
        large = b'"' + b"x" * (3 << 20) + b'"'
        connection.send(append(name, large))
        assert connection.answer()[0] == 204
        connection.send(append(name, large, chunks=100_000))
        assert connection.answer()[0] == 204
    assert stored(fast, name) == [b'{"slow": true}', large]  # A read stops at its bytes.


def test_too_large_body_ends_the_connection(fast, name):
    with fast.connect() as connection:
        connection.send(append(name))
        head = append(name, b"")[:-4].replace(b"Content-Length: 0", b"Content-Length: 999999999")
        connection.send(head + b"\r\n\r\n")
        try:
            for _ in range(64):
                connection.send(b"x" * (1 << 20))
        except OSError:
            pass
        else:
            pytest.fail("it took all of it")
    assert stored(fast, name) == [b'{"n": 1}']


def test_trailers_are_not_headers(fast, name):
    chunked = request("POST", name, b"1", chunks=1, content_type=JSON)
    trailed = chunked[:-2] + b"Producer-Id: p\r\nProducer-Epoch: x\r\nStream-Closed: true\r\n\r\n"
    created = trailed.replace(b"POST", b"PUT").replace(name.encode(), b"%s-2" % name.encode())
    for sent, expected in ((trailed, 204), (created, 201)):
        status, headers, _ = fast.ask(sent)[0]
        assert (status, "stream-closed" in dict(headers)) == (expected, False)


def test_http_1_0_and_expect_continue_clients_are_served(fast, name):
    old = append(name).replace(b"HTTP/1.1", b"HTTP/1.0")
    with fast.connect() as connection:
        connection.send(old)
        assert connection.answer()[0] == 204
        assert connection.is_ended()
    expecting = append(name, b"[1]", expect="100-continue")
    with fast.connect() as connection:
        connection.send(expecting[:-3])
        assert connection._until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
        connection.send(expecting[-3:])
        assert connection.answer()[0] == 204
    assert len(stored(fast, name)) == 2


@pytest.mark.parametrize("is_fast", [True, False])
def test_incomplete_body_stores_nothing(fronts, is_fast):
    front, name = fronts[False, is_fast], f"half{next(numbers)}"
    front.streams.create(name, TEXT)
    whole = append(name, b"12345678", TEXT)
    with front.connect() as connection:
        connection.send(whole[:-4])
    with front.connect() as connection:
        connection.send(whole)
    until = time.monotonic() + 20
    while not stored(front, name):
        assert time.monotonic() < until
        time.sleep(0.01)
    # The incomplete one came first, so it would be stored by now.
    assert stored(front, name) == [b"12345678"]


def test_client_that_half_closes_is_still_answered(fast, name):
    with fast.connect() as connection:
        connection.send(append(name) + append(name))
        connection.socket.shutdown(socket.SHUT_WR)
        result = [connection.answer() for _ in range(2)]
        assert [answer[0] for answer in result] == [204, 204]
        assert connection.is_ended()


def test_client_that_reads_no_responses_is_not_read_from(fast, name):
    with fast.connect() as connection:
        connection.socket.settimeout(2)
        one = append(name)
        # Responses are longer than requests, so they fill all buffers first.
        with pytest.raises(TimeoutError):
            connection.send(one * 400_000)


def test_stopping_server_answers_requests_in_flight(tmp_path):
    front = Front(tmp_path / "store", fast=True)
    front.streams.create("s", JSON)
    answered = []

    def write():
        with front.connect() as connection:
            while True:
                try:
                    connection.send(append("s"))
                    answer = connection.answer()
                except OSError:
                    return
                if answer is None:
                    return
                assert answer[0] == 204
                answered.append(answer)

    with front.connect() as half, front.connect() as idle:
        half.send(append("s", b"[7]")[:-1])
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(answered) < 50:
            time.sleep(0.01)
        front.server.should_exit = True
        time.sleep(0.3)
        half.send(b"]")
        last = half.answer()
        assert (last[0], dict(last[1])["connection"]) == (204, "close")
        assert idle.is_ended()
        for thread in threads:
            thread.join(20)
    front.thread.join(20)
    info = front.streams.info("s")
    # A request interrupted by the stop may be stored without a response.
    assert len(answered) + 1 <= info.next_offset <= len(answered) + 1 + len(threads)
    front.store.close()


def test_slow_clients_get_408_and_idle_ones_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_HEAD_S", 0.2)
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_BODY_S", 0.4)
    monkeypatch.setattr(limits, "HTTP_KEEP_ALIVE_S", 0.6)
    front = Front(tmp_path / "store", fast=True, timeouts=RequestTimeouts(interval_s=0.05))
    front.streams.create("s", JSON)
    try:
        with front.connect() as head, front.connect() as body, front.connect() as silent:
            head.send(append("s")[:30])
            body.send(append("s", b"[1]")[:-1])
            assert head.answer()[0] == 408
            assert body.answer()[0] == 408
            assert silent.answer() is None
        with front.connect() as other, front.connect() as served:
            other.send(request("PUT", "t", b"xyz", content_type=TEXT)[:-1])
            assert other.answer()[0] == 408
            served.send(append("s"))
            assert served.answer()[0] == 204
            assert served.is_ended()
        assert stored(front, "s") == [b'{"n": 1}']
    finally:
        front.stop()


def test_live_reader_is_not_a_slow_client(tmp_path, monkeypatch):
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_HEAD_S", 0.05)
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_BODY_S", 0.05)
    front = Front(tmp_path / "store", fast=True, timeouts=RequestTimeouts(interval_s=0.02))
    front.streams.create("s", JSON)
    try:
        with front.connect() as reader:
            reader.send(request("GET", "s?offset=-1&live=long-poll"))
            assert reader.answer()[0] == 204
    finally:
        front.stop()


# When it is used


def test_incompatible_uvicorn_is_not_used(fast, monkeypatch):
    assert uvicorn_check.unsupported_reason() is None
    monkeypatch.delattr(HttpToolsProtocol, "on_response_complete")
    assert "on_response_complete" in uvicorn_check.unsupported_reason()
    transport = run.choose_transport(fast=True)
    assert transport.protocol_class(StreamProtocol(fast.streams)) == "h11"
    assert transport.name.startswith("asgi: ")


def test_changed_signature_is_detected(monkeypatch):
    monkeypatch.setattr(HttpToolsProtocol, "on_body", lambda self, body, more: None)
    assert "on_body" in uvicorn_check.unsupported_reason()


def test_every_overridden_name_is_checked():
    own = {name for name, _ in inspect.getmembers(FastAppendProtocol, inspect.isfunction)}
    theirs = {name for name, _ in inspect.getmembers(HttpToolsProtocol, inspect.isfunction)}
    overridden = {
        name
        for name in own & theirs
        if getattr(FastAppendProtocol, name) is not getattr(HttpToolsProtocol, name)
    }
    assert overridden - {"__init__"} <= set(uvicorn_check._METHODS)

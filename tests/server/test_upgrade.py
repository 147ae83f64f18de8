"""Upgrade requests are answered in HTTP/1.1, with all of their body."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from both_fronts import JSON, Front, append, request, stored
from served_streams import Served

H2C = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA",
}
OTHER = {"Connection": "Upgrade", "Upgrade": "foo/2"}
WEBSOCKET = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
KINDS = {"h2c": H2C, "other": OTHER, "websocket": WEBSOCKET}
INNER = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
numbers = itertools.count()


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    made = Front(tmp_path_factory.mktemp("front") / "store", fast=request.param)
    yield made
    made.stop()


@pytest.fixture
def name(front):
    made = f"s{next(numbers)}"
    front.streams.create(made, JSON)
    return made


def upgraded(data, headers):
    """Return a request with these headers after its own."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
    return head + lines.encode() + b"\r\n\r\n" + body


def exchange(front, *pieces, answers):
    """Send pieces that the server reads one by one; return the statuses of the responses."""
    with front.connect() as connection:
        for piece in pieces:
            connection.send(piece)
            time.sleep(0.001)
        return [connection.answer()[0] for _ in range(answers)]


@pytest.mark.parametrize("kind", KINDS)
def test_upgrade_request_keeps_its_body(front, name, kind):
    sent = upgraded(append(name, b'{"first": 1}'), KINDS[kind])
    head, _, body = sent.partition(b"\r\n\r\n")
    assert exchange(front, sent, answers=1) == [204]
    assert exchange(front, head + b"\r\n\r\n", body, answers=1) == [204]
    assert stored(front, name) == [b'{"first": 1}'] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_upgrade_request_creates_a_stream_with_its_records(front, name, kind):
    made = f"{name}-made"
    sent = upgraded(request("PUT", made, b"[1,2]", content_type=JSON), KINDS[kind])
    assert exchange(front, sent, answers=1) == [201]
    assert stored(front, made) == [b"1", b"2"]


def test_upgrade_request_closes_a_stream_after_its_last_record(front, name):
    sent = upgraded(append(name, b"1", stream_closed="true"), H2C)
    assert exchange(front, sent, answers=1) == [204]
    assert stored(front, name) == [b"1"]
    assert front.streams.info(name).closed


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_upgrade_request_body_is_never_another_request(front, kind, together):
    made = f"t{next(numbers)}"
    front.streams.create(made, "text/plain")
    sent = upgraded(append(made, INNER, "text/plain"), KINDS[kind])
    at = len(sent) - len(INNER)
    pieces = [sent] if together else [sent[:at], sent[at:]]
    # The next request proves that nothing is left over: it gets the second response.
    follower = request("HEAD", "no-such-stream")
    with front.connect() as connection:
        for piece in (*pieces, follower):
            connection.send(piece)
            time.sleep(0.005)
        assert connection.answer()[0] == 204
        assert connection.answer(head=True)[0] == 404
    assert stored(front, made) == [INNER]


@pytest.mark.parametrize("chunks", [None, 3])
def test_upgrade_exchange_reads_the_same_at_every_split(front, name, chunks):
    def sent(number):
        body = b'[{"n":%d}]' % number
        first = request("POST", name, body, chunks=chunks, content_type=JSON)
        get = upgraded(request("GET", f"{name}?offset=now"), OTHER)
        return upgraded(first, OTHER) + get + append(name, b'"last"')

    expected = []
    with front.connect() as connection:
        for at in range(1, len(sent(100))):
            whole = sent(100 + at)
            for piece in (whole[:at], whole[at:]):
                connection.send(piece)
                time.sleep(0.001)
            result = [connection.answer()[0] for _ in range(3)]
            assert result == [204, 200, 204], at
            expected += [b'{"n":%d}' % (100 + at), b'"last"']
    assert stored(front, name) == expected


def test_upgrade_exchange_reads_the_same_byte_by_byte(front, name):
    whole = upgraded(append(name, b"[1,2]"), H2C) + upgraded(append(name, b"3"), WEBSOCKET)
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    assert exchange(front, *pieces, answers=2) == [204, 204]
    assert stored(front, name) == [b"1", b"2", b"3"]


def test_repeated_upgrade_requests_are_each_stored(front, name):
    sent = upgraded(append(name, b'"same"'), H2C)
    with front.connect() as connection:
        for _ in range(20):
            connection.send(sent)
            assert connection.answer()[0] == 204
        connection.send(sent * 500)
        assert {connection.answer()[0] for _ in range(500)} == {204}
    assert front.streams.info(name).next_offset == 520


def test_upgrade_request_with_close_ends_the_connection(front, name):
    for connection_header in ("close, Upgrade", "Upgrade, HTTP2-Settings, close"):
        sent = upgraded(append(name, b"1"), {**H2C, "Connection": connection_header})
        with front.connect() as connection:
            connection.send(sent)
            status, headers, _ = connection.answer()
            assert (status, dict(headers)["connection"]) == (204, "close")
            assert connection.is_ended()
    assert stored(front, name) == [b"1", b"1"]


def test_upgrade_request_of_http_1_0_keeps_its_body(front, name):
    sent = upgraded(append(name, b"1"), H2C).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert exchange(front, sent, answers=1) == [204]
    assert stored(front, name) == [b"1"]


def test_upgrade_request_that_expects_continue_gets_it(front, name):
    sent = upgraded(append(name, b"1"), {**H2C, "Expect": "100-continue"})
    with front.connect() as connection:
        connection.send(sent[:-1])
        assert connection.answer()[0] == 100
        connection.send(sent[-1:])
        assert connection.answer()[0] == 204
    assert stored(front, name) == [b"1"]


def test_connect_is_refused_and_ends_the_connection(front):
    for target in (b"example.org:443", b"/v1/stream/s", b"http://example.org/"):
        with front.connect() as connection:
            connection.send(b"CONNECT %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target + INNER)
            assert connection.answer()[0] in {400, 405}
            assert connection.is_ended()


def test_upgrade_request_with_a_bad_address_is_refused_once(front):
    sent = upgraded(b"POST http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", H2C)
    with front.connect() as connection:
        connection.send(sent + INNER)
        assert connection.answer()[0] == 400
        assert connection.is_ended()


@pytest.mark.parametrize("options", [(), ("--no-fast-front",)], ids=["fast", "plain"])
def test_websocket_handshake_is_answered_as_a_request(tmp_path, options):
    served = Served(tmp_path / "store", options=options)
    try:
        served.stream("PUT", "s", b"[1]", content_type=JSON)
        answer = served.ask("GET", "/v1/stream/s", None, WEBSOCKET)
        assert (answer.status, json.loads(answer.text)) == (200, [1])
        assert served.stream("POST", "s", b"2", content_type=JSON, **WEBSOCKET).status == 204
        assert json.loads(served.stream("GET", "s").text) == [1, 2]
        before = served.open_files()
        for _ in range(50):
            assert served.ask("GET", "/v1/stream/s", None, WEBSOCKET).status == 200
        deadline = time.monotonic() + 30
        while served.open_files() > before:
            assert time.monotonic() < deadline, "connections were kept"
            time.sleep(0.05)
        served.process.terminate()
        # Handshakes are not logged.
        assert served.process.stdout.read().count(b"\n") == 1
    finally:
        served.kill()


def test_websocket_handshakes_leave_no_connection_in_memory(front, name):
    connections = front.server.server_state.connections
    handshake = upgraded(request("GET", name), WEBSOCKET)
    for _ in range(50):
        assert exchange(front, handshake, answers=1) == [200]
    deadline = time.monotonic() + 30
    while connections:
        assert time.monotonic() < deadline, f"{len(connections)} connections were kept"
        time.sleep(0.01)

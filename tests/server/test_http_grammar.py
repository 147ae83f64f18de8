"""Requests from a grammar with errors in it: both fronts respond alike, and go on serving."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
from io import BytesIO

import pytest
from both_fronts import Front, stored
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fourfold.errors import NotFound
from fourfold.server import http_protocol
from fourfold.server.http_protocol import RequestTimeouts
from support.damage import damaged
from support.fuzz_cases import fuzz_examples, record_case

WAIT_S = 0.4
"""Time for a head and for a body: a request that is not complete is refused after it."""
LAST = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
FORBIDDEN = {500, 501, 502}
"""The server has no reason for one of these."""
numbers = itertools.count()

mostly = st.integers(0, 11).map(bool)


def or_odd(usual, odd):
    """Draw something usual in most cases, and something odd otherwise."""
    return mostly.flatmap(lambda is_usual: st.sampled_from(usual if is_usual else odd))


METHODS = or_odd(
    [b"POST", b"PUT", b"GET", b"DELETE", b"PATCH", b"OPTIONS"],
    [b"", b"post", b"TRACE", b"CONNECT", b"PRI", b"X" * 300, b"P\x00ST", b"\xff", b"GET GET"],
)
TARGETS = or_odd(
    [b"/v1/stream/NAME", b"/v1/stream/NAME?offset=-1", b"/v1/stream/NAME/_details", b"/livez"],
    [
        b"",
        b"*",
        b"/",
        b"//",
        b"http://x/v1/stream/NAME",
        b"/v1/stream/NAME/../NAME",
        b"/v1/stream/NAME%00",
        b"/v1/stream/%ff",
        b"/v1/stream/NAME?offset=now&live=long-poll",
        b"/v1/stream/NAME?offset=%00&offset=1",
        b"/v1/stream/NAME#part",
        b"/v1/stream/" + b"a" * 9000,
        b"/" + b"?" * 100,
        b"/v1/stream/NAME\x7f",
        b"/v1/stream/NAME /v1",
    ],
)
VERSIONS = or_odd(
    [b"HTTP/1.1"], [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.10", b"http/1.1", b"HTTP/", b"", b"HTTP/9.9"]
)
NAMES = or_odd(
    [
        b"Content-Type",
        b"Connection",
        b"Producer-Id",
        b"Producer-Epoch",
        b"Producer-Seq",
        b"Stream-Closed",
        b"If-None-Match",
        b"Expect",
        b"Accept-Encoding",
    ],
    [
        b"Content-Length",
        b"Transfer-Encoding",
        b"Host",
        b"Upgrade",
        b"HTTP2-Settings",
        b"Authorization",
        b"Origin",
        b"X-Forwarded-For",
        b"Content-Length ",
        b" Content-Length",
        b"Trailer",
        b"",
        b"\xff",
        b"A" * 70_000,
    ],
)
VALUES = or_odd(
    [b"application/json", b"keep-alive", b"0", b"1", b"p", b"true", b"close", b"gzip"],
    [
        b"",
        b"-1",
        b"+2",
        b"2, 2",
        b"0x2",
        b"18446744073709551616",
        b"chunked",
        b"chunked, chunked",
        b"gzip, chunked",
        b"xchunked",
        b"h2c",
        b"100-continue",
        b"a\r\n b",
        b"\x00",
        b"\t\t",
        b"\xc3\xa9",
        b"x" * 5000,
        b"Bearer x",
        b"http://evil.example",
    ],
)
BODIES = or_odd(
    [b"[1]", b'{"a": "b"}', b'"text"', b"[1, 2, 3]"],
    [b"", b"[", b"\x00", b"[1e999]", b'{"a":1,"a":2}', b"[" * 2000, b"\xff\xfe", b"GET / HTTP/1.1"],
)
ENDS = or_odd([b"\r\n"], [b"\n", b"\r", b"\r\r\n", b"\x00\r\n"])


@st.composite
def requests(draw):
    """Draw one request; its length and its chunks are right in most cases."""
    end = draw(ENDS)
    lines = [b" ".join((draw(METHODS), draw(TARGETS), draw(VERSIONS)))]
    if draw(mostly):
        lines.append(b"Host: x")
    lines += draw(st.lists(st.builds(lambda *pair: b": ".join(pair), NAMES, VALUES), max_size=3))
    body = draw(BODIES)
    match draw(or_odd(["length", "chunks"], ["neither", "both", "wrong", "chunk"])):
        case "length":
            lines.append(b"Content-Length: %d" % len(body))
        case "chunks":
            lines.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        case "both":
            lines += [b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"]
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        case "wrong":
            lines.append(b"Content-Length: %d" % draw(st.integers(0, 2 * len(body) + 2)))
        case "chunk":
            lines.append(b"Transfer-Encoding: chunked")
            sizes = [b"%x" % (len(body) + 1), b"-1", b"ffffffffffffffffff", b"0x3", b"3;a=b", b""]
            body = draw(st.sampled_from(sizes)) + b"\r\n" + body + b"\r\n0\r\n\r\n"
    return end.join([*lines, b"", b""]) + body


@st.composite
def conversations(draw):
    """Draw requests that follow each other on a connection, some damaged as a whole."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    return data if draw(mostly) else draw(damaged(data))


@pytest.fixture(scope="module")
def fronts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        for name in ("HTTP_HEAD_S", "HTTP_BODY_S"):
            patched.setattr(http_protocol, name, WAIT_S)
        pair = [
            Front(
                tmp_path_factory.mktemp("front") / "store",
                fast=fast,
                timeouts=RequestTimeouts(interval_s=WAIT_S / 4),
            )
            for fast in (True, False)
        ]
        yield pair
        for front in pair:
            front.stop()


def start(front, data):
    """Send a conversation; the server may refuse it before all of it was sent."""
    connection = socket.create_connection(("127.0.0.1", front.port), timeout=30)
    with contextlib.suppress(OSError):
        connection.sendall(data + LAST)
    return connection


def received(connection):
    """Return everything that the server sent until it closed the connection."""
    data = b""
    with connection:
        try:
            while part := connection.recv(1 << 16):
                data += part
        except ConnectionResetError:
            pass
    return data


class OpenBytes(BytesIO):
    """Bytes that stay open: the parser closes them after each response."""

    def close(self):
        pass


class Received:
    """Bytes in place of a socket, for the parser of the standard library."""

    def __init__(self, data):
        self.file = OpenBytes(data)

    def makefile(self, _mode):
        return self.file


def statuses(data):
    """Return the statuses of all responses; fail if one of them is malformed."""
    source, result = Received(data), []
    while source.file.tell() < len(data):
        response = http.client.HTTPResponse(source)
        response.begin()
        response.read()
        result.append(response.status)
    return result


def exchange(fronts, data):
    """Send a conversation to both fronts; return their statuses, and what they stored."""
    name = f"s{next(numbers)}"
    for front in fronts:
        front.streams.create(name, "application/json")
    sent = data.replace(b"NAME", name.encode())
    connections = [start(front, sent) for front in fronts]
    answers = [received(connection) for connection in connections]
    return answers, [records(front, name) for front in fronts]


def records(front, name):
    try:
        return stored(front, name)
    except NotFound:
        return None


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=fuzz_examples(120))
@given(conversations())
@example(b"POST /v1/stream/NAME HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n[1]")
def test_both_fronts_respond_alike_to_any_bytes(fronts, data):
    answers, streams = exchange(fronts, data)
    fast, plain = map(statuses, answers)
    assert fast == plain
    assert streams[0] == streams[1]
    assert not set(fast) & FORBIDDEN
    record_case("raw HTTP", " ".join(map(str, fast)) or "closed")
    for front in fronts:
        (status, _, _) = front.ask(LAST)[0]
        assert status == 200

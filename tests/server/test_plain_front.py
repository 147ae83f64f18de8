"""Both HTTP protocols before authentication: head limits, and refusals in order."""

from __future__ import annotations

import itertools

import pytest
from both_fronts import JSON, Front, append, comparable, request, stored
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fourfold import limits
from fourfold.server import run, uvicorn_check
from fourfold.server.app import StreamsApp
from fourfold.server.fast_append import FastAppendProtocol
from fourfold.server.headers import DEFAULT_HEADERS
from fourfold.server.http_protocol import HTTP_HEAD_MAX, HttpProtocol
from fourfold.server.streams import StreamProtocol

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n"
MAX = HTTP_HEAD_MAX
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


def has_default_headers(answer):
    """Return True if a response has the default headers."""
    return DEFAULT_HEADERS.items() <= dict(answer[1]).items()


def last_answer(front, *parts, before=()):
    """Return the last response to parts that may not all be read, after those with `statuses`."""
    with front.connect() as connection:
        try:
            for part in parts:
                connection.send(part)
        except OSError:
            pass  # It was refused before all was sent.
        assert [connection.answer()[0] for _ in before] == list(before)
        result = connection.answer()
        assert connection.is_ended()
        return result


# Heads


def head_of(size):
    """Return a head of this many bytes, as the server counts them."""
    counted = len(b"/health") + len(b"host") + len(b"x") + 3 + len(b"y") + 3
    return HEALTH + b"y:" + b"z" * (size - counted) + b"\r\n\r\n"


def in_pieces(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("piece", [1 << 20, 5_000])
def test_head_size_is_limited_however_it_arrives(front, piece):
    with front.connect() as connection:
        for part in in_pieces(head_of(MAX), piece):
            connection.send(part)
        assert connection.answer()[0] == 200
    result = last_answer(front, *in_pieces(head_of(MAX + 1), piece))
    assert result[0] == 431
    assert has_default_headers(result)


CHUNKED = b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n"
POST = b"POST /v1/stream/NAME HTTP/1.1\r\nhost: x\r\n"
PUT = b"PUT /v1/stream/NAME-new HTTP/1.1\r\nhost: x\r\n"
LETTERS, LINES = b"y" * 10_000, b"x: y\r\n" * 2_000
ENDLESS = {
    "one header": (HEALTH + b"x: ", LETTERS),
    "many headers": (HEALTH, LINES),
    "the address": (b"GET /", LETTERS),
    "the address of an append": (b"POST /v1/stream/", LETTERS),
    "the name of a header": (HEALTH, LETTERS),
    "blanks before a value": (HEALTH + b"x:", b" " * 10_000),
    "a trailer": (POST + CHUNKED + b"x: ", LETTERS),
    "trailers": (POST + CHUNKED, LINES),
    "trailers of what is no append": (PUT + CHUNKED, LINES),
    "the extension of a chunk": (POST + CHUNKED[:-3] + b"1;", LETTERS),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_input_is_not_read_forever(front, name, kind):
    start, more = ENDLESS[kind]
    # More than the first chunks, which may belong to something else.
    result = last_answer(front, start.replace(b"NAME", name.encode()), *[more] * 400)
    assert result[0] == 431
    assert has_default_headers(result)
    assert stored(front, name) == []


def test_large_bodies_and_pipelines_are_not_large_heads(front, name):
    large = b'"' + b"x" * (1 << 20) + b'"'
    many = [append(name, b"%d" % n) for n in range(500)]
    chunked = request("POST", name, b'"%s"' % (b"y" * 100_000), chunks=9, content_type=JSON)
    with front.connect() as connection:
        for sent in (append(name, large), chunked, b"".join(many[:400])):
            connection.send(sent)
        result = [connection.answer()[0] for _ in range(402)]
        for item in many[400:]:
            connection.send(item)
            result.append(connection.answer()[0])
    assert set(result) == {204}
    assert front.streams.info(name).next_offset == 502


def test_too_large_head_is_answered_after_earlier_requests(front, name):
    result = last_answer(
        front, append(name) + request("GET", name) + head_of(MAX + 1), before=(204, 200)
    )
    assert result[0] == 431
    assert stored(front, name) == [b'{"n": 1}']


def test_trailers_are_ignored(front, name):
    chunked = request("POST", name, b"1", chunks=1, content_type=JSON)
    with front.connect() as connection:
        connection.send(chunked[:-2] + b"Stream-Closed: true\r\n\r\n")
        assert connection.answer()[0] == 204
    assert not front.streams.info(name).closed


# Malformed input

GARBAGE = b"NO SUCH THING\r\n\r\n"


def test_malformed_input_gets_400_with_default_headers(front):
    result = last_answer(front, GARBAGE)
    assert (result[0], result[2]) == (400, b"Invalid HTTP request received.")
    assert has_default_headers(result)
    assert dict(result[1])["connection"] == "close"


@pytest.mark.parametrize(
    ("before", "statuses"),
    [
        ("G", (200,)),
        ("A", (204,)),
        ("GG", (200, 200)),
        ("AGA", (204, 200, 204)),
        ("L", (204,)),
        ("LA", (204, 204)),
        ("H", (200,)),
    ],
)
def test_malformed_input_does_not_replace_another_response(front, name, before, statuses):
    kinds = {
        "A": append(name),
        "G": request("GET", name),
        "H": request("HEAD", name),
        "L": request("GET", f"{name}?offset=now&live=long-poll"),
    }
    sent = b"".join(kinds[item] for item in before) + GARBAGE
    with front.connect() as connection:
        connection.send(sent)
        result = [connection.answer(head=before == "H")[0] for _ in before]
        assert result == list(statuses)
        assert connection.answer()[0] == 400
        assert connection.is_ended()


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_malformed_body_is_answered_for_its_own_request(front, name, method, pipelined):
    target = name if method == "POST" else f"{name}-new"
    broken = request(method, target, b"12", chunks=2, content_type=JSON)[:-5] + b"no\r\n"
    first = request("GET", name) if pipelined else b""
    result = last_answer(front, first + broken, before=(200,) if pipelined else ())
    assert result[0] == 400
    assert stored(front, name) == []
    assert [item.name for item in front.streams.list(prefix=f"{name}-")] == []


def test_body_that_breaks_later_ends_its_request(front, name):
    broken = request("PUT", f"{name}-new", b"12", chunks=2, content_type=JSON)
    with front.connect() as connection:
        connection.send(broken[:-5])
        front.streams.info(name)
        connection.send(b"no\r\n")
        assert connection.answer()[0] == 400
        assert connection.is_ended()
    assert [item.name for item in front.streams.list(prefix=f"{name}-")] == []


# Internal errors


def test_internal_error_has_the_default_headers(front, name, monkeypatch):
    def broken(*_args, **_more):
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr(StreamProtocol, "parse_append", broken)
    monkeypatch.setattr(StreamProtocol, "make_plain_append", broken)
    monkeypatch.setattr(front.streams, "details", broken)
    for sent in (append(name), request("GET", f"{name}/_details")):
        result = last_answer(front, sent)
        assert (result[0], result[2]) == (500, b"Internal Server Error")
        assert has_default_headers(result)


def test_both_protocols_refuse_alike(tmp_path, monkeypatch):
    def broken(*_args, **_more):
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr(limits, "HTTP_BODY_MAX", 1_000)
    monkeypatch.setattr(StreamsApp.__init__, "__kwdefaults__", {"body_max": 1_000})
    results = []
    for fast in (True, False):
        front = Front(tmp_path / f"{fast}", fast=fast)
        front.streams.create("s", JSON)
        try:
            large = append("s", b'"%s"' % (b"x" * 2_000))
            result = [last_answer(front, sent) for sent in (GARBAGE, head_of(MAX + 1), large)]
            with monkeypatch.context() as patched:
                patched.setattr(StreamProtocol, "parse_append", broken)
                patched.setattr(StreamProtocol, "make_plain_append", broken)
                result.append(last_answer(front, append("s")))
        finally:
            front.stop()
        assert all(has_default_headers(item) for item in result)
        results.append([comparable(item) for item in result])
    assert [item[0] for item in results[0]] == [400, 431, 413, 500]
    assert results[0] == results[1]


# When it is used


def test_every_protocol_limits_the_head(front, monkeypatch):
    protocol = StreamProtocol(front.streams)
    transport = run.choose_transport(fast=False)
    plain = transport.protocol_class(protocol)
    assert issubclass(plain, HttpProtocol)
    assert not issubclass(plain, FastAppendProtocol)
    assert transport.name == "asgi: it was switched off"
    assert issubclass(run.choose_transport(fast=True).protocol_class(protocol), FastAppendProtocol)
    monkeypatch.delattr(HttpToolsProtocol, "send_400_response")
    transport = run.choose_transport(fast=False)
    assert transport.protocol_class(protocol) == "h11"
    assert "send_400_response" in transport.name


def test_changed_cycle_is_detected(monkeypatch):
    monkeypatch.delattr(RequestResponseCycle, "send_500_response")
    assert "send_500_response" in uvicorn_check.unsupported_reason()

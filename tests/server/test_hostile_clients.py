"""Malicious and vanished clients: bounded memory, correct statuses, nothing lost."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import threading
import time
import uuid
from pathlib import Path

import pytest
from served_streams import Served

import fourfold

JSON = "application/json"
READERS = 10_000
READER_BYTES = 48 * 1024
"""Maximum memory of a waiting reader; it is about 20 KiB."""


@pytest.fixture
def alone(tmp_path):
    """Return a server for one test."""
    served = Served(tmp_path / "store")
    yield served
    if served.process.returncode is None:
        served.kill()


@pytest.fixture
def patient(tmp_path):
    """Return a server whose readers wait for a long time."""
    served = Served(tmp_path / "store", long_poll="600")
    yield served
    if served.process.returncode is None:
        served.kill()


@pytest.fixture
def name(served):
    made = f"s-{uuid.uuid4().hex}"
    assert served.stream("PUT", made, content_type=JSON).status == 201
    return made


def raw(served, data, *, seconds=10):
    """Send bytes and return everything that the server sends back."""
    with socket.create_connection(("127.0.0.1", served.port), seconds) as sock:
        sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        result = b""
        while part := sock.recv(65536):
            result += part
        return result


def memory(served, field="VmRSS"):
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def open_files(served):
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def until(found, seconds=60):
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


# Requests


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 1\r\ncontent-length: 2\r\n",
        b"content-length: 1\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"content-length: -1\r\n",
        b"content-length: 1e3\r\n",
        b"content-length: 99999999999999999999999\r\n",
        b"no colon\r\n",
        b"bad name: x\r\n",
        b": x\r\n",
        b"x: a\x00b\r\n",
        b"x: a\rb\r\n",
    ],
)
def test_ambiguous_request_is_refused(served, name, head):
    text = (
        f"POST /v1/stream/{name} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n".encode()
    )
    inner = (
        f"POST /v1/stream/{name} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n2".encode()
    )
    result = raw(served, text + head + b"\r\n1" + inner)
    assert result.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")) or result == b""
    assert result.count(b"HTTP/1.1") <= 1
    assert served.stream("GET", name).text == b"[]"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stream/a%0d%0aX-Evil:%201",
        "/v1/stream/a%00b",
        "/v1/stream/a%0ab/_details",
        "/v1/stream/%ff%fe",
        "/v1/stream/a%2f..%2fb",
        "/v1/stream/__ds%0d%0a",
        "/v1/stream/__ds/subscriptions/a%0d%0aX-Evil:%201",
        "/v1/streams?prefix=%0d%0aX-Evil:%201",
    ],
)
def test_request_cannot_inject_response_headers(served, path):
    for method in ("PUT", "POST", "GET", "HEAD", "DELETE"):
        answer = served.ask(method, path, b"1", {"content-type": JSON})
        assert answer.status < 500, (method, path)
        assert "x-evil" not in {item.lower() for item, _ in answer.getheaders()}


@pytest.mark.parametrize(
    "header",
    [
        {"content-type": "text/plain; x=\x85\xa0"},
        {"content-type": "text/\x7fplain"},
        {"content-type": "text/plain\tx"},
        {"stream-seq": "\xff" * 100},
        {"producer-id": "\xe9", "producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "p", "producer-epoch": "\xb2", "producer-seq": "0"},
        {"stream-ttl": "9" * 5000},
        {"stream-expires-at": "9999-12-31T23:59:59+00:00"},
        {"stream-expires-at": "0001-01-01T00:00:00+23:59"},
        {"stream-forked-from": "%00%ff"},
        {"stream-forked-from": "x" * 20_000},
        {"stream-fork-offset": "\x80"},
        {"if-none-match": "\xff" * 1000},
        {"host": "evil\x80"},
        {"authorization": "Bearer \xff"},
        {"content-type": "x" * 60_000},
    ],
)
def test_extreme_headers_are_handled(served, name, header):
    for method in ("PUT", "POST", "GET", "HEAD"):
        for at in (name, uuid.uuid4().hex):
            sent_headers = {"content-type": JSON, **header}
            answer = served.ask(method, f"/v1/stream/{at}", b"1", sent_headers)
            assert answer.status < 500, (method, header)
    assert served.ask("GET", "/health").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "limit=" + "9" * 5000,
        "limit=%D9%A3",
        "prefix=%ED%A0%80",
        "after=%ED%A0%80",
        "after=%00",
        "prefix=" + "x" * 5000,
        "&=&;=",
        "%",
    ],
)
def test_extreme_lists_are_handled(served, query):
    assert served.ask("GET", f"/v1/streams?{query}").status in {200, 400}


@pytest.mark.parametrize("options", [(), ("--no-fast-front",)])
def test_too_large_head_is_refused_in_bounded_memory(tmp_path, options):
    served = Served(tmp_path / "store", options=options)
    try:
        before = memory(served)
        line = b"x: " + b"y" * 500 + b"\r\n"
        for start, more in ((b"GET /health HTTP/1.1\r\n", line), (b"GET /", b"y" * 500)):
            # Without an end: a server that took it would wait for more, and have taken all of it.
            result, taken = sent_until_refused(served, start, more * 1_000, 128 << 20)
            assert result.startswith(b"HTTP/1.1 431")
            assert taken < 64 << 20
        assert served.ask("GET", "/health").status == 200
        # The peak, not what remains after a connection has closed.
        assert memory(served, "VmHWM") - before < 16 << 20
    finally:
        served.kill()


def sent_until_refused(served, start, more, most):
    """Send endless input and return the response, and the number of bytes sent."""
    with socket.create_connection(("127.0.0.1", served.port), 60) as sock:
        sent = 0
        sock.sendall(start)
        with contextlib.suppress(OSError):
            while sent < most:
                sent += sock.send(more)
        return sock.recv(65536), sent


def test_too_large_bodies_are_refused_in_bounded_memory(alone):
    alone.stream("PUT", "s", content_type="text/plain")
    before = memory(alone)
    head = b"POST /v1/stream/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
    for _ in range(3):
        with contextlib.suppress(OSError):
            chunk = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
            raw(alone, head + b"transfer-encoding: chunked\r\n\r\n" + 40 * chunk + b"0\r\n\r\n")
    assert alone.stream("GET", "s").text == b""
    # The largest body that is taken, twice over while its parts are joined, and some air.
    assert memory(alone, "VmHWM") - before < 160 << 20


# Readers


def follow(served, name, offset="now"):
    """Return a reader of server-sent events that has received its position."""
    sock = socket.create_connection(("127.0.0.1", served.port), 60)
    sock.sendall(
        f"GET /v1/stream/{name}?offset={offset}&live=sse HTTP/1.1\r\n".encode()
        + b"host: localhost\r\n\r\n"
    )
    return sock


def hear(sock, wanted):
    result = b""
    while wanted not in result:
        part = sock.recv(65536)
        assert part, result
        result += part
    return result


def test_disconnected_readers_are_dropped(alone):
    alone.stream("PUT", "s", content_type="text/plain")
    before = open_files(alone)
    readers = [follow(alone, "s") for _ in range(50)]
    for reader in readers:
        hear(reader, b"event: control")
    # The connection that made the stream may have been counted before, and be gone by now.
    assert open_files(alone) >= before + 45
    for reader in readers:
        reader.close()
    until(lambda: open_files(alone) <= before + 5)


def test_reader_is_woken_at_once_among_many_other_readers(alone):
    for stream in ("mine", "others"):
        alone.stream("PUT", stream, content_type="text/plain")
    others = [follow(alone, "others") for _ in range(100)]
    mine = follow(alone, "mine")
    for reader in (*others, mine):
        hear(reader, b"event: control")
    alone.stream("POST", "mine", b"hello", content_type="text/plain")
    assert b"data:hello" in hear(mine, b"hello")
    for reader in (*others, mine):
        reader.close()


def test_stopping_server_disconnects_its_readers(patient):
    alone = patient
    alone.stream("PUT", "s", content_type="text/plain")
    events = follow(alone, "s")
    hear(events, b"event: control")
    polled = []

    def poll():
        polled.append(alone.stream("GET", "s", query="?offset=now&live=long-poll").status)

    thread = threading.Thread(target=poll)
    thread.start()
    time.sleep(0.3)
    assert alone.stop() in {0, -15}
    thread.join()
    assert polled == [204]
    # The last chunk marks the end of the body, so the reader knows that it is complete.
    assert hear(events, b"0\r\n\r\n")
    events.close()


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < READERS + 1000:
        pytest.skip(f"this machine allows {hard} open files, and the test needs {READERS + 1000}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (READERS + 1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_readers_wait_in_bounded_memory_and_miss_nothing(tmp_path, many_files):
    environment = {"FOURFOLD_SERVER_CONNECTIONS_MAX": str(READERS + 1000)}
    served = Served(tmp_path / "store", environment=environment)
    readers = []
    try:
        for stream in ("crowd", "other"):
            served.stream("PUT", stream, content_type=JSON)
        before = memory(served)
        for number in range(READERS):
            readers.append(follow(served, "crowd"))
            if number % 200 == 199:
                for reader in readers[-200:]:
                    hear(reader, b"event: control")
        item = (memory(served) - before) / READERS
        print(f"{item / 1024:.1f} KiB for each of {READERS} readers")
        assert item < READER_BYTES
        # Other requests are served meanwhile, and do not wake unrelated readers.
        for n in range(50):
            assert served.stream("POST", "other", b"[%d]" % n, content_type=JSON).status == 204
        assert served.stream("POST", "crowd", b'["hello"]', content_type=JSON).status == 204
        missing = all_hear(readers, b'["hello"]')
        assert missing == 0
        print(f"{memory(served) >> 20} MiB after everybody heard")
        assert memory(served) - before < READERS * READER_BYTES
    finally:
        for reader in readers:
            reader.close()
        until(lambda: open_files(served) < 200)
        assert served.stop() in {0, -15}
    with fourfold.open(tmp_path / "store") as store:
        assert list(store.streams.verify()) == []


def all_hear(readers, wanted):
    """Return the number of readers that have not received a record after a while."""
    left = dict.fromkeys(readers, b"")
    selector = selectors.DefaultSelector()
    for reader in readers:
        reader.setblocking(False)
        selector.register(reader, selectors.EVENT_READ)
    deadline = time.monotonic() + 50
    while left and time.monotonic() < deadline:
        for key, _ in selector.select(1):
            reader = key.fileobj
            part = reader.recv(65536)
            result = left.get(reader, b"") + part
            if wanted in result or not part:
                selector.unregister(reader)
                if wanted in result:
                    left.pop(reader, None)
            else:
                left[reader] = result
    selector.close()
    return len(left)

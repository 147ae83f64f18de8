"""Connections: their number, and timeouts of clients that do not read."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from both_fronts import JSON, TEXT, Connection, Front, append, request, stored

from fourfold import limits, settings
from fourfold.server.connections import Connections
from fourfold.server.http_protocol import RequestTimeouts

MIB = 1 << 20


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def fast(request):
    return request.param


@pytest.fixture
def served(fast, tmp_path):
    """Start servers, which are stopped after the test."""
    fronts = []

    def start(**options):
        fronts.append(Front(tmp_path / f"store{len(fronts)}", fast=fast, **options))
        return fronts[-1]

    yield start
    for front in fronts:
        front.stop()


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def connections(front):
    return len(front.server.server_state.connections)


# Number of connections


def test_connections_over_the_limit_are_refused(served):
    front = served(settings=settings.ServerSettings(connections_max=3))
    front.streams.create("s", JSON)
    retained = [front.connect() for _ in range(3)]
    for item in retained:
        item.send(append("s", b"1"))
        assert item.answer()[0] == 204
    with front.connect() as fourth:
        status, headers, body = fourth.answer()
        assert (status, dict(headers)["retry-after"], dict(headers)["connection"]) == (
            503,
            "1",
            "close",
        )
        assert b'"busy"' in body
        assert fourth.is_ended()
    retained.pop().socket.close()
    until(lambda: connections(front) == 2)
    with front.connect() as later:
        later.send(append("s", b"1"))
        assert later.answer()[0] == 204
    for item in retained:
        item.socket.close()
    assert stored(front, "s") == [b"1"] * 4


def test_requests_on_a_refused_connection_are_ignored(served):
    front = served(settings=settings.ServerSettings(connections_max=1))
    front.streams.create("s", JSON)
    with front.connect() as first:
        first.send(append("s", b"1"))
        assert first.answer()[0] == 204
        with front.connect() as second:
            second.send(append("s", b"2"))
            # The first connection stays until this one is refused.
            while not second.is_ended():
                pass
    assert stored(front, "s") == [b"1"]


def test_addresses_have_their_own_limit():
    gate = Connections(10, 2, frozenset({"203.0.113.9"}))
    assert [gate.enter("198.51.100.1") for _ in range(3)] == [True, True, False]
    assert gate.enter("198.51.100.2")
    # Proxies on this machine, or trusted ones, carry the connections of many clients.
    assert all(gate.enter(address) for address in ["127.0.0.1"] * 3 + ["203.0.113.9"] * 3)
    assert gate.count == 9
    gate.leave("198.51.100.1")
    assert gate.enter("198.51.100.1")
    assert not gate.enter("198.51.100.1")
    assert gate.enter(None)
    assert not gate.enter(None)


def test_addresses_of_one_ipv6_network_count_together():
    gate = Connections(10, 2, frozenset())
    assert gate.enter("2001:db8:0:1::1")
    assert gate.enter("2001:db8:0:1::2")
    assert not gate.enter("2001:db8:0:1:ffff::3")
    assert gate.enter("2001:db8:0:2::1")
    assert [gate.enter(f"::ffff:198.51.100.{n}") for n in (1, 1, 1, 2)] == [True, True, False, True]
    for address in ("2001:db8:0:1::1", "2001:db8:0:1::1"):
        gate.leave(address)
    assert gate.enter("2001:db8:0:1:ffff::3")


def test_reset_connection_is_not_retained_by_its_timer(served):
    front = served()
    front.streams.create("s", JSON)
    with front.connect() as client:
        client.send(request("GET", "s"))
        assert client.answer()[0] == 200
        (connection,) = front.server.server_state.connections
        until(lambda: connection.timeout_keep_alive_task is not None)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: connections(front) == 0)
    assert connection.timeout_keep_alive_task is None


# Clients that do not read


def quick(**options):
    return {"timeouts": RequestTimeouts(interval_s=0.02, write_stall_s=0.5), **options}


def deaf(front, sent):
    """Return a client with a small window that sends, and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", front.port))
    sock.sendall(sent)
    return sock


@pytest.mark.parametrize("query", ["", "&live=sse", "&format=records"])
def test_reader_without_progress_is_disconnected(served, query):
    front = served(**quick())
    front.streams.create("s", TEXT)
    for _ in range(4):
        front.streams.open("s").append(b"z" * 4 * MIB)
    readers = [deaf(front, request("GET", f"s?offset=-1{query}")) for _ in range(3)]
    until(lambda: connections(front) == 3)
    until(lambda: connections(front) == 0)
    for reader in readers:
        reader.close()


def test_writer_that_reads_no_responses_is_disconnected(served):
    front = served(**quick())
    front.streams.create("s", JSON)
    front.streams.create("large", TEXT)
    front.streams.open("large").append(b"z" * MIB)
    sent = request("GET", "large") * 10 + append("s") * 10
    with deaf(front, sent) as writer:
        until(lambda: connections(front) == 1)
        writer.settimeout(0.2)
        with pytest.raises(OSError):
            writer.sendall(append("s") * 100_000)
        until(lambda: connections(front) == 0)


def test_slow_reader_with_progress_is_not_disconnected(served):
    front = served(**quick())
    front.streams.create("s", TEXT)
    front.streams.open("s").append(b"z" * 4 * MIB)
    front.streams.open("s").append(b"z" * 4 * MIB)
    with deaf(front, request("GET", "s?offset=-1")) as reader:
        size = 0
        for _ in range(150):
            part = reader.recv(MIB // 4)
            assert part, size
            size += len(part)
            time.sleep(0.01)
        assert connections(front) == 1


def test_idle_reader_is_not_disconnected(served):
    front = served(**quick())
    front.streams.create("s", JSON)
    with front.connect() as reader:
        reader.send(request("GET", "s?offset=now&live=sse"))
        time.sleep(1.2)
        front.streams.open("s").append(b'"late"')
        result = b""
        while b"late" not in result:
            part = reader.socket.recv(65536)
            assert part, result
            result += part


# Clients that send too slowly


def test_slow_requests_are_disconnected(served, monkeypatch):
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_HEAD_S", 0.2)
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_BODY_S", 0.4)
    monkeypatch.setattr(limits, "HTTP_KEEP_ALIVE_S", 0.6)
    front = served(timeouts=RequestTimeouts(interval_s=0.05))
    front.streams.create("s", JSON)
    with front.connect() as head, front.connect() as body, front.connect() as silent:
        head.send(append("s")[:30])
        body.send(append("s", b"[1]")[:-1])
        assert head.answer()[0] == 408
        assert body.answer()[0] == 408
        assert silent.answer() is None
    with front.connect() as other:
        other.send(request("PUT", "t", b"xyz", content_type=TEXT)[:-1])
        assert other.answer()[0] == 408
        assert other.is_ended()
    assert stored(front, "s") == []
    assert [info.name for info in front.streams.list()] == ["s"]


def test_slow_refused_body_is_disconnected_without_a_second_response(served, monkeypatch):
    monkeypatch.setattr("fourfold.server.http_protocol.HTTP_BODY_S", 0.2)
    front = served(timeouts=RequestTimeouts(interval_s=0.05), access=True)
    front.access.add(("read",))
    with Connection(front.port) as connection:
        connection.send(append("s", b"[1]")[:-1])
        assert connection.answer()[0] == 401
        assert connection.answer() is None

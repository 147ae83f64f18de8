"""Idle readers: what thousands of connections that wait for records cost a server."""

from __future__ import annotations

import selectors
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import machine, tables
from bench.machine import Machine
from bench.measurement import quantile
from bench.reliability.models import expect
from bench.reliability.server import Connection, Server

KINDS = ("sse", "long-poll")
_APPENDS = 1000
_WAIT_S = 120.0
_FOLLOWED, _BUSY = "/v1/stream/followed", "/v1/stream/busy"


class Figure(msgspec.Struct, frozen=True):
    """Readers of one kind that wait at the end of a stream."""

    kind: str
    readers: int
    idle_memory_bytes: int
    """Anonymous memory of the server before the readers came."""
    memory_bytes: int
    bytes_per_reader: int
    open_files: int
    connect_s: float
    alone_p50_ms: float
    alone_p99_ms: float
    """Appends to another stream before the readers came."""
    p50_ms: float
    p99_ms: float
    """The same while they wait."""
    all_received_s: float
    """From an append to their stream until the last of them has received it."""
    slowest_append_ms: float
    """The slowest append to another stream during that time."""
    memory_after_bytes: int
    """After all of them have left."""
    memory_again_bytes: int
    """With as many new ones: no more than the first time unless something stays."""


class Result(msgspec.Struct, frozen=True):
    """One run."""

    finished_at: str
    machine: Machine
    foreign_share: float | None
    figures: list[Figure]


def run(folder: Path, count: int) -> Result:
    """Measure `count` readers of each kind."""
    with machine.ForeignLoad() as foreign:
        figures = [measure(folder / kind, kind, count) for kind in KINDS]
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.describe(folder),
        foreign_share=foreign.share,
        figures=figures,
    )


def measure(folder: Path, kind: str, count: int) -> Figure:
    """Let `count` readers wait for a stream, and append to it and to another one."""
    settings = {
        "FOURFOLD_SERVER_CONNECTIONS_MAX": str(count + 100),
        "FOURFOLD_SERVER_CONNECTIONS_PER_ADDRESS": str(count + 100),
    }
    server = Server(folder, options=("--long-poll", "600"), environment=settings)
    readers: list[socket.socket] = []
    connection = Connection(server.port)
    try:
        for path in (_FOLLOWED, _BUSY):
            expect(connection.request("PUT", path))
        alone = _append_times(connection)
        idle = _memory(server)
        before = time.perf_counter()
        _connect(connection, server, kind, count, readers)
        connected = time.perf_counter() - before
        with_readers, memory = _append_times(connection), _memory(server)
        open_files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        received_s, slowest = _deliver(connection, readers)
        _disconnect(connection, kind, readers)
        memory_after = _memory(server)
        _connect(connection, server, kind, count, readers)
        memory_again = _memory(server)
        return Figure(
            kind=kind,
            readers=count,
            idle_memory_bytes=idle,
            memory_bytes=memory,
            bytes_per_reader=(memory - idle) // count,
            open_files=open_files,
            connect_s=round(connected, 2),
            alone_p50_ms=round(quantile(alone, 0.5), 2),
            alone_p99_ms=round(quantile(alone, 0.99), 2),
            p50_ms=round(quantile(with_readers, 0.5), 2),
            p99_ms=round(quantile(with_readers, 0.99), 2),
            all_received_s=round(received_s, 2),
            slowest_append_ms=round(slowest, 1),
            memory_after_bytes=memory_after,
            memory_again_bytes=memory_again,
        )
    finally:
        for reader in readers:
            reader.close()
        connection.close()
        server.kill()


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""

    def megabytes(size: int) -> str:
        return f"{size / 1e6:.0f} MB"

    rows = [
        (
            f"{figure.readers:,} by {figure.kind}",
            f"{figure.bytes_per_reader / 1024:.1f} KiB",
            (
                f"{megabytes(figure.idle_memory_bytes)}, {megabytes(figure.memory_bytes)}, "
                f"{megabytes(figure.memory_after_bytes)}, {megabytes(figure.memory_again_bytes)}"
            ),
            f"{figure.alone_p50_ms:.1f}, {figure.alone_p99_ms:.1f} ms",
            f"{figure.p50_ms:.1f}, {figure.p99_ms:.1f} ms",
            f"{figure.all_received_s:.1f} s",
            f"{figure.slowest_append_ms:.0f} ms",
        )
        for figure in result.figures
    ]
    columns = (
        "readers",
        "memory of each",
        "server before, with, after them, with new ones",
        "append before: p50, p99",
        "append with them: p50, p99",
        "one record to all",
        "slowest append meanwhile",
    )
    return "\n\n".join([tables.markdown(columns, rows), f"From `bench/results/{path.name}`."])


def _connect(
    connection: Connection, server: Server, kind: str, count: int, readers: list[socket.socket]
) -> None:
    """Add readers; return when all of them wait in the server."""
    readers += [_reader(server.port, kind) for _ in range(count)]
    if kind == "sse":
        # The response begins with the position at which the reader waits.
        _await_all(readers, b"upToDate")
    _await_in_flight(connection, kind, count)


def _disconnect(connection: Connection, kind: str, readers: list[socket.socket]) -> None:
    for reader in readers:
        reader.close()
    readers.clear()
    _await_in_flight(connection, kind, 0)


def _reader(port: int, kind: str) -> socket.socket:
    reader = socket.create_connection(("127.0.0.1", port), timeout=_WAIT_S)
    request = f"GET {_FOLLOWED}?offset=now&live={kind} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    reader.sendall(request.encode())
    return reader


def _await_all(readers: list[socket.socket], mark: bytes) -> None:
    """Read from every reader until it has received `mark`."""
    received = dict.fromkeys(readers, b"")
    deadline = time.monotonic() + _WAIT_S
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ, reader)
        while received:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{len(received)} readers did not receive {mark!r}")
            for key, _ in selector.select(1.0):
                reader = key.data
                data = reader.recv(1 << 16)
                if not data:
                    raise ConnectionError("the server closed a reader")
                received[reader] += data
                if mark in received[reader]:
                    selector.unregister(reader)
                    del received[reader]


def _await_in_flight(connection: Connection, kind: str, count: int) -> None:
    """Wait until as many readers wait in the server."""
    label = {"sse": "feed", "long-poll": "long-poll"}[kind]
    deadline = time.monotonic() + _WAIT_S
    while True:
        text = expect(connection.request("GET", "/metrics")).body.decode()
        for line in text.splitlines():
            if line.startswith("fourfold_http_requests_in_flight{") and label in line:
                current = int(float(line.rpartition(" ")[2]))
                if current == count:
                    return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{count} readers were expected:\n{text}")
        time.sleep(0.2)


def _append_times(connection: Connection) -> list[float]:
    return sorted(_append(connection, _BUSY) for _ in range(_APPENDS))


def _append(connection: Connection, path: str) -> float:
    before = time.perf_counter()
    expect(connection.request("POST", path, ["mark"]))
    return (time.perf_counter() - before) * 1000


def _deliver(connection: Connection, readers: list[socket.socket]) -> tuple[float, float]:
    """Append to the stream of the readers; seconds until all have it, and the slowest append."""
    before = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:
        _append(connection, _FOLLOWED)
        waiting = pool.submit(_await_all, readers, b"mark")
        slowest = _append(connection, _BUSY)
        while not waiting.done():
            slowest = max(slowest, _append(connection, _BUSY))
        waiting.result()
    return time.perf_counter() - before, slowest


def _memory(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024

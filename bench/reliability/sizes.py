"""What a server takes for each stream, space, session and write: memory, disk, processor time."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import machine, tables
from bench.machine import Machine
from bench.reliability.models import expect
from bench.reliability.server import Connection, Server

_TICKS = os.sysconf("SC_CLK_TCK")
_BODY = {"id": 1, "note": "x" * 180}
"""A value of 200 bytes as JSON."""
_JSON = {"Content-Type": "application/json"}
_HIDDEN = ("-shm", ".lock")

Call = Callable[[Connection, int], object]


class Figure(msgspec.Struct, frozen=True):
    """What one of a kind takes."""

    name: str
    count: int
    memory_bytes: float
    """Anonymous memory of the server while it is in use."""
    disk_bytes: float
    """Files of the store after the server has stopped."""
    cpu_us: float
    """Processor time of the server for its request, by one client."""


class Result(msgspec.Struct, frozen=True):
    """One run."""

    finished_at: str
    machine: Machine
    foreign_share: float | None
    server_bytes: int
    """Anonymous memory of a server without use."""
    figures: list[Figure]


def run(folder: Path, count: int) -> Result:
    """Measure `count` of each kind, and a tenth of it spaces, each in a store of its own."""
    with machine.ForeignLoad() as foreign:
        figures = [_measure(folder, name, count, *calls) for name, calls in _KINDS.items()]
        figures.append(_measure(folder, "space", max(1, count // 10), _nothing, _put_space))
        server = Server(folder / "empty")
        try:
            server_bytes = _memory(server)
        finally:
            server.kill()
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.describe(folder),
        foreign_share=foreign.share,
        server_bytes=server_bytes,
        figures=figures,
    )


def _measure(folder: Path, name: str, count: int, prepare: Call, call: Call) -> Figure:
    root = folder / name
    server = Server(root)
    connection = Connection(server.port)
    try:
        prepare(connection, 0)
        connection.close()
        server.stop()
        empty = _disk(root)
        server.start()
        # The first request loads what it needs.
        expect(connection.request("GET", "/v1/streams"))
        call(connection, count)
        memory, processor = _memory(server), _processor_s(server)
        for number in range(count):
            call(connection, number)
        memory, processor = _memory(server) - memory, _processor_s(server) - processor
        connection.close()
        server.stop()
    finally:
        connection.close()
        server.kill()
    return Figure(
        name=name,
        count=count,
        memory_bytes=round(memory / count),
        disk_bytes=round((_disk(root) - empty) / (count + 1)),
        cpu_us=round(processor / count * 1e6),
    )


def _nothing(_connection: Connection, _number: int) -> None:
    return


def _put_stream(connection: Connection, number: int) -> None:
    expect(connection.request("PUT", f"/v1/stream/s{number}", headers=_JSON))


def _append(connection: Connection, _number: int) -> None:
    expect(connection.request("POST", "/v1/stream/s0", _BODY))


def _create_space(connection: Connection, number: int) -> None:
    expect(connection.request("PUT", f"/v1/spaces/did:web:s{number}"))


def _put_space(connection: Connection, number: int) -> None:
    _create_space(connection, number)
    expect(connection.request("PUT", f"/v1/spaces/did:web:s{number}/documents/note", _BODY))


def _put_document(connection: Connection, number: int) -> None:
    expect(connection.request("PUT", f"/v1/spaces/did:web:s0/documents/n{number}", _BODY))


def _put_revision(connection: Connection, number: int) -> None:
    body = {**_BODY, "number": number}
    expect(connection.request("PUT", "/v1/spaces/did:web:s0/documents/note", body))


def _create_session(connection: Connection, number: int) -> None:
    expect(connection.request("POST", "/v1/sessions", {"id": f"t{number}"}))


def _append_event(connection: Connection, _number: int) -> None:
    body = {"events": [{"type": "app/note", "note": "x" * 180}]}
    expect(connection.request("POST", "/v1/sessions/events/t0", body))


_KINDS: dict[str, tuple[Call, Call]] = {
    "stream": (_nothing, _put_stream),
    "record": (_put_stream, _append),
    "document": (_create_space, _put_document),
    "revision": (_create_space, _put_revision),
    "session": (_nothing, _create_session),
    "event": (_create_session, _append_event),
}


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""
    rows = [
        (
            f"{figure.name} ({figure.count:,})",
            _size(figure.memory_bytes),
            _size(figure.disk_bytes),
            f"{figure.cpu_us:,.0f} µs",
        )
        for figure in result.figures
    ]
    columns = ("one (of so many)", "memory while in use", "disk", "processor time")
    share = "" if result.foreign_share is None else f", {result.foreign_share:.0%} of it others"
    facts = (
        f"A new server has {result.server_bytes / 1e6:.0f} MB. On {result.machine.cores} cores"
        f"{share}; values have 200 bytes. From `bench/results/{path.name}`."
    )
    return "\n\n".join([tables.markdown(columns, rows), facts])


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} KB"


def _memory(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def _processor_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _disk(root: Path) -> int:
    files = (path for path in root.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files if not path.name.endswith(_HIDDEN))

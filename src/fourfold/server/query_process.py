"""A process that runs queries of clients, one after the other, within a limit of memory.

    python -m fourfold.server.query_process ROOT MEMORY_BYTES

It reads tasks from stdin and writes their outcomes to stdout, as frames: the length in four bytes,
and MessagePack. The bytes of a result follow its outcome. An empty frame means that the process is
ready. It ends at the end of its input, so it does not outlive the server for longer than a query.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from fourfold.errors import CorruptData, FourfoldError, InvalidInput, LimitExceeded
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.kernel.query_connection import limit_heap
from fourfold.query.engine import QueryOptions, all_tables, parse_time, run_query
from fourfold.server.query_messages import BASE64, LENGTH, NUMBER, Format, QueryOutcome, QueryTask
from fourfold.sql_result import Result, distinct_names
from fourfold.store import open_store
from fourfold.wire.sql import SqlColumn, SqlResult

_SPECIAL: Final = frozenset({bytes, float})


class _MemoryLimit:
    """The limit of the memory of this process while it runs a query."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._base = _address_space()
        _, self._hard = resource.getrlimit(resource.RLIMIT_AS)
        limit_heap(limit_bytes)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Limit what this process may have more than at its start."""
        allowed = self._base + self._limit
        if self._hard != resource.RLIM_INFINITY:
            allowed = min(allowed, self._hard)
        resource.setrlimit(resource.RLIMIT_AS, (allowed, self._hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (self._hard, self._hard))

    def load(self, function: Callable[[], None]) -> None:
        """Call a function that imports modules, whose memory does not count."""
        before = _address_space()
        function()
        self._base += max(0, _address_space() - before)

    @property
    def is_used_up(self) -> bool:
        """True if the last query has left less than half of the memory for the next one."""
        return _address_space() - self._base > self._limit // 2


def _address_space() -> int:
    """Return the size of the address space of this process; 0 where it is unknown."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[0]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def serve(root: Path, memory_bytes: int, source: BinaryIO, sink: BinaryIO) -> None:
    """Run tasks until the input ends, or a query has used too much memory."""
    for tables in all_tables().values():
        __import__(tables.rows)
    memory = _MemoryLimit(memory_bytes)
    decoder = msgspec.msgpack.Decoder(QueryTask)
    _write(sink, b"")
    while header := source.read(LENGTH.size):
        task = decoder.decode(source.read(LENGTH.unpack(header)[0]))
        outcome, body = _run(root, task, memory)
        _write(sink, msgspec.msgpack.encode(outcome), body)
        if outcome.ends:
            return


def _write(sink: BinaryIO, frame: bytes, body: bytes = b"") -> None:
    sink.write(LENGTH.pack(len(frame)) + frame)
    sink.write(body)
    sink.flush()


def _run(root: Path, task: QueryTask, memory: _MemoryLimit) -> tuple[QueryOutcome, bytes]:
    try:
        if task.format == "arrow":
            memory.load(_load_arrow)
        options = _options(root, task)
        with memory.enforced():
            result = run_query(root, task.body.query, task.params, options)
            body = ENCODERS[task.format](result)
        outcome = QueryOutcome(
            size=len(body),
            rows=len(result),
            truncated=result.truncated,
            ends=memory.is_used_up,
        )
    except FourfoldError as error:
        # The memory of a query that ran out of it is not all returned.
        ends = isinstance(error, LimitExceeded) or memory.is_used_up
        return QueryOutcome(error=error.as_dict(), ends=ends), b""
    except MemoryError:
        exhausted = LimitExceeded("query: out of memory", hint="Narrow the query.")
        return QueryOutcome(error=exhausted.as_dict(), ends=True), b""
    except UnicodeError as error:
        damaged = CorruptData(f"query: stored text is damaged: {error}")
        return QueryOutcome(error=damaged.as_dict()), b""
    return outcome, body


def _load_arrow() -> None:
    try:
        import pyarrow.ipc  # noqa: PLC0415, F401 - an optional dependency, and slow
    except ImportError:
        # The conversion raises an error that says how to install it.
        return


def _options(root: Path, task: QueryTask) -> QueryOptions:
    body = task.body
    return QueryOptions(
        at=_point(root, body.at),
        branch=body.branch,
        model=body.model,
        space=body.space,
        prefixes=task.prefixes,
        remote=True,
        timeout_s=body.timeout_s,
        max_rows=body.max_rows,
        max_bytes=body.max_bytes,
    )


def _point(root: Path, at: int | str | None) -> datetime | int | None:
    if not isinstance(at, str):
        return at
    try:
        return parse_time(at)
    except InvalidInput:
        with open_store(root, mode="r") as store:
            return store.point_of(at)


def _plain(value: Any) -> Any:
    """Return a value that JSON supports."""
    if isinstance(value, bytes):
        return {BASE64: base64.b64encode(value).decode()}
    return value if math.isfinite(value) else {NUMBER: str(value)}


def _encode_json(result: Result) -> bytes:
    columns = [SqlColumn(name=name, type=result.types.get(name)) for name in result.columns]
    rows = [
        [_plain(value) if type(value) in _SPECIAL else value for value in row] for row in result
    ]
    return msgspec.json.encode(
        SqlResult(
            columns=columns,
            rows=rows,
            cut=result.cut,
            truncated=result.truncated,
            warnings=list(result.warnings),
        )
    )


def _encode_ndjson(result: Result) -> bytes:
    names = distinct_names(result.columns)
    rows = (
        (_plain(value) if type(value) in _SPECIAL else value for value in row) for row in result
    )
    return msgspec.json.Encoder().encode_lines([dict(zip(names, row, strict=True)) for row in rows])


def _encode_csv(result: Result) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(result.columns)
    writer.writerows(
        [base64.b64encode(value).decode() if type(value) is bytes else value for value in row]
        for row in result
    )
    return text.getvalue().encode()


def _encode_arrow(result: Result) -> bytes:
    table = result.to_arrow()
    from pyarrow import BufferOutputStream, ipc  # noqa: PLC0415 - an optional dependency

    metadata = {
        "cut": msgspec.json.encode(result.cut),
        "truncated": str(result.truncated).lower(),
        "warnings": msgspec.json.encode(result.warnings),
    }
    table = table.replace_schema_metadata(metadata)
    sink = BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


ENCODERS: Final[Mapping[Format, Callable[[Result], bytes]]] = {
    "json": _encode_json,
    "ndjson": _encode_ndjson,
    "csv": _encode_csv,
    "arrow": _encode_arrow,
}


if __name__ == "__main__":
    # Ctrl-C in the terminal of the server is not for its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A long query must not take processor time from the requests of the server.
    lower_thread_priority()
    # What a library prints must not end up between the frames.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(Path(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer, output)
    except BrokenPipeError:
        os._exit(0)

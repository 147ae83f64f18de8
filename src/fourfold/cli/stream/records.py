"""`fourfold stream read`, `tail`, `state` and `append`.

`append` takes a body, or the lines of a file or of stdin, in batches. Empty lines are skipped.
Every other line has two numbers: the line number, for messages, and its index among the non-empty
lines, for the producer. A batch is limited by lines and by bytes, so that it fits into a
transaction, unless a single line does not.

Without a producer a batch of lines is one append. With one, every line is an append, numbered by
its index, because a sequence number identifies one append and not a range: so a later run can skip
lines that an earlier run sent, whatever its batches were. In a folder the appends of a batch share
a commit; over HTTP each is a request.

The response to a duplicate line contains the producer's last number, so that lines up to it are not
sent at all.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self

import click
import msgspec

from fourfold import limits
from fourfold.cli.output import Output, counted
from fourfold.cli.stream.arguments import (
    Place,
    key_option,
    name_argument,
    parse_where,
    streams_command,
    where_option,
)
from fourfold.content.filters import Filter
from fourfold.errors import (
    CommitUncertain,
    FourfoldError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    StorageError,
)
from fourfold.models.streams import (
    Append,
    AppendResult,
    Chunk,
    Producer,
    Record,
    StreamInfo,
    Streams,
)
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.validation import (
    START,
    Offset,
    check_expected,
    check_key,
    format_offset,
)

APPEND_LINES: Final = 1_000
"""Lines of a file that go into one commit when a stream is loaded from it."""


@streams_command("read", rows=True)
@name_argument
@click.option("--offset", default="-1", show_default=True, help="Offset to start at.")
@click.option(
    "--since",
    metavar="TIME",
    help="Start at the first record appended at or after this time, instead of an offset: "
    "2026-03-01T12:00:00Z, or milliseconds since 1970.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of records.",
)
@key_option
@where_option
def read(
    out: Output,
    streams: Place,
    *,
    name: str,
    offset: str,
    since: str | None,
    limit: int,
    routing_key: str | None,
    where: str | None,
) -> None:
    """Print records starting at an offset or a time, one per line.

    With --json, also print their offsets and the next offset.
    """
    if since is not None:
        if offset != START:
            raise InvalidInput("read: pass --offset or --since, not both")
        offset = streams.offset_since(name, since)
    chunks = _chunks(streams, name, offset, limit, key=routing_key, where=parse_where(where))
    if out.as_json:
        _print_document(out, name, chunks, _row, ("next_offset", "up_to_date", "closed"))
    else:
        print_chunks(out, chunks)


@streams_command("tail", rows=True)
@name_argument
@click.option(
    "--lines", type=click.IntRange(min=0), default=10, show_default=True, help="Number of records."
)
@click.option("--follow", is_flag=True, help="Wait for new records, until interrupted or closed.")
def tail(out: Output, streams: Place, *, name: str, lines: int, follow: bool) -> None:
    """Print the last records of a stream, and with --follow new ones."""
    info = streams.info(name)
    end = info.next_offset
    first = max(info.first_offset, end - lines)
    if follow:
        print_chunks(out, streams.open(name).follow(format_offset(first, info.incarnation_number)))
        return
    number = info.incarnation_number
    chunks = iter((Chunk((), end, end, True, info.closed, number),))
    if first < end:
        chunks = _chunks(streams, name, format_offset(first, number), end - first)
    if out.as_json:
        _print_document(
            out, name, chunks, lambda record, _: format_payload(record.payload), ("next_offset",)
        )
    else:
        print_chunks(out, chunks)


@streams_command("state", rows=True)
@name_argument
def state(out: Output, streams: Place, *, name: str) -> None:
    """Print the newest value of each key of a state stream.

    Its messages are changes: {"type", "key", "value", "headers": {"operation": "upsert"}}.
    """
    state = streams.state(name)
    out.rows(
        {
            "name": name,
            "state": [
                {"type": key[0], "key": key[1], "value": value} for key, value in state.items()
            ],
        },
        "state",
        {
            "type": lambda row: _printable(row["type"]),
            "key": lambda row: _printable(row["key"]),
            "value": lambda row: _printable(json.dumps(row["value"], ensure_ascii=False)),
        },
        fields=("type", "key", "value"),
        empty=f"{name} has no state yet",
    )


def _chunks(
    streams: Place,
    name: str,
    offset: str,
    limit: int,
    *,
    key: str | None = None,
    where: Filter | None = None,
) -> Iterator[Chunk]:
    """Yield chunks of at most `limit` records in total, each small enough for memory.

    Yields at least one chunk; a chunk may be empty.
    """
    stream = streams.open(name)
    while True:
        chunk = stream.read(offset, min(limit, limits.STREAM_READ_RECORDS), key=key, where=where)
        yield chunk
        limit -= len(chunk.records)
        if limit <= 0 or chunk.up_to_date:
            return
        offset = chunk.offset


def _print_document(
    out: Output,
    name: str,
    chunks: Iterator[Chunk],
    row: Callable[[Record, Chunk], object],
    facts: Sequence[str],
) -> None:
    """Print a JSON document incrementally: the records, then facts of the last chunk."""
    first = chunk = next(chunks)  # If nothing can be read, nothing is printed.
    out.text(f'{{\n  "name": {json.dumps(name)},\n  "records": [')
    between = "\n"
    for chunk in chain((first,), chunks):
        for record in chunk.records:
            out.text(between + textwrap.indent(json.dumps(row(record, chunk), indent=2), "    "))
            between = ",\n"
    out.text("]" if between == "\n" else "\n  ]")
    values = {**msgspec.structs.asdict(chunk), "next_offset": chunk.offset}
    for fact in facts:
        out.text(f',\n  "{fact}": {json.dumps(values[fact])}')
    out.text("\n}\n")


def _row(record: Record, chunk: Chunk) -> dict[str, object]:
    return {
        "offset": format_offset(record.offset, chunk.incarnation_number),
        "ts_ms": record.ts_ms,
        "record": format_payload(record.payload),
        "headers": record.headers,
    }


_ROW_FIELDS: Final = ("offset", "ts_ms", "record", "headers")


def print_chunks(out: Output, chunks: Iterable[Chunk]) -> None:
    """Print records as they are, or as rows; a reader of a pipe gets each chunk without delay.

    With --json too, each record is a line: the end of what is followed is not known.
    """
    write = make_row_writer(out, _ROW_FIELDS)
    for chunk in chunks:
        for record in chunk.records:
            if write is None:
                out.text(format_payload(record.payload) + "\n")
            else:
                write(_row(record, chunk))
        out.flush()


def make_row_writer(
    out: Output, fields: Sequence[str]
) -> Callable[[dict[str, object]], None] | None:
    """Return a function that prints a row, or None if records are printed as they are."""
    if out.as_json:
        return lambda row: out.text(json.dumps(row) + "\n")
    return out.row_writer(fields) if out.as_rows else None


def _printable(text: str) -> str:
    """Escape lone surrogates, so that the text can be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


def format_payload(payload: bytes) -> str:
    """Format a record: JSON and text as they are, other bytes as base64."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode()


class InputLine(NamedTuple):
    """A line that is not empty."""

    number: int
    """Line number, from 1."""
    seq: int
    """Index among the lines that are not empty, from 0."""
    data: bytes


class LineBatch(NamedTuple):
    """A batch of lines with their records."""

    lines: list[InputLine]
    records: list[list[bytes]]
    last: bool
    """True if no line follows."""


class BadLine(Exception):
    """A line that cannot be parsed, and its error."""

    def __init__(self, line: InputLine, error: FourfoldError) -> None:
        super().__init__(str(error))
        self.line = line
        self.error = error


class Lines:
    """Iterate over the non-empty lines of FILE, or of stdin for `-`, and count the bytes read."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self.read_bytes = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        if self._source != "-":
            path = Path(self._source)
            try:
                self._file = path.open("rb")
                self.bytes = path.stat().st_size
            except FileNotFoundError:
                raise NotFound(f"{self._source}: there is no such file") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[InputLine]:
        seq = 0
        for number, raw in enumerate(self._file or sys.stdin.buffer, 1):
            self.read_bytes += len(raw)
            if data := raw.rstrip(b"\r\n"):
                yield InputLine(number, seq, data)
                seq += 1


def batches(
    lines: Iterator[InputLine], read: Callable[[bytes], list[bytes]], *, together: Callable[[], int]
) -> Iterator[LineBatch]:
    """Yield batches of lines.

    `read` splits a line into records, and `together` returns the maximum number of lines in a
    batch. Lines before an invalid one are yielded first; then `BadLine` is raised.
    """
    batch = LineBatch([], [], last=False)
    size = 0
    for line in lines:
        full = len(batch.lines) >= together() or size + len(line.data) > limits.APPEND_BATCH_BYTES
        if batch.lines and full:
            yield batch
            batch, size = LineBatch([], [], last=False), 0
        try:
            records = read(line.data)
        except FourfoldError as error:
            if batch.lines:
                yield batch
            raise BadLine(line, error) from error
        batch.lines.append(line)
        batch.records.append(records)
        size += len(line.data)
    if batch.lines:
        yield batch._replace(last=True)


class BulkAppend(NamedTuple):
    """Source and options of a bulk append."""

    source: str
    producer: Producer | None
    """The producer, with the number of the first line."""
    routing_key: bytes | None
    closing: bool
    headers: bytes | None = None


class LoadReport(NamedTuple):
    """Result of a load."""

    done: AppendResult
    records: int
    """Records appended by this run."""
    sent_before: int
    """Lines that the producer had sent before."""


def load(out: Output, streams: Place, info: StreamInfo, options: BulkAppend) -> LoadReport:
    """Append every line; return when all are on disk."""
    loading = _LoadRun(streams, info, options)
    with out.progress(f"appending to {info.name}") as advance, Lines(options.source) as lines:
        for _ in loading.steps(iter(lines)):
            advance(counted(loading.records, "record"), lines.read_bytes, lines.bytes)
    if options.closing and not loading.done.closed:
        # No line was left to carry the close.
        loading.done = streams.append(info.name, Append((), info.content_type, close=True))
    return LoadReport(loading.done, loading.records, loading.sent_before)


class _LoadRun:
    """One load, and its progress."""

    def __init__(self, streams: Place, info: StreamInfo, options: BulkAppend) -> None:
        self._streams, self._info, self._options = streams, info, options
        self.done = AppendResult(
            info.next_offset, False, info.closed, None, info.incarnation_number
        )
        self.records = 0
        self.sent_before = 0
        self._position_known = options.producer is None
        """True once the producer's last accepted number is known."""
        self._reached = -1
        """The producer's last number known to be accepted."""

    def steps(self, lines: Iterator[InputLine]) -> Iterator[None]:
        """Append batch by batch; yield after each."""
        read = partial(split, content_type=self._info.content_type)
        append = self._together if self._options.producer is None else self._one_by_one
        try:
            for batch in batches(self._unsent(lines), read, together=self._most):
                append(batch)
                yield
        except BadLine as bad:
            raise self._failed([bad.line], bad.error) from bad.error

    def _most(self) -> int:
        """Return the maximum number of lines in the next batch."""
        if not self._position_known:
            return 1
        if self._options.producer is None and _is_one_record(self._streams, self._info):
            return 1
        return APPEND_LINES

    def _unsent(self, lines: Iterator[InputLine]) -> Iterator[InputLine]:
        """Skip lines that are known to be sent."""
        producer = self._options.producer
        for line in lines:
            if producer is None or producer.seq + line.seq > self._reached:
                yield line
            else:
                self.sent_before += 1

    def _together(self, batch: LineBatch) -> None:
        records = [entry for one in batch.records for entry in one]
        try:
            self.done = self._streams.append(self._info.name, self._append(records, batch.last))
        except FourfoldError as error:
            raise self._failed(batch.lines, error) from error
        self.records += len(records)

    def _one_by_one(self, batch: LineBatch) -> None:
        appends = [
            self._append(records, batch.last and line is batch.lines[-1], line)
            for line, records in zip(batch.lines, batch.records, strict=True)
        ]
        for line, request, outcome in zip(
            batch.lines, appends, _outcomes(self._streams, self._info.name, appends), strict=False
        ):
            if isinstance(outcome, FourfoldError):
                raise self._failed([line], outcome) from outcome
            self.done = outcome
            if outcome.duplicate:
                self.sent_before += 1
            else:
                self.records += len(request.records)
            if outcome.producer is not None:
                self._reached = outcome.producer.seq
        self._position_known = True

    def _append(
        self, records: Sequence[bytes], last: bool, line: InputLine | None = None
    ) -> Append:
        who = self._options.producer
        if who is not None and line is not None:
            who = who._replace(seq=who.seq + line.seq)
        return Append(
            records,
            self._info.content_type,
            who,
            close=last and self._options.closing,
            routing_key=self._options.routing_key,
            headers=self._options.headers,
        )

    def _failed(self, lines: Sequence[InputLine], error: FourfoldError) -> FourfoldError:
        """Return the error with its line, the records appended so far, and a hint to continue."""
        first, last = lines[0].number, lines[-1].number
        source = "stdin" if self._options.source == "-" else self._options.source
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        were = "was" if self.records == 1 else "were"
        before = f"{counted(self.records, 'record')} {were} appended before"
        return type(error)(
            f"{source}, {where}: {error.message}; {before}",
            hint=self._hint(first, error),
            retry_after=error.retry_after,
            details={**error.details, "line": first, "appended": self.records},
        )

    def _hint(self, line: int, error: FourfoldError) -> str:
        numbered = self._options.producer is not None
        if not (isinstance(error, InvalidInput | StorageError) or error.retryable):
            # The same lines would be refused again.
            return error.hint
        if isinstance(error, OutcomeUnknown | CommitUncertain) and not numbered:
            return error.hint
        # That is true of this append, but not of the file.
        own = "" if "othing was written" in error.hint else f"{error.hint} "
        again = "Fix that and run" if isinstance(error, InvalidInput) else "Run"
        if numbered:
            return f"{own}{again} the same command again: lines that were sent before are skipped."
        if not self.records:
            return f"{own}{again} the same command again."
        rest = "" if self._options.source == "-" else f" (`tail -n +{line} {self._options.source}`)"
        return (
            f"{own}Append the lines from {line} on{rest}; the same command again would append the "
            "others twice. With --producer the whole run can be repeated."
        )


def _is_one_record(streams: Place, info: StreamInfo) -> bool:
    """Return True if each request makes one record: over HTTP, for a stream of bytes."""
    return not isinstance(streams, Streams) and not info.is_json


def _outcomes(
    streams: Place, name: str, appends: Sequence[Append]
) -> Iterator[AppendResult | FourfoldError]:
    """Yield the outcome of each append in order, up to the first failure."""
    if isinstance(streams, Streams):
        yield from asyncio.run(_in_one_commit(streams, name, appends))
        return
    for request in appends:
        # One at a time: requests out of order are refused and sent again.
        try:
            yield streams.append(name, request)
        except FourfoldError as error:
            yield error
            return


async def _in_one_commit(
    streams: Streams, name: str, appends: Sequence[Append]
) -> list[AppendResult | FourfoldError]:
    """Append all in one commit. If one is refused, so are those after it, for a sequence gap."""
    results = await asyncio.gather(
        *(streams.append_async(name, request) for request in appends), return_exceptions=True
    )
    outcomes: list[AppendResult | FourfoldError] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, FourfoldError):
            raise result
        outcomes.append(result)
    return outcomes


@streams_command("append", writes=True)
@name_argument
@click.argument("body", required=False)
@click.option(
    "--from", "source", metavar="FILE|-", help="Append every line as a record; - is stdin."
)
@click.option("--producer", help="Producer id; lines that this producer sent before are skipped.")
@click.option(
    "--seq",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Sequence number of BODY, or of the first line; default for lines: 0.",
)
@click.option("--routing-key", metavar="TEXT", help="Routing key of the records.")
@click.option(
    "--header",
    "header",
    metavar="NAME=VALUE",
    multiple=True,
    help="Header of the records; repeat it for several.",
)
@click.option(
    "--expected",
    metavar="OFFSET|NUMBER",
    help="Append BODY only if the stream ends exactly at this offset, or has this many records.",
)
@click.option("--close", "closing", is_flag=True, help="Close the stream with the last record.")
def append(
    out: Output,
    streams: Place,
    *,
    name: str,
    body: str | None,
    source: str | None,
    producer: str | None,
    seq: int | None,
    routing_key: str | None,
    header: tuple[str, ...],
    expected: str | None,
    closing: bool,
) -> None:
    """Append BODY, or the lines of a file, to a stream; returns when they are on disk.

    For a JSON stream, a body is a message or an array of messages.
    """
    if (body is None) == (source is None):
        raise click.UsageError("Pass either BODY or --from FILE.")
    if expected is not None and body is None:
        raise click.UsageError("--expected requires BODY.")
    who = _producer(producer, seq, body)
    info = streams.info(name)
    key = None if routing_key is None else check_key(routing_key)
    headers = _headers(header)
    if body is not None:
        records = split(body.encode("utf-8", "surrogateescape"), info.content_type)
        request = Append(
            records,
            info.content_type,
            who,
            close=closing,
            routing_key=key,
            expected=_expected(expected),
            headers=headers,
        )
        loaded = _append_one(streams, info, request)
    else:
        assert source is not None
        loaded = load(out, streams, info, BulkAppend(source, who, key, closing, headers))
    if out.as_json:
        out.document(
            {
                "name": name,
                "records": loaded.records,
                "sent_before": loaded.sent_before,
                "next_offset": loaded.done.offset,
                "duplicate": loaded.sent_before > 0 and not loaded.records,
                "closed": loaded.done.closed,
            }
        )
        return
    lines = "" if source is None else f"{counted(loaded.sent_before, 'line')} "
    skipped = f" ({lines}sent before)" if loaded.sent_before else ""
    end = loaded.done.offset
    out.line(f"{counted(loaded.records, 'record')}{skipped}; {name} is at {end}")


def _producer(name: str | None, seq: int | None, body: str | None) -> Producer | None:
    """Return the producer with the first sequence number.

    Lines are numbered by their index. For a BODY, only the caller can tell a new one from a
    repeated one.
    """
    if name is None:
        if seq is not None:
            raise click.UsageError("--seq requires --producer.")
        return None
    if body is not None and seq is None:
        raise click.UsageError("--producer with BODY requires --seq, which starts at 0.")
    return Producer(name, 0, seq or 0)


def _headers(pairs: tuple[str, ...]) -> bytes | None:
    """Return the headers of `--header NAME=VALUE`."""
    headers = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise click.UsageError(f"--header must be NAME=VALUE, got {pair!r:.80}.")
        headers[name] = value
    return encode_headers(headers)


def _expected(text: str | None) -> Offset | int | None:
    """Return the expected end of a stream: an offset, or a number of records."""
    if text is None:
        return None
    return check_expected(int(text) if text.isascii() and text.isdecimal() else text)


def _append_one(streams: Place, info: StreamInfo, request: Append) -> LoadReport:
    done = streams.append(info.name, request)
    sent_before = done.duplicate and bool(request.records)
    if request.close and not done.closed:
        # A duplicate does not close the stream.
        done = streams.append(info.name, Append((), info.content_type, close=True))
    return LoadReport(done, 0 if sent_before else len(request.records), int(sent_before))

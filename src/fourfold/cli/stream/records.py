"""`fourfold stream read`, `tail`, `state`: what is in a stream, and what comes.

`fourfold stream append`: from the command line, from stdin, from a file of lines.

The lines of a file or of stdin, as records, in batches that a stream takes at once.

Empty lines are left out. Every other line has two numbers: the one that an editor shows, for
messages, and the one among the lines that are not empty, for the producer. Batches are cut by lines
and by bytes, so that one is never more than a transaction takes, unless a single line is.

Append the lines of a file to a stream.

Without a producer a batch of lines is one append. With one, every line is an append of its own,
numbered by its place among the lines, because a number stands for one append and not for a range:
whatever the batches of an earlier run were, and wherever it was cut short, its lines are known one
by one. In a folder the appends of a batch share a commit; over HTTP each is a request.

The answer to a line that was sent before tells how far the producer is, so that what lies between
is not even sent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import click
import msgspec

from fourfold import limits
from fourfold.cli.output import Output, counted
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.errors import (
    CommitUncertain,
    FourfoldError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    StorageError,
)
from fourfold.models.streams import Append, Appended, Chunk, Producer, Record, StreamInfo, Streams
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.records import RecordFilter
from fourfold.models.streams.stream import sought
from fourfold.models.streams.validation import check_key, format_offset


@streams_command("read")
@click.argument("name")
@click.option("--offset", default="-1", show_default=True, help="Where to begin.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most."
)
@click.option("--routing-key", metavar="TEXT", help="Only records that were appended with it.")
def read(
    out: Output,
    streams: Place,
    *,
    name: str,
    offset: str,
    limit: int,
    routing_key: str | None,
) -> None:
    """Print records from an offset on, one a line.

    With --json they come with their offsets, and where to go on.
    """
    found = _chunks(streams, name, offset, limit, sought(routing_key))
    if out.as_json:
        _print_document(out, name, found, _row, ("next_offset", "up_to_date", "closed"))
    else:
        for chunk in found:
            _print(out, chunk)


@streams_command("tail")
@click.argument("name")
@click.option(
    "--lines", type=click.IntRange(min=0), default=10, show_default=True, help="The last."
)
@click.option("--follow", is_flag=True, help="Wait for more, until interrupted or closed.")
def tail(out: Output, streams: Place, *, name: str, lines: int, follow: bool) -> None:
    """Print the last records of a stream, and what comes."""
    info = streams.info(name)
    end = info.next_offset
    first = max(info.first_offset, end - lines)
    if follow:
        for chunk in streams.open(name).follow(format_offset(first, info.incarnation_number)):
            _print(out, chunk)
            out.flush()
        return
    number = info.incarnation_number
    found = iter((Chunk((), end, end, True, info.closed, number),))
    if first < end:
        found = _chunks(streams, name, format_offset(first, number), end - first)
    if out.as_json:
        _print_document(out, name, found, lambda each, _: _shown(each.payload), ("next_offset",))
    else:
        for chunk in found:
            _print(out, chunk)


@streams_command("state")
@click.argument("name")
def state(out: Output, streams: Place, *, name: str) -> None:
    """Print the newest value of each key of a state stream.

    Its messages are changes: {"type", "key", "value", "headers": {"operation": "upsert"}}.
    """
    found = streams.state(name)
    if out.as_json:
        rows = [{"type": key[0], "key": key[1], "value": value} for key, value in found.items()]
        out.document({"name": name, "state": rows})
    else:
        rows_shown = [
            tuple(map(_printable, (*key, json.dumps(value, ensure_ascii=False))))
            for key, value in found.items()
        ]
        out.table(("type", "key", "value"), rows_shown)


def _chunks(
    streams: Place, name: str, offset: str, limit: int, wanted: RecordFilter | None = None
) -> Iterator[Chunk]:
    """The next records, as many as there are up to a limit, in pieces that fit in memory: one read
    gives only so many, and by key perhaps none. There is always a chunk.
    """
    while True:
        most = min(limit, limits.STREAM_READ_RECORDS)
        _, chunk = streams.read(name, offset, records_max=most, sought=wanted)
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
    """The one JSON document, printed piece by piece: the records, then what the last chunk says."""
    first = chunk = next(chunks)  # What cannot be read at all prints nothing.
    out.text(f'{{\n  "name": {json.dumps(name)},\n  "records": [')
    between = "\n"
    for chunk in chain((first,), chunks):
        for each in chunk.records:
            out.text(between + textwrap.indent(json.dumps(row(each, chunk), indent=2), "    "))
            between = ",\n"
    out.text("]" if between == "\n" else "\n  ]")
    told = {**msgspec.structs.asdict(chunk), "next_offset": chunk.offset}
    for fact in facts:
        out.text(f',\n  "{fact}": {json.dumps(told[fact])}')
    out.text("\n}\n")


def _row(record: Record, chunk: Chunk) -> dict[str, object]:
    return {
        "offset": format_offset(record.offset, chunk.incarnation_number),
        "ts_ms": record.ts_ms,
        "record": _shown(record.payload),
    }


def _print(out: Output, chunk: Chunk) -> None:
    for each in chunk.records:
        out.text(_shown(each.payload) + "\n")


def _printable(text: str) -> str:
    """Text that can be printed: half of a surrogate pair as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shown(payload: bytes) -> str:
    """A record for people: JSON and text as they are, other bytes as base64."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode()


class Line(NamedTuple):
    """One line that is not empty."""

    number: int
    """As an editor counts, from 1."""
    seq: int
    """Among those that are not empty, from 0."""
    data: bytes


class Batch(NamedTuple):
    """Lines that go together, each with its records."""

    lines: list[Line]
    records: list[list[bytes]]
    last: bool
    """Whether no line comes after them."""


class BadLine(Exception):
    """A line that is no record, and why."""

    def __init__(self, line: Line, error: FourfoldError) -> None:
        super().__init__(str(error))
        self.line = line
        self.error = error


class Lines:
    """The lines of FILE, or of stdin for `-`; how many bytes were read, of how many."""

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

    def __iter__(self) -> Iterator[Line]:
        seq = 0
        for number, raw in enumerate(self._file or sys.stdin.buffer, 1):
            self.read_bytes += len(raw)
            if data := raw.rstrip(b"\r\n"):
                yield Line(number, seq, data)
                seq += 1


def batches(
    lines: Iterator[Line], read: Callable[[bytes], list[bytes]], *, together: Callable[[], int]
) -> Iterator[Batch]:
    """The lines in order; `read` gives the records of one, and `together` says how many lines a
    batch may have now. What is before a line that cannot be read comes first, then `BadLine`.
    """
    batch = Batch([], [], last=False)
    size = 0
    for line in lines:
        full = len(batch.lines) >= together() or size + len(line.data) > limits.APPEND_BATCH_BYTES
        if batch.lines and full:
            yield batch
            batch, size = Batch([], [], last=False), 0
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


class Load(NamedTuple):
    """What shall be appended, and how."""

    source: str
    producer: Producer | None
    """Who appends, with the number of the first line."""
    routing_key: bytes | None
    closing: bool


class LoadReport(NamedTuple):
    """What became of it."""

    done: Appended
    records: int
    """Those that this run has appended."""
    sent_before: int
    """Lines that the producer had sent before."""


def load(out: Output, streams: Place, info: StreamInfo, asked: Load) -> LoadReport:
    """Append every line; it returns when they are on disk."""
    loading = _LoadRun(streams, info, asked)
    with out.progress(f"appending to {info.name}") as advance, Lines(asked.source) as lines:
        for _ in loading.steps(iter(lines)):
            advance(counted(loading.records, "record"), lines.read_bytes, lines.bytes)
    if asked.closing and not loading.done.closed:
        # No line was left that could have closed it.
        loading.done = streams.append(info.name, Append((), info.content_type, close=True))
    return LoadReport(loading.done, loading.records, loading.sent_before)


class _LoadRun:
    """A run, and how far it is."""

    def __init__(self, streams: Place, info: StreamInfo, asked: Load) -> None:
        self._streams, self._info, self._asked = streams, info, asked
        self.done = Appended(info.next_offset, False, info.closed, None, info.incarnation_number)
        self.records = 0
        self.sent_before = 0
        self._asked_where = asked.producer is None
        """Whether it is known how far the producer is."""
        self._reached = -1
        """The last number of the producer that is known to be accepted."""

    def steps(self, lines: Iterator[Line]) -> Iterator[None]:
        """Append batch by batch, coming back after each."""
        read = partial(split, content_type=self._info.content_type)
        append = self._together if self._asked.producer is None else self._one_by_one
        try:
            for batch in batches(self._unsent(lines), read, together=self._most):
                append(batch)
                yield
        except BadLine as bad:
            raise self._failed([bad.line], bad.error) from bad.error

    def _most(self) -> int:
        """How many lines go together now."""
        if not self._asked_where:
            return 1
        if self._asked.producer is None and _is_one_record(self._streams, self._info):
            return 1
        return limits.APPEND_LINES

    def _unsent(self, lines: Iterator[Line]) -> Iterator[Line]:
        """Without those that are known to be sent."""
        producer = self._asked.producer
        for line in lines:
            if producer is None or producer.seq + line.seq > self._reached:
                yield line
            else:
                self.sent_before += 1

    def _together(self, batch: Batch) -> None:
        records = [each for one in batch.records for each in one]
        try:
            self.done = self._streams.append(self._info.name, self._append(records, batch.last))
        except FourfoldError as error:
            raise self._failed(batch.lines, error) from error
        self.records += len(records)

    def _one_by_one(self, batch: Batch) -> None:
        asked = [
            self._append(records, batch.last and line is batch.lines[-1], line)
            for line, records in zip(batch.lines, batch.records, strict=True)
        ]
        for line, request, outcome in zip(
            batch.lines, asked, _outcomes(self._streams, self._info.name, asked), strict=False
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
        self._asked_where = True

    def _append(self, records: Sequence[bytes], last: bool, line: Line | None = None) -> Append:
        who = self._asked.producer
        if who is not None and line is not None:
            who = who._replace(seq=who.seq + line.seq)
        return Append(
            records,
            self._info.content_type,
            who,
            close=last and self._asked.closing,
            routing_key=self._asked.routing_key,
        )

    def _failed(self, lines: Sequence[Line], error: FourfoldError) -> FourfoldError:
        """The error, and where it happened, what is appended, and how to go on."""
        first, last = lines[0].number, lines[-1].number
        source = "stdin" if self._asked.source == "-" else self._asked.source
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
        numbered = self._asked.producer is not None
        if not (isinstance(error, InvalidInput | StorageError) or error.retryable):
            # The same lines would be refused again.
            return error.hint
        if isinstance(error, OutcomeUnknown | CommitUncertain) and not numbered:
            return error.hint
        # That would be true of this append, and not of the file.
        own = "" if "othing was written" in error.hint else f"{error.hint} "
        again = "Mend that and run" if isinstance(error, InvalidInput) else "Run"
        if numbered:
            return f"{own}{again} the same command again: lines that were sent before are skipped."
        if not self.records:
            return f"{own}{again} the same command again."
        rest = "" if self._asked.source == "-" else f" (`tail -n +{line} {self._asked.source}`)"
        return (
            f"{own}Append the lines from {line} on{rest}; the same command again would append the "
            "others twice. A run that was begun with --producer can be repeated whole."
        )


def _is_one_record(streams: Place, info: StreamInfo) -> bool:
    """Whether a request is one record: over HTTP, of a stream of bytes."""
    return not isinstance(streams, Streams) and not info.is_json


def _outcomes(
    streams: Place, name: str, asked: Sequence[Append]
) -> Iterator[Appended | FourfoldError]:
    """What became of each, in order, up to the first that failed."""
    if isinstance(streams, Streams):
        yield from asyncio.run(_in_one_commit(streams, name, asked))
        return
    for request in asked:
        # One at a time: requests that overtake each other are refused, and sent again.
        try:
            yield streams.append(name, request)
        except FourfoldError as error:
            yield error
            return


async def _in_one_commit(
    streams: Streams, name: str, asked: Sequence[Append]
) -> list[Appended | FourfoldError]:
    """Where one is refused, those behind it are, too: their numbers do not follow on."""
    found = await asyncio.gather(
        *(streams.append_async(name, request) for request in asked), return_exceptions=True
    )
    outcomes: list[Appended | FourfoldError] = []
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, FourfoldError):
            raise each
        outcomes.append(each)
    return outcomes


@streams_command("append", writes=True)
@click.argument("name")
@click.argument("body", required=False)
@click.option("--from", "source", metavar="FILE|-", help="Every line is a record; - is stdin.")
@click.option("--producer", help="Repeat safely: lines that this producer sent before are skipped.")
@click.option(
    "--seq",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="The producer's number of BODY, or of the first line, which is 0 if not given.",
)
@click.option("--routing-key", metavar="TEXT", help="What the records can be read by.")
@click.option("--close", "closing", is_flag=True, help="Close the stream with the last of them.")
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
    closing: bool,
) -> None:
    """Append BODY, or the lines of a file, to a stream; it returns when they are on disk.

    To a JSON stream a body is a message, or an array of messages.
    """
    if (body is None) == (source is None):
        raise click.UsageError("Give a BODY, or --from FILE, and not both.")
    who = _producer(producer, seq, body)
    info = streams.info(name)
    key = None if routing_key is None else check_key(routing_key)
    if body is not None:
        records = split(body.encode("utf-8", "surrogateescape"), info.content_type)
        request = Append(records, info.content_type, who, close=closing, routing_key=key)
        loaded = _append_one(streams, info, request)
    else:
        assert source is not None
        loaded = load(out, streams, info, Load(source, who, key, closing))
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
    """Who appends, and the first number. A line has its number from its place; nobody but the
    caller can know whether a BODY is a new one or the last one again.
    """
    if name is None:
        if seq is not None:
            raise click.UsageError("--seq is the number of a --producer: give that, too.")
        return None
    if body is not None and seq is None:
        raise click.UsageError(
            "A BODY of a --producer needs its number: give --seq, which counts from 0."
        )
    return Producer(name, 0, seq or 0)


def _append_one(streams: Place, info: StreamInfo, request: Append) -> LoadReport:
    done = streams.append(info.name, request)
    sent_before = done.duplicate and bool(request.records)
    if request.close and not done.closed:
        # It was sent before, and did not close the stream then.
        done = streams.append(info.name, Append((), info.content_type, close=True))
    return LoadReport(done, 0 if sent_before else len(request.records), int(sent_before))

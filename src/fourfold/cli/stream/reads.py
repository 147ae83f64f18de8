"""`fourfold stream read`, `tail`, `state`: what is in a stream, and what comes."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import click

from fourfold import limits
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.models.streams import Chunk, Record
from fourfold.models.streams.names import show_offset
from fourfold.models.streams.records import Sought
from fourfold.models.streams.stream import sought


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
        for chunk in streams.open(name).follow(show_offset(first, info.incarnation_number)):
            _print(out, chunk)
            out.flush()
        return
    number = info.incarnation_number
    found = iter((Chunk((), end, end, True, info.closed, number),))
    if first < end:
        found = _chunks(streams, name, show_offset(first, number), end - first)
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
    streams: Place, name: str, offset: str, limit: int, wanted: Sought | None = None
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
    told = {**chunk._asdict(), "next_offset": chunk.offset}
    for fact in facts:
        out.text(f',\n  "{fact}": {json.dumps(told[fact])}')
    out.text("\n}\n")


def _row(record: Record, chunk: Chunk) -> dict[str, object]:
    return {
        "offset": show_offset(record.offset, chunk.incarnation_number),
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

"""`fourfold stream append`: from the command line, from stdin, from a file of lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self

import click

from fourfold import limits
from fourfold.cli.output import Output, counted
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.errors import NotFound
from fourfold.models.streams import Append, Appended, Producer
from fourfold.models.streams.messages import split
from fourfold.models.streams.names import check_key, show_offset


@streams_command("append", writes=True)
@click.argument("name")
@click.argument("body", required=False)
@click.option("--from", "source", metavar="FILE|-", help="Every line is a record; - is stdin.")
@click.option("--producer", help="Repeat safely: lines that this producer sent before are skipped.")
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
    routing_key: str | None,
    closing: bool,
) -> None:
    """Append BODY, or the lines of a file, to a stream; it returns when they are on disk.

    To a JSON stream a body is a message, or an array of messages.
    """
    if (body is None) == (source is None):
        raise click.UsageError("Give a BODY, or --from FILE, and not both.")
    info = streams.info(name)
    key = None if routing_key is None else check_key(routing_key)
    if source is None:
        assert body is not None
        records = split(body.encode("utf-8", "surrogateescape"), info.content_type)
        who = None if producer is None else Producer(producer, 0, 0)
        done = streams.append(name, Append(records, None, who, close=closing, routing_key=key))
        count = len(records)
    else:
        done, count = _append_lines(out, streams, name, source, producer, key)
        if closing:
            done = streams.open(name).close()
    if out.as_json:
        out.document(
            {
                "name": name,
                "records": count,
                "next_offset": show_offset(done.next_offset),
                "duplicate": done.duplicate,
                "closed": done.closed,
            }
        )
    else:
        out.line(f"{counted(count, 'record')}; {name} is at {show_offset(done.next_offset)}")


def _append_lines(  # noqa: PLR0917 - what the command was told
    out: Output,
    streams: Place,
    name: str,
    source: str,
    producer: str | None,
    key: bytes | None,
) -> tuple[Appended, int]:
    """Many records to a commit, in order. With a producer each of the commits has a number, so that
    a run that was cut short can be repeated whole.
    """
    info = streams.info(name)
    done = Appended(info.next_offset, duplicate=False, closed=info.closed)
    count = 0
    with out.progress(f"appending to {name}") as advance, _Lines(source) as lines:
        given = iter(lines)
        batches = iter(lambda: list(islice(given, limits.APPEND_LINES)), [])
        for number, batch in enumerate(batches):
            records = [one for line in batch for one in split(line, info.content_type)]
            who = None if producer is None else Producer(producer, 0, number)
            done = streams.append(name, Append(records, None, who, routing_key=key))
            count += 0 if done.duplicate else len(records)
            advance(counted(count, "record"), lines.read_bytes, lines.bytes)
    return done, count


class _Lines:
    """The lines of a file or of stdin that are not empty; how many bytes were read, of how many."""

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

    def __iter__(self) -> Iterator[bytes]:
        for raw in self._file or sys.stdin.buffer:
            self.read_bytes += len(raw)
            if line := raw.rstrip(b"\r\n"):
                yield line

"""`fourfold stream follow`: records of one stream or of all as they are appended."""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.completion import complete_streams
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import (
    Place,
    key_option,
    parse_where,
    streams_command,
    where_option,
)
from fourfold.cli.stream.records import format_payload, make_row_writer, print_chunks

_FEED_FIELDS: Final = ("stream", "offset", "ts_ms", "record", "cursor")


@streams_command("follow", rows=True)
@click.argument("name", required=False, shell_complete=complete_streams)
@click.option("--offset", help="Offset to start at; default: the start of the stream, -1.")
@key_option
@where_option
@click.option("--all", "every", is_flag=True, help="Follow all streams, in the order of commits.")
@click.option("--prefix", help="With --all: only streams whose names have this prefix.")
@click.option(
    "--after",
    metavar="CURSOR",
    help="With --all: start after this cursor; -1 for all records, by default new ones only.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Stop after this many seconds without a record."
)
def follow(
    out: Output,
    streams: Place,
    *,
    name: str | None,
    offset: str | None,
    routing_key: str | None,
    where: str | None,
    every: bool,
    prefix: str | None,
    after: str | None,
    timeout: float | None,
) -> None:
    """Print records of a stream, or of all, and new ones, until interrupted or closed.

    With --all, a line has the name of the stream and the record. With --json and --ndjson each
    record is a line of JSON, and with --all it has the cursor to continue from.
    """
    of_one, of_all = (offset, routing_key, where), (prefix, after)
    if every:
        if name is not None or any(option is not None for option in of_one):
            raise click.UsageError("--all takes no NAME, --offset, --routing-key or --where.")
        _follow_all(out, streams, prefix or "", after, timeout)
        return
    if name is None or any(option is not None for option in of_all):
        raise click.UsageError("Pass NAME, or --all with --prefix and --after.")
    start, selected = offset or "-1", parse_where(where)
    stream = streams.open(name)
    chunks = stream.follow(start, key=routing_key, where=selected, timeout=timeout)
    print_chunks(out, chunks)


def _follow_all(
    out: Output, streams: Place, prefix: str, after: str | None, timeout: float | None
) -> None:
    write = make_row_writer(out, _FEED_FIELDS)
    with streams.follow(prefix=prefix, after=after, timeout=timeout) as follower:
        for item in follower:
            payload = format_payload(item.record.payload)
            if write is None:
                out.text(f"{item.stream}\t{payload}\n")
            else:
                row = (item.stream, item.offset, item.record.ts_ms, payload, item.cursor)
                write(dict(zip(_FEED_FIELDS, row, strict=True)))
            out.flush()

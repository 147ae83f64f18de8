"""`fourfold stream read`, `tail`, `state`: what is in a stream, and what comes."""

from __future__ import annotations

import base64
import json

import click

from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.models.streams import Chunk
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
    chunk = _found(streams, name, offset, limit, sought(routing_key))
    if out.as_json:
        rows = [
            {
                "offset": show_offset(each.offset),
                "ts_ms": each.ts_ms,
                "record": _shown(each.payload),
            }
            for each in chunk.records
        ]
        out.document(
            {
                "name": name,
                "records": rows,
                "next_offset": show_offset(chunk.next_offset),
                "up_to_date": chunk.up_to_date,
                "closed": chunk.closed,
            }
        )
    else:
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
    start = show_offset(max(info.first_offset, info.next_offset - lines))
    if not follow:
        _, chunk = streams.read(name, start, records_max=max(lines, 1))
        if out.as_json:
            found = [_shown(each.payload) for each in chunk.records]
            out.document(
                {"name": name, "records": found, "next_offset": show_offset(chunk.next_offset)}
            )
        else:
            _print(out, chunk)
        return
    for chunk in streams.open(name).follow(start):
        _print(out, chunk)
        out.flush()


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
            (key[0], key[1], json.dumps(value, ensure_ascii=False)) for key, value in found.items()
        ]
        out.table(("type", "key", "value"), rows_shown)


def _found(streams: Place, name: str, offset: str, limit: int, wanted: Sought | None) -> Chunk:
    """The next records; by key, as far as the stream goes, since they may lie far apart."""
    _, chunk = streams.read(name, offset, records_max=limit, sought=wanted)
    records, start = list(chunk.records), chunk.start_offset
    while wanted is not None and not chunk.up_to_date and len(records) < limit:
        at = show_offset(chunk.next_offset)
        _, chunk = streams.read(name, at, records_max=limit - len(records), sought=wanted)
        records += chunk.records
    return chunk._replace(records=tuple(records), start_offset=start)


def _print(out: Output, chunk: Chunk) -> None:
    for each in chunk.records:
        out.text(_shown(each.payload) + "\n")


def _shown(payload: bytes) -> str:
    """A record for people: JSON and text as they are, other bytes as base64."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode()

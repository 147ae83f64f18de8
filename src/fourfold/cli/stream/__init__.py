"""`fourfold stream`: append-only logs under names, from the command line."""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.stream import records, rules, streams, touch

SECTIONS: Final[Sections] = (
    ("Streams", ("create", "list", "stats", "set", "fork", "close", "delete", "sweep")),
    ("Append", ("append",)),
    ("Read", ("read", "tail", "state")),
    ("Rules, and waiting", ("schema", "profile", "touch")),
)

_EPILOG: Final = """\b
Examples:
  fourfold stream create ROOT orders --type application/json
  fourfold stream append ROOT orders '{"id": 1}'
  fourfold stream append ROOT orders --from orders.ndjson
  fourfold stream tail ROOT orders --follow

A stream is read by offsets: -1 is the beginning, now is the end, and every
read says where to go on. `fourfold serve ROOT` gives the same over HTTP, and
ROOT may be its address: `fourfold stream list http://127.0.0.1:4437`.
Every command takes --json and --traceback.
"""


@click.command("stream", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Streams: append, read, follow, fork.

    A stream is an append-only log under a name, of JSON messages or of bytes. An append that
    returned is on disk.
    """


for _each in (
    streams.create,
    streams.list_streams,
    streams.stats,
    streams.configure,
    streams.fork,
    streams.close,
    streams.delete,
    streams.sweep,
    records.append,
    records.read,
    records.tail,
    records.state,
    rules.schema,
    rules.profile,
    touch.touch,
):
    command.add_command(_each)

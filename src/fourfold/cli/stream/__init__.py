"""`fourfold stream`: commands on streams."""

from __future__ import annotations

from typing import Final

import click

from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.stream import follow, records, rules, search, streams, touch

SECTIONS: Final[Sections] = (
    (
        "Streams",
        (
            *("create", "list", "show", "keys", "stats", "set", "fork", "close", "delete"),
            *("compact", "gc"),
        ),
    ),
    ("Append", ("append",)),
    ("Read", ("read", "tail", "follow", "search", "state")),
    ("Rules and waiting", ("schema", "profile", "touch")),
)

_EPILOG: Final = """\b
Examples:
  fourfold stream create ROOT orders --type application/json
  fourfold stream append ROOT orders '{"id": 1}'
  fourfold stream append ROOT orders --from orders.ndjson
  fourfold stream tail ROOT orders --follow
  fourfold stream search ROOT orders 'status:open total:>=100'

Offset -1 is the beginning, now is the end, and every read returns the next
offset. ROOT is an argument, --root or FOURFOLD_ROOT. `fourfold serve ROOT`
serves the streams over HTTP, and ROOT may be its URL:
`fourfold stream list http://127.0.0.1:4437`.
Every command takes --json and --traceback.
"""


@click.command("stream", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Streams: append, read, follow, fork.

    A stream is a named append-only log of JSON messages or bytes. When an append returns, it is on
    disk.
    """


for _each in (
    streams.create,
    streams.list_streams,
    streams.show,
    streams.keys,
    streams.configure,
    streams.fork,
    streams.close,
    streams.delete,
    streams.compact,
    streams.gc,
    records.append,
    records.read,
    records.tail,
    follow.follow,
    records.state,
    search.search,
    search.stats,
    rules.schema,
    rules.profile,
    touch.touch,
):
    command.add_command(_each)

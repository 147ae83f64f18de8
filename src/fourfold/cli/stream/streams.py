"""`fourfold stream create`, `list`, `stats`, `set`, `fork` and others: whole streams."""

from __future__ import annotations

from typing import Any

import click

from fourfold.cli.output import Output, counted, size
from fourfold.cli.stream.arguments import Place, facts, streams_command
from fourfold.models.streams import Fork, StreamOptions
from fourfold.models.streams.rules import UNCHANGED
from fourfold.models.streams.settings import Setting, Settings
from fourfold.models.streams.validation import format_offset, parse_offset


class _Setting(click.ParamType):  # type: ignore[type-arg]
    """A number from 0 on, or `none`."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Setting:
        if value is UNCHANGED or value is None:
            return UNCHANGED
        if value == "none":
            return None
        if not value.isdecimal():
            self.fail(f"{value!r} is not a number or none", param, ctx)
        return int(value)


@streams_command("create", writes=True, makes=True)
@click.argument("name")
@click.option("--type", "kind", default="application/json", show_default=True, help="Content type.")
@click.option(
    "--ttl", type=click.IntRange(min=0), metavar="SECONDS", help="Ends so long after use."
)
@click.option("--keep-seconds", type=click.IntRange(min=0), help="Keep records so long.")
@click.option("--keep-bytes", type=click.IntRange(min=0), help="Keep the newest so many bytes.")
def create(
    out: Output,
    streams: Place,
    *,
    name: str,
    kind: str,
    ttl: int | None,
    keep_seconds: int | None,
    keep_bytes: int | None,
) -> None:
    """Create the stream NAME in ROOT, and the store too if there is none.

    A stream that is there and is like that stays as it is.
    """
    wanted = StreamOptions(
        name, kind, ttl, retention_seconds=keep_seconds, retention_bytes=keep_bytes
    )
    made = streams.create_with_options(wanted)
    if out.as_json:
        out.document({**facts(made.info), "created": made.created})
    else:
        out.line(f"{'created' if made.created else 'there is'} {name} ({made.info.content_type})")


@streams_command("list")
@click.option("--prefix", default="", help="Only names that begin so.")
@click.option("--after", default="", help="Only names behind this one.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most."
)
def list_streams(out: Output, streams: Place, *, prefix: str, after: str, limit: int) -> None:
    """List streams in the order of their names."""
    found = streams.list(prefix=prefix, after=after, limit=limit)
    if out.as_json:
        out.document({"streams": [facts(each) for each in found]})
        return
    out.table(
        ("stream", "type", "records", "size", "state"),
        [
            (
                each.name,
                each.content_type,
                each.next_offset - each.first_offset,
                size(each.size_bytes),
                "closed" if each.closed else "open",
            )
            for each in found
        ],
    )


@streams_command("stats")
def stats(out: Output, streams: Place) -> None:
    """Count streams, records and bytes."""
    totals = streams.totals()
    if out.as_json:
        out.document(totals._asdict())
    else:
        records = counted(totals.records, "record")
        out.line(f"{counted(totals.streams, 'stream')}, {records}, {size(totals.bytes)}")


@streams_command("set", writes=True)
@click.argument("name")
@click.option(
    "--ttl",
    type=_Setting(),
    default=UNCHANGED,
    metavar="SECONDS|none",
    help="Ends so long after use.",
)
@click.option(
    "--keep-seconds",
    type=_Setting(),
    default=UNCHANGED,
    metavar="SECONDS|none",
    help="Keep records so long.",
)
@click.option(
    "--keep-bytes",
    type=_Setting(),
    default=UNCHANGED,
    metavar="BYTES|none",
    help="Keep the newest so many bytes.",
)
def configure(
    out: Output,
    streams: Place,
    *,
    name: str,
    ttl: Setting,
    keep_seconds: Setting,
    keep_bytes: Setting,
) -> None:
    """Change how long the stream NAME lives, and how much it keeps.

    What is not given stays as it is; `none` removes a limit. What was trimmed stays trimmed.
    """
    settings = Settings(ttl, retention_seconds=keep_seconds, retention_bytes=keep_bytes)
    info = streams.configure(name, settings)
    if out.as_json:
        kept = (info.retention_seconds, info.retention_bytes)
        out.document({**facts(info), "retention_seconds": kept[0], "retention_bytes": kept[1]})
    else:
        rows = (
            ("ttl", info.ttl_seconds),
            ("keep-seconds", info.retention_seconds),
            ("keep-bytes", info.retention_bytes),
        )
        out.table(("setting", "value"), [(key, "none" if n is None else n) for key, n in rows])


@streams_command("fork", writes=True)
@click.argument("source")
@click.argument("name")
@click.option("--at", metavar="OFFSET", help="Where to leave the source; its end if not given.")
def fork(out: Output, streams: Place, *, source: str, name: str, at: str | None) -> None:
    """Make the stream NAME, which shares SOURCE up to an offset. Nothing is copied."""
    offset = None if at is None else parse_offset(at)
    made = streams.create_with_options(StreamOptions(name, None, fork=Fork(source, offset)))
    if out.as_json:
        out.document({**facts(made.info), "created": made.created})
    else:
        at = format_offset(made.info.fork_offset or 0, made.info.incarnation_number)
        out.line(f"{name} leaves {source} at {at}")


@streams_command("close", writes=True)
@click.argument("name")
def close(out: Output, streams: Place, *, name: str) -> None:
    """Close a stream: no more appends, and readers learn that they are at its end."""
    done = streams.open(name).close()
    if out.as_json:
        out.document({"name": name, "next_offset": done.offset})
    else:
        out.line(f"{name} is closed at {done.offset}")


@streams_command("delete", writes=True)
@click.argument("name")
def delete(out: Output, streams: Place, *, name: str) -> None:
    """Delete a stream. Its forks keep what they share with it."""
    streams.delete(name)
    if out.as_json:
        out.document({"name": name, "deleted": True})
    else:
        out.line(f"{name} is deleted")


@streams_command("sweep", writes=True)
def sweep(out: Output, streams: Place) -> None:
    """Remove streams whose time is over, give up what is not retained, and trim what deleted
    streams left.

    A server does this by itself.
    """
    removed = streams.sweep()
    while streams.trim_deleted():
        pass
    if out.as_json:
        out.document({"removed": removed})
    else:
        out.line(f"{counted(removed, 'stream')} removed")

"""`fourfold stream create`, `list`, `show`, `set`, `fork` and others: whole streams."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from fourfold.cli.completion import complete_streams
from fourfold.cli.output import Output, counted, size
from fourfold.cli.stream.arguments import FACTS, Place, facts, name_argument, streams_command
from fourfold.errors import Refused
from fourfold.limits import PAGE_ITEMS_MAX
from fourfold.models.streams import Fork, StreamOptions, Streams
from fourfold.models.streams.records import GcReport, StreamInfo
from fourfold.models.streams.rule_changes import UNCHANGED
from fourfold.models.streams.settings import Setting, SettingsChange
from fourfold.models.streams.validation import format_offset, parse_offset


class _Setting(click.ParamType):  # type: ignore[type-arg]
    """A number, at least 0, or `none`."""

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
    "--ttl",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Expire after this time without use.",
)
@click.option("--keep-seconds", type=click.IntRange(min=0), help="Keep records for this time.")
@click.option(
    "--keep-bytes", type=click.IntRange(min=0), help="Keep this many of the newest bytes."
)
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
    """Create the stream NAME in ROOT, and the store if there is none.

    Does nothing if the stream exists with the same options.
    """
    options = StreamOptions(
        name, kind, ttl, retention_seconds=keep_seconds, retention_bytes=keep_bytes
    )
    result = streams.create_with_options(options)
    if out.as_json:
        out.document({**facts(result.info), "created": result.created})
    else:
        out.line(
            f"{'created' if result.created else 'exists:'} {name} ({result.info.content_type})"
        )


@streams_command("list", rows=True, optional=True)
@click.option("--prefix", default="", help="Only names that start with this.")
@click.option("--after", default="", help="Only names after this one.")
@click.option("--content-type", default="", help="Only streams of this type.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of streams.",
)
def list_streams(
    out: Output, streams: Place | None, *, prefix: str, after: str, content_type: str, limit: int
) -> None:
    """List streams in the order of their names."""
    infos: tuple[StreamInfo, ...] = ()
    if streams is not None:
        infos = streams.list(prefix=prefix, after=after, limit=limit, content_type=content_type)
    records = {info.name: info.next_offset - info.first_offset for info in infos}
    out.rows(
        {"streams": [facts(info) for info in infos]},
        "streams",
        {
            "stream": "name",
            "type": "content_type",
            "records": lambda row: records[row["name"]],
            "size": lambda row: size(row["size_bytes"]),
            "state": lambda row: "closed" if row["closed"] else "open",
        },
        fields=FACTS,
        empty="no streams" + (" that match" if prefix or after or content_type else " yet"),
    )


@streams_command("show")
@name_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Maximum number of producers, segments and subscriptions.",
)
def show(out: Output, streams: Place, *, name: str, limit: int) -> None:
    """Show the stream NAME: its settings, producers, sealed segments and subscriptions."""
    stream = streams.open(name)
    info = stream.info
    document = {
        **facts(info),
        "producers": [row._asdict() for row in stream.producers(limit=limit)],
        "segments": [
            {**row._asdict(), "location": row.location} for row in stream.segments(limit=limit)
        ],
        "subscriptions": [row._asdict() for row in stream.subscriptions(limit=limit)],
    }
    if out.as_json:
        out.document(document)
        return
    records = counted(info.next_offset - info.first_offset, "record")
    state = "closed" if info.closed else "open"
    out.line(f"{name}: {info.content_type}, {records}, {size(info.size_bytes)}, {state}")
    _print_table(out, document, "producers", ("id", "epoch", "last_seq"))
    _print_table(
        out, document, "segments", ("first_offset", "next_offset", "size_bytes", "location")
    )
    _print_table(out, document, "subscriptions", ("id", "kind", "pattern", "acked", "pending"))


def _print_table(
    out: Output, document: dict[str, Any], name: str, columns: tuple[str, ...]
) -> None:
    out.line("")
    rows = [[row[column] for column in columns] for row in document[name]]
    if rows:
        out.line(name)
        out.table(columns, rows)
    else:
        out.line(f"no {name}")


@streams_command("keys", rows=True)
@name_argument
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--after", help="Only keys after this one.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_ITEMS_MAX),
    default=100,
    show_default=True,
    help="Maximum number of keys.",
)
def keys(
    out: Output, streams: Place, *, name: str, prefix: str, after: str | None, limit: int
) -> None:
    """List the routing keys of a stream, each with the offset of its newest record."""
    page = streams.open(name).keys(prefix=prefix, after=after, limit=limit)
    out.rows(
        {
            "name": name,
            "keys": [{"key": row.text, "offset": str(row.offset)} for row in page],
            "next": None if page.after is None else page.after.decode(errors="backslashreplace"),
            "complete_from": str(page.complete_from),
        },
        "keys",
        {"key": lambda row: row["key"], "offset": lambda row: row["offset"]},
        fields=("key", "offset"),
        empty=f"{name} has no routing keys",
    )


@streams_command("set", writes=True)
@name_argument
@click.option(
    "--ttl",
    type=_Setting(),
    default=UNCHANGED,
    metavar="SECONDS|none",
    help="Expire after this time without use.",
)
@click.option(
    "--keep-seconds",
    type=_Setting(),
    default=UNCHANGED,
    metavar="SECONDS|none",
    help="Keep records for this time.",
)
@click.option(
    "--keep-bytes",
    type=_Setting(),
    default=UNCHANGED,
    metavar="BYTES|none",
    help="Keep this many of the newest bytes.",
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
    """Change the TTL and the retention of the stream NAME.

    Options that you omit stay unchanged; `none` removes a limit. Trimmed records do not come back.
    """
    settings = SettingsChange(ttl, retention_seconds=keep_seconds, retention_bytes=keep_bytes)
    info = streams.configure(name, settings)
    if out.as_json:
        limits = (info.retention_seconds, info.retention_bytes)
        out.document({**facts(info), "retention_seconds": limits[0], "retention_bytes": limits[1]})
    else:
        rows = (
            ("ttl", info.ttl_seconds),
            ("keep-seconds", info.retention_seconds),
            ("keep-bytes", info.retention_bytes),
        )
        out.table(("setting", "value"), [(key, "none" if n is None else n) for key, n in rows])


@streams_command("compact", writes=True)
@name_argument
@click.option("--horizon", metavar="OFFSET", help="Remove records before this offset, or now.")
@click.option("--since", metavar="TIME", help="Remove records before the first one of this time.")
def compact(
    out: Output, streams: Place, *, name: str, horizon: str | None, since: str | None
) -> None:
    """Remove the history of the state stream NAME before a horizon, and keep its state.

    The newest change of each key before it is appended once more. Removed records do not come back.
    """
    result = streams.open(name).compact(horizon, since=since)
    if out.as_json:
        out.document({"name": name, **result._asdict()})
    else:
        removed = counted(result.removed, "record")
        out.line(
            f"removed {removed}, copied {counted(result.copied, 'key')}; "
            f"{name} begins at {result.first_offset}"
        )


@streams_command("fork", writes=True)
@click.argument("source", shell_complete=complete_streams)
@click.argument("name")
@click.option("--at", metavar="OFFSET", help="Offset of the fork; default: the end of SOURCE.")
def fork(out: Output, streams: Place, *, source: str, name: str, at: str | None) -> None:
    """Create the stream NAME as a fork of SOURCE. Nothing is copied."""
    offset = None if at is None else parse_offset(at)
    result = streams.create_with_options(StreamOptions(name, None, fork=Fork(source, offset)))
    if out.as_json:
        out.document({**facts(result.info), "created": result.created})
    else:
        at = format_offset(result.info.fork_offset or 0, result.info.incarnation_number)
        out.line(f"{name} forks {source} at {at}")


@streams_command("close", writes=True)
@name_argument
def close(out: Output, streams: Place, *, name: str) -> None:
    """Close a stream: it accepts no more appends, and followers receive an end-of-stream marker."""
    done = streams.open(name).close()
    if out.as_json:
        out.document({"name": name, "next_offset": done.offset})
    else:
        out.line(f"{name} is closed at {done.offset}")


@streams_command("delete", writes=True)
@name_argument
def delete(out: Output, streams: Place, *, name: str) -> None:
    """Delete a stream. Its forks keep the records that they share with it."""
    streams.delete(name)
    if out.as_json:
        out.document({"name": name, "deleted": True})
    else:
        out.line(f"{name} is deleted")


@streams_command("gc", writes=True, optional=True)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
def gc(out: Output, streams: Place | None, *, dry_run: bool) -> None:
    """Delete expired streams, apply retention, and trim the records of deleted streams.

    A server does this automatically.
    """
    if streams is not None and not isinstance(streams, Streams):
        raise Refused("a server removes this by itself", hint="Pass the folder of a store.")
    report = GcReport(0, 0, 0, 0, dry_run) if streams is None else streams.gc(dry_run=dry_run)
    if out.as_json:
        out.document(msgspec.to_builtins(report))
        return
    verb = "would be removed" if dry_run else "removed"
    streams_gone = f"{counted(report.expired, 'expired stream')}, "
    rest = f"{counted(report.records, 'record')} ({size(report.bytes)})"
    out.line(f"{streams_gone}{rest} {verb}")

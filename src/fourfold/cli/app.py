"""`fourfold app`: commands on graphs.

Every command takes ROOT first, then the app, as a slug or an id.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click
import msgspec

from fourfold.cli.app_sync import sync_command
from fourfold.cli.app_sync_http import pull, push, run
from fourfold.cli.app_values import find, top
from fourfold.cli.app_walks import dot_option, match, neighbours, path, rows_to_dot
from fourfold.cli.completion import complete_apps
from fourfold.cli.graph_command import existing_graphs, graphs_command
from fourfold.cli.history_options import at_option
from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.output import Column, Output, counted, size
from fourfold.cli.space.arguments import json_argument
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import App, GraphChange, Graphs, Kind, Query
from fourfold.models.graphs.records import (
    BITS,
    KINDS,
    ROWS,
    Envelope,
    GcReport,
    Type,
    TypeDescription,
    Usage,
)
from fourfold.models.graphs.statements import table_of
from fourfold.models.graphs.upgrades import read_upgrade

kind_choice: Final = click.Choice(list(KINDS))
app_argument: Final = click.argument("app", shell_complete=complete_apps)


def app_of(graphs: Graphs, name: str) -> App:
    """Resolve an app by its id or its slug."""
    return graphs.app(int(name) if name.isdecimal() and len(name) < 19 else name)


def row_json(row: Any) -> dict[str, Any]:
    """Convert a row to JSON values; bytes become base64."""
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in row._asdict().items()
    }


def value_of(row: dict[str, Any]) -> str:
    """Return the value of a row for a table."""
    for name in ("value_text", "value_number", "value_json"):
        if row.get(name) is not None:
            return str(row[name])
    blob = row.get("value_blob")
    return "" if blob is None else f"{len(base64.b64decode(blob))} bytes"


def points_of(row: dict[str, Any]) -> str:
    """Describe what a row points at, for a table."""
    parts = []
    for name, sign in (
        ("parent_id", "parent"),
        ("src_parent_id", "parent"),
        ("dst_parent_id", "-> parent"),
        ("dst_attr_id", "-> attr"),
        ("target_parent_id", "parent"),
        ("target_attr_id", "attr"),
    ):
        if row.get(name) is not None:
            parts.append(f"{sign} {row[name]}")
    return " ".join(parts)


@graphs_command("register", writes=True, makes=True)
@click.argument("slug")
@click.option("--title", help="Display name of the app; default: the slug.")
def register(out: Output, graphs: Graphs, *, slug: str, title: str | None) -> None:
    """Register the app SLUG in ROOT.

    Creates the store if there is none. Does nothing if the app is already registered.
    """
    app = graphs.register_app(slug, title or slug)
    if out.as_json:
        out.document(app._asdict())
    else:
        out.line(f"{app.slug} is app {app.app_id}")


@graphs_command("list", rows=True, optional=True)
def list_apps(out: Output, graphs: Graphs | None) -> None:
    """List the apps of ROOT."""
    apps = [] if graphs is None else _apps_with_usage(graphs)
    out.rows(
        {"apps": apps, "global_seq": 0 if graphs is None else graphs.get_global_seq()},
        "apps",
        {
            "app": "slug",
            "number": "app_id",
            "title": "title",
            "version": "version",
            "rows": "rows",
            "values": lambda app: size(app["bytes"]),
        },
        fields=(*App._fields, *Usage._fields[1:]),
        empty="no apps yet",
    )


def _apps_with_usage(graphs: Graphs) -> list[dict[str, Any]]:
    return [{**app._asdict(), **graphs.usage(app.app_id)._asdict()} for app in graphs.list_apps()]


@graphs_command("type", writes=True)
@app_argument
@click.argument("kind", type=kind_choice, metavar="KIND")
@click.argument("type_key")
def add_type(out: Output, graphs: Graphs, *, app: str, kind: Kind, type_key: str) -> None:
    """Register a type of an app: KIND is parent, attr, edge or rating.

    Ratings of the type `suppress` hide their target.
    """
    app_id = app_of(graphs, app).app_id
    number = graphs.register_type(app_id, kind, type_key)
    if out.as_json:
        out.document({"app_id": app_id, "kind": kind, "type_key": type_key, "type_id": number})
    else:
        out.line(f"{type_key} is type {number} of {kind}")


@graphs_command("types", rows=True)
@app_argument
def types(out: Output, graphs: Graphs, *, app: str) -> None:
    """List the types of an app."""
    rows = graphs.list_types(app_of(graphs, app).app_id)
    out.rows(
        {"types": [row._asdict() for row in rows]},
        "types",
        {"type": "type_key", "kind": "kind", "number": "id"},
        fields=Type._fields,
        empty=f"{app} has no types yet",
    )


@graphs_command("rule", writes=True)
@app_argument
@click.argument("kind", type=click.Choice(["attr", "edge", "rating"]), metavar="KIND")
@click.argument("type_key", metavar="TYPE")
@click.argument("rule", required=False)
@click.option("--remove", is_flag=True, help="Remove the rule of the type.")
def set_rule(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    kind: Kind,
    type_key: str,
    rule: str | None,
    remove: bool,
) -> None:
    """Set what objects of a type must meet: KIND is attr, edge or rating.

    RULE is JSON, @FILE, or - for stdin: of an edge such as '{"on": ["person"], "to": ["company"],
    "most": 1}', of an attribute such as '{"on": ["person"], "value": "text", "unique": true,
    "required": true}', of a rating such as '{"value": "number"}'.
    """
    if remove == (rule is not None):
        raise click.UsageError("pass RULE or --remove")
    value = None if rule is None else json_argument(rule, "RULE")
    app_id = app_of(graphs, app).app_id
    graphs.set_rule(app_id, kind, type_key, value)
    if out.as_json:
        out.document({"app_id": app_id, "kind": kind, "type_key": type_key, "rule": value})
    else:
        out.line(f"the rule of {type_key} was {'removed' if value is None else 'set'}")


@graphs_command("describe", rows=True)
@app_argument
def describe(out: Output, graphs: Graphs, *, app: str) -> None:
    """Show the types of an app with their rules."""
    description = graphs.describe(app_of(graphs, app).app_id)
    document = {
        "app": description.app._asdict(),
        "usage": description.usage._asdict(),
        "types": [row._asdict() for row in description.types],
    }
    out.rows(
        document,
        "types",
        {
            "type": "type_key",
            "kind": "kind",
            "rule": lambda row: "" if row["rule"] is None else json.dumps(row["rule"]),
        },
        fields=TypeDescription._fields,
        empty=f"{app} has no types yet",
    )


@graphs_command("upgrade", writes=True)
@app_argument
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Run the upgrade, and then roll it back.")
def upgrade(out: Output, graphs: Graphs, *, app: str, folder: Path, dry_run: bool) -> None:
    """Upgrade the tables of an app with the steps in FOLDER, or change nothing.

    FOLDER has all steps of the app as NNNN_name.sql, from number 2 on; those that ran before are
    compared. {app} in a step is the beginning of the names of the app's tables. A file rules.json
    has rules of types as a list of {"kind", "type_key", "rule"}, which are set after the steps.
    """
    before = app_of(graphs, app)
    steps, rules = read_upgrade(folder)
    after = graphs.upgrade_app(before.app_id, steps, rules=rules, dry_run=dry_run)
    ran = [f"{step.version} {step.name}" for step in steps if step.version > before.version]
    if out.as_json:
        out.document(
            {
                "app": after._asdict(),
                "steps": ran,
                "rules": len(rules),
                "dry_run": dry_run,
            }
        )
        return
    would = "would be" if dry_run else "is"
    out.line(f"{after.slug} {would} at version {after.version}")
    for step in ran:
        out.line(f"step {step}")
    if rules:
        out.line(counted(len(rules), "rule"))


@graphs_command("limits", writes=True)
@app_argument
@click.option("--rows", metavar="NUMBER|none", help="Maximum number of rows of the app.")
@click.option(
    "--bytes", "size_max", metavar="NUMBER|none", help="Maximum bytes of all values of the app."
)
def limits(
    out: Output, graphs: Graphs, *, app: str, rows: str | None, size_max: str | None
) -> None:
    """Show or change the limits of an app.

    A write that would exceed a limit is refused as a whole. Existing rows stay.
    """
    app_id = app_of(graphs, app).app_id
    usage = graphs.usage(app_id)
    if rows is not None or size_max is not None:
        usage = graphs.set_limits(
            app_id,
            rows_max=usage.rows_max if rows is None else _limit(rows),
            bytes_max=usage.bytes_max if size_max is None else _limit(size_max),
        )
    if out.as_json:
        out.document(usage._asdict())
    else:
        out.table(
            ("of app " + app, "held", "limit"),
            [
                ("rows", usage.rows, "none" if usage.rows_max is None else usage.rows_max),
                ("bytes", usage.bytes, "none" if usage.bytes_max is None else usage.bytes_max),
            ],
        )


@graphs_command("stats", rows=True, optional=True)
@click.argument("app", required=False, shell_complete=complete_apps)
def stats(out: Output, graphs: Graphs | None, *, app: str | None) -> None:
    """Count the rows of each table, and show the newest seq.

    The durable seq is the newest that survives a power loss.
    """
    if graphs is None and app is not None:
        raise NotFound(f"unknown app {app!r}", hint="List the apps: `fourfold app list`.")
    tables = [] if graphs is None else _counted_tables(graphs, app)
    newest = 0 if graphs is None else graphs.get_global_seq()
    columns = ("table", "app", "kind", "rows")
    out.rows(
        {"tables": tables, "global_seq": newest, "node": None if graphs is None else graphs.node},
        "tables",
        {name: name for name in columns},
        fields=columns,
        empty="no apps yet",
    )
    if graphs is not None and out.format == "text":
        out.line(f"global_seq is {newest}; this node is {graphs.node}")


def _counted_tables(graphs: Graphs, app: str | None) -> list[dict[str, Any]]:
    apps = [app_of(graphs, app)] if app else list(graphs.list_apps())
    with graphs.database.read() as reading:
        return [
            {
                "app": entry.slug,
                "kind": kind,
                "rows": graphs.count(reading, entry.app_id, kind),
                "table": table_of(entry.app_id, kind),
            }
            for entry in apps
            for kind in KINDS
        ]


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor none")
    return int(text)


@graphs_command("insert", writes=True)
@app_argument
@click.argument("operations")
@click.option("--owner", type=click.IntRange(min=0), default=0, help="Owner of the objects.")
@click.option("--trace", help="Name of this batch, to find it again; default: a new one.")
@click.option("--once", is_flag=True, help="Write nothing if the app has a batch of that name.")
def insert(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    operations: str,
    owner: int,
    trace: str | None,
    once: bool,
) -> None:
    """Write OPERATIONS atomically: a list as JSON, @FILE, or - for stdin.

    Each is like {"op": "parent_create", "type_key": "note", "payload": {}}. An operation is parent,
    attr, edge or rating, then _create or _update. {"$op": 0} in a payload refers to the object that
    operation 0 of the same batch creates.
    """
    app_id = app_of(graphs, app).app_id
    value = json_argument(operations, "OPERATIONS")
    ops = value.get("ops") if isinstance(value, dict) and "ops" in value else value
    ops = [ops] if isinstance(ops, dict) else ops
    if not isinstance(ops, list):
        raise InvalidInput("OPERATIONS must be a list of operations")
    envelope = {"trace_id": trace or uuid4().hex, "ops": [_full(op, app_id, owner) for op in ops]}
    if once and trace is None:
        raise click.UsageError("--once needs --trace")
    done = graphs.apply(envelope, once=once)
    if out.as_json:
        out.document({**done._asdict(), "app_id": app_id, "trace_id": envelope["trace_id"]})
    else:
        ids = ", ".join(str(object_id) for object_id in done.object_ids)
        out.line(f"{counted(len(ops), 'operation')} under {done.global_seq}; objects: {ids}")


def _full(op: Any, app_id: int, owner: int) -> Any:
    """Return an operation with the app and the owner filled in."""
    if not isinstance(op, dict):
        return op
    return {"app_id": app_id, "owner_identity": owner, "payload": {}, **op}


def _columns(names: dict[int, str]) -> dict[str, Column]:
    """Return the columns of a table of objects, with the names of their types."""
    return {
        "object": "object_id",
        "type": lambda row: names.get(row["type_id"], row["type_id"]),
        "owner": "owner_identity",
        "number": "global_seq",
        "version": "version",
        "points at": points_of,
        "value": value_of,
    }


@graphs_command("query", rows=True)
@app_argument
@click.option(
    "--kind", type=kind_choice, default="parent", show_default=True, help="Table to read."
)
@click.option(
    "--type",
    "type_keys",
    multiple=True,
    metavar="KEY",
    help="Only objects of this type; repeatable.",
)
@click.option("--owner", type=int, help="Only parents of this owner.")
@click.option(
    "--parent",
    "parents",
    multiple=True,
    type=int,
    metavar="ID",
    help="Only children of this parent; repeatable.",
)
@at_option("As of this seq or time.")
@click.option("--raw", is_flag=True, help="Every version, instead of the newest of each object.")
@click.option("--suppressed", is_flag=True, help="Include suppressed objects.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of objects.",
)
@dot_option
def query(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    kind: Kind,
    type_keys: tuple[str, ...],
    owner: int | None,
    parents: tuple[int, ...],
    at: int | datetime | None,
    raw: bool,
    suppressed: bool,
    limit: int,
    dot: bool,
) -> None:
    """Show the objects of an app, now or at an earlier seq or time.

    Shows the newest version of each object; with --raw every version. With --dot, prints parents
    with the edges between them, or edges with their ends.
    """
    if dot and (raw or kind not in {"parent", "edge"}):
        raise InvalidInput("--dot is for parents or edges, without --raw")
    app_id = app_of(graphs, app).app_id
    names = {row.id: row.type_key for row in graphs.list_types(app_id)}
    type_ids = (
        [type_id for type_id, key in names.items() if key in type_keys] if type_keys else None
    )
    pointer = {"attr": "parent_id", "edge": "src_parent_id", "rating": "target_parent_id"}.get(kind)
    question = Query(
        app_id,
        kind,
        type_ids,
        owner,
        pointer if parents else None,
        parents or None,
        at=at,
        limit=limit + 1,
    )
    rows = graphs.select(question) if raw else graphs.current(question, suppressed=suppressed)
    shown = rows[:limit]
    if dot:
        out.text(rows_to_dot(graphs.open(app_id), shown, at))
        return
    records = [{**row_json(row), "type_key": names.get(row.type_id)} for row in shown]
    out.rows(
        {
            "app_id": app_id,
            "kind": kind,
            "rows": records,
            "at": at.isoformat() if isinstance(at, datetime) else at,
        },
        "rows",
        _columns(names),
        fields=(*ROWS[kind]._fields, "type_key"),
        empty="no objects",
    )
    if len(rows) > len(shown) and out.format == "text":
        out.line(f"There are more: --limit {limit * 10}")


@graphs_command("history", rows=True)
@app_argument
@click.argument("kind", type=kind_choice, metavar="KIND")
@click.argument("object_id", type=int)
def history(out: Output, graphs: Graphs, *, app: str, kind: Kind, object_id: int) -> None:
    """Show every version of one object, oldest first: KIND is parent, attr, edge or rating."""
    app_id = app_of(graphs, app).app_id
    graphs.newest(app_id, kind, object_id)
    names = {row.id: row.type_key for row in graphs.list_types(app_id)}
    rows = graphs.versions(app_id, kind, object_id)
    out.rows(
        {"app_id": app_id, "versions": [row_json(row) for row in rows]},
        "versions",
        _columns(names),
        fields=ROWS[kind]._fields,
    )


@graphs_command("trace", rows=True)
@app_argument
@click.argument("trace_id", metavar="TRACE")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Start after this seq.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of batches.",
)
def trace(out: Output, graphs: Graphs, *, app: str, trace_id: str, after: int, limit: int) -> None:
    """List the batches that were written with the name TRACE, oldest first."""
    graph = graphs.open(app_of(graphs, app).app_id)
    rows = [row._asdict() for row in graph.envelopes(trace_id, after=after, limit=limit)]
    for row in rows:
        row["kinds"] = [kind for kind in KINDS if row["kinds"] & BITS[kind]]
    out.rows(
        {"app_id": graph.app_id, "envelopes": rows},
        "envelopes",
        {
            "number": "global_seq",
            "wrote": lambda row: ", ".join(row["kinds"]),
            "flags": "sync_flags",
            "time": "created_at",
        },
        fields=Envelope._fields,
        empty="no batch has this name",
    )


@graphs_command("feed", rows=True, optional=True)
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Start after this seq."
)
@click.option(
    "--app",
    "apps",
    multiple=True,
    shell_complete=complete_apps,
    help="Only this app; repeatable.",
)
@click.option(
    "--kind", "kinds", multiple=True, type=kind_choice, help="Only this kind; repeatable."
)
@click.option("--flags", type=click.IntRange(min=1), help="Only rows with one of these flag bits.")
@click.option("--follow", is_flag=True, help="Wait for new rows, until interrupted.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows per page."
)
def feed(
    out: Output,
    graphs: Graphs | None,
    *,
    after: int,
    apps: tuple[str, ...],
    kinds: tuple[Kind, ...],
    flags: int | None,
    follow: bool,
    limit: int,
) -> None:
    """Print every row after a seq as JSON lines, in the order of the log.

    Rows of one transaction are never split. To resume, pass the last seq as --after. With --json
    the lines of one page become one document.
    """
    if graphs is None:
        if follow or apps:
            existing_graphs(graphs)
        if out.as_json:
            out.document({"changes": [], "next": after})
        elif out.as_rows:
            out.row_writer(_CHANGE_FIELDS)
        return
    chosen = [app_of(graphs, app).app_id for app in apps] or None
    changes = graphs.feed(
        after=after,
        apps=chosen,
        kinds=kinds or None,
        flag_mask=flags,
        limit=limit,
        timeout=None if follow else 0.0,
    )
    if out.as_json and not follow:
        page = changes.next(0.0)
        out.document(
            {"changes": [_change(publication) for publication in page], "next": changes.position}
        )
        return
    write = out.row_writer(_CHANGE_FIELDS) if out.as_rows else None
    for page in changes:
        for publication in page:
            if write is None:
                out.text(json.dumps(_change(publication), ensure_ascii=False) + "\n")
            else:
                write(_change(publication))
        out.flush()


@graphs_command("gc", writes=lambda options: not options["dry_run"], optional=True)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
def gc(out: Output, graphs: Graphs | None, *, dry_run: bool) -> None:
    """Remove outdated cached results and expired idempotency keys.

    Rows of graphs are never removed: every past state stays readable.
    """
    report = GcReport(0, 0, 0, dry_run) if graphs is None else graphs.gc(dry_run=dry_run)
    if out.as_json:
        out.document(msgspec.to_builtins(report))
        return
    verb = "would be removed" if dry_run else "removed"
    cached = f"{counted(report.cached, 'cached result')} and "
    rest = f"{counted(report.requests, 'idempotency key')} ({size(report.bytes)})"
    out.line(f"{cached}{rest} {verb}")


_CHANGE_FIELDS: Final = ("global_seq", "app_id", "kind", "row")


def _change(change: GraphChange) -> dict[str, Any]:
    return {
        "global_seq": change.global_seq,
        "app_id": change.app_id,
        "kind": change.kind,
        "row": row_json(change.row),
    }


SECTIONS: Final[Sections] = (
    (
        "Apps",
        ("register", "list", "type", "types", "rule", "describe", "upgrade", "limits", "stats"),
    ),
    ("Write a graph", ("insert",)),
    ("Read it, now or in the past", ("query", "history", "trace", "feed")),
    ("Find by value", ("find", "top")),
    ("Walk along edges", ("neighbours", "path", "match")),
    ("Exchange it with other stores", ("sync",)),
    ("Maintain", ("gc",)),
)

_EPILOG: Final = """\b
Examples:
  fourfold app register ROOT notes --title "Notes"
  fourfold app type ROOT notes parent note
  fourfold app insert ROOT notes '[{"op": "parent_create", "type_key": "note"}]'
  fourfold app query ROOT notes --at 1
  fourfold app find ROOT notes title '{"$prefix": "He"}'
  fourfold app path ROOT notes 1 7 --direction both
  fourfold app feed ROOT --follow

ROOT is an argument, --root or FOURFOLD_ROOT. --at takes a seq of the store, or a time.
Every command takes --json and --traceback.
"""


@click.command("app", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Graphs: parents, attributes, edges and ratings of apps.

    An app has its own tables in the store ROOT. A batch of operations is accepted as a whole, with
    one seq, or not at all; every past seq stays readable.
    """


for _each in (
    register,
    list_apps,
    add_type,
    types,
    set_rule,
    describe,
    upgrade,
    limits,
    stats,
    insert,
    query,
    history,
    trace,
    feed,
    find,
    top,
    neighbours,
    match,
    path,
    gc,
    sync_command,
):
    command.add_command(_each)

for _each in (run, pull, push):
    sync_command.add_command(_each)

"""`fourfold app register`, `list`, `type`, `types`, `limits`, `stats`: apps as a whole."""

from __future__ import annotations

from typing import Any

import click

from fourfold.cli.app.arguments import app_of, graphs_command, kind_choice
from fourfold.cli.output import Output, size
from fourfold.models.graphs import Graphs, Kind
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.statements import table_of


@graphs_command("register", writes=True, makes=True)
@click.argument("slug")
@click.option("--title", help="What people call the app; its slug if not given.")
def register(out: Output, graphs: Graphs, *, slug: str, title: str | None) -> None:
    """Register the app SLUG in ROOT, and the store too if there is none.

    An app that is registered already stays as it is.
    """
    app = graphs.register_app(slug, title or slug)
    if out.as_json:
        out.document(app._asdict())
    else:
        out.line(f"{app.slug} is app {app.app_id}")


@graphs_command("list")
def list_apps(out: Output, graphs: Graphs) -> None:
    """List the apps of ROOT."""
    apps = graphs.list_apps()
    if out.as_json:
        found = [{**app._asdict(), **_usage(graphs, app.app_id)} for app in apps]
        out.document({"apps": found, "global_seq": graphs.get_global_seq()})
        return
    rows = []
    for app in apps:
        usage = graphs.usage(app.app_id)
        rows.append((app.slug, app.app_id, app.title, app.version, usage.rows, size(usage.bytes)))
    out.table(("app", "number", "title", "version", "rows", "values"), rows)


@graphs_command("type", writes=True)
@click.argument("app")
@click.argument("kind", type=kind_choice)
@click.argument("type_key")
def add_type(out: Output, graphs: Graphs, *, app: str, kind: Kind, type_key: str) -> None:
    """Register a type of an app: KIND is parent, attr, edge or rating.

    Ratings of the type `suppress` hide what they are about.
    """
    app_id = app_of(graphs, app).app_id
    number = graphs.register_type(app_id, kind, type_key)
    if out.as_json:
        out.document({"app_id": app_id, "kind": kind, "type_key": type_key, "type_id": number})
    else:
        out.line(f"{type_key} is type {number} of {kind}")


@graphs_command("types")
@click.argument("app")
def types(out: Output, graphs: Graphs, *, app: str) -> None:
    """List the types of an app."""
    found = graphs.list_types(app_of(graphs, app).app_id)
    if out.as_json:
        out.document({"types": [each._asdict() for each in found]})
    else:
        rows = [(each.type_key, each.kind, each.id) for each in found]
        out.table(("type", "kind", "number"), rows)


@graphs_command("limits", writes=True)
@click.argument("app")
@click.option("--rows", metavar="NUMBER|none", help="Rows that the app may hold.")
@click.option("--bytes", "size_max", metavar="NUMBER|none", help="Bytes that its values may have.")
def limits(
    out: Output, graphs: Graphs, *, app: str, rows: str | None, size_max: str | None
) -> None:
    """Show what an app may hold, or change it.

    A write that would cross a limit is refused whole. What an app holds already stays.
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


@graphs_command("stats")
@click.argument("app", required=False)
def stats(out: Output, graphs: Graphs, *, app: str | None) -> None:
    """Count what each table holds, and show how far the log is.

    The durable number is the newest that a power cut cannot take back.
    """
    chosen = [app_of(graphs, app)] if app else list(graphs.list_apps())
    with graphs.database.read() as snapshot:
        tables = [
            {
                "app": each.slug,
                "kind": kind,
                "rows": graphs.count(snapshot, each.app_id, kind),
                "table": table_of(each.app_id, kind),
            }
            for each in chosen
            for kind in KINDS
        ]
    log = {"global_seq": graphs.get_global_seq(), "node": graphs.node}
    if out.as_json:
        out.document({"tables": tables, **log})
        return
    columns = ("table", "app", "kind", "rows")
    out.table(columns, [tuple(each[name] for name in columns) for each in tables])
    out.line(f"global_seq is {log['global_seq']}; this node is {log['node']}")


def _usage(graphs: Graphs, app_id: int) -> dict[str, Any]:
    return graphs.usage(app_id)._asdict()


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor none")
    return int(text)

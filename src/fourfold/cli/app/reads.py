"""`fourfold app query`, `history`, `feed`: a graph as it is, as it was, and as it changes."""

from __future__ import annotations

import json
from typing import Any

import click

from fourfold.cli.app.arguments import (
    app_of,
    graphs_command,
    kind_choice,
    points_of,
    shown_row,
    value_of,
)
from fourfold.cli.output import Output
from fourfold.models.graphs import Change, Graphs, Kind, Question

_COLUMNS = ("object", "type", "owner", "number", "version", "points at", "value")


@graphs_command("query")
@click.argument("app")
@click.option("--kind", type=kind_choice, default="parent", show_default=True, help="Which table.")
@click.option("--type", "type_keys", multiple=True, metavar="KEY", help="Only of this type.")
@click.option("--owner", type=int, help="Only parents of this owner.")
@click.option(
    "--parent", "parents", multiple=True, type=int, metavar="ID", help="Only of this parent."
)
@click.option("--at", type=click.IntRange(min=0), metavar="NUMBER", help="As it was then.")
@click.option("--raw", is_flag=True, help="Every version, as it was written.")
@click.option("--suppressed", is_flag=True, help="Also what its owner suppresses.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most."
)
def query(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    kind: Kind,
    type_keys: tuple[str, ...],
    owner: int | None,
    parents: tuple[int, ...],
    at: int | None,
    raw: bool,
    suppressed: bool,
    limit: int,
) -> None:
    """Show the objects of an app, now or at an earlier number.

    Of each object the newest version; with --raw every version.
    """
    app_id = app_of(graphs, app).app_id
    names = {each.id: each.type_key for each in graphs.list_types(app_id)}
    wanted = [each for each, key in names.items() if key in type_keys] if type_keys else None
    pointer = {"attr": "parent_id", "edge": "src_parent_id", "rating": "target_parent_id"}.get(kind)
    question = Question(
        app_id,
        kind,
        wanted,
        owner,
        pointer if parents else None,
        parents or None,
        at=at,
        limit=limit + 1,
    )
    rows = graphs.select(question) if raw else graphs.current(question, suppressed=suppressed)
    shown = rows[:limit]
    if out.as_json:
        found = [{**shown_row(row), "type_key": names.get(row.type_id)} for row in shown]
        out.document({"app_id": app_id, "kind": kind, "rows": found, "at": at})
    else:
        out.table(_COLUMNS, [_cells(row, names) for row in shown])
        if len(rows) > len(shown):
            out.line(f"There are more: --limit {limit * 10}")


@graphs_command("history")
@click.argument("app")
@click.argument("kind", type=kind_choice)
@click.argument("object_id", type=int)
def history(out: Output, graphs: Graphs, *, app: str, kind: Kind, object_id: int) -> None:
    """Show every version of one object, oldest first."""
    app_id = app_of(graphs, app).app_id
    graphs.newest(app_id, kind, object_id)
    names = {each.id: each.type_key for each in graphs.list_types(app_id)}
    rows = graphs.versions(app_id, kind, object_id)
    if out.as_json:
        out.document({"app_id": app_id, "versions": [shown_row(row) for row in rows]})
    else:
        out.table(_COLUMNS, [_cells(row, names) for row in rows])


@graphs_command("feed")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="From there on."
)
@click.option("--app", "apps", multiple=True, help="Only of this app.")
@click.option("--kind", "kinds", multiple=True, type=kind_choice, help="Only of this kind.")
@click.option("--flags", type=click.IntRange(min=1), help="Only rows with one of these bits.")
@click.option("--follow", is_flag=True, help="Wait for more, until interrupted.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="A page."
)
def feed(
    out: Output,
    graphs: Graphs,
    *,
    after: int,
    apps: tuple[str, ...],
    kinds: tuple[Kind, ...],
    flags: int | None,
    follow: bool,
    limit: int,
) -> None:
    """Print every row written after a number, one JSON object a line, in the order of the log.

    What was written under one number comes together. Go on later with --after the last number.
    With --json the lines of one page become one document.
    """
    chosen = [app_of(graphs, each).app_id for each in apps] or None
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
        out.document({"changes": [_change(each) for each in page], "next": changes.position})
        return
    for page in changes:
        for each in page:
            out.text(json.dumps(_change(each), ensure_ascii=False) + "\n")


def _change(change: Change) -> dict[str, Any]:
    return {
        "global_seq": change.global_seq,
        "app_id": change.app_id,
        "kind": change.kind,
        "row": shown_row(change.row),
    }


def _cells(row: Any, names: dict[int, str]) -> tuple[object, ...]:
    return (
        row.object_id,
        names.get(row.type_id, row.type_id),
        row.owner_identity,
        row.global_seq,
        row.version,
        points_of(row),
        value_of(row),
    )

"""`fourfold app find` and `fourfold app top`: attributes and ratings by their values."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final, Literal

import click

from fourfold.cli.app_walks import app_argument, graph_of, type_ids
from fourfold.cli.graph_command import graphs_command
from fourfold.cli.history_options import Decorator, at_option
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import json_argument
from fourfold.limits import PAGE_ITEMS_MAX
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.records import ROWS, TopOrder

_RANKED: Final = ("object_id", "numbers", "sum", "average")


def _kind_option(default: str) -> Decorator:
    return click.option(
        "--kind",
        type=click.Choice(["attr", "rating"]),
        default=default,
        show_default=True,
        help="Kind of the values.",
    )


@graphs_command("find", rows=True)
@app_argument
@click.argument("type_key", metavar="TYPE")
@click.argument("where", required=False)
@_kind_option("attr")
@at_option("As of this seq or time.")
@click.option("--suppressed", is_flag=True, help="Include suppressed objects.")
@click.option("--after", metavar="CURSOR", help="Continue after a page, with all else unchanged.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=PAGE_ITEMS_MAX),
    default=100,
    show_default=True,
    help="Maximum number of objects.",
)
def find(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    type_key: str,
    where: str | None,
    kind: Literal["attr", "rating"],
    at: int | datetime | None,
    suppressed: bool,
    after: str | None,
    limit: int,
) -> None:
    """Find attributes or ratings of TYPE by their value, in the order of values.

    WHERE is JSON, @FILE, or - for stdin: a value to be equal to, such as '"ann"', or operators,
    such as '{"$gte": 18, "$lt": 30}'. Without it, all are listed.
    """
    result = graph_of(graphs, app).find(
        type_key,
        None if where is None else json_argument(where, "WHERE"),
        kind=kind,
        at=at,
        limit=limit,
        after=after,
        suppressed=suppressed,
    )
    records = [_record(row) for row in result.rows]
    out.rows(
        {"seq": result.seq, "rows": records, "next_cursor": result.cursor},
        "rows",
        {"object": "object_id", "of": _target, "owner": "owner_identity", "value": _value},
        fields=ROWS[kind]._fields,
        empty="no objects",
    )
    if result.cursor is not None and out.format == "text":
        out.line(f"There are more: --after {result.cursor}")


@graphs_command("top", rows=True)
@app_argument
@click.argument("type_key", metavar="TYPE")
@_kind_option("rating")
@click.option(
    "--parent-type", "types", multiple=True, metavar="KEY", help="Only objects of this type."
)
@click.option(
    "--order",
    type=click.Choice(["average", "sum", "count"]),
    default="average",
    show_default=True,
    help="What is compared.",
)
@at_option("As of this seq or time.")
@click.option("--suppressed", is_flag=True, help="Include suppressed objects.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=PAGE_ITEMS_MAX),
    default=10,
    show_default=True,
    help="Maximum number of objects.",
)
def top(
    out: Output,
    graphs: Graphs,
    *,
    app: str,
    type_key: str,
    kind: Literal["attr", "rating"],
    types: tuple[str, ...],
    order: TopOrder,
    at: int | datetime | None,
    suppressed: bool,
    limit: int,
) -> None:
    """List the objects with the greatest numbers of TYPE, such as the best rated."""
    graph = graph_of(graphs, app)
    result = graph.top(
        type_key,
        kind=kind,
        types=type_ids(graph, "parent", types),
        order=order,
        at=at,
        limit=limit,
        suppressed=suppressed,
    )
    out.rows(
        {"seq": result.seq, "objects": [row._asdict() for row in result.objects]},
        "objects",
        {"object": "object_id", "numbers": "numbers", "sum": "sum", "average": "average"},
        fields=_RANKED,
        empty="no objects",
    )


def _record(row: Any) -> dict[str, Any]:
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in row._asdict().items()
    }


def _target(record: dict[str, Any]) -> str:
    parent = record.get("parent_id", record.get("target_parent_id"))
    return f"attr {record['target_attr_id']}" if parent is None else f"parent {parent}"


def _value(record: dict[str, Any]) -> object:
    names = ("value_text", "value_number", "value_json", "value_blob")
    return next((record[name] for name in names if record.get(name) is not None), "")

"""`fourfold space find`, `count`, `facets` and `index`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import at_option, branch_option
from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import compact, json_argument, limit_option, space_command
from fourfold.errors import InvalidInput
from fourfold.models.documents import Facet, FindPlan, IndexInfo, Match, Space

At = int | datetime | None
_branch: Final = branch_option("Branch to read; default: the default branch.")
_at: Final = at_option("Read as of this seq or time.")
_filter: Final = click.argument("where", required=False, metavar="[FILTER]")
_EPILOG: Final = "Every command takes --json and --traceback."


@space_command("find", rows=True)
@_filter
@click.option("--order-by", metavar="PATH", help="A field or a JSON Pointer; -PATH descends.")
@limit_option(100)
@click.option("--after", metavar="CURSOR", help="Continue after a page: its `next`.")
@_branch
@_at
@click.option("--no-scan", is_flag=True, help="Refuse a query that no index serves.")
@click.option("--explain", is_flag=True, help="Print how the query would be answered.")
def find(
    out: Output,
    space: Space,
    *,
    where: str | None,
    order_by: str | None,
    limit: int,
    after: str | None,
    branch: str,
    at: At,
    no_scan: bool,
    explain: bool,
) -> None:
    """Print the documents that match a filter, now or at a point in the past.

    FILTER is a JSON object, such as '{"status": "open", "/total": {"$gte": 100}}', or @FILE, or -
    for stdin. Without it, every document matches.
    """
    conditions = _where(where)
    if explain:
        plan = space.explain(conditions, order_by=order_by, at=at, branch=branch)
        _show_plan(out, plan)
        return
    page = space.find(
        conditions,
        order_by=order_by,
        limit=limit,
        after=after,
        at=at,
        branch=branch,
        scan=not no_scan,
    )
    out.rows(
        {
            "documents": [msgspec.to_builtins(match) for match in page],
            "seq": page.seq,
            "next": page.next,
            "plan": msgspec.to_builtins(page.plan),
        },
        "documents",
        {"id": "id", "seq": "seq", "document": lambda match: compact(match["document"])},
        fields=Match.__struct_fields__,
        empty="no documents match",
    )
    if page.next is not None and out.format == "text":
        out.line(f"There may be more: --after {page.next}")


@space_command("count")
@_filter
@_branch
@_at
def count(out: Output, space: Space, where: str | None, branch: str, at: At) -> None:
    """Print the number of documents that match a filter.

    FILTER is as in `fourfold space find`.
    """
    number = space.count(_where(where), at=at, branch=branch)
    _show(out, {"count": number}, str(number))


@space_command("facets", rows=True)
@click.argument("path")
@_filter
@limit_option(100)
@_branch
@_at
def facets(
    out: Output,
    space: Space,
    path: str,
    where: str | None,
    *,
    limit: int,
    branch: str,
    at: At,
) -> None:
    """Print the most frequent values at PATH, with the number of their documents.

    PATH is a field or a JSON Pointer, in which * stands for every item of an array. FILTER is as in
    `fourfold space find`.
    """
    rows = space.facets(path, where=_where(where), limit=limit, at=at, branch=branch)
    out.rows(
        {"facets": [msgspec.to_builtins(row) for row in rows]},
        "facets",
        {"value": lambda row: compact(row["value"]), "count": "count"},
        fields=Facet.__struct_fields__,
        empty=f"no document has a value at {path}",
    )


@click.command(
    "index",
    cls=SectionedGroup,
    sections=(("Commands", ("create", "list", "rebuild", "drop")),),
    epilog=_EPILOG,
)
def index() -> None:
    """Declare indexes over paths of the documents."""


@space_command("create", writes=True)
@click.argument("name")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--unique", is_flag=True, help="Refuse values that another entity has.")
@click.option("--text", is_flag=True, help="Index the words, for search and $text.")
@click.option("--vector", is_flag=True, help="Index the array of numbers, for search --vector.")
@click.option("--now", is_flag=True, help="Only for the newest state: takes less space.")
def create(
    out: Output,
    space: Space,
    name: str,
    paths: tuple[str, ...],
    *,
    unique: bool,
    text: bool,
    vector: bool,
    now: bool,
) -> None:
    """Create the index NAME over PATH, or over several for a composite key.

    PATH is a JSON Pointer, in which * stands for every item of an array. All documents are indexed
    before the command ends.
    """
    if text and vector:
        raise InvalidInput("pass either --text or --vector")
    space.indexes.create(
        *(name, paths),
        unique=unique,
        history="now" if now else "all",
        kind="text" if text else "vector" if vector else "value",
    )
    _show_index(out, "created", space.indexes.wait(name, math.inf))


@space_command("list", rows=True)
def list_indexes(out: Output, space: Space) -> None:
    """List the indexes of the space."""
    out.rows(
        {"indexes": [msgspec.to_builtins(info) for info in space.indexes.list()]},
        "indexes",
        {
            "name": "name",
            "paths": lambda info: " ".join(info["paths"]),
            "unique": lambda info: "yes" if info["unique"] else "no",
            "history": "history",
            "state": "state",
        },
        fields=IndexInfo.__struct_fields__,
        empty="no indexes",
    )


@space_command("rebuild", writes=True)
@click.argument("name")
def rebuild(out: Output, space: Space, name: str) -> None:
    """Delete the entries of the index NAME and build them again."""
    space.indexes.rebuild(name)
    _show_index(out, "rebuilt", space.indexes.wait(name, math.inf))


@space_command("drop", writes=True)
@click.argument("name")
def drop(out: Output, space: Space, name: str) -> None:
    """Drop the index NAME."""
    space.indexes.drop(name)
    space.indexes.builder.run()
    _show(out, {"dropped": name}, f"dropped index {name}")


for _each in (create, list_indexes, rebuild, drop):
    index.add_command(_each)


def _where(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    value = json_argument(text, "FILTER")
    if not isinstance(value, dict):
        raise InvalidInput("FILTER must be a JSON object", hint="""For example '{"a": 1}'.""")
    return value


def _show_index(out: Output, done: str, info: IndexInfo) -> None:
    failed = f"; it is not enforced: {info.error}" if info.state == "failed" else ""
    paths = " ".join(info.paths)
    _show(out, msgspec.to_builtins(info), f"{done} index {info.name} over {paths}{failed}")


def _show_plan(out: Output, plan: FindPlan) -> None:
    building = f"; being built: {', '.join(plan.building)}" if plan.building else ""
    sorts = ", then sorts" if plan.sorts else ""
    if plan.index is None:
        text = f"reads every document{sorts}{building}"
    else:
        compared = "" if plan.exact else ", and compares the documents"
        text = f"reads index {plan.index} ({plan.access}){compared}{sorts}{building}"
    _show(out, msgspec.to_builtins(plan), text)


def _show(out: Output, document: dict[str, Any], text: str) -> None:
    if out.as_json:
        out.document(document)
    else:
        out.line(text)

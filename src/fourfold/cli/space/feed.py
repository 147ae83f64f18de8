"""`fourfold space follow`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import branch_option
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import change, compact, json_argument, space_command
from fourfold.models.documents import Space
from fourfold.models.documents.records import Commit, MatchedCommit

_FIELDS: Final = ("seq", "branch", "kind", "op", "id", "data")


@space_command("follow", rows=True)
@branch_option("Branch to follow; default: the default branch.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this entity; repeatable.")
@click.option(
    "--where",
    metavar="FILTER",
    help="Only documents that enter, change in or leave this filter (JSON, @FILE or -).",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Start after this seq; default: after the newest commit.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop after this many seconds without a commit; by default, when interrupted.",
)
def follow(  # noqa: PLR0917
    out: Output,
    space: Space,
    branch: str,
    ids: tuple[str, ...],
    where: str | None,
    after: int | None,
    timeout: float | None,
) -> None:
    """Print commits as they happen, one line for each document.

    With --json, each commit is one line.
    """
    condition = None if where is None else json_argument(where, "FILTER")
    write = out.row_writer(_FIELDS) if out.as_rows else None
    watch = (
        space.follow(ids or None, after, branch, timeout=timeout)
        if condition is None
        else space.follow(ids or None, after, branch, where=condition, timeout=timeout)
    )
    for commit in watch:
        if write is not None:
            for row in _rows(commit):
                write(row)
        elif out.as_json:
            out.text(json.dumps(msgspec.to_builtins(commit)) + "\n")
        else:
            for row in _rows(commit):
                shown = compact(row["data"]) if row["kind"] else change(row["op"], row["data"])
                name = row["kind"] or row["op"]
                out.line(f"{row['seq']:>6}  {name:6}  {row['id']}  {shown}".rstrip())
        # A reader of a pipe needs each commit without delay.
        out.flush()


def _rows(commit: Commit | MatchedCommit) -> Iterator[dict[str, Any]]:
    point = {"seq": commit.seq, "branch": commit.branch}
    if isinstance(commit, Commit):
        for row in commit.revisions:
            yield {**point, "kind": None, "op": row.op, "id": row.id, "data": row.data}
    else:
        for match in commit.changes:
            facts = {"kind": match.kind, "op": match.op, "id": match.id, "data": match.document}
            yield {**point, **facts}

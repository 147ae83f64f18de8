"""`fourfold space get`, `ids`, `log`, `history`, `set`, `patch` and `delete`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import at_option, branch_option
from fourfold.cli.output import Output, printable
from fourfold.cli.space.arguments import (
    branch_name,
    change,
    entity_argument,
    json_argument,
    limit_option,
    on_branch,
    pretty,
    request_line,
    space_command,
)
from fourfold.errors import NotFound
from fourfold.models.documents import Revision, Space
from fourfold.models.documents.records import LogEntry

At = int | datetime | None
_branch: Final = branch_option("Branch to read; default: the default branch.")
_at: Final = at_option("Read as of this seq or time.")


@space_command("get")
@entity_argument
@_branch
@_at
def get(out: Output, space: Space, entity: str, branch: str, at: At) -> None:
    """Print the document of the entity ID, now or at a point in the past."""
    state = space.read(entity, branch, at)
    if state is None:
        raise NotFound(
            f"{entity!r} was never written{on_branch(branch)}{_as_of(at)}",
            hint="List all entities: `fourfold space ids`.",
        )
    if state.document is None:
        raise NotFound(
            f"{entity!r} was deleted at seq {state.seq}",
            hint=f"Read it as it was before: --at {state.seq - 1}.",
            details={"entity": entity, "deleted_seq": state.seq},
        )
    if out.as_json:
        out.document({"id": entity, "branch": branch, **msgspec.to_builtins(state)})
    else:
        out.text(pretty(state.document) + "\n")


@space_command("ids", rows=True)
@_branch
@_at
@click.option("--prefix", default="", metavar="TEXT", help="Only ids that start with this.")
@click.option("--after", default="", metavar="ID", help="Start after this id.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of ids.")
def ids(  # noqa: PLR0917
    out: Output, space: Space, branch: str, at: At, prefix: str, after: str, limit: int | None
) -> None:
    """List the entities that exist, now or at a point in the past, sorted."""
    # Request one more, to see if there are more.
    more = None if limit is None else limit + 1
    listing = space.ids(branch, at, prefix=prefix, after=after, limit=more)
    shown = listing[:limit]
    if out.as_json:
        following = shown[-1] if len(listing) > len(shown) else None
        out.document({"branch": branch, "ids": shown, "next": following})
        return
    if out.as_rows:
        write = out.row_writer(("id",))
        for entity in shown:
            write({"id": entity})
        return
    for entity in shown:
        out.line(entity)


@space_command("log", rows=True)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Start after this seq; default: show the newest commits.",
)
@limit_option(50)
def log(out: Output, space: Space, after: int | None, limit: int) -> None:
    """List the commits of the space, the newest last."""
    newest = space.seq()
    start = max(0, newest - limit) if after is None else after
    entries = space.log(after=start, limit=limit)
    following = entries[-1].seq if entries and entries[-1].seq < newest else None
    out.rows(
        {"commits": [msgspec.to_builtins(entry) for entry in entries], "next": following},
        "commits",
        {
            "seq": "seq",
            "time": "created_at",
            "branch": lambda entry: branch_name(entry["branch"]),
            "change": lambda entry: request_line(entry["original"]),
        },
        fields=LogEntry.__struct_fields__,
        empty="no commits" + (f" after seq {start}" if start else " yet"),
    )


@space_command("history", rows=True)
@entity_argument
@_branch
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Start after this seq."
)
@at_option("End at this seq or time.")
@limit_option(100)
def history(
    out: Output,
    space: Space,
    entity: str,
    *,
    branch: str,
    after: int,
    at: At,
    limit: int,
) -> None:
    """List the revisions of the entity ID on a branch, the newest last."""
    entries = space.history(entity, branch, after=after, at=at, limit=limit + 1)
    revisions = _whole_commits(entries, limit)
    following = revisions[-1].seq if len(entries) > len(revisions) else None
    beyond = f" after seq {after}" if after else ""
    out.rows(
        {
            "id": entity,
            "branch": branch,
            "revisions": [msgspec.to_builtins(revision) for revision in revisions],
            "next": following,
        },
        "revisions",
        {
            "seq": "seq",
            "branch": lambda revision: branch_name(revision["branch"]),
            "op": "op",
            "change": lambda revision: change(revision["op"], revision["data"]),
        },
        fields=Revision.__struct_fields__,
        empty=f"{entity!r} has no revisions{on_branch(branch)}{beyond}{_as_of(at)}",
    )
    if following is not None and out.format == "text":
        out.line(f"There are more: --after {following}")


def _whole_commits(revisions: Sequence[Revision], limit: int) -> Sequence[Revision]:
    """Return at most `limit` rows without splitting a commit.

    A single commit with more rows is truncated.
    """
    if len(revisions) <= limit:
        return revisions
    cut = revisions[limit].seq
    return [row for row in revisions[:limit] if row.seq != cut] or revisions[:limit]


def _as_of(at: At) -> str:
    if at is None:
        return ""
    return f" as of seq {at}" if isinstance(at, int) else f" as of {at.isoformat()}"


_changes_branch: Final = branch_option("Branch to write; default: the default branch.")
_if_seq: Final = click.option(
    "--if-seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Only if the entity was last changed at this seq; 0: only if it was never written.",
)


@space_command("set", writes=True)
@entity_argument
@click.argument("document")
@_changes_branch
@_if_seq
def set_document(
    out: Output,
    space: Space,
    entity: str,
    document: str,
    *,
    branch: str,
    if_seq: int | None,
) -> None:
    """Replace the whole document of the entity ID.

    DOCUMENT is a JSON object, or @FILE, or - for stdin.
    """
    value = json_argument(document, "the document")
    _commit(out, space, {"op": "set", "id": entity, "value": value}, branch, if_seq)


@space_command("patch", writes=True)
@entity_argument
@click.argument("patches")
@_changes_branch
@_if_seq
def patch_document(
    out: Output,
    space: Space,
    entity: str,
    patches: str,
    *,
    branch: str,
    if_seq: int | None,
) -> None:
    """Change parts of the document of the entity ID.

    PATCHES is a JSON list of patches, or a single one, or @FILE, or - for stdin. For example
    '{"op": "replace", "path": "/title", "value": "New"}'.
    """
    value = json_argument(patches, "the patches")
    listed = [value] if isinstance(value, dict) else value
    _commit(out, space, {"op": "patch", "id": entity, "patches": listed}, branch, if_seq)


@space_command("delete", writes=True)
@entity_argument
@_changes_branch
@_if_seq
def delete_document(
    out: Output,
    space: Space,
    entity: str,
    branch: str,
    if_seq: int | None,
) -> None:
    """Mark the entity ID as deleted. Its past stays readable."""
    _commit(out, space, {"op": "delete", "id": entity}, branch, if_seq)


def _commit(
    out: Output, space: Space, operation: Mapping[str, Any], branch: str, if_seq: int | None
) -> None:
    entity, op = operation["id"], operation["op"]
    only_if = () if if_seq is None else ({"kind": "seq", "id": entity, "seq": if_seq},)
    commit = space.transact([operation], branch=branch, preconditions=only_if)
    if out.as_json:
        out.document(
            {"did": space.did, "branch": branch, "id": entity, "op": op, "seq": commit.seq}
        )
        return
    done = {"set": "set", "patch": "patched", "delete": "deleted"}[op]
    out.line(printable(f"seq {commit.seq}: {done} {entity}{on_branch(branch)}"))

"""`fourfold space set`, `patch` and `delete`: one operation, one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from fourfold.cli.output import Output, printable
from fourfold.cli.space.arguments import branch_option, json_argument, space_command
from fourfold.cli.space.shown import on_branch
from fourfold.models.documents import Space

_branch: Final = branch_option("The branch to write; the default branch if not given.")
_if_seq: Final = click.option(
    "--if-seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Only if the entity was last changed at this seq; 0: only if it was never written.",
)


@space_command("set", writes=True)
@click.argument("entity", metavar="ID")
@click.argument("document")
@_branch
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
@click.argument("entity", metavar="ID")
@click.argument("patches")
@_branch
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
@click.argument("entity", metavar="ID")
@_branch
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

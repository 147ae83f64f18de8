"""`fourfold space branch`: lines of history beside the default one."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from fourfold.cli.groups import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.space.arguments import at_option, space_command
from fourfold.cli.space.shown import branch_name
from fourfold.models.documents import Branch, Space

_EPILOG = "Every command takes --json and --traceback."


@click.command(
    "branch",
    cls=SectionedGroup,
    sections=(("Commands", ("create", "list", "delete")),),
    epilog=_EPILOG,
)
def branch() -> None:
    """Create, list and delete branches."""


@space_command("create", writes=True)
@click.argument("name")
@click.option(
    "--parent",
    default="",
    metavar="NAME",
    help="What to branch from; the default branch if not given.",
)
@at_option("Branch from how the parent was at this seq, or at this time; now if not given.")
def create(out: Output, space: Space, name: str, parent: str, at: int | datetime | None) -> None:
    """Create the branch NAME. It costs nothing, whatever the size of the space."""
    made = space.branches.create(name, parent, at)
    _show(
        out,
        made,
        f"created branch {made.name} from {branch_name(made.parent)} at seq {made.fork_seq}",
    )


@space_command("delete", writes=True)
@click.argument("name")
def delete(out: Output, space: Space, name: str) -> None:
    """End the branch NAME: it stays readable, and nobody can write it any more."""
    ended = space.branches.delete(name)
    _show(out, ended, f"deleted branch {ended.name}; it can still be read")


@space_command("list")
@click.option("--deleted", is_flag=True, help="Also those that were deleted.")
def list_branches(out: Output, space: Space, *, deleted: bool) -> None:
    """List the branches, in the order of making."""
    found = space.branches.list(deleted=deleted)
    if out.as_json:
        out.document({"branches": [msgspec.to_builtins(each) for each in found]})
        return
    out.table(
        ("branch", "parent", "fork", "created", "head", "status"),
        [
            (
                branch_name(each.name),
                "" if each.fork_seq is None else branch_name(each.parent),
                each.fork_seq,
                each.created_seq,
                each.head_seq,
                each.status,
            )
            for each in found
        ],
    )


def _show(out: Output, made: Branch, text: str) -> None:
    if out.as_json:
        out.document(msgspec.to_builtins(made))
    else:
        out.line(text)


for _each in (create, delete, list_branches):
    branch.add_command(_each)

"""`fourfold space branch`, `diff`, `revert` and `merge`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from fourfold.cli.completion import complete_branches, complete_entities
from fourfold.cli.history_options import at_option, branch_option
from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import (
    branch_name,
    compact,
    json_argument,
    on_branch,
    operations_line,
    patch_line,
    space_command,
    where,
)
from fourfold.content.json_pointer import ABSENT, lookup, parse_pointer
from fourfold.errors import Conflict, InvalidInput, NotFound
from fourfold.models.documents import Branch, Distance, Space, State
from fourfold.models.documents.ancestry import BranchPoint
from fourfold.models.documents.comparison import Change, Difference
from fourfold.models.documents.entity_merge import side_of
from fourfold.models.documents.field_merge import OURS, THEIRS
from fourfold.models.documents.merge import MergeConflict, MergeResult

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
    shell_complete=complete_branches,
    help="Parent branch; default: the default branch.",
)
@at_option("Branch from the parent at this seq or time; default: now.")
def create(out: Output, space: Space, name: str, parent: str, at: int | datetime | None) -> None:
    """Create the branch NAME. It copies nothing, however large the space is."""
    made = space.branches.create(name, parent, at)
    _show(
        out,
        made,
        f"created branch {made.name} from {branch_name(made.parent)} at seq {made.fork_seq}",
    )


@space_command("delete", writes=True)
@click.argument("name", shell_complete=complete_branches)
def delete(out: Output, space: Space, name: str) -> None:
    """Delete the branch NAME: it stays readable, but accepts no more commits."""
    ended = space.branches.delete(name)
    _show(out, ended, f"deleted branch {ended.name}; it can still be read")


@space_command("list", rows=True)
@click.option("--deleted", is_flag=True, help="Include deleted branches.")
def list_branches(out: Output, space: Space, *, deleted: bool) -> None:
    """List the branches in order of creation, and how far each is from its parent."""
    branches = space.branches.list(deleted=deleted)
    none = dict.fromkeys(Distance.__struct_fields__)
    rows = [
        msgspec.to_builtins(row) | (msgspec.to_builtins(space.branches.distance(row.name)) or none)
        for row in branches
    ]
    out.rows(
        {"branches": rows},
        "branches",
        {
            "branch": lambda row: branch_name(row["name"]),
            "parent": lambda row: "" if row["fork_seq"] is None else branch_name(row["parent"]),
            "fork": "fork_seq",
            "created": "created_seq",
            "head": "head_seq",
            "ahead": lambda row: "" if row["ahead"] is None else row["ahead"],
            "missing": lambda row: "" if row["missing"] is None else row["missing"],
            "status": "status",
        },
        fields=(*Branch.__struct_fields__, *Distance.__struct_fields__),
    )


def _show(out: Output, branch: Branch, text: str) -> None:
    if out.as_json:
        out.document(msgspec.to_builtins(branch))
    else:
        out.line(text)


for _each in (create, delete, list_branches):
    branch.add_command(_each)


At = int | datetime | None


@space_command("diff", rows=True)
@branch_option("Branch to start from; default: the default branch.")
@at_option("Start from this seq or time; default: now.")
@click.option(
    "--to-branch",
    metavar="NAME",
    shell_complete=complete_branches,
    help="Branch to compare with; default: the same.",
)
@at_option("Compare with this seq or time; default: now.", "--to-at")
def diff(
    out: Output, space: Space, *, branch: str, at: At, to_branch: str | None, to_at: At
) -> None:
    """Show the changes that turn one state into another.

    --at 3 shows the changes since seq 3, --to-branch draft the differences on a branch.
    """
    other = branch if to_branch is None else to_branch
    if at is None and to_branch is None and to_at is None:
        raise InvalidInput(
            f"both points are {branch_name(branch)} now, so nothing can differ",
            hint="Pass --at SEQ, --to-branch NAME or --to-at SEQ.",
        )
    difference = space.branches.diff(branch, other, at, to_at)
    if out.format != "text":
        out.rows(
            {
                "a": difference.a._asdict(),
                "b": difference.b._asdict(),
                "base": difference.base._asdict(),
                "changes": [msgspec.to_builtins(change) for change in difference],
            },
            "changes",
            {},
            fields=Change.__struct_fields__,
        )
        return
    out.line(
        f"from {_point(difference.a)} to {_point(difference.b)}: {_differing(len(difference))}"
    )
    for change in difference:
        for text in _change_lines(difference, change):
            out.change(text)


def _differing(count: int) -> str:
    if not count:
        return "no difference"
    return "1 entity differs" if count == 1 else f"{count} entities differ"


def _change_lines(difference: Difference, change: Change) -> list[str]:
    side = ""
    if difference.a.branch != difference.b.branch:
        named = {"a": difference.a.branch, "b": difference.b.branch}
        moved = "both" if change.changed_on == "both" else branch_name(named[change.changed_on])
        side = f"   (changed on {moved})"
    if change.patches is not None:
        return [f"~ {change.id}{side}", *(f"    {patch_line(patch)}" for patch in change.patches)]
    document = change.operation.get("value")
    if document is None:
        return [f"- {change.id}{side}"]
    return [f"+ {change.id}{side}", f"    {compact(document)}"]


@space_command("revert", writes=True)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_entities)
@at_option("Seq or time to return to.", required=True)
@branch_option("Branch to change; default: the default branch.")
def revert(out: Output, space: Space, ids: tuple[str, ...], *, at: At, branch: str) -> None:
    """Restore the state at a seq or time, of all entities or only of ID.

    This writes a new commit; the changes in between stay in the history.
    """
    for entity in ids:
        if space.read(entity, branch) is None:
            raise NotFound(
                f"{entity!r} was never written{on_branch(branch)}",
                hint="List all entities: `fourfold space ids`.",
            )
    difference = space.diff(branch, None, at)
    operations = [change.operation for change in difference if not ids or change.id in ids]
    seq = space.transact(operations, branch=branch).seq if operations else None
    if out.as_json:
        out.document(
            {
                "did": space.did,
                "branch": branch,
                "to": difference.b.seq,
                "operations": operations,
                "seq": seq,
            }
        )
    elif seq is None:
        what = ", ".join(ids) or "everything"
        out.line(f"nothing to do{on_branch(branch)}: {what} is as it was at seq {difference.b.seq}")
    else:
        out.line(
            f"seq {seq}: back to seq {difference.b.seq}{on_branch(branch)}: "
            f"{operations_line(operations)}"
        )


@space_command("merge", writes=True)
@click.argument("source", shell_complete=complete_branches)
@click.option(
    "--into",
    "target",
    default="",
    metavar="NAME",
    shell_complete=complete_branches,
    help="Branch to write; default: the default branch.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and the conflicts.")
@click.option(
    "--whole",
    is_flag=True,
    help="Merge whole entities: changes of different fields of an entity conflict, too.",
)
@click.option(
    "--resolve",
    nargs=2,
    multiple=True,
    metavar="ID CHOICE",
    help="Resolve a conflicting entity: source (theirs), target (ours), or its "
    "document; null deletes it.",
)
@click.option(
    "--resolve-path",
    nargs=3,
    multiple=True,
    metavar="ID PATH CHOICE",
    help="Resolve one conflict: source (theirs), target (ours), absent, or a JSON value.",
)
def merge(
    out: Output,
    space: Space,
    source: str,
    *,
    target: str,
    dry_run: bool,
    whole: bool,
    resolve: tuple[tuple[str, str], ...],
    resolve_path: tuple[tuple[str, str, str], ...],
) -> None:
    """Merge the changes of the branch SOURCE into another branch, as one commit.

    Entities that both branches changed are merged field by field; increments and appends of both
    sides are combined. Other different changes of the same field conflict, and nothing is written
    unless you pass --resolve or --resolve-path.
    """
    resolutions = _resolutions(resolve, resolve_path)
    done = space.branches.merge(
        source, target, resolutions=resolutions, field_level=not whole, dry_run=True
    )
    if not dry_run:
        if done.conflicts:
            if not out.as_json:
                _show_conflicts(out, done, list(done.conflicts))
            raise _conflict(done, list(done.conflicts))
        done = space.branches.merge(source, target, resolutions=resolutions, field_level=not whole)
    if out.as_json:
        out.document(_merge_facts(done))
        return
    _show_merge(out, done)


_SIDES = {"source": THEIRS, "theirs": THEIRS, "target": OURS, "ours": OURS}


def _resolutions(
    resolve: tuple[tuple[str, str], ...], resolve_path: tuple[tuple[str, str, str], ...]
) -> dict[Any, Any]:
    resolutions: dict[Any, Any] = {}
    for entity, choice in resolve:
        if entity in resolutions:
            raise InvalidInput(f"duplicate resolution of {entity!r}")
        resolutions[entity] = _SIDES.get(choice) or json_argument(
            choice, f"the resolution of {entity!r}"
        )
    for entity, path, choice in resolve_path:
        where = f"the resolution of {path!r} in {entity!r}"
        if (entity, path) in resolutions:
            raise InvalidInput(f"duplicate resolution of {path!r} in {entity!r}")
        if choice == "absent":
            resolutions[entity, path] = ABSENT
        else:
            resolutions[entity, path] = _SIDES.get(choice) or json_argument(choice, where)
    return resolutions


def _conflict(tried: MergeResult, conflicts: list[MergeConflict]) -> Conflict:
    names = ", ".join(conflict.id for conflict in conflicts[:3])
    return Conflict(
        f"{branch_name(tried.source.branch)} and {branch_name(tried.target.branch)} both changed "
        f"{names}{' and others' if len(conflicts) > 3 else ''}; nothing was written",
        hint="Resolve each conflict: --resolve ID source, --resolve ID target, "
        "--resolve ID DOCUMENT, or --resolve-path ID PATH CHOICE.",
        details={"conflicts": [conflict.as_dict() for conflict in conflicts]},
    )


def _show_merge(out: Output, done: MergeResult) -> None:
    names = f"{branch_name(done.source.branch)} into {branch_name(done.target.branch)}"
    if done.commit is not None:
        what = operations_line(done.operations) or "both branches made the same changes"
        out.line(f"seq {done.commit.seq}: merged {names}: {what}")
    elif done.conflicts:
        _show_conflicts(out, done, list(done.conflicts))
    elif done.operations:
        out.line(f"would merge {names}: {operations_line(done.operations)}")
    else:
        out.line(f"nothing to merge from {names}")


def _show_conflicts(out: Output, done: MergeResult, conflicts: list[MergeConflict]) -> None:
    names = f"{branch_name(done.source.branch)} into {branch_name(done.target.branch)}"
    out.line(f"cannot merge {names}: {counted(len(conflicts), 'conflict')}")
    out.table(
        (
            "entity",
            "path",
            "base",
            f"source: {branch_name(done.source.branch)}",
            f"target: {branch_name(done.target.branch)}",
        ),
        [
            (
                conflict.id,
                where(path),
                *(
                    _value(state, path)
                    for state in (conflict.base, conflict.source, conflict.target)
                ),
            )
            for conflict in conflicts
            for path in conflict.paths
        ],
    )


def _merge_facts(done: MergeResult) -> dict[str, object]:
    return {
        "source": done.source._asdict(),
        "target": done.target._asdict(),
        "base": done.base._asdict(),
        "operations": list(done.operations),
        "conflicts": [msgspec.to_builtins(conflict) for conflict in done.conflicts],
        "seq": None if done.commit is None else done.commit.seq,
    }


def _point(point: BranchPoint) -> str:
    return f"{branch_name(point.branch)} at seq {point.seq}"


def _value(state: State | None, path: str) -> str:
    """Format one side of a conflict for a table."""
    value = lookup(side_of(state), parse_pointer(path))
    return "(absent)" if value is ABSENT else compact(value, 30)

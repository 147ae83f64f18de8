"""`fourfold space branch`: lines of history beside the default one.

`fourfold space diff`, `revert` and `merge`: two states, and how one becomes the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import (
    at_option,
    branch_name,
    branch_option,
    compact,
    json_argument,
    on_branch,
    operations_line,
    patch_line,
    space_command,
    where,
)
from fourfold.errors import Conflict, InvalidInput, NotFound
from fourfold.models.documents import Branch, Space, State
from fourfold.models.documents.ancestry import Point
from fourfold.models.documents.comparison import Change, Difference
from fourfold.models.documents.entity_merge import side_of
from fourfold.models.documents.field_merge import OURS, THEIRS
from fourfold.models.documents.json_pointer import ABSENT, lookup, parse_pointer
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


At = int | datetime | None


@space_command("diff")
@branch_option("The branch to start from; the default branch if not given.")
@at_option("Start from this seq, or from this time; now if not given.")
@click.option(
    "--to-branch", metavar="NAME", help="The branch to compare with; if not given, the same."
)
@at_option("Compare with this seq, or with this time; now if not given.", "--to-at")
def diff(
    out: Output, space: Space, *, branch: str, at: At, to_branch: str | None, to_at: At
) -> None:
    """Show what differs between two points: what makes the first look like the second.

    --at 3 shows what changed since seq 3, --to-branch draft what is different on a branch.
    """
    other = branch if to_branch is None else to_branch
    if at is None and to_branch is None and to_at is None:
        raise InvalidInput(
            f"both points are {branch_name(branch)} now, so nothing can differ",
            hint="Say what to compare: --at SEQ, --to-branch NAME or --to-at SEQ.",
        )
    found = space.branches.diff(branch, other, at, to_at)
    if out.as_json:
        out.document(
            {
                "a": found.a._asdict(),
                "b": found.b._asdict(),
                "base": found.base._asdict(),
                "changes": [msgspec.to_builtins(each) for each in found],
            }
        )
        return
    out.line(f"from {_point(found.a)} to {_point(found.b)}: {_differing(len(found))}")
    for each in found:
        for text in _change_lines(found, each):
            out.line(text)


def _differing(count: int) -> str:
    if not count:
        return "no difference"
    return "1 entity differs" if count == 1 else f"{count} entities differ"


def _change_lines(found: Difference, change: Change) -> list[str]:
    side = ""
    if found.a.branch != found.b.branch:
        named = {"a": found.a.branch, "b": found.b.branch}
        moved = "both" if change.changed_on == "both" else branch_name(named[change.changed_on])
        side = f"   (changed on {moved})"
    if change.patches is not None:
        return [f"~ {change.id}{side}", *(f"    {patch_line(patch)}" for patch in change.patches)]
    document = change.operation.get("value")
    if document is None:
        return [f"- {change.id}{side}"]
    return [f"+ {change.id}{side}", f"    {compact(document)}"]


@space_command("revert", writes=True)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option("The seq, or the time, to go back to.", required=True)
@branch_option("The branch to change; the default branch if not given.")
def revert(out: Output, space: Space, ids: tuple[str, ...], *, at: At, branch: str) -> None:
    """Bring back how everything was at a point, or only the entities ID.

    This is a new commit; what happened in between stays in the history, and can be brought back.
    """
    for entity in ids:
        if space.read(entity, branch) is None:
            raise NotFound(
                f"{entity!r} was never written{on_branch(branch)}",
                hint="`fourfold space ids` names every entity.",
            )
    found = space.diff(branch, None, at)
    operations = [each.operation for each in found if not ids or each.id in ids]
    seq = space.transact(operations, branch=branch).seq if operations else None
    if out.as_json:
        out.document(
            {
                "did": space.did,
                "branch": branch,
                "to": found.b.seq,
                "operations": operations,
                "seq": seq,
            }
        )
    elif seq is None:
        what = ", ".join(ids) or "everything"
        out.line(f"nothing to do{on_branch(branch)}: {what} is as it was at seq {found.b.seq}")
    else:
        out.line(
            f"seq {seq}: back to seq {found.b.seq}{on_branch(branch)}: "
            f"{operations_line(operations)}"
        )


@space_command("merge", writes=True)
@click.argument("source")
@click.option(
    "--into",
    "target",
    default="",
    metavar="NAME",
    help="The branch to write; the default branch if not given.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only say what would be written, and where the conflicts are."
)
@click.option(
    "--whole",
    is_flag=True,
    help="Take entities as a whole: two changes of one are a conflict, also of different fields.",
)
@click.option(
    "--resolve",
    nargs=2,
    multiple=True,
    metavar="ID CHOICE",
    help="What a conflicting entity shall be: source (theirs), target (ours), or its document; "
    "null deletes it.",
)
@click.option(
    "--resolve-path",
    nargs=3,
    multiple=True,
    metavar="ID PATH CHOICE",
    help="What one conflict shall be: source (theirs), target (ours), absent, or a JSON value.",
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
    """Bring what the branch SOURCE changed into another branch, as one commit.

    Entities that both changed are merged field by field; increments and appends of both sides are
    kept. Where both changed the same field otherwise, and not alike, there is a conflict, and
    nothing is written unless --resolve or --resolve-path says what it shall be.
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
    found: dict[Any, Any] = {}
    for entity, choice in resolve:
        if entity in found:
            raise InvalidInput(f"the resolution of {entity!r} was given twice")
        found[entity] = _SIDES.get(choice) or json_argument(choice, f"the resolution of {entity!r}")
    for entity, path, choice in resolve_path:
        where = f"the resolution of {path!r} in {entity!r}"
        if (entity, path) in found:
            raise InvalidInput(f"{where} was given twice")
        if choice == "absent":
            found[entity, path] = ABSENT
        else:
            found[entity, path] = _SIDES.get(choice) or json_argument(choice, where)
    return found


def _conflict(tried: MergeResult, conflicts: list[MergeConflict]) -> Conflict:
    names = ", ".join(each.id for each in conflicts[:3])
    return Conflict(
        f"{branch_name(tried.source.branch)} and {branch_name(tried.target.branch)} both changed "
        f"{names}{' and others' if len(conflicts) > 3 else ''}; nothing was written",
        hint="Say what each shall be: --resolve ID source, --resolve ID target, "
        "--resolve ID DOCUMENT, or --resolve-path ID PATH CHOICE.",
        details={"conflicts": [each.as_dict() for each in conflicts]},
    )


def _show_merge(out: Output, done: MergeResult) -> None:
    names = f"{branch_name(done.source.branch)} into {branch_name(done.target.branch)}"
    if done.commit is not None:
        what = operations_line(done.operations) or "both had made the same changes"
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
                each.id,
                where(path),
                *(_value(state, path) for state in (each.base, each.source, each.target)),
            )
            for each in conflicts
            for path in each.paths
        ],
    )


def _merge_facts(done: MergeResult) -> dict[str, object]:
    return {
        "source": done.source._asdict(),
        "target": done.target._asdict(),
        "base": done.base._asdict(),
        "operations": list(done.operations),
        "conflicts": [msgspec.to_builtins(each) for each in done.conflicts],
        "seq": None if done.commit is None else done.commit.seq,
    }


def _point(point: Point) -> str:
    return f"{branch_name(point.branch)} at seq {point.seq}"


def _value(state: State | None, path: str) -> str:
    """What a side of a conflict has at its path, as a table shows it."""
    found = lookup(side_of(state), parse_pointer(path))
    return "(absent)" if found is ABSENT else compact(found, 30)

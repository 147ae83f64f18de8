"""`fourfold space create`, `list` and `verify`: spaces as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.cli.space.arguments import space_arguments, space_command
from fourfold.errors import AlreadyExists, CorruptData
from fourfold.models.documents import HISTORIES, Space, check_did
from fourfold.store import open_store

history_option: Final = click.option(
    "--history",
    type=click.Choice(list(HISTORIES)),
    default="revisions",
    show_default=True,
    help="How the new space keeps its history.",
)


@space_arguments("create")
@history_option
def create(out: Output, root: Path, did: str, *, history: str) -> None:
    """Create the space DID in ROOT, and the store too if there is none."""
    check_did(did)
    with open_store(root) as store:
        if did in store.spaces():
            raise AlreadyExists(f"{root}: the space {did} exists already")
        space = store.space(did, history=history)
        facts = {"root": str(root), "did": did, "history": history, "seq": space.seq()}
    if out.as_json:
        out.document(facts)
    else:
        out.line(f"created {did} in {root}")


@command("list")
@root_argument(required=True)
def list_spaces(out: Output, root: Path) -> None:
    """List the spaces of ROOT."""
    with open_store(root, mode="r") as store:
        spaces = [_facts(store.space(did)) for did in store.spaces()]
    if out.as_json:
        out.document({"root": str(root), "spaces": spaces})
    elif spaces:
        out.table(
            ("space", "history", "seq", "branches", "size"),
            [
                (each["did"], each["history"], each["seq"], each["branches"], size(each["bytes"]))
                for each in spaces
            ],
        )
    else:
        out.line(f"{root} has no spaces yet. Make one: `fourfold space create {root} DID`.")


def _facts(space: Space) -> dict[str, Any]:
    return {
        "did": space.did,
        "history": space.history_kind.name,
        "seq": space.seq(),
        "branches": len(space.branches.list()),
        "bytes": space.database.path.stat().st_size,
    }


@space_command("verify")
def verify(out: Output, space: Space) -> None:
    """Check every commit and everything derived from it.

    Nothing is changed, and the space may be in use. Exits with 8 when something is damaged.
    """
    seq = space.seq()
    problems = space.verify()
    if out.as_json:
        out.document({"did": space.did, "seq": seq, "ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            out.line(problem)
    else:
        out.line(f"{space.did} is sound ({counted(seq, 'commit')} checked)")
    if problems:
        raise CorruptData(
            f"{space.did}: {counted(len(problems), 'problem')}; first: {problems[0]}",
            hint="Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`.",
        )


@space_command("maintain", writes=True)
@click.option(
    "--retention",
    default="all",
    show_default=True,
    metavar="all|log|NUMBER",
    help="Which snapshots stay: all, ever fewer the older they are, or the newest of each entity.",
)
@click.option(
    "--pin", "pins", multiple=True, type=int, metavar="SEQ", help="A seq that stays quick to read."
)
def maintain(out: Output, space: Space, *, retention: str, pins: tuple[int, ...]) -> None:
    """Make the snapshots that are missing, and drop those that are not wanted.

    Snapshots only make reads quick: no state changes, and every past state stays readable. A space
    that has a policy for that is then collected; see `fourfold space gc`.
    """
    kept: Any = int(retention) if retention.isdecimal() else retention
    done = space.maintain(kept, pins=pins)
    if out.as_json:
        out.document({"did": space.did, **msgspec.to_builtins(done)})
    else:
        out.line(f"{counted(done.made, 'snapshot')} made, {done.dropped} dropped")
        if done.collected is not None:
            out.line(f"{size(done.collected.bytes)} given up below seq {done.collected.horizon}")

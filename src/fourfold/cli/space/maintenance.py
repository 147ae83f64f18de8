"""`fourfold space create`, `list` and `verify`: spaces as a whole.

`fourfold space gc`: what a space gives up of its past, and the policy that says so.

`fourfold space export`, `import` and `carry`: a whole space becomes another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import msgspec

from fourfold.cli.options import Age, KeepOption, command, root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.cli.space.arguments import existing_space, new_file, space_arguments, space_command
from fourfold.errors import AlreadyExists, CorruptData, InvalidInput, NotFound
from fourfold.models.documents import HISTORIES, GcPolicy, GcReport, Space, bundle, check_did
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


_SHOWN: Final = {
    "revisions": "revision",
    "facts": "fact",
    "values": "value",
    "requests": "request",
    "snapshots": "snapshot",
    "blobs": "blob",
}


@space_arguments("gc")
@click.option(
    "--keep",
    multiple=True,
    type=KeepOption("seqs"),
    help="History that stays: the newest seqs, or time.",
)
@click.option("--pin", "pins", multiple=True, type=int, metavar="SEQ", help="A seq that stays.")
@click.option(
    "--snapshots",
    metavar="all|log|NUMBER",
    help="Which snapshots stay; see `fourfold space maintain`.",
)
@click.option("--keep-requests", is_flag=True, help="Leave the texts of old requests as they are.")
@click.option("--blobs", is_flag=True, help="Also blobs that nothing mentions any more.")
@click.option("--blob-age", type=Age(), help="Blobs younger than this stay; 1d if not given.")
@click.option("--save", is_flag=True, help="Keep these options as the policy of the space.")
@click.option("--off", is_flag=True, help="Forget the policy of the space; collect nothing.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def gc(out: Output, root: Path, did: str, **given: Any) -> None:
    """Give up old history, by these options or by the policy of the space.

    Below the new horizon only forks, bases of merges and pinned seqs stay readable; all other reads
    there are refused. It cannot be undone, so try --dry-run first: it changes nothing. Without a
    policy of its own, a space gives up nothing unless you say so here.
    """
    policy = _policy(given)
    if given["off"] and (policy is not None or given["save"] or given["dry_run"]):
        raise InvalidInput("--off goes alone")
    if given["save"] and (policy is None or given["dry_run"]):
        raise InvalidInput("--save needs options to keep, and does not go with --dry-run")
    with existing_space(root, did, writes=not given["dry_run"]) as space:
        if given["off"]:
            space.set_gc_policy(None)
            _say(out, space, None)
            return
        if given["save"]:
            space.set_gc_policy(policy)
        _say(out, space, space.gc(policy, dry_run=given["dry_run"]))


def _policy(given: dict[str, Any]) -> GcPolicy | None:
    """The policy that the options describe; None when there are none."""
    fields: dict[str, Any] = {}
    for kept in given["keep"]:
        name = "keep_seqs" if isinstance(kept, int) else "keep_seconds"
        if name in fields:
            raise InvalidInput("--keep was given twice for the same kind of bound")
        fields[name] = kept
    if given["pins"]:
        fields["pins"] = given["pins"]
    if given["snapshots"] is not None:
        text = given["snapshots"]
        fields["snapshots"] = int(text) if text.isdecimal() else text
    if given["keep_requests"]:
        fields["requests"] = False
    if given["blobs"]:
        fields["blobs"] = True
    if given["blob_age"] is not None:
        fields["blob_age_s"] = given["blob_age"]
    return GcPolicy(**fields) if fields else None


def _say(out: Output, space: Space, done: GcReport | None) -> None:
    policy = space.gc_policy()
    if out.as_json:
        collected = None if done is None else {**msgspec.to_builtins(done), "bytes": done.bytes}
        shown = None if policy is None else msgspec.to_builtins(policy)
        out.document({"did": space.did, "policy": shown, "collected": collected})
        return
    if done is None:
        out.line(f"{space.did} gives up nothing from now on")
        return
    gone = [
        f"{counted(found.count, noun)}"
        for kind, noun in _SHOWN.items()
        if (found := getattr(done, kind)).count
    ]
    verb = "would go" if done.dry_run else "gone"
    out.line(f"{verb}: {', '.join(gone) or 'nothing'} ({size(done.bytes)})")
    below = f", and {counted(done.kept_points, 'point')} below" if done.kept_points else ""
    out.line(f"every state from seq {done.horizon} on stays readable{below}")


@space_command("export")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write this new file, which appears when it is complete; stdout if not given.",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="SEQ",
    help="Only the commits after this seq, to bring an earlier import up to date.",
)
def export_space(out: Output, space: Space, output: Path | None, after: int) -> None:
    """Write the space as lines of JSON: every commit, every branch, every blob."""
    if output is None:
        if out.as_json:
            raise InvalidInput(
                "--json needs --output FILE: without a file, stdout holds the export itself"
            )
        for line in bundle.export(space, after=after):
            sys.stdout.buffer.write(line)
        return
    written = commits = 0
    with out.progress("exporting") as advance, new_file(output) as file:
        for line in bundle.export(space, after=after, progress=advance):
            written += file.write(line)
            commits += line.startswith(b'{"kind":"commit"')
    if out.as_json:
        out.document({"did": space.did, "file": str(output), "commits": commits, "bytes": written})
    else:
        out.line(f"exported {space.did} to {output}: {counted(commits, 'commit')}, {size(written)}")


@space_arguments("import")
@click.argument("file")
@click.option(
    "--history",
    type=click.Choice(list(HISTORIES)),
    help="How the new space keeps its history; as the exported one if not given.",
)
def import_space(out: Output, root: Path, did: str, file: str, *, history: str | None) -> None:
    """Build the space DID in ROOT from the export in FILE, or from stdin if FILE is -.

    The space is created, and the store too if there is none. Every commit gets its old seq, and at
    the end all states are compared with those of the exported space. If it was stopped, run it
    again: it goes on where it was.
    """
    check_did(did)
    with _opened(file) as lines:
        first = lines.readline()
        exported = bundle.opening([first])
        with open_store(root) as store:
            if history is None and did not in store.spaces():
                history = exported.history if exported.history in HISTORIES else None
            space = store.space(did, history=history)
            with out.progress("importing") as advance:
                done = bundle.replay(space, chain([first], lines), advance)
    if out.as_json:
        out.document({"root": str(root), "did": did, **done._asdict()})
    else:
        what = f"imported {counted(done.commits, 'commit')}" if done.commits else "nothing was new"
        out.line(f"{did}: {what}; every state up to seq {done.seq} is that of the exported space")


@space_arguments("carry")
@click.argument("to")
@click.option(
    "--history",
    type=click.Choice(list(HISTORIES)),
    help="How the new space keeps its history; the other kind if not given.",
)
def carry(out: Output, root: Path, did: str, to: str, *, history: str | None) -> None:
    """Carry the space DID over into the new space TO, with the other kind of history.

    Every state of every entity at every seq on every branch stays, and this is proved at the end.
    DID itself is not changed. If it was stopped, run it again.
    """
    check_did(to)
    if to == did:
        raise InvalidInput(
            f"{did} cannot be carried over into itself", hint="Choose a new DID for TO."
        )
    with existing_space(root, did, writes=False) as space:
        kind = space.history_kind.name
        # A space that gave up history cannot be carried over, and then none is made for it.
        next(bundle.export(space))
    with open_store(root) as store:
        wanted = history or next(name for name in HISTORIES if name != kind)
        target = store.space(to, history=wanted)
        with out.progress("carrying over") as advance:
            done = bundle.carry_over(store.space(did), target, advance)
    if out.as_json:
        out.document({"did": did, "to": to, "history": wanted, **done._asdict()})
    else:
        what = counted(done.commits, "commit") if done.commits else "nothing new"
        out.line(f"{to} ({wanted}): carried over {what}; it has every state of {did}")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    if not Path(file).exists():
        raise NotFound(f"{file}: there is no such file")
    if Path(file).is_dir():
        raise InvalidInput(f"{file} is a folder, not a file")
    with Path(file).open("rb") as opened:
        yield opened

"""`fourfold space create`, `list`, `verify`, `maintain`, `gc`, `export`, `import` and `carry`."""

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
    help="Kind of history of the new space.",
)


@space_arguments("create")
@history_option
def create(out: Output, root: Path, did: str, *, history: str) -> None:
    """Create the space DID in ROOT, and the store if there is none."""
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


@command("list", rows=True)
@root_argument(required=True)
def list_spaces(out: Output, root: Path) -> None:
    """List the spaces of ROOT."""
    with open_store(root, mode="r") as store:
        spaces = [msgspec.to_builtins(info) for info in store.documents.list()]
    out.rows(
        {"root": str(root), "spaces": spaces},
        "spaces",
        {
            "space": "did",
            "history": "history",
            "seq": "seq",
            "branches": "branches",
            "size": lambda space: size(space["bytes"]),
        },
        fields=("did", "history", "seq", "branches", "bytes"),
        empty=f"{root} has no spaces yet. Create one: `fourfold space create {root} DID`.",
    )


@space_command("verify")
def verify(out: Output, space: Space) -> None:
    """Verify every commit and all derived data.

    Nothing is changed, and the space may be in use. Exits with 8 if something is damaged.
    """
    seq = space.seq()
    problems = [*map(str, space.verify())]
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
    help="Snapshots to keep: all, fewer with age, or the newest of each entity.",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    type=int,
    metavar="SEQ",
    help="A seq that stays fast to read; repeatable.",
)
def maintain(out: Output, space: Space, *, retention: str, pins: tuple[int, ...]) -> None:
    """Write missing snapshots, and drop unneeded ones.

    Snapshots only make reads fast: no state changes, and every past state stays readable. If the
    space has a garbage collection policy, it is applied; see `fourfold space gc`.
    """
    keep: Any = int(retention) if retention.isdecimal() else retention
    done = space.maintain(keep, pins=pins)
    if out.as_json:
        out.document({"did": space.did, **msgspec.to_builtins(done)})
    else:
        out.line(f"{counted(done.made, 'snapshot')} made, {done.dropped} dropped")
        if done.collected is not None:
            out.line(f"{size(done.collected.bytes)} truncated below seq {done.collected.horizon}")


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
    help="History to keep: the newest seqs, or an age; repeatable.",
)
@click.option(
    "--pin", "pins", multiple=True, type=int, metavar="SEQ", help="A seq to keep; repeatable."
)
@click.option(
    "--snapshots",
    metavar="all|log|NUMBER",
    help="Snapshots to keep; see `fourfold space maintain`.",
)
@click.option("--keep-requests", is_flag=True, help="Keep the texts of old requests.")
@click.option("--blobs", is_flag=True, help="Also delete unreferenced blobs.")
@click.option("--blob-age", type=Age(), help="Keep blobs younger than this; default: 1d.")
@click.option("--save", is_flag=True, help="Store these options as the policy of the space.")
@click.option("--off", is_flag=True, help="Remove the policy of the space; collect nothing.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
def gc(out: Output, root: Path, did: str, **options: Any) -> None:
    """Truncate old history, by these options or by the policy of the space.

    Below the new horizon only forks, merge bases and pinned seqs stay readable; all other reads
    there are refused. This cannot be undone, so try --dry-run first. Without options or a policy,
    nothing is deleted.
    """
    policy = _policy(options)
    if options["off"] and (policy is not None or options["save"] or options["dry_run"]):
        raise InvalidInput("--off cannot be combined with other options")
    if options["save"] and (policy is None or options["dry_run"]):
        raise InvalidInput(
            "--save requires options to store, and cannot be combined with --dry-run"
        )
    with existing_space(root, did, writes=not options["dry_run"]) as space:
        if options["off"]:
            space.set_gc_policy(None)
            _show_gc(out, space, None)
            return
        if options["save"]:
            space.set_gc_policy(policy)
        _show_gc(out, space, space.gc(policy, dry_run=options["dry_run"]))


def _policy(options: dict[str, Any]) -> GcPolicy | None:
    """Return the policy that the options describe, or None."""
    fields: dict[str, Any] = {}
    for bound in options["keep"]:
        name = "keep_seqs" if isinstance(bound, int) else "keep_seconds"
        if name in fields:
            raise InvalidInput("--keep: at most one number and one age")
        fields[name] = bound
    if options["pins"]:
        fields["pins"] = options["pins"]
    if options["snapshots"] is not None:
        text = options["snapshots"]
        fields["snapshots"] = int(text) if text.isdecimal() else text
    if options["keep_requests"]:
        fields["requests"] = False
    if options["blobs"]:
        fields["blobs"] = True
    if options["blob_age"] is not None:
        fields["blob_age_s"] = options["blob_age"]
    return GcPolicy(**fields) if fields else None


def _show_gc(out: Output, space: Space, done: GcReport | None) -> None:
    policy = space.gc_policy()
    if out.as_json:
        collected = None if done is None else {**msgspec.to_builtins(done), "bytes": done.bytes}
        shown = None if policy is None else msgspec.to_builtins(policy)
        out.document({"did": space.did, "policy": shown, "collected": collected})
        return
    if done is None:
        out.line(f"{space.did} has no policy any more")
        return
    deleted = [
        f"{counted(removed.count, noun)}"
        for kind, noun in _SHOWN.items()
        if (removed := getattr(done, kind)).count
    ]
    verb = "would delete" if done.dry_run else "deleted"
    out.line(f"{verb}: {', '.join(deleted) or 'nothing'} ({size(done.bytes)})")
    below = f", and {counted(done.kept_points, 'point')} below" if done.kept_points else ""
    out.line(f"every state from seq {done.horizon} on stays readable{below}")


@space_command("export")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this new file, which appears when it is complete; default: stdout.",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="SEQ",
    help="Only commits after this seq, to update an earlier import.",
)
def export_space(out: Output, space: Space, output: Path | None, after: int) -> None:
    """Export the space as JSON lines: every commit, branch and blob."""
    if output is None:
        if out.as_json:
            raise InvalidInput("--json requires --output FILE: stdout contains the export itself")
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
    help="Kind of history of the new space; default: that of the exported one.",
)
def import_space(out: Output, root: Path, did: str, file: str, *, history: str | None) -> None:
    """Create the space DID in ROOT from the export FILE, or from stdin if FILE is -.

    Creates the space, and the store if there is none. Every commit gets its original seq, and at
    the end all states are compared with those of the exported space. If it is interrupted, run it
    again to resume.
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
        what = f"imported {counted(done.commits, 'commit')}" if done.commits else "nothing new"
        out.line(f"{did}: {what}; every state up to seq {done.seq} is that of the exported space")


@space_arguments("carry")
@click.argument("to")
@click.option(
    "--history",
    type=click.Choice(list(HISTORIES)),
    help="Kind of history of the new space; default: the other kind.",
)
def carry(out: Output, root: Path, did: str, to: str, *, history: str | None) -> None:
    """Copy the space DID into the new space TO, with the other kind of history.

    Every state of every entity at every seq on every branch is the same, which is verified at the
    end. DID itself is not changed. If it is interrupted, run it again to resume.
    """
    check_did(to)
    if to == did:
        raise InvalidInput(
            f"{did} cannot be carried over into itself", hint="Pass a new DID as TO."
        )
    with existing_space(root, did, writes=False) as space:
        kind = space.history_kind.name
        # A space with truncated history cannot be copied, and then no new space is created.
        next(bundle.export(space))
    with open_store(root) as store:
        target_history = history or next(name for name in HISTORIES if name != kind)
        target = store.space(to, history=target_history)
        with out.progress("copying") as advance:
            done = bundle.carry_over(store.space(did), target, advance)
    if out.as_json:
        out.document({"did": did, "to": to, "history": target_history, **done._asdict()})
    else:
        what = counted(done.commits, "commit") if done.commits else "nothing new"
        out.line(f"{to} ({target_history}): carried over {what}; it has every state of {did}")


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

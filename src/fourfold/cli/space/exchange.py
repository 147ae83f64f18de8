"""`fourfold space export`, `import` and `carry`: a whole space becomes another one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import click

from fourfold.cli.output import Output, counted, size
from fourfold.cli.space.arguments import existing_space, new_file, space_arguments, space_command
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents import HISTORIES, Space, carrying, check_did, exchange
from fourfold.store import open_store


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
        for line in exchange.export(space, after=after):
            sys.stdout.buffer.write(line)
        return
    written = commits = 0
    with out.progress("exporting") as advance, new_file(output) as file:
        for line in exchange.export(space, after=after, progress=advance):
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
        exported = exchange.opening([first])
        with open_store(root) as store:
            if history is None and did not in store.spaces():
                history = exported.history if exported.history in HISTORIES else None
            space = store.space(did, history=history)
            with out.progress("importing") as advance:
                done = exchange.replay(space, chain([first], lines), advance)
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
        next(exchange.export(space))
    with open_store(root) as store:
        wanted = history or next(name for name in HISTORIES if name != kind)
        target = store.space(to, history=wanted)
        with out.progress("carrying over") as advance:
            done = carrying.carry_over(store.space(did), target, advance)
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

"""`fourfold space export` and `import`: a space as lines of JSON, out and in again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from fourfold.cli.output import Output, counted, size
from fourfold.cli.space.arguments import space_arguments, space_command
from fourfold.cli.space.spaces import history_option
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.models.documents import Space, check_did, exchange
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
    with out.progress("exporting") as advance, _new_file(output) as file:
        for line in exchange.export(space, after=after, progress=advance):
            written += file.write(line)
            commits += line.startswith(b'{"kind":"commit"')
    if out.as_json:
        out.document({"did": space.did, "file": str(output), "commits": commits, "bytes": written})
    else:
        out.line(f"exported {space.did} to {output}: {counted(commits, 'commit')}, {size(written)}")


@space_arguments("import")
@click.argument("file")
@history_option
def import_space(out: Output, root: Path, did: str, file: str, *, history: str) -> None:
    """Build the space DID in ROOT from the export in FILE, or from stdin if FILE is -.

    The space is created, and the store too if there is none. Every commit gets its old seq, and at
    the end all states are compared with those of the exported space. If it was stopped, run it
    again: it goes on where it was.
    """
    check_did(did)
    with _opened(file) as lines, open_store(root) as store:
        existed = did in store.spaces()
        space = store.space(did) if existed else store.space(did, history=history)
        with out.progress("importing") as advance:
            done = exchange.replay(space, lines, advance)
    if out.as_json:
        out.document({"root": str(root), "did": did, **done._asdict()})
    else:
        out.line(
            f"imported {counted(done.commits, 'commit')} into {did}, which is at seq {done.seq}; "
            "all states are those of the exported space"
        )


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole and on the disk."""
    if path.exists():
        raise AlreadyExists(f"{path} exists already", hint="Name a file that does not exist yet.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        raise AlreadyExists(f"{path} exists already") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    if not Path(file).exists():
        raise NotFound(f"{file}: there is no such file")
    with Path(file).open("rb") as opened:
        yield opened

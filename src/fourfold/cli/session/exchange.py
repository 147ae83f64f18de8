"""`fourfold session export` and `import`: a session and what came out of it, in one file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import msgspec

from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output, counted, size
from fourfold.cli.session.arguments import RootMayBeLeftOut, session_command
from fourfold.cli.space.arguments import new_file
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions import Sessions
from fourfold.store import open_store


@session_command("export")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write this new file, which appears when it is complete; stdout if not given.",
)
def export_session(out: Output, sessions: Sessions, sid: str, output: Path | None) -> None:
    """Write the session SID, and all that came out of it, as lines of JSON.

    Every event, every head and edge, every payload.
    """
    if output is None:
        if out.as_json:
            raise InvalidInput(
                "--json needs --output FILE: without a file, stdout holds the export itself"
            )
        for line in sessions.export_bundle(sid):
            sys.stdout.buffer.write(line)
        return
    written = 0
    line = b"{}"
    sessions.open_session(sid)
    with new_file(output) as file:
        for line in sessions.export_bundle(sid):
            written += file.write(line)
    end = json.loads(line)
    counts = {name: end[name] for name in ("sessions", "events", "payloads")}
    if out.as_json:
        out.document({"id": sid, "file": str(output), **counts, "bytes": written})
        return
    out.line(f"exported {sid} to {output}: {_told(counts)}, {size(written)}")


@command("import", RootMayBeLeftOut)
@root_argument(required=True)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def import_sessions(out: Output, root: Path, file: Path) -> None:
    """Add the sessions of the bundle FILE to the store ROOT, under their ids.

    Every digest in the file is checked before anything is written. A session that is there already
    must have the same history; it gets what it does not have yet.
    """
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    with open_store(root) as store:
        done = store.sessions.import_bundle(file)
    if out.as_json:
        out.document({"root": str(root), "file": str(file), **msgspec.to_builtins(done)})
        return
    out.line(f"imported {file} into {root}: {_told(msgspec.to_builtins(done))}")


def _told(counts: dict[str, int]) -> str:
    return ", ".join(counted(count, name.removesuffix("s")) for name, count in counts.items())

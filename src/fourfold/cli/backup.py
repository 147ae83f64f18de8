"""`fourfold backup`: a verified copy of a store, taken while the store is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted, size
from fourfold.store import open_store

if TYPE_CHECKING:
    from fourfold.cli.output import Output


@fourfold_command("backup")
@root_argument(required=True)
@click.argument("dest", type=click.Path(path_type=Path))
@click.option("--all", "one_point", is_flag=True, help="Copy all models as of one point in time.")
def command(out: Output, root: Path, dest: Path, *, one_point: bool) -> None:
    """Back up the store in ROOT to the new folder DEST, and verify the backup.

    The store may be in use. DEST appears only when the backup is complete. Each database is copied
    as of its own time; with --all, all of them as of the same time, for which writers may wait for
    some milliseconds.
    """
    with open_store(root, mode="r") as store, out.progress("backing up") as advance:
        report = store.backup(dest, progress=advance, one_point=one_point)
    if out.as_json:
        out.document(msgspec.to_builtins(report))
        return
    out.line(
        f"backed up {root} to {report.destination}: {counted(report.databases, 'database')} and "
        f"{counted(report.files, 'file')}, {size(report.bytes)}"
        + (f", as of {report.at}" if report.at else "")
    )

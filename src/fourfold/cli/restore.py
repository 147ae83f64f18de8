"""`fourfold restore`: restore a store from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from fourfold import store
from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted

if TYPE_CHECKING:
    from fourfold.cli.output import Output


@fourfold_command("restore")
@click.argument("backup", type=click.Path(path_type=Path))
@root_argument(required=True)
@click.option(
    "--advance",
    is_flag=True,
    help="If the sequences of the store are ahead of the backup, continue above them.",
)
@click.option(
    "--replace-unreadable",
    is_flag=True,
    help="Replace a database that cannot be read; numbers assigned after the backup may be reused.",
)
def command(
    out: Output, backup: Path, root: Path, *, advance: bool, replace_unreadable: bool
) -> None:
    """Verify BACKUP and restore it to the folder ROOT.

    A new or empty folder receives the whole store at once. In an existing store each database is
    replaced, unless its sequences are ahead of the backup; the old file is kept next to it.
    """
    with out.progress("verifying the backup") as report_progress:
        report = store.restore(
            backup,
            root,
            progress=report_progress,
            advance=advance,
            replace_unreadable=replace_unreadable,
        )
    if out.as_json:
        out.document(msgspec.to_builtins(report))
        return
    out.line(
        f"restored {backup} to {report.root}: {counted(report.databases, 'database')} and "
        f"{counted(report.files, 'file')}"
    )

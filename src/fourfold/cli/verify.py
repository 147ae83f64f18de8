"""`fourfold verify`: verify every part of a store or a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted
from fourfold.errors import CorruptData, FormatError
from fourfold.store import open_store, verify_backup
from fourfold.store.backup import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    from fourfold.cli.output import Output
    from fourfold.store import VerifyReport


_RESTORE = "Restore the newest backup that verifies: `fourfold restore BACKUP ROOT`."
_MIGRATE = (
    "Write to the store once with this version, which runs them after a backup, and verify it"
    " again; nothing is damaged."
)
_DANGLING = (
    "An earlier version accepted references to rows that do not exist; nothing is"
    " damaged, and a backup does not help. Suppress the object with the "
    "reference, or update the edge."
)


@fourfold_command("verify", rows=True)
@root_argument(required=True)
@click.option(
    "--objects", is_flag=True, help="Also check every object published to the object store."
)
def command(out: Output, root: Path, *, objects: bool) -> None:
    """Verify every database and file of ROOT, a store or a backup.

    A store may be in use. Nothing is changed. Exits with 8 if something is damaged. With --objects,
    also reads every published object and compares it with its digest.
    """
    is_backup = (root / MANIFEST).is_file()
    if is_backup and objects:
        raise click.UsageError("--objects requires a store, got a backup.")
    with out.progress("verifying") as advance:
        if is_backup:
            report = verify_backup(root, progress=advance)
        else:
            with open_store(root, mode="r") as store:
                report = store.verify(progress=advance, objects=objects)
    _show(out, report, "backup" if is_backup else "store")
    if report.is_outdated:
        raise FormatError(f"{root}: {report.problems[0]}", hint=_MIGRATE)
    if not report.ok:
        raise CorruptData(
            f"{root}: {counted(len(report.problems), 'problem')}; first: {report.problems[0]}",
            hint=_RESTORE if report.damage else _DANGLING,
        )


def _show(out: Output, report: VerifyReport, kind: str) -> None:
    if out.format != "text":
        out.rows(
            {
                "root": str(report.root),
                "kind": kind,
                "ok": report.ok,
                "checked": [
                    {
                        "path": check.path,
                        "what": check.what,
                        "problems": [*map(str, check.problems)],
                    }
                    for check in report.checked
                ],
            },
            "checked",
            {},
            fields=("path", "what", "problems"),
        )
        return
    damaged = [check for check in report.checked if not check.ok]
    if damaged:
        out.table(
            ("path", "what", "problem"),
            [(check.path, check.what, problem) for check in damaged for problem in check.problems],
        )
    else:
        out.line(
            f"{report.root}: the {kind} is sound ({counted(len(report.checked), 'part')} checked)"
        )

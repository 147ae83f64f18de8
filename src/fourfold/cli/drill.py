"""`fourfold drill`: practise the loss of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted
from fourfold.errors import CorruptData

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.store.drill import DrillReport


@_command("drill")
@root_argument(required=True)
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="New folder for the restored store, which stays; default: a temporary one.",
)
def command(out: Output, root: Path, *, into: Path | None) -> None:
    """Publish ROOT, restore it elsewhere from the object store alone, compare both, and time it.

    ROOT counts as lost: nothing is read from it until the restored store is complete and verified.
    A store that a server has open is not published by this command; its newest restore point is
    used. Nothing but the temporary folder is written otherwise. Exits with 8 if the restored store
    is damaged or differs.
    """
    from fourfold.store.drill import run_drill  # noqa: PLC0415 - imports every model

    with out.progress("drill") as advance:
        report = run_drill(root, into, advance)
    if out.as_json:
        out.document({"root": str(root), "ok": report.ok, **msgspec.to_builtins(report)})
    else:
        _show(out, report)
    if not report.ok:
        first = next(
            (f"{row.name}: {row.detail}" for row in report.comparisons if row.outcome != "equal"),
            next(iter(report.problems), ""),
        )
        raise CorruptData(
            f"the restored store differs from {root}: {first}",
            hint="Run `fourfold verify ROOT --objects`, and publish to a new object store.",
        )


def _show(out: Output, report: DrillReport) -> None:
    out.table(
        ("step", "seconds", "result"),
        [
            ("publish", f"{report.publish_s:.2f}", f"by {report.published_by}"),
            ("restore", f"{report.restore_s:.2f}", _restored(report)),
            ("verify", f"{report.verify_s:.2f}", counted(len(report.problems), "problem")),
            ("compare", f"{report.compare_s:.2f}", _compared(report)),
        ],
    )
    recovery_s = report.restore_s + report.verify_s
    out.line(f"recovery takes {recovery_s:.2f} s, and goes back to {report.point_at}")
    for row in report.comparisons:
        if row.outcome == "different":
            out.line(f"{row.name} differs: {row.detail}")
        elif row.outcome == "ahead":
            out.line(f"{row.name}: restored until {row.restored}, the store is at {row.newest}")
    if report.folder:
        out.line(f"the restored store is {report.folder}")


def _restored(report: DrillReport) -> str:
    databases, rows = counted(report.databases, "database"), counted(report.rows, "row")
    streams, records = counted(report.streams, "stream"), counted(report.records, "record")
    return f"{databases} with {rows}, {streams} with {records}"


def _compared(report: DrillReport) -> str:
    outcomes = [row.outcome for row in report.comparisons]
    counts = {name: outcomes.count(name) for name in ("equal", "ahead", "different")}
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)

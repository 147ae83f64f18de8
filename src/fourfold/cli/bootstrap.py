"""`fourfold bootstrap`: a store from nothing but published objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourfold.cli.options import command as _command
from fourfold.cli.options import objects_option, remember, root_argument
from fourfold.cli.output import counted, size
from fourfold.store import open_store

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.models.streams.archive import BootstrapReport
    from fourfold.store.restoration import RebuildReport


@_command("bootstrap")
@root_argument(required=True)
@objects_option
@click.option(
    "--at", metavar="POINT", help="A point, by its id or as a time, instead of the newest."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="With --at: publish from there on; what was published later is left behind.",
)
def command(
    out: Output, root: Path, *, objects: str | None, at: str | None, take_over: bool
) -> None:
    """Build ROOT, a new store, from what was published to an object store.

    Databases are fetched; of streams only the manifests, since records are fetched when they are
    read. What was not published is lost, and is listed as far as that is known. It may be run
    again: what is there stays as it is. The node publishes from then on, and the one that did
    before is refused; but a store that is restored to an earlier point than the newest is refused
    itself, unless it takes over.
    """
    if take_over and at is None:
        raise click.UsageError("--take-over goes with --at.")
    from fourfold.store.restoration import rebuild  # noqa: PLC0415 - imports every model

    with open_store(root):
        remember(root, objects)
    with open_store(root) as store, out.progress("restoring") as advance:
        report = rebuild(store, at=at, take_over=take_over, progress=advance)
    if out.as_json:
        out.document(_document(root, report))
    else:
        _show(out, report)
    for error in report.failures.values():
        raise error


def _document(root: Path, report: RebuildReport) -> dict[str, object]:
    streams = report.streams
    assert streams is not None
    return {
        "root": str(root),
        "point": None if report.point is None else report.point.id,
        "databases": [each._asdict() for each in report.restored],
        "present_databases": report.present,
        "absent_databases": report.absent,
        "streams": len(streams.restored),
        "present": len(streams.present),
        "deleted": streams.deleted,
        "records": streams.records,
        "lost": [each._asdict() for each in streams.lost],
        "unclaimed": [each._asdict() for each in streams.unclaimed],
        "failures": {name: error.as_dict() for name, error in report.failures.items()},
    }


def _show(out: Output, report: RebuildReport) -> None:
    if report.restored:
        rows = [(each.name, each.position, each.rows, each.at) for each in report.restored]
        out.table(("database", "position", "rows", "published at"), rows)
    if report.present:
        out.line(f"{counted(len(report.present), 'database')} were there, and are as they were")
    if report.absent:
        out.line(f"{counted(len(report.absent), 'database')} did not exist at that point")
    if report.streams is not None:
        _show_streams(out, report.streams)


def _show_streams(out: Output, report: BootstrapReport) -> None:
    out.line(
        f"restored {counted(len(report.restored), 'stream')} with "
        f"{counted(report.records, 'record')}"
    )
    if report.present:
        out.line(f"{counted(len(report.present), 'stream')} were there, and are as they were")
    if report.lost:
        out.line("not published when the last manifest was written, and lost:")
        out.table(
            ("stream", "from", "up to", "records"),
            [
                (each.stream, each.first_offset, each.next_offset, each.records)
                for each in report.lost
            ],
        )
    if report.unclaimed:
        held = size(sum(each.size_bytes for each in report.unclaimed))
        out.line(f"{counted(len(report.unclaimed), 'object')} of no manifest, {held}")

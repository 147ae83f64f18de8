"""`fourfold bootstrap`: restore a store from published objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourfold.cli.options import command as _command
from fourfold.cli.options import objects_option, root_argument
from fourfold.cli.output import counted, size
from fourfold.store import open_store
from fourfold.store.store import remember

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.models.streams.archive import BootstrapReport
    from fourfold.store.restoration import RebuildReport


@_command("bootstrap")
@root_argument(required=True)
@objects_option
@click.option(
    "--at", metavar="POINT", help="Restore point, as an id or a time; default: the newest."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="With --at: publish from there on; later publications are left aside.",
)
def command(
    out: Output, root: Path, *, objects: str | None, at: str | None, take_over: bool
) -> None:
    """Restore ROOT, a new store, from an object store.

    Databases are downloaded. Of streams only the manifests are downloaded; records are fetched when
    they are read. Unpublished data is lost, and listed as far as it is known. You can run the
    command again: existing databases and streams stay unchanged. From then on this node publishes,
    and the previous one is refused. A store restored to an older point than the newest does not
    publish unless you pass --take-over.
    """
    if take_over and at is None:
        raise click.UsageError("--take-over requires --at.")
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
        "databases": [database._asdict() for database in report.restored],
        "present_databases": report.present,
        "absent_databases": report.absent,
        "streams": len(streams.restored),
        "present": len(streams.present),
        "deleted": streams.deleted,
        "records": streams.records,
        "lost": [loss._asdict() for loss in streams.lost],
        "unclaimed": [info._asdict() for info in streams.unclaimed],
        "failures": {name: error.as_dict() for name, error in report.failures.items()},
    }


def _show(out: Output, report: RebuildReport) -> None:
    if report.restored:
        rows = [
            (database.name, database.position, database.rows, database.at)
            for database in report.restored
        ]
        out.table(("database", "position", "rows", "published at"), rows)
    if report.present:
        out.line(f"{counted(len(report.present), 'database')} already existed, unchanged")
    if report.absent:
        out.line(f"{counted(len(report.absent), 'database')} did not exist at that restore point")
    if report.streams is not None:
        _show_streams(out, report.streams)


def _show_streams(out: Output, report: BootstrapReport) -> None:
    out.line(
        f"restored {counted(len(report.restored), 'stream')} with "
        f"{counted(report.records, 'record')}"
    )
    if report.present:
        out.line(f"{counted(len(report.present), 'stream')} already existed, unchanged")
    if report.lost:
        out.line("lost, because not published when the last manifest was written:")
        out.table(
            ("stream", "from", "up to", "records"),
            [
                (loss.stream, loss.first_offset, loss.next_offset, loss.records)
                for loss in report.lost
            ],
        )
    if report.unclaimed:
        held = size(sum(info.size_bytes for info in report.unclaimed))
        out.line(f"{counted(len(report.unclaimed), 'object')} without a manifest, {held}")

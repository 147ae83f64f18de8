"""`fourfold bootstrap`: the streams of a store from nothing but published objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.cli.archived import objects_option, remember
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted, size
from fourfold.models.streams.archive import bootstrap
from fourfold.store import open_store

if TYPE_CHECKING:
    from fourfold.cli.output import Output
    from fourfold.models.streams.archive import Bootstrapped


@_command("bootstrap")
@root_argument(required=True)
@objects_option
def command(out: Output, root: Path, *, objects: str | None) -> None:
    """Build the streams of ROOT, a new store, from the manifests in an object store.

    It reads manifests only; records are fetched when they are read. What was not published is
    lost, and is listed. It may be run again: streams that are there stay as they are. The node
    publishes these streams from then on; the one that did before is refused.
    """
    with open_store(root):
        remember(root, objects)
    with open_store(root) as store, out.progress("reading") as advance:
        streams = store.streams
        report = bootstrap(
            streams.database, store.objects, now_ms=streams.clock(), progress=advance
        )
    if out.as_json:
        out.document(_document(root, report))
    else:
        _show(out, report)
    for error in report.failures.values():
        raise error


def _document(root: Path, report: Bootstrapped) -> dict[str, object]:
    return {
        "root": str(root),
        "streams": len(report.restored),
        "present": len(report.present),
        "deleted": report.deleted,
        "records": report.records,
        "lost": [each._asdict() for each in report.lost],
        "unclaimed": [each._asdict() for each in report.unclaimed],
        "failures": {name: error.as_dict() for name, error in report.failures.items()},
    }


def _show(out: Output, report: Bootstrapped) -> None:
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

"""`fourfold publish`: what is new in a store into an object store, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourfold.cli.archived import objects_option, published_store
from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import counted, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fourfold.archive.points import PointInfo
    from fourfold.archive.publishing import Standing
    from fourfold.cli.output import Output
    from fourfold.models.streams.archive.records import Retired
    from fourfold.models.streams.archive.upkeep import Kept
    from fourfold.store import Store
    from fourfold.store.publishing import PublishReport

_MODELS = ("documents", "sessions", "graphs", "streams")


@_command("publish")
@root_argument(required=True)
@objects_option
@click.option(
    "--model",
    "models",
    type=click.Choice(_MODELS),
    multiple=True,
    help="Only this model; may be given several times.",
)
@click.option("--points", is_flag=True, help="Publish nothing; list the points to restore to.")
@click.option("--compact", is_flag=True, help="Then make large segments of small ones.")
@click.option("--index", is_flag=True, help="Then index the routing keys of what is published.")
@click.option("--collect", is_flag=True, help="Then delete objects that nothing needs any more.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing; tell how far everything is, and what --collect would delete.",
)
def command(
    out: Output,
    root: Path,
    *,
    objects: str | None,
    models: tuple[str, ...],
    points: bool,
    compact: bool,
    index: bool,
    collect: bool,
    dry_run: bool,
) -> None:
    """Publish what is new in every space, the sessions, the graphs and the streams of ROOT.

    Each run is a point that `fourfold bootstrap` can restore to, from the object store alone. What
    is published can be read without this store. A server that was started with --objects publishes
    its streams by itself.
    """
    chosen = models or _MODELS
    with published_store(root, objects) as store:
        if points:
            _show_points(out, store.points())
        elif dry_run:
            _show_standing(out, store, chosen)
        else:
            report = _publish(out, store, chosen)
            kept = _keep_up(store, compact=compact, index=index) if "streams" in chosen else []
            retired = store.archive.collect() if collect and "streams" in chosen else []
            _show(out, store, report, retired if collect else None)
            _show_kept(out, kept)
            report.raise_if_failed()
            for each in kept:
                for error in each.failures.values():
                    raise error


def _publish(out: Output, store: Store, models: Sequence[str]) -> PublishReport:
    from fourfold.store import publishing  # noqa: PLC0415 - imports every model

    with out.progress("publishing") as advance:
        return publishing.publish(store, models, advance, release=True)


def _keep_up(store: Store, *, compact: bool, index: bool) -> list[Kept]:
    found = [store.archive.compact()] if compact else []
    return found + ([store.archive.index()] if index else [])


def _show_kept(out: Output, kept: list[Kept]) -> None:
    if out.as_json:
        return
    for each in kept:
        if each.compacted:
            segments = counted(each.segments, "segment")
            out.line(f"compacted {segments} into {each.compacted}")
        elif each.runs:
            segments = counted(each.segments, "segment")
            out.line(f"indexed {segments} in {counted(each.runs, 'new run')}")


def _show(out: Output, store: Store, report: PublishReport, retired: list[Retired] | None) -> None:
    streams = report.streams
    unpublished = None if streams is None else store.archive.standing().unpublished_records
    if out.as_json:
        out.document(
            {
                "root": str(store.root),
                "point": None if report.point is None else report.point.id,
                "databases": [each._asdict() for each in report.published],
                "unchanged": report.unchanged,
                "segments": 0 if streams is None else streams.sealed,
                "manifests": 0 if streams is None else len(streams.published),
                "unpublished_records": unpublished or 0,
                "deleted_objects": len(retired or []),
                "failures": {name: error.as_dict() for name, error in report.failures.items()},
            }
        )
        return
    if report.published or report.unchanged:
        rows = sum(each.rows for each in report.published)
        held = sum(each.bytes for each in report.published)
        out.line(
            f"published {counted(len(report.published), 'database')}: {counted(rows, 'row')}, "
            f"{size(held)}; {report.unchanged} unchanged"
        )
    if streams is not None:
        out.line(
            f"published {counted(len(streams.published), 'manifest')}, "
            f"{counted(streams.sealed, 'new segment')}; "
            f"{counted(unpublished or 0, 'record')} not published"
        )
    if report.point is not None:
        out.line(f"point {report.point.id}")
    if retired is not None:
        out.line(_retired("deleted", retired))
    for name, error in report.failures.items():
        out.line(f"{name}: {error.message}")


def _show_points(out: Output, points: list[PointInfo]) -> None:
    if out.as_json:
        rows: list[dict[str, Any]] = [
            {
                "id": each.id,
                "at": each.at,
                "databases": each.databases,
                "streams": each.streams,
                "restored": each.restored,
            }
            for each in points
        ]
        out.document({"points": rows})
        return
    out.table(
        ("point", "published at", "databases", "streams", "went on from"),
        [(each.id, each.at, each.databases, each.streams, each.restored) for each in points],
    )


def _show_standing(out: Output, store: Store, models: Sequence[str]) -> None:
    from fourfold.store import publishing  # noqa: PLC0415 - imports every model

    found: list[Standing] = publishing.standings(store, models, release=True)
    unpublished, retired = 0, []
    if "streams" in models:
        retired = store.archive.collect(dry_run=True)
        unpublished = store.archive.standing().unpublished_records
    if out.as_json:
        out.document(
            {
                "databases": [each._asdict() for each in found],
                "unpublished_records": unpublished,
                "would_delete": [each._asdict() for each in retired],
            }
        )
        return
    if found:
        out.table(
            ("database", "published", "newest", "changes"),
            [(each.name, each.published, each.newest, each.changes) for each in found],
        )
    if "streams" in models:
        out.line(f"{counted(unpublished, 'record')} of streams not published")
        out.line(_retired("would delete", retired))
        if retired:
            out.table(("object", "size"), [(each.key, size(each.size_bytes)) for each in retired])


def _retired(verb: str, found: list[Retired]) -> str:
    held = size(sum(each.size_bytes for each in found))
    return f"{verb} {counted(len(found), 'object')}, {held}"

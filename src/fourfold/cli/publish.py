"""`fourfold publish`: what is new in a store into an object store, now.

What `fourfold publish` has done, and would do, as text and as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from fourfold.cli.options import KeepOption, objects_option, published_store, root_argument
from fourfold.cli.options import command as _command
from fourfold.cli.output import Output, counted, size
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fourfold.archive.compaction import CompactResult
    from fourfold.archive.publisher import DatabaseStatus
    from fourfold.archive.restore_points import PointInfo
    from fourfold.cli.output import Output
    from fourfold.errors import FourfoldError
    from fourfold.models.streams.archive.maintenance import MaintenanceResult
    from fourfold.store import Store
    from fourfold.store.publish import PublishReport
    from fourfold.store.retention import CollectReport, MergeReport


class Gone(Protocol):
    """An object that was deleted, or would be: of a stream, or of a database."""

    @property
    def key(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class PublishOutcome:
    """All that one call did; None for what it was not asked for."""

    report: PublishReport
    merged: MergeReport | None = None
    compacted: MaintenanceResult | None = None
    indexed: MaintenanceResult | None = None
    collected: CollectReport | None = None
    retired: list[Gone] | None = None

    def merges(self) -> list[CompactResult]:
        return [*self.report.merged, *([] if self.merged is None else self.merged.merged)]

    def failures(self) -> Iterator[tuple[str, FourfoldError]]:
        """Each once, though several steps may have met it."""
        found: dict[str, FourfoldError] = {}
        parts = (self.report, self.merged, self.collected)
        for part in parts:
            for name, error in ({} if part is None else part.failures).items():
                found.setdefault(name, error)
        for kept in (self.compacted, self.indexed):
            for name, error in ({} if kept is None else kept.failures).items():
                found.setdefault(f"streams/{name}", error)
        yield from found.items()

    def raise_if_failed(self) -> None:
        for _, error in self.failures():
            raise error


def show(out: Output, store: Store, done: PublishOutcome) -> None:
    report = done.report
    streams = report.streams
    unpublished = 0 if streams is None else store.archive.standing().unpublished_records
    if out.as_json:
        out.document(_document(store, done, unpublished))
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
            f"{counted(unpublished, 'record')} not published"
        )
    if report.point is not None:
        out.line(f"point {report.point.id}")
    _show_kept(out, done)
    if done.retired is not None:
        out.line(_retired("deleted", done.retired))
    for name, error in done.failures():
        out.line(f"{name}: {error.message}")


def _show_kept(out: Output, done: PublishOutcome) -> None:
    for each in done.merges():
        steps = counted(each.publications, "publication")
        out.line(f"merged {steps} of {each.name} into {counted(each.packs, 'object')}")
    if done.compacted is not None and done.compacted.compacted:
        segments = counted(done.compacted.segments, "segment")
        out.line(f"compacted {segments} into {done.compacted.compacted}")
    if done.indexed is not None and done.indexed.runs:
        segments = counted(done.indexed.segments, "segment")
        out.line(f"indexed {segments} in {counted(done.indexed.runs, 'new run')}")
    if done.collected is not None and (done.collected.points or done.collected.forgotten):
        _show_given_up(out, "gave up", done.collected)


def _show_given_up(out: Output, verb: str, collected: CollectReport) -> None:
    steps = sum(each.publications for each in collected.forgotten)
    out.line(
        f"{verb} {counted(collected.points, 'point')}, and {counted(steps, 'publication')} of "
        f"{counted(len(collected.forgotten), 'database')}"
    )


def _document(store: Store, done: PublishOutcome, unpublished: int) -> dict[str, Any]:
    report, streams = done.report, done.report.streams
    return {
        "root": str(store.root),
        "point": None if report.point is None else report.point.id,
        "databases": [each._asdict() for each in report.published],
        "unchanged": report.unchanged,
        "segments": 0 if streams is None else streams.sealed,
        "manifests": 0 if streams is None else len(streams.published),
        "unpublished_records": unpublished,
        "merged": [each._asdict() for each in done.merges()],
        "compacted": _kept(done.compacted, "segments", "compacted"),
        "indexed": _kept(done.indexed, "segments", "runs"),
        "given_up": None if done.collected is None else _given_up(done.collected),
        "deleted_objects": len(done.retired or []),
        "deleted_bytes": sum(each.size_bytes for each in done.retired or []),
        "failures": {name: error.as_dict() for name, error in done.failures()},
    }


def _kept(kept: MaintenanceResult | None, *counts: str) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {"streams": len(kept.streams), **{name: getattr(kept, name) for name in counts}}


def _given_up(collected: CollectReport) -> dict[str, Any]:
    return {
        "points": collected.points,
        "databases": [each._asdict() for each in collected.forgotten],
    }


def show_points(out: Output, points: list[PointInfo]) -> None:
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


def show_standing(
    out: Output,
    found: Sequence[DatabaseStatus],
    unpublished: int | None,
    retired: Sequence[Gone],
    collected: CollectReport | None,
) -> None:
    """`unpublished` is None where nothing was asked of streams."""
    if out.as_json:
        out.document(
            {
                "databases": [each._asdict() for each in found],
                "unpublished_records": unpublished or 0,
                "would_give_up": None if collected is None else _given_up(collected),
                "would_delete": [each._asdict() for each in retired],
            }
        )
        return
    if found:
        out.table(
            ("database", "published", "newest", "changes"),
            [(each.name, each.published, each.newest, each.changes) for each in found],
        )
    if unpublished is not None:
        out.line(f"{counted(unpublished, 'record')} of streams not published")
    if collected is not None and (collected.points or collected.forgotten):
        _show_given_up(out, "would give up", collected)
    out.line(_retired("would delete", retired))
    if retired:
        out.table(("object", "size"), [(each.key, size(each.size_bytes)) for each in retired])


def _retired(verb: str, found: Sequence[Gone]) -> str:
    held = size(sum(each.size_bytes for each in found))
    return f"{verb} {counted(len(found), 'object')}, {held}"


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
@click.option("--compact", is_flag=True, help="Then make large objects of small ones.")
@click.option("--index", is_flag=True, help="Then index the routing keys of what is published.")
@click.option("--collect", is_flag=True, help="Then delete objects that nothing needs any more.")
@click.option(
    "--keep",
    multiple=True,
    type=KeepOption("points"),
    help="With --collect: points that stay, the newest or by time; the others are given up.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing; tell how far everything is, and what --collect would delete.",
)
def command(out: Output, root: Path, *, objects: str | None, **given: Any) -> None:
    """Publish what is new in every space, the sessions, the graphs and the streams of ROOT.

    Each run is a point that `fourfold bootstrap` can restore to, from the object store alone. What
    is published can be read without this store. A server that was started with --objects publishes
    by itself.
    """
    chosen = given["models"] or _MODELS
    keep = _keep(given["keep"])
    if given["keep"] and not (given["collect"] or given["dry_run"]):
        raise click.UsageError("--keep goes with --collect, or with --dry-run.")
    with published_store(root, objects) as store:
        if given["points"]:
            show_points(out, store.points())
        elif given["dry_run"]:
            _show_standing(out, store, chosen, keep)
        else:
            done = PublishOutcome(_publish(out, store, chosen))
            if given["compact"]:
                _compact(store, chosen, done)
            if given["index"] and "streams" in chosen:
                done.indexed = store.archive.index()
            if given["collect"]:
                _collect(store, chosen, keep, done)
            show(out, store, done)
            done.raise_if_failed()


def _keep(given: tuple[int | float, ...]) -> tuple[int, float] | None:
    """The points that stay, by number and by age; None when it is up to the settings."""
    numbers = [each for each in given if isinstance(each, int)]
    ages = [each for each in given if isinstance(each, float)]
    if len(numbers) > 1 or len(ages) > 1:
        raise InvalidInput("--keep was given twice for the same kind of bound")
    if not given:
        return None
    return (numbers or [0])[0], (ages or [0.0])[0]


def _compact(store: Store, models: Sequence[str], done: PublishOutcome) -> None:
    from fourfold.store import retention  # noqa: PLC0415 - imports every model

    if set(models) - {"streams"}:
        done.merged = retention.merge(store)
    if "streams" in models:
        done.compacted = store.archive.compact()


def _collect(
    store: Store, models: Sequence[str], keep: tuple[int, float] | None, done: PublishOutcome
) -> None:
    done.retired = []
    if set(models) - {"streams"}:
        done.collected = _collected(store, keep, dry_run=False)
        done.retired += done.collected.deleted
    if "streams" in models:
        done.retired += store.archive.collect()


def _collected(store: Store, keep: tuple[int, float] | None, *, dry_run: bool) -> CollectReport:
    from fourfold.store import retention  # noqa: PLC0415 - imports every model

    wanted = None if keep is None else retention.Keep(points=keep[0], for_s=keep[1])
    return retention.collect(store, keep=wanted, dry_run=dry_run)


def _publish(out: Output, store: Store, models: Sequence[str]) -> PublishReport:
    from fourfold.store import publish  # noqa: PLC0415 - imports every model

    with out.progress("publishing") as advance:
        return publish.publish(store, models, advance)


def _show_standing(
    out: Output, store: Store, models: Sequence[str], keep: tuple[int, float] | None
) -> None:
    from fourfold.store import publish  # noqa: PLC0415 - imports every model

    found: list[DatabaseStatus] = publish.standings(store, models)
    retired: list[Gone] = []
    unpublished, collected = 0, None
    if set(models) - {"streams"}:
        collected = _collected(store, keep, dry_run=True)
        retired += collected.deleted
    if "streams" in models:
        retired += store.archive.collect(dry_run=True)
        unpublished = store.archive.standing().unpublished_records
    show_standing(out, found, unpublished if "streams" in models else None, retired, collected)
    for error in {} if collected is None else collected.failures.values():
        raise error

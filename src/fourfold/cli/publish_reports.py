"""What `fourfold publish` has done, and would do, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fourfold.cli.output import Output, counted, size

if TYPE_CHECKING:
    from fourfold.archive.merging import Merged
    from fourfold.archive.points import PointInfo
    from fourfold.archive.publishing import Standing
    from fourfold.errors import FourfoldError
    from fourfold.models.streams.archive.upkeep import Kept
    from fourfold.store import Store
    from fourfold.store.keeping import CollectReport, MergeReport
    from fourfold.store.publishing import PublishReport


class Gone(Protocol):
    """An object that was deleted, or would be: of a stream, or of a database."""

    @property
    def key(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class Done:
    """All that one call did; None for what it was not asked for."""

    report: PublishReport
    merged: MergeReport | None = None
    compacted: Kept | None = None
    indexed: Kept | None = None
    collected: CollectReport | None = None
    retired: list[Gone] | None = None

    def merges(self) -> list[Merged]:
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


def show(out: Output, store: Store, done: Done) -> None:
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


def _show_kept(out: Output, done: Done) -> None:
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


def _document(store: Store, done: Done, unpublished: int) -> dict[str, Any]:
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


def _kept(kept: Kept | None, *counts: str) -> dict[str, Any] | None:
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
    found: Sequence[Standing],
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

"""The job `compact`: compact the small segments of all streams.

    workers     read published segments and write new files into the store's folder, with the
                function that the node uses: each complete, synced, and unreferenced
    driver      uploads them, adopts them through the node's writer, and publishes; each stream's
                manifest is replaced once, and the old objects are retired

It works in waves, so that a killed run keeps its finished waves. Files that were not adopted are
removed when the archive is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import settings
from fourfold.archive import DiskCache, open_segments
from fourfold.archive.records import SealedSegment
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.errors import FourfoldError, StorageError
from fourfold.models.streams.archive import CACHE, LOCAL, compaction
from fourfold.models.streams.archive.compaction import CompactedSegment, SegmentGroup
from fourfold.models.streams.archive.maintenance import MADE
from fourfold.models.streams.model import MODEL, segments_folder
from fourfold.pipeline.jobs.job import Context, Job, Plan, Range, Report, pluralize
from fourfold.query.tables import arrow
from fourfold.store import Store, open_store
from fourfold.store.store import objects_of

COMPACT_WAVE: Final = 256
"""Segments that Spark's workers write before the driver adopts them."""

_COLUMNS: Final = "place bigint, result string, problem string"
Build = Callable[[StoredSegments, Any, Path], str]
"""Builds the result of a task; returns a text for the driver."""


class TaskOutcome(NamedTuple):
    """The result of a task: text for the driver, or the problem."""

    result: str | None
    problem: str | None


class Worker:
    """Worker function: builds the tasks whose numbers it receives."""

    def __init__(self, root: Path, build: Build, tasks: Sequence[Any]) -> None:
        self._root = root
        self._build = build
        self._tasks = tasks

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        pa = arrow()
        folder = segments_folder(self._root)
        with objects_of(self._root, settings.load(self._root, environ=os.environ)) as objects:
            segments = open_segments(objects, DiskCache(folder / f".{CACHE}-of-readers", 0))
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    row = self._outcome(segments, index, folder / MADE)
                    yield pa.RecordBatch.from_pylist([row], schema=_schema())

    def _outcome(self, segments: StoredSegments, place: int, folder: Path) -> dict[str, Any]:
        try:
            result = self._build(segments, self._tasks[place], folder)
        except (FourfoldError, OSError, ValueError) as error:
            # The error only concerns this stream.
            return {"place": place, "result": None, "problem": str(error)}
        return {"place": place, "result": result, "problem": None}


def use_cached(root: Path, request: SegmentRequest) -> SegmentRequest:
    """Return a request that reads from the node's cache if the segment is there."""
    path = segments_folder(root) / CACHE / f"{request.segment}.parquet"
    return request._replace(local=path) if path.exists() else request


def build_all(context: Context, build: Build, tasks: Sequence[Any]) -> list[TaskOutcome]:
    """Build a wave; return the outcomes in the order of the tasks."""
    worker = Worker(context.root, build, tasks)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(work, _COLUMNS).collect()
    outcomes = {row["place"]: TaskOutcome(row["result"], row["problem"]) for row in rows}
    return [outcomes[place] for place in range(len(tasks))]


def iter_waves(tasks: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield the tasks in waves of `size`."""
    for at in range(0, len(tasks), size):
        yield tasks[at : at + size]


def _schema() -> Any:
    pa = arrow()
    return pa.schema([("place", pa.int64()), ("result", pa.string()), ("problem", pa.string())])


@dataclass(slots=True)
class CompactReport:
    """The outcome of the waves."""

    segments: int = 0
    compacted: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Compact(Job):
    """Compact small segments."""

    name = "compact"
    summary = "Compact small published segments into large ones."
    explanation = (
        "Spark's workers write the new segments, and the store's own writer adopts and publishes "
        "them, so no server may run meanwhile. The old objects are deleted by "
        "`fourfold publish --collect` after the grace period."
    )

    def plan(self, context: Context) -> Plan:
        """List the groups of segments to compact."""
        groups: list[SegmentGroup] = []
        if MODEL.location.path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                groups = _groups(store)
        return Plan(
            output="segments of the store",
            ranges=tuple(
                Range(
                    f"{group.stream}@{group.segments[0].start_offset}",
                    group.segments[0].start_offset,
                    group.segments[-1].end_offset + 1,
                )
                for group in groups
            ),
            facts={
                "streams": len({group.stream for group in groups}),
                "segments": sum(len(group.segments) for group in groups),
            },
            empty=not groups,
        )

    def run(self, context: Context, plan: Plan) -> CompactReport:
        """Compact the groups in waves, one group of each stream at a time."""
        report = CompactReport()
        with open_store(context.root) as store:
            tried: set[tuple[str, ...]] = set()
            while True:
                # One group of each stream at a time: the next one needs the new manifest.
                due = {
                    group.stream: group
                    for group in reversed(_groups(store))
                    if _names(group) not in tried
                }
                if not due:
                    return report
                wave = list(due.values())[:COMPACT_WAVE]
                tried |= {_names(group) for group in wave}
                self._wave(context, store, wave, report)
                context.advance("compacting", report.segments, plan.facts["segments"])

    def _wave(
        self, context: Context, store: Store, wave: list[SegmentGroup], report: CompactReport
    ) -> None:
        archive = store.archive
        outcomes = build_all(context, partial(build, context.root), wave)
        for group, outcome in zip(wave, outcomes, strict=True):
            if outcome.result is None:
                report.failures.append((group.stream, outcome.problem or ""))
                continue
            path, sealed = msgspec.json.decode(outcome.result, type=tuple[str, SealedSegment])
            try:
                if archive.upkeep.adopt_segment(CompactedSegment(group, sealed, Path(path))):
                    report.segments += len(group.segments)
                    report.compacted += 1
                archive.upkeep.publish(group.stream)
            except FourfoldError as error:
                report.failures.append((group.stream, error.message))

    def commit(self, context: Context, plan: Plan, result: CompactReport) -> Report:
        """Report the result; failed streams do not affect the others."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"stream {name!r}: cannot compact: {problem}")
            context.skip(name, problem)
        return Report(
            rows_in=result.segments,
            rows_out=result.compacted,
            facts={"segments": result.segments, "compacted": result.compacted},
            sentence=f"{pluralize(result.segments, 'segment')} became {result.compacted}",
        )


def _groups(store: Store) -> list[SegmentGroup]:
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        return list(compaction.due(snapshot, store.archive_policy))


def _names(group: SegmentGroup) -> tuple[str, ...]:
    return tuple(segment.segment_id for segment in group.segments)


def build(root: Path, segments: StoredSegments, group: Any, folder: Path) -> str:
    """Build the segment of a group, in a worker."""
    result = compaction.build(segments, group, folder, segments_folder(root) / LOCAL)
    return msgspec.json.encode((str(result.path), result.sealed)).decode()


job = Compact()

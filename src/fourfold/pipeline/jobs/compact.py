"""`compact`: small segments of all streams into large ones, in one job.

Spark's workers write the new segments, with the function that the node calls by itself. The driver
takes them in: each stream's manifest is replaced once, and the old objects are retired.

Files of a stream's archive that Spark's workers build and the driver takes in.

    workers     read published segments, and write files into the store's folder: each file whole,
                on disk, and spoken of by nothing
    driver      uploads them, takes them in through the node's writer, and publishes

It goes in waves, so that a killed run has done what it has done. What a worker wrote and nobody
took in is removed when the archive is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits, settings
from fourfold.archive import DiskCache, open_segments
from fourfold.archive.records import SealedSegment
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.errors import FourfoldError, StorageError
from fourfold.models.streams.archive import CACHE, LOCAL, compaction
from fourfold.models.streams.archive.compaction import CompactResult, Group
from fourfold.models.streams.archive.maintenance import MADE
from fourfold.pipeline.jobs.job import Context, Job, Plan, Range, Report, counted
from fourfold.pipeline.tables import arrow
from fourfold.store import Store, open_store
from fourfold.store.layout import stream_segments, streams_path
from fourfold.store.store import objects_of

_COLUMNS: Final = "place bigint, made string, problem string"
Build = Callable[[StoredSegments, Any, Path], str]
"""Builds what a task asks for; what the driver must know of it, as text."""


class Outcome(NamedTuple):
    """What became of a task: text for the driver, or what went wrong."""

    made: str | None
    problem: str | None


class Worker:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(self, root: Path, build: Build, tasks: Sequence[Any]) -> None:
        self._root = root
        self._build = build
        self._tasks = tasks

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        pa = arrow()
        folder = stream_segments(self._root)
        with objects_of(self._root, settings.load(self._root, environ=os.environ)) as objects:
            segments = open_segments(objects, DiskCache(folder / f".{CACHE}-of-readers", 0))
            for batch in batches:
                for place in batch.column(0).to_pylist():
                    row = self._outcome(segments, place, folder / MADE)
                    yield pa.RecordBatch.from_pylist([row], schema=_schema())

    def _outcome(self, segments: StoredSegments, place: int, folder: Path) -> dict[str, Any]:
        try:
            made = self._build(segments, self._tasks[place], folder)
        except (FourfoldError, OSError, ValueError) as error:
            # Whatever it is, it is of this stream alone.
            return {"place": place, "made": None, "problem": str(error)}
        return {"place": place, "made": made, "problem": None}


def cached(root: Path, wanted: SegmentRequest) -> SegmentRequest:
    """The same, read from the node's cache while it is there."""
    path = stream_segments(root) / CACHE / f"{wanted.segment}.parquet"
    return wanted._replace(local=path) if path.exists() else wanted


def build_all(context: Context, build: Build, tasks: Sequence[Any]) -> list[Outcome]:
    """Build a wave; the outcomes in the order of the tasks."""
    worker = Worker(context.root, build, tasks)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(work, _COLUMNS).collect()
    found = {row["place"]: Outcome(row["made"], row["problem"]) for row in rows}
    return [found[place] for place in range(len(tasks))]


def waves(tasks: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(tasks), size):
        yield tasks[at : at + size]


def _schema() -> Any:
    pa = arrow()
    return pa.schema([("place", pa.int64()), ("made", pa.string()), ("problem", pa.string())])


@dataclass(slots=True)
class CompactReport:
    """What became of the waves."""

    segments: int = 0
    compacted: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Compact(Job):
    """Make large segments of small ones."""

    name = "compact"
    summary = "Make large segments of small ones that are published."
    explanation = (
        "Spark's workers write the new segments, and the store's own writer takes them in and "
        "publishes them, so the store must not be served meanwhile. The old objects are deleted "
        "by `fourfold publish --collect` after their time of grace."
    )

    def plan(self, context: Context) -> Plan:
        found: list[Group] = []
        if streams_path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                found = _groups(store)
        return Plan(
            output="segments of the store",
            ranges=tuple(
                Range(
                    f"{each.stream}@{each.segments[0].start_offset}",
                    each.segments[0].start_offset,
                    each.segments[-1].end_offset + 1,
                )
                for each in found
            ),
            facts={
                "streams": len({each.stream for each in found}),
                "segments": sum(len(each.segments) for each in found),
            },
            empty=not found,
        )

    def run(self, context: Context, plan: Plan) -> CompactReport:
        done = CompactReport()
        with open_store(context.root) as store:
            tried: set[tuple[str, ...]] = set()
            while True:
                # Of each stream one group at a time: the next one waits for a manifest.
                found = {
                    each.stream: each
                    for each in reversed(_groups(store))
                    if _names(each) not in tried
                }
                if not found:
                    return done
                wave = list(found.values())[: limits.COMPACT_WAVE]
                tried |= {_names(each) for each in wave}
                self._wave(context, store, wave, done)
                context.advance("compacting", done.segments, plan.facts["segments"])

    def _wave(self, context: Context, store: Store, wave: list[Group], done: CompactReport) -> None:
        archive = store.archive
        outcomes = build_all(context, partial(build, context.root), wave)
        for group, outcome in zip(wave, outcomes, strict=True):
            if outcome.made is None:
                done.failures.append((group.stream, outcome.problem or ""))
                continue
            path, sealed = msgspec.json.decode(outcome.made, type=tuple[str, SealedSegment])
            try:
                if archive.upkeep.adopt_segment(CompactResult(group, sealed, Path(path))):
                    done.segments += len(group.segments)
                    done.compacted += 1
                archive.upkeep.publish(group.stream)
            except FourfoldError as error:
                done.failures.append((group.stream, error.message))

    def commit(self, context: Context, plan: Plan, result: CompactReport) -> Report:
        """It is all in already. What failed is told: one stream never keeps the others waiting."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"the stream {name!r} cannot be compacted: {problem}")
            context.skip(name, problem)
        return Report(
            rows_in=result.segments,
            rows_out=result.compacted,
            facts={"segments": result.segments, "compacted": result.compacted},
            sentence=f"{counted(result.segments, 'segment')} became {result.compacted}",
        )


def _groups(store: Store) -> list[Group]:
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        return list(compaction.due(snapshot, store.archive_policy))


def _names(group: Group) -> tuple[str, ...]:
    return tuple(each.segment_id for each in group.segments)


def build(root: Path, segments: StoredSegments, group: Any, folder: Path) -> str:
    """In a worker: the segment of a group."""
    made = compaction.build(segments, group, folder, stream_segments(root) / LOCAL)
    return msgspec.json.encode((str(made.path), made.sealed)).decode()


job = Compact()

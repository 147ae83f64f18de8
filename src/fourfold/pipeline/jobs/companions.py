"""The job `companions`: build the search companions of all published segments without one.

Spark's workers read the segments and write the bundles, with the function that the node uses. The
driver uploads and adopts them, and publishes the manifests. It works in waves, so that a killed run
keeps its finished waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import FourfoldError, StorageError
from fourfold.models.streams.archive import LOCAL
from fourfold.models.streams.model import MODEL, segments_folder
from fourfold.models.streams.search.companions import builder
from fourfold.models.streams.search.companions.builder import BundleFile, BundleTask
from fourfold.pipeline.jobs import compact
from fourfold.pipeline.jobs.job import Context, Job, Plan, Range, Report, pluralize
from fourfold.store import Store, open_store

COMPANIONS_WAVE: Final = 64
"""Companions that Spark's workers build before the driver adopts them."""

_Result = tuple[str, int, str, dict[str, int], tuple[int, int] | None]
"""Path, size, digest, sizes of sections and times of a bundle."""


@dataclass(slots=True)
class CompanionsReport:
    """Counts of the companions that were built, and the streams that failed."""

    companions: int = 0
    bytes: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class CompanionsJob(Job):
    """Build search companions."""

    name = "companions"
    summary = "Build the search companions of published segments."
    explanation = (
        "Spark's workers write the companions, and the store's own writer adopts and publishes "
        "them, so no server may run meanwhile. Only streams that declare search fields have "
        "companions; a changed declaration builds all of them again."
    )

    def plan(self, context: Context) -> Plan:
        """List the segments without a companion of the current plan."""
        tasks: list[BundleTask] = []
        if MODEL.location.path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                tasks = list(_tasks(store))
        return Plan(
            output="search companions of the store",
            ranges=tuple(
                Range(
                    f"{task.stream}@{task.segment.start_offset}",
                    task.segment.start_offset,
                    task.segment.end_offset + 1,
                )
                for task in tasks
            ),
            facts={"streams": len({task.stream for task in tasks}), "segments": len(tasks)},
            empty=not tasks,
        )

    def run(self, context: Context, plan: Plan) -> CompanionsReport:
        """Build, adopt and publish the companions in waves."""
        report = CompanionsReport()
        with open_store(context.root) as store:
            for wave in compact.iter_waves(list(_tasks(store)), COMPANIONS_WAVE):
                self._wave(context, store, list(wave), report)
                context.advance("building", report.companions, plan.facts["segments"])
        return report

    def _wave(
        self, context: Context, store: Store, wave: list[BundleTask], report: CompanionsReport
    ) -> None:
        upkeep = store.archive.upkeep
        outcomes = compact.build_all(context, build, wave)
        changed: dict[str, None] = {}
        for task, outcome in zip(wave, outcomes, strict=True):
            try:
                if outcome.result is None:
                    raise StorageError(outcome.problem or "")
                path, *facts = msgspec.json.decode(outcome.result, type=_Result)
                built = BundleFile(task, Path(path), *facts)
                if upkeep.adopt_companion(built):
                    report.companions += 1
                    report.bytes += built.size_bytes
                    changed[task.stream] = None
            except FourfoldError as error:
                report.failures.append((task.stream, error.message))
        for stream in changed:
            try:
                upkeep.publish(stream)
            except FourfoldError as error:
                report.failures.append((stream, error.message))

    def commit(self, context: Context, plan: Plan, result: CompanionsReport) -> Report:
        """Report the result; failed streams do not affect the others."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"stream {name!r}: cannot build companions: {problem}")
            context.skip(name, problem)
        return Report(
            rows_in=result.companions,
            rows_out=result.companions,
            facts={"companions": result.companions, "bytes": result.bytes},
            sentence=pluralize(result.companions, "companion"),
        )


def _tasks(store: Store) -> Iterator[BundleTask]:
    folder = segments_folder(store.root) / LOCAL
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        for stream, incarnation in builder.streams_with_plans(snapshot):
            for task in builder.tasks(snapshot, stream, incarnation, folder, limit=-1):
                yield task._replace(request=compact.use_cached(store.root, task.request))


def build(segments: StoredSegments, task: Any, folder: Path) -> str:
    """Build the companion of a task, in a worker."""
    built = builder.build(segments, task, folder)
    result: _Result = (
        str(built.path),
        built.size_bytes,
        built.digest,
        built.sizes,
        built.times,
    )
    return msgspec.json.encode(result).decode()


job = CompanionsJob()

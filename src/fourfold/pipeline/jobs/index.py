"""The job `index`: index routing keys and fields of all published segments without a run.

Spark's workers read the segments and write the runs of level 0, with the function that the node
uses. The driver adopts them, merges runs, which is little work, and publishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.archive.index_runs import RunFile
from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import FourfoldError, InvalidInput, StorageError
from fourfold.models.streams.archive import LOCAL
from fourfold.models.streams.archive.indexes import builder
from fourfold.models.streams.archive.indexes.builder import BuiltRun, RunTask
from fourfold.models.streams.archive.maintenance import MaintenanceResult
from fourfold.models.streams.model import MODEL, segments_folder
from fourfold.pipeline.jobs import compact
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, pluralize
from fourfold.store import Store, open_store

INDEX_WAVE: Final = 256
"""Index runs that Spark's workers build before the driver adopts them."""


@dataclass(slots=True)
class IndexReport:
    """The outcome of the waves."""

    upkeep: MaintenanceResult = field(default_factory=MaintenanceResult)
    failures: list[tuple[str, str]] = field(default_factory=list)


class IndexJob(Job):
    """Index published segments."""

    name = "index"
    summary = "Index the routing keys of published segments."
    explanation = (
        "Spark's workers write the runs, and the store's own writer adopts and publishes them, so "
        "no server may run meanwhile. With --field, a field of the JSON messages of --stream is "
        "indexed from now on, too."
    )
    options = (
        Option("field", "A field of JSON messages, as in customer or address.city."),
        Option("stream", "The stream whose field it is."),
    )

    def plan(self, context: Context) -> Plan:
        """List the segments that no run covers."""
        declared = (context.options["stream"], context.options["field"])
        if (declared[0] is None) != (declared[1] is None):
            raise InvalidInput("--field and --stream must be passed together")
        tasks: list[RunTask] = []
        if MODEL.location.path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                tasks = list(_tasks(store))
        return Plan(
            output="index runs of the store",
            ranges=tuple(
                Range(
                    f"{task.stream}#{task.index_name}@{task.start_offset}",
                    task.start_offset,
                    task.end_offset + 1,
                )
                for task in tasks
            ),
            facts={
                "streams": len({task.stream for task in tasks}),
                "segments": sum(len(task.segments) for task in tasks),
                "field": declared[1] or "",
            },
            empty=not tasks and declared[1] is None,
        )

    def run(self, context: Context, plan: Plan) -> IndexReport:
        """Build, adopt and publish the runs in waves."""
        report = IndexReport()
        with open_store(context.root) as store:
            if context.options["field"] is not None:
                store.archive.upkeep.declare(context.options["stream"], context.options["field"])
            tasks = list(_tasks(store))
            for wave in compact.iter_waves(tasks, INDEX_WAVE):
                self._wave(context, store, list(wave), report)
                context.advance("indexing", report.upkeep.segments, plan.facts["segments"])
        return report

    def _wave(
        self, context: Context, store: Store, wave: list[RunTask], report: IndexReport
    ) -> None:
        upkeep = store.archive.upkeep
        outcomes = compact.build_all(context, partial(build, context.root), wave)
        pairs = zip(wave, outcomes, strict=True)
        for (stream, incarnation), group in groupby(
            pairs, key=lambda pair: (pair[0].stream, pair[0].incarnation)
        ):
            try:
                for task, outcome in group:
                    if outcome.result is None:
                        raise StorageError(outcome.problem or "")
                    path, run = msgspec.json.decode(
                        outcome.result, type=tuple[str | None, RunFile | None]
                    )
                    if upkeep.adopt_run(BuiltRun(task, run, None if path is None else Path(path))):
                        report.upkeep.segments += len(task.segments)
                        report.upkeep.runs += run is not None
                upkeep.merge(report.upkeep, stream, incarnation)
                upkeep.publish(stream)
            except FourfoldError as error:
                # Its further runs would follow a missing one.
                report.failures.append((stream, error.message))

    def commit(self, context: Context, plan: Plan, result: IndexReport) -> Report:
        """Report the result; failed streams do not affect the others."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"stream {name!r}: cannot index: {problem}")
            context.skip(name, problem)
        upkeep = result.upkeep
        return Report(
            rows_in=upkeep.segments,
            rows_out=upkeep.runs,
            facts={"segments": upkeep.segments, "runs": upkeep.runs},
            sentence=f"{pluralize(upkeep.segments, 'segment')} in "
            f"{pluralize(upkeep.runs, 'new run')}",
        )


def _tasks(store: Store) -> Iterator[RunTask]:
    root, policy = store.root, store.archive_policy
    folder = segments_folder(root) / LOCAL
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        for stream, incarnation in dict(
            builder.streams_to_index(snapshot, policy, everything=True)
        ).items():
            for task in builder.tasks(
                snapshot, stream, incarnation, policy, folder, everything=True
            ):
                near = tuple(compact.use_cached(root, request) for request in task.segments)
                yield task._replace(segments=near)


def build(root: Path, segments: StoredSegments, task: Any, folder: Path) -> str:
    """Build the run of a task, in a worker."""
    del root
    result = builder.build(segments, task, folder)
    path = None if result.path is None else str(result.path)
    return msgspec.json.encode((path, result.run)).decode()


job = IndexJob()

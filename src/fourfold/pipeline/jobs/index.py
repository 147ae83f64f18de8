"""`index`: the routing keys, and fields, of all published segments that no run covers, in one job.

Spark's workers read the segments and write the runs of level 0, with the function that the node
calls by itself. The driver takes them in, merges runs, which is little work beside, and publishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from fourfold import limits
from fourfold.archive.index_runs import RunFile
from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import FourfoldError, InvalidInput, StorageError
from fourfold.models.streams.archive import LOCAL
from fourfold.models.streams.archive.indexes import builder
from fourfold.models.streams.archive.indexes.builder import Built, Task
from fourfold.models.streams.archive.maintenance import MaintenanceResult
from fourfold.pipeline.jobs import compact
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, counted
from fourfold.store import Store, open_store
from fourfold.store.layout import stream_segments, streams_path


@dataclass(slots=True)
class IndexReport:
    """What became of the waves."""

    kept: MaintenanceResult = field(default_factory=MaintenanceResult)
    failures: list[tuple[str, str]] = field(default_factory=list)


class Index(Job):
    """Index what is published."""

    name = "index"
    summary = "Index the routing keys of published segments."
    explanation = (
        "Spark's workers write the runs, and the store's own writer takes them in and publishes "
        "them, so the store must not be served meanwhile. With --field, a field of the JSON "
        "messages of --stream is indexed from now on, too."
    )
    options = (
        Option("field", "A field of JSON messages, as in customer or address.city."),
        Option("stream", "The stream whose field it is."),
    )

    def plan(self, context: Context) -> Plan:
        declared = (context.options["stream"], context.options["field"])
        if (declared[0] is None) != (declared[1] is None):
            raise InvalidInput("--field needs --stream, and --stream needs --field")
        found: list[Task] = []
        if streams_path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                found = list(_tasks(store))
        return Plan(
            output="index runs of the store",
            ranges=tuple(
                Range(
                    f"{each.stream}#{each.index_name}@{each.start_offset}",
                    each.start_offset,
                    each.end_offset + 1,
                )
                for each in found
            ),
            facts={
                "streams": len({each.stream for each in found}),
                "segments": sum(len(each.segments) for each in found),
                "field": declared[1] or "",
            },
            empty=not found and declared[1] is None,
        )

    def run(self, context: Context, plan: Plan) -> IndexReport:
        done = IndexReport()
        with open_store(context.root) as store:
            if context.options["field"] is not None:
                store.archive.upkeep.declare(context.options["stream"], context.options["field"])
            tasks = list(_tasks(store))
            for wave in compact.waves(tasks, limits.INDEX_WAVE):
                self._wave(context, store, list(wave), done)
                context.advance("indexing", done.kept.segments, plan.facts["segments"])
        return done

    def _wave(self, context: Context, store: Store, wave: list[Task], done: IndexReport) -> None:
        upkeep = store.archive.upkeep
        outcomes = compact.build_all(context, partial(build, context.root), wave)
        pairs = zip(wave, outcomes, strict=True)
        for (stream, incarnation), group in groupby(
            pairs, key=lambda pair: (pair[0].stream, pair[0].incarnation)
        ):
            try:
                for task, outcome in group:
                    if outcome.made is None:
                        raise StorageError(outcome.problem or "")
                    path, run = msgspec.json.decode(
                        outcome.made, type=tuple[str | None, RunFile | None]
                    )
                    if upkeep.adopt_run(Built(task, run, None if path is None else Path(path))):
                        done.kept.segments += len(task.segments)
                        done.kept.runs += run is not None
                upkeep.merge(done.kept, stream, incarnation)
                upkeep.publish(stream)
            except FourfoldError as error:
                # The rest of its runs would follow on one that is missing.
                done.failures.append((stream, error.message))

    def commit(self, context: Context, plan: Plan, result: IndexReport) -> Report:
        """It is all in already. What failed is told: one stream never keeps the others waiting."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"the stream {name!r} cannot be indexed: {problem}")
            context.skip(name, problem)
        kept = result.kept
        return Report(
            rows_in=kept.segments,
            rows_out=kept.runs,
            facts={"segments": kept.segments, "runs": kept.runs},
            sentence=f"{counted(kept.segments, 'segment')} in {counted(kept.runs, 'new run')}",
        )


def _tasks(store: Store) -> Iterator[Task]:
    root, policy = store.root, store.archive_policy
    folder = stream_segments(root) / LOCAL
    with store.streams.database.read(deadline_s=float("inf")) as snapshot:
        for stream, incarnation in dict(builder.behind(snapshot, policy, everything=True)).items():
            for task in builder.tasks(
                snapshot, stream, incarnation, policy, folder, everything=True
            ):
                near = tuple(compact.cached(root, each) for each in task.segments)
                yield task._replace(segments=near)


def build(root: Path, segments: StoredSegments, task: Any, folder: Path) -> str:
    """In a worker: the run of a task."""
    del root
    made = builder.build(segments, task, folder)
    path = None if made.path is None else str(made.path)
    return msgspec.json.encode((path, made.run)).decode()


job = Index()

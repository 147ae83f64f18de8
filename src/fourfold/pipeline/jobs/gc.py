"""The job `gc`: garbage-collect spaces by their policies, or the sessions of stores.

Spark's workers mark what is unreachable, while writers may run. Then this process opens the marked
spaces, one after the other, and runs gc through the writer of each (`space.gc()`): data that became
reachable since the mark phase is protected by its usual rules. A space without a policy is never
changed; this job cannot set one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.pipeline import gc_tasks
from fourfold.pipeline.gc_tasks import Collector, MarkResult
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.models import get_collector
from fourfold.pipeline.store_files import StoreFile

_SHOWN = 100


class Gc(Job):
    """Garbage-collect spaces or sessions."""

    name = "gc"
    summary = "Remove what the policies of the spaces expire: history, values, blobs, snapshots."
    explanation = (
        "Spaces without a policy are not changed (see `fourfold space gc`). A dry run only marks, "
        "and reports for each space what would be removed."
    )
    options = (
        model_option("gc"),
        Option("roots", "Collect in the stores that match this pattern instead of ROOT."),
        Option("space", "Collect only the space with this DID."),
        Option(
            "grace",
            "Sessions: the grace period in seconds.",
            kind="number",
            default=int(limits.SESSION_GRACE_S),
        ),
    )

    def target(self, context: Context) -> str:
        """Return the name of the selected stores and space."""
        return context.target_of("roots", "space")

    def plan(self, context: Context) -> Plan:
        """List the files; a dry run also marks."""
        files = context.files()
        facts: dict[str, Any] = {"files": len(files)}
        if context.dry_run:
            results = self._mark(context, files)
            facts |= _figures(context, results)
            facts["spaces"] = [_summary(result) for result in results if result.has_policy][:_SHOWN]
        return Plan(
            output=f"the {_collector(context).noun}s themselves",
            ranges=tuple(Range(file.path, 0, file.bytes) for file in files),
            facts=facts,
            empty=not files,
            files=tuple(files),
        )

    def run(self, context: Context, plan: Plan) -> list[MarkResult]:
        """Mark what can be removed."""
        return self._mark(context, plan.files)

    @staticmethod
    def _mark(context: Context, files: Sequence[StoreFile]) -> list[MarkResult]:
        tasks = gc_tasks.group_files(files)
        if not tasks:
            return []
        rows = context.spark.range(0, len(tasks), 1, len(tasks))
        task = gc_tasks.MarkTask(tasks, context.options["model"], _grace(context))

        def mark(batches: Iterable[Any]) -> Iterator[Any]:
            return task(batches)

        with context.spark_progress("marking"):
            marked = rows.mapInArrow(mark, gc_tasks.COLUMNS).collect()
        return sorted((gc_tasks.decode(row[0]) for row in marked), key=lambda result: result.path)

    def commit(self, context: Context, plan: Plan, result: list[MarkResult]) -> Report:
        """Collect each marked file; a failure does not affect the others."""
        del plan
        collector = _collector(context)
        removed: dict[str, int] = dict.fromkeys(collector.kinds, 0)
        freed = collected = 0
        failures: list[tuple[MarkResult, FourfoldError | str]] = [
            (marked, marked.problem) for marked in result if marked.problem
        ]
        due = [marked for marked in result if marked.anything]
        for number, marked in enumerate(due):
            context.advance("collecting", number, len(due))
            try:
                counts, size = collector.collect(marked, _grace(context))
            except FourfoldError as error:
                failures.append((marked, error))
                continue
            collected += 1
            freed += size
            for kind, count in counts.items():
                removed[kind] += count
        _report_failures(context, failures)
        figures = _figures(context, result) | {
            "collected": collected,
            "taken": removed,
            "bytes": freed,
        }
        return Report(
            rows_in=len(result),
            rows_out=sum(removed.values()),
            facts=figures,
            sentence=f"{collector.describe(len(result), figures['with_policy'])}; "
            f"{collected} collected, {freed} bytes removed",
        )


def _collector(context: Context) -> Collector:
    return get_collector(context.options["model"])


def _grace(context: Context) -> float:
    return float(context.options["grace"])


def _report_failures(
    context: Context, failures: list[tuple[MarkResult, FourfoldError | str]]
) -> None:
    """Raise the first failure, or record all of them with `skip_bad`."""
    for result, problem in failures:
        if context.skip_bad:
            context.skip(result.path, str(problem))
        elif isinstance(problem, FourfoldError):
            raise problem
        else:
            kind, _, message = problem.partition(": ")
            raise _error_of(kind)(message)


def _error_of(kind: str) -> type[FourfoldError]:
    from fourfold import errors  # noqa: PLC0415 - to look up the class by its kind

    return {cls.kind: cls for cls in errors.tree()}.get(kind, FourfoldError)


def _figures(context: Context, results: list[MarkResult]) -> dict[str, Any]:
    kinds = _collector(context).kinds
    return {
        "with_policy": sum(result.has_policy for result in results),
        "marked": {kind: sum(result.counts.get(kind, 0) for result in results) for kind in kinds},
    }


def _summary(result: MarkResult) -> dict[str, Any]:
    return {"space": result.space, "horizon": result.horizon, **result.counts}


job = Gc()

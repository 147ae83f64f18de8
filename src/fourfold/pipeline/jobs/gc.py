"""`gc`: collect every space that keeps a policy for it, by that policy; or the sessions of stores.

Reachability is marked by Spark's workers, which read beside whoever writes. Then this process opens
the spaces in which something was marked, one after the other, and lets each collect itself, through
its own writer (`space.gc()`): whatever came to be needed since the mark is protected by the same
rules as ever. A space without a policy is never touched; this job cannot give it one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.pipeline import gc_tasks
from fourfold.pipeline.gc_tasks import MarkResult
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.tables import load_part

_SHOWN = 100


class Gc(Job):
    """Collect spaces."""

    name = "gc"
    summary = "Collect what the policies of the spaces give up: history, values, blobs, snapshots."
    explanation = (
        "Spaces without a policy are left alone (see `fourfold space gc`). A dry run marks, and "
        "says for each space what would go; nothing is changed."
    )
    options = (
        model_option("gc"),
        Option("roots", "Collect in the stores that match this pattern instead of ROOT."),
        Option("space", "Collect only the space with this DID."),
        Option(
            "grace",
            "Sessions: the age in seconds below which nothing goes.",
            kind="number",
            default=int(limits.SESSION_GRACE_S),
        ),
    )

    def target(self, context: Context) -> str:
        return context.target_of("roots", "space")

    def plan(self, context: Context) -> Plan:
        files = context.files()
        facts: dict[str, Any] = {"files": len(files)}
        if context.dry_run:
            found = self._marked(context)
            facts |= _figures(context, found)
            facts["spaces"] = [_shown(each) for each in found if each.has_policy][:_SHOWN]
        return Plan(
            output=f"the {_model(context).NOUN}s themselves",
            ranges=tuple(Range(file.path, 0, file.bytes) for file in files),
            facts=facts,
            empty=not files,
        )

    def run(self, context: Context, plan: Plan) -> list[MarkResult]:
        del plan
        return self._marked(context)

    @staticmethod
    def _marked(context: Context) -> list[MarkResult]:
        work = gc_tasks.tasks(context.files())
        if not work:
            return []
        rows = context.spark.range(0, len(work), 1, len(work))
        marking = gc_tasks.MarkTask(work, context.options["model"], _grace(context))

        def mark(batches: Iterable[Any]) -> Iterator[Any]:
            return marking(batches)

        with context.spark_progress("marking"):
            found = rows.mapInArrow(mark, gc_tasks.COLUMNS).collect()
        return sorted((gc_tasks.decoded(row[0]) for row in found), key=lambda each: each.path)

    def commit(self, context: Context, plan: Plan, result: list[MarkResult]) -> Report:
        """Every space for itself: one that cannot be collected now does not keep the others."""
        del plan
        model = _model(context)
        taken: dict[str, int] = dict.fromkeys(model.KINDS, 0)
        freed = collected = 0
        failures: list[tuple[MarkResult, FourfoldError | str]] = [
            (each, each.problem) for each in result if each.problem
        ]
        due = [each for each in result if each.anything]
        for number, each in enumerate(due):
            context.advance("collecting", number, len(due))
            try:
                counts, size = model.collect(each, _grace(context))
            except FourfoldError as error:
                failures.append((each, error))
                continue
            collected += 1
            freed += size
            for kind, count in counts.items():
                taken[kind] += count
        _report_failures(context, failures)
        figures = _figures(context, result) | {
            "collected": collected,
            "taken": taken,
            "bytes": freed,
        }
        return Report(
            rows_in=len(result),
            rows_out=sum(taken.values()),
            facts=figures,
            sentence=f"{model.describe(len(result), figures['with_policy'])}; "
            f"{collected} were collected, {freed} bytes of content went",
        )


def _model(context: Context) -> Any:
    return load_part(context.options["model"], "gc")


def _grace(context: Context) -> float:
    return float(context.options["grace"])


def _report_failures(
    context: Context, failures: list[tuple[MarkResult, FourfoldError | str]]
) -> None:
    """What could not be collected: an error that names the first, or, if that is wanted, a note."""
    for each, problem in failures:
        if context.skip_bad:
            context.skip(each.path, str(problem))
        elif isinstance(problem, FourfoldError):
            raise problem
        else:
            kind, _, message = problem.partition(": ")
            raise _error_of(kind)(message)


def _error_of(kind: str) -> type[FourfoldError]:
    from fourfold import errors  # noqa: PLC0415 - the tree is asked for a class by its kind

    return {cls.kind: cls for cls in errors.tree()}.get(kind, FourfoldError)


def _figures(context: Context, found: list[MarkResult]) -> dict[str, Any]:
    kinds = _model(context).KINDS
    return {
        "with_policy": sum(each.has_policy for each in found),
        "marked": {kind: sum(each.counts.get(kind, 0) for each in found) for kind in kinds},
    }


def _shown(each: MarkResult) -> dict[str, Any]:
    return {"space": each.space, "horizon": each.horizon, **each.counts}


job = Gc()

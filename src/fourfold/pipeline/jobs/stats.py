"""The job `stats`: how large the data of a store is, and where reading and writing are hot.

What is measured is the model's own: see the `measuring` of each. The job looks at the whole history
each time, in one cut, and changes nothing.

What a model measures with: the tables of one cut, and a few sums.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.cut import Cut, read_cut
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame
from fourfold.pipeline.tables import load_part


@dataclass(frozen=True, slots=True)
class Measure:
    """One cut of the data of one model in a store."""

    spark: Any
    root: Path
    model: str
    cut: Cut

    @property
    def functions(self) -> Any:
        """Spark's functions on columns."""
        from pyspark.sql import functions  # noqa: PLC0415 - an optional dependency

        return functions

    @property
    def file_bytes(self) -> int:
        return sum(mark.bytes for mark in self.cut.marks)

    def table(self, name: str, columns: str) -> Any:
        """Some columns of a table, at the cut."""
        asked = {"root": str(self.root), "model": self.model, "table": name, "columns": columns}
        return frame(self.spark, asked, self.cut)

    def summed(self, table: str, column: str, size: Any) -> dict[str, int]:
        """How many rows a table has, and the sum of their sizes."""
        f = self.functions
        total = f.coalesce(f.sum(size), f.lit(0))
        row = self.table(table, column).agg(f.count("*"), total).first()
        return {"count": row[0], "bytes": row[1]}


_TOP: Final = 10


class Stats(Job):
    """See the module."""

    name = "stats"
    summary = "Sizes, chain lengths, duplicates and hot entities of all spaces."
    options = (
        model_option("stats"),
        Option("top", "How many hot entities are listed.", kind="number", default=_TOP),
        Option("into", "A file for the figures, as JSON.", kind="path"),
    )

    def target(self, context: Context) -> str:
        into = context.options["into"]
        where = "" if into is None else str(Path(into).absolute())
        return f"{context.target_of()}\n{where}".strip()

    def plan(self, context: Context) -> Plan:
        top = context.options["top"]
        if type(top) is not int or top < 0:
            raise InvalidInput(f"{top!r} hot entities cannot be listed")
        cut = _cut(context)
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        ranges = tuple(Range(mark.space, 0, mark.seq) for mark in cut.marks)
        into = context.options["into"]
        output = "" if into is None else str(Path(into).absolute())
        return Plan(output=output, ranges=ranges, empty=not ranges)

    def run(self, context: Context, plan: Plan) -> dict[str, Any]:
        upto = {each.source: each.upto for each in plan.ranges}
        marks = tuple(
            replace(mark, seq=upto[mark.space])
            for mark in _cut(context).marks
            if mark.space in upto
        )
        measure = Measure(context.spark, context.root, context.options["model"], Cut(marks))
        with context.spark_progress("measuring"):
            found: dict[str, Any] = _model(context).figures(measure, context.options["top"])
        return found

    def commit(self, context: Context, plan: Plan, result: dict[str, Any]) -> Report:
        model = _model(context)
        if plan.output:
            _write(Path(plan.output), result)
        return Report(
            rows_in=model.rows(result),
            rows_out=1,
            output=plan.output or None,
            facts=result,
            sentence=model.sentence(result),
        )


def _model(context: Context) -> Any:
    return load_part(context.options["model"], "stats")


def _cut(context: Context) -> Cut:
    skip = str(context.skip_bad).lower()
    asked = {"root": str(context.root), "table": _model(context).TABLE, "skip_bad": skip}
    asked["model"] = context.options["model"]
    return read_cut(read_options(asked))


def _write(path: Path, figures: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    partial.replace(path)


job = Stats()

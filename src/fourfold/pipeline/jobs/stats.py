"""The job `stats`: the size of a store's data, and where reads and writes are hot.

Each model defines its `Statistics`. The job reads the whole history each time,
at one cut, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.cut import Cut, read_cut
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.models import get_statistics
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame


@dataclass(frozen=True, slots=True)
class CutStatistics:
    """One cut of the data of a model in a store."""

    spark: Any
    root: Path
    model: str
    cut: Cut

    @property
    def functions(self) -> Any:
        """Spark's column functions."""
        from pyspark.sql import functions  # noqa: PLC0415 - an optional dependency

        return functions

    @property
    def file_bytes(self) -> int:
        """Total size of the files."""
        return sum(bound.bytes for bound in self.cut.bounds)

    def table(self, name: str, columns: str) -> Any:
        """Return some columns of a table at the cut."""
        options = {"root": str(self.root), "model": self.model, "table": name, "columns": columns}
        return frame(self.spark, options, self.cut)

    def summed(self, table: str, column: str, size: Any) -> dict[str, int]:
        """Return the number of rows of a table, and the sum of their sizes."""
        f = self.functions
        total = f.coalesce(f.sum(size), f.lit(0))
        row = self.table(table, column).agg(f.count("*"), total).first()
        return {"count": row[0], "bytes": row[1]}


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a model."""

    table: str
    """The table whose options define the cut."""
    figures: Callable[[CutStatistics, int], dict[str, Any]]
    """Returns the statistics, with this many hot entities."""
    sentence: Callable[[dict[str, Any]], str]
    """Returns a one-line summary of them."""
    rows: Callable[[dict[str, Any]], int]
    """Returns the number of log rows that were counted."""


_TOP: Final = 10


class Stats(Job):
    """Compute statistics of a model."""

    name = "stats"
    summary = "Sizes, chain lengths, duplicates and hot entities of all spaces."
    options = (
        model_option("stats"),
        Option("top", "Number of hot entities to list.", kind="number", default=_TOP),
        Option("into", "A file for the statistics, as JSON.", kind="path"),
    )

    def target(self, context: Context) -> str:
        """Return the model and the output file."""
        into = context.options["into"]
        where = "" if into is None else str(Path(into).absolute())
        return f"{context.target_of()}\n{where}".strip()

    def plan(self, context: Context) -> Plan:
        """Read the cut."""
        top = context.options["top"]
        if type(top) is not int or top < 0:
            raise InvalidInput(f"top must be a non-negative integer, got {top!r}")
        options = {
            "root": str(context.root),
            "model": context.options["model"],
            "table": _statistics(context).table,
            "skip_bad": str(context.skip_bad).lower(),
        }
        cut = read_cut(read_options(options))
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        ranges = tuple(Range(bound.space, 0, bound.seq) for bound in cut.bounds)
        into = context.options["into"]
        output = "" if into is None else str(Path(into).absolute())
        return Plan(output=output, ranges=ranges, empty=not ranges, cut=cut)

    def run(self, context: Context, plan: Plan) -> dict[str, Any]:
        """Compute the statistics."""
        measure = CutStatistics(context.spark, context.root, context.options["model"], plan.cut)
        with context.spark_progress("measuring"):
            return _statistics(context).figures(measure, context.options["top"])

    def commit(self, context: Context, plan: Plan, result: dict[str, Any]) -> Report:
        """Write the statistics."""
        statistics = _statistics(context)
        if plan.output:
            _write(Path(plan.output), result)
        return Report(
            rows_in=statistics.rows(result),
            rows_out=1,
            output=plan.output or None,
            facts=result,
            sentence=statistics.sentence(result),
        )


def _statistics(context: Context) -> Statistics:
    return get_statistics(context.options["model"])


def _write(path: Path, figures: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    partial.replace(path)


job = Stats()

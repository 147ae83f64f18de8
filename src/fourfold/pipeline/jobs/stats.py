"""The job `stats`: how large the spaces of a store are, and where reading and writing are hot.

    sizes      files, commits, revisions, snapshots, blobs, and the bytes of each
    chains     how many patches a read of a newest state replays: median, 99 of 100, longest
    dedup      bytes of all documents and patches that were written, against those of distinct ones
    hot        the entities with the most revisions

It looks at the whole history each time, in one cut, and changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.cut import Cut, take
from fourfold.pipeline.jobs.shape import Context, Job, Option, Plan, Range, Report
from fourfold.pipeline.jobs.snapshots import chains
from fourfold.pipeline.options import read_options

_TOP: Final = 10


class Stats(Job):
    """See the module."""

    name = "stats"
    summary = "Sizes, chain lengths, duplicates and hot entities of all spaces."
    options = (
        Option("top", "How many hot entities are listed.", kind="number", default=_TOP),
        Option("into", "A file for the figures, as JSON.", kind="path"),
    )

    def target(self, context: Context) -> str:
        into = context.options["into"]
        return "" if into is None else str(Path(into).absolute())

    def plan(self, context: Context) -> Plan:
        top = context.options["top"]
        if type(top) is not int or top < 0:
            raise InvalidInput(f"{top!r} hot entities cannot be listed")
        cut = _cut(context)
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        ranges = tuple(Range(mark.space, 0, mark.seq) for mark in cut.marks)
        return Plan(output=self.target(context), ranges=ranges, empty=not ranges)

    def run(self, context: Context, plan: Plan) -> dict[str, Any]:
        upto = {each.source: each.upto for each in plan.ranges}
        marks = tuple(
            replace(mark, seq=upto[mark.space])
            for mark in _cut(context).marks
            if mark.space in upto
        )
        measured = _Measure(context, Cut(marks))
        with context.spark_progress("measuring"):
            return {
                "spaces": len(marks),
                "file_bytes": sum(mark.bytes for mark in marks),
                **measured.sizes(),
                "chains": measured.chains(),
                "dedup": measured.duplicates(),
                "hot": measured.hot(context.options["top"]),
            }

    def commit(self, context: Context, plan: Plan, result: dict[str, Any]) -> Report:
        del context
        if plan.output:
            _write(Path(plan.output), result)
        return Report(
            rows_in=result["revisions"]["count"],
            rows_out=1,
            output=plan.output or None,
            facts=result,
            sentence=(
                f"{result['spaces']} spaces, {result['entities']} entities, "
                f"{result['revisions']['count']} revisions; longest chain "
                f"{result['chains']['longest']}, "
                f"{result['dedup']['ratio']} times the distinct bytes"
            ),
        )


class _Measure:
    """The figures of one cut."""

    def __init__(self, context: Context, cut: Cut) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        self._f = f
        self._spark = context.spark
        self._root = context.root
        self._cut = cut.token()

    def _table(self, table: str, columns: str) -> Any:
        source = self._spark.read.format("fourfold").option("root", str(self._root))
        source = source.option("cut", self._cut).option("table", table)
        return source.option("columns", columns).load()

    def sizes(self) -> dict[str, Any]:
        f = self._f
        commits = self._table("commits", "seq").count()
        branches = self._table("branches", "branch").count()
        revisions = self._table("revisions", "space,branch,id,data")
        each = revisions.agg(
            f.count("*"),
            f.coalesce(f.sum(f.octet_length("data")), f.lit(0)),
            f.countDistinct("space", "branch", "id"),
        ).first()
        snapshots = self._summed("snapshots", "document", f.octet_length("document"))
        blobs = self._summed("blobs", "size", f.col("size"))
        return {
            "commits": commits,
            "branches": branches,
            "entities": each[2],
            "revisions": {"count": each[0], "bytes": each[1]},
            "snapshots": snapshots,
            "blobs": blobs,
        }

    def _summed(self, table: str, column: str, size: Any) -> dict[str, int]:
        f = self._f
        total = f.coalesce(f.sum(size), f.lit(0))
        row = self._table(table, column).agg(f.count("*"), total).first()
        return {"count": row[0], "bytes": row[1]}

    def chains(self) -> dict[str, int]:
        f = self._f
        found = chains(self._spark, self._root, self._cut)
        row = found.agg(
            f.percentile_approx("patches", [0.5, 0.99]), f.coalesce(f.max("patches"), f.lit(0))
        ).first()
        median, most = row[0] or (0, 0)
        return {"median": median, "p99": most, "longest": row[1]}

    def duplicates(self) -> dict[str, Any]:
        """Texts count as the same within a space, where a history of facts keeps them once."""
        f = self._f
        rows = self._table("revisions", "space,data").where(f.col("data").isNotNull())
        texts = rows.select(
            "space", f.sha1("data").alias("text"), f.octet_length("data").alias("n")
        )
        once = texts.groupBy("space", "text").agg(f.sum("n").alias("all"), f.first("n").alias("n"))
        row = once.agg(*(f.coalesce(f.sum(name), f.lit(0)) for name in ("all", "n"))).first()
        ratio = round(row[0] / row[1], 2) if row[1] else 1.0
        return {"bytes": row[0], "distinct_bytes": row[1], "ratio": ratio}

    def hot(self, top: int) -> list[dict[str, Any]]:
        f = self._f
        rows = self._table("revisions", "space,branch,id")
        counted = rows.groupBy("space", "branch", "id").agg(f.count("*").alias("revisions"))
        ordered = counted.orderBy(f.desc("revisions"), "space", "branch", "id").limit(top)
        return [row.asDict() for row in ordered.collect()]


def _cut(context: Context) -> Cut:
    skip = str(context.skip_bad).lower()
    asked = {"root": str(context.root), "table": "revisions", "skip_bad": skip}
    return take(read_options(asked))


def _write(path: Path, figures: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    partial.replace(path)


job = Stats()

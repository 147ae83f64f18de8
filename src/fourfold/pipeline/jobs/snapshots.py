"""The job `snapshots`: whole documents where a read would have to replay a long chain of patches.

Spark measures every chain and folds the long ones, all of them at once; the space's own writer puts
the documents down. A state at a seq never changes, so a snapshot that was folded from a cut is
right whatever was committed meanwhile. The same snapshot twice is the same row.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fourfold import limits
from fourfold.errors import InvalidInput, WriterLocked
from fourfold.models.documents import Space
from fourfold.pipeline.cut import Cut, read_cut
from fourfold.pipeline.documents import fold
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report
from fourfold.pipeline.options import ALL_BRANCHES, read_options
from fourfold.store import Store, open_store

_Snapshot = tuple[str, str, int, str]
"""Branch, entity, seq, document."""
_MEASURED: Final = (*fold.SHUFFLED_KEY, "seq", "op_index", "op")


class Snapshots(Job):
    """See the module."""

    name = "snapshots"
    summary = "Put down whole documents where reading would replay a long chain of patches."
    options = (
        Option(
            "depth",
            "Patches that make a chain long.",
            kind="number",
            default=limits.SNAPSHOT_REPLAY_MAX,
        ),
    )

    def target(self, context: Context) -> str:
        return f"depth={_depth(context)}"

    def plan(self, context: Context) -> Plan:
        cut = read_cut(read_options(_source(context)))
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        # A space without new commits has had its long chains looked at.
        ranges = tuple(
            Range(mark.space, context.after(mark.space), mark.seq)
            for mark in cut.marks
            if mark.seq > context.after(mark.space)
        )
        return Plan(
            output=str(context.root),
            ranges=ranges,
            facts={"depth": _depth(context)},
            empty=not ranges,
            marks=cut.marks,
        )

    def run(self, context: Context, plan: Plan) -> str:
        marks = {mark.space: mark for mark in plan.marks}
        cut = Cut(tuple(replace(marks[each.source], seq=each.upto) for each in plan.ranges))
        folder = context.staging / "snapshots"
        shutil.rmtree(folder, ignore_errors=True)
        with context.spark_progress("folding"):
            deep = long_chains(context.spark, context.root, cut.token(), plan.facts["depth"])
            asked = {"root": str(context.root), "cut": cut.token(), "branch": ALL_BRANCHES}
            rows = fold.visible_operations(context.spark, **asked)
            wanted = rows.join(
                deep.select(*fold.SHUFFLED_KEY), list(fold.SHUFFLED_KEY), "left_semi"
            )
            fold.newest(wanted).write.parquet(str(folder))
        return str(folder)

    def commit(self, context: Context, plan: Plan, result: str) -> Report:
        made: dict[str, int] = {}
        locked: set[str] = set()
        with open_store(context.root) as store:
            for did, snapshots in _staged(Path(result)):
                if did in locked:
                    continue
                try:
                    made[did] = made.get(did, 0) + _keep(store, did, snapshots)
                except WriterLocked as error:
                    if not context.skip_bad:
                        raise
                    locked.add(did)
                    context.skip(did, error.message)
        count = sum(made.values())
        return Report(
            rows_in=sum(each.upto - each.after for each in plan.ranges),
            rows_out=count,
            facts={"snapshots": count, "spaces": len(made), "depth": plan.facts["depth"]},
            sentence=f"{count} snapshots in {len(made)} spaces",
        )


def long_chains(spark: Any, root: Path, cut: str, depth: int) -> Any:
    """The entities of each branch whose newest state takes at least `depth` patches to reach, and
    how many.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return chains(spark, root, cut).where(f.col("patches") >= depth)


def chains(spark: Any, root: Path, cut: str) -> Any:
    """For each entity of each branch, how many patches follow the last whole document on it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    source = spark.read.format("fourfold").option("root", str(root)).option("cut", cut)
    rows = source.option("table", "operations").option("columns", ",".join(_MEASURED)).load()
    last = f.max_by("op", f.struct("seq", "op_index"))
    patches = f.sum((f.col("op") == "patch").cast("long"))
    return (
        fold.relevant(rows)
        .groupBy(*fold.SHUFFLED_KEY)
        .agg(patches.alias("patches"), last.alias("last"))
    )


def _depth(context: Context) -> int:
    depth = context.options["depth"]
    if type(depth) is not int or depth < 1:
        raise InvalidInput(f"a chain of {depth!r} patches is no length", hint="At least 1.")
    return depth


def _source(context: Context) -> dict[str, str]:
    return {
        "root": str(context.root),
        "table": "operations",
        "skip_bad": str(context.skip_bad).lower(),
    }


def _staged(folder: Path) -> Iterator[tuple[str, list[_Snapshot]]]:
    """What was folded, space by space, a bounded part at a time."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(limits.MAINTENANCE_PAGE_ROWS):
                spaces: dict[str, list[_Snapshot]] = {}
                for row in batch.to_pylist():
                    if row["op"] == "patch":
                        snapshot = (row["branch"], row["id"], row["seq"], row["document"])
                        spaces.setdefault(row["space"], []).append(snapshot)
                yield from spaces.items()


def _keep(store: Store, did: str, snapshots: list[_Snapshot]) -> int:
    space: Space = store.space(did)
    with space.database.write() as txn:
        for snapshot in snapshots:
            space.history_kind.keep_snapshot(txn, *snapshot)
    return len(snapshots)


job = Snapshots()

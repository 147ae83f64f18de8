"""The job `snapshots`: store whole documents where a read would replay many patches.

Spark measures every chain and folds the long ones; the space's own writer stores the documents. A
state at a seq never changes, so a snapshot of a cut is correct whatever was committed meanwhile,
and storing it twice results in the same row. A space that was deleted or created again since the
cut gets none of them, and has its own watermark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fourfold import limits
from fourfold.errors import InvalidInput, SequenceRegression, WriterLocked
from fourfold.models.documents import Space
from fourfold.pipeline.cut import Cut, read_cut
from fourfold.pipeline.documents import spark_fold
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame
from fourfold.query.documents.lines import ALL_BRANCHES
from fourfold.store import Store, open_store

_Snapshot = tuple[str, str, int, str]
"""Branch, entity, seq, document."""
_MEASURED: Final = (*spark_fold.SHUFFLED_KEY, "seq", "op_index", "op")


class Snapshots(Job):
    """Store snapshots for long chains of patches."""

    name = "snapshots"
    summary = "Store whole documents where reading would replay a long chain of patches."
    options = (
        Option(
            "depth",
            "Minimum number of patches of a long chain.",
            kind="number",
            default=limits.SNAPSHOT_REPLAY_MAX,
        ),
    )

    def target(self, context: Context) -> str:
        """Return the depth, which has its own watermarks."""
        return f"depth={_depth(context)}"

    def plan(self, context: Context) -> Plan:
        """List the spaces with new commits."""
        cut = read_cut(read_options(_source(context)))
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        # A space without new commits has no new long chains.
        ranges = tuple(
            Range(bound.space, after, bound.seq, bound.file_id)
            for bound in cut.bounds
            if bound.seq > (after := context.after(bound.space, bound.file_id))
        )
        return Plan(
            output=str(context.root),
            ranges=ranges,
            facts={"depth": _depth(context)},
            empty=not ranges,
            cut=cut,
        )

    def run(self, context: Context, plan: Plan) -> str:
        """Fold the long chains to staging."""
        changed = {range_.source for range_ in plan.ranges}
        cut = Cut(tuple(bound for bound in plan.cut.bounds if bound.space in changed))
        folder = context.staging / "snapshots"
        shutil.rmtree(folder, ignore_errors=True)
        with context.spark_progress("folding"):
            deep = long_chains(context.spark, context.root, cut, plan.facts["depth"])
            options = {"root": str(context.root), "cut": cut.token(), "branch": ALL_BRANCHES}
            rows = spark_fold.visible_operations(context.spark, **options)
            long_rows = rows.join(
                deep.select(*spark_fold.SHUFFLED_KEY), list(spark_fold.SHUFFLED_KEY), "left_semi"
            )
            spark_fold.newest(long_rows).write.parquet(str(folder))
        return str(folder)

    def commit(self, context: Context, plan: Plan, result: str) -> Report:
        """Store the folded documents."""
        counts: dict[str, int] = {}
        file_ids = {bound.space: bound.file_id for bound in plan.cut.bounds}
        left: set[str] = set()
        with open_store(context.root) as store:
            for did, snapshots in _staged(Path(result)):
                if did in left:
                    continue
                try:
                    space = _open_space(store, did, file_ids[did])
                    counts[did] = counts.get(did, 0) + _store_snapshots(space, snapshots)
                except (SequenceRegression, WriterLocked) as error:
                    if not context.skip_bad:
                        raise
                    left.add(did)
                    context.skip(did, error.message)
        count = sum(counts.values())
        return Report(
            rows_in=sum(range_.upto - range_.after for range_ in plan.ranges),
            rows_out=count,
            facts={"snapshots": count, "spaces": len(counts), "depth": plan.facts["depth"]},
            sentence=f"{count} snapshots in {len(counts)} spaces",
        )


def long_chains(spark: Any, root: Path, cut: Cut, depth: int) -> Any:
    """Return the entities with at least `depth` patches, and their number."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return chains(spark, root, cut).where(f.col("patches") >= depth)


def chains(spark: Any, root: Path, cut: Cut) -> Any:
    """Return the number of patches after the last whole document of each entity."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    options = {"root": str(root), "table": "operations", "columns": ",".join(_MEASURED)}
    rows = frame(spark, options, cut)
    last = f.max_by("op", f.struct("seq", "op_index"))
    patches = f.sum((f.col("op") == "patch").cast("long"))
    return (
        spark_fold.relevant(rows)
        .groupBy(*spark_fold.SHUFFLED_KEY)
        .agg(patches.alias("patches"), last.alias("last"))
    )


def _depth(context: Context) -> int:
    depth = context.options["depth"]
    if type(depth) is not int or depth < 1:
        raise InvalidInput(f"depth must be a positive integer, got {depth!r}")
    return depth


def _source(context: Context) -> dict[str, str]:
    return {
        "root": str(context.root),
        "table": "operations",
        "skip_bad": str(context.skip_bad).lower(),
    }


def _staged(folder: Path) -> Iterator[tuple[str, list[_Snapshot]]]:
    """Yield the folded documents by space, a bounded number at a time."""
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


def _open_space(store: Store, did: str, file_id: str) -> Space:
    """Open a space, which must still be the file of the cut."""
    if not store.has_space(did) or (space := store.space(did)).database.identity() != file_id:
        raise SequenceRegression(
            f"space {did!r} was deleted or created again during the run",
            hint="Run the job again.",
        )
    return space


def _store_snapshots(space: Space, snapshots: list[_Snapshot]) -> int:
    with space.database.write() as txn:
        for snapshot in snapshots:
            space.history_kind.keep_snapshot(txn, *snapshot)
    return len(snapshots)


job = Snapshots()

"""Statistics of documents: the sizes of the spaces, and where reads and writes are hot.

sizes      files, commits, revisions, snapshots, blobs, and the bytes of each
chains     patches that a read of a newest state replays: median, 99th percentile, longest
dedup      bytes of all documents and patches that were written, against those of distinct ones
hot        the entities with the most revisions
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.pipeline.jobs.snapshots import chains
from fourfold.pipeline.jobs.stats import CutStatistics, Statistics


def figures(measure: CutStatistics, top: int) -> dict[str, Any]:
    """Return the statistics."""
    documents = _Documents(measure)
    return {
        "spaces": len(measure.cut.bounds),
        "file_bytes": measure.file_bytes,
        **documents.sizes(),
        "chains": documents.chains(),
        "dedup": documents.duplicates(),
        "hot": documents.hot(top),
    }


def sentence(figures: dict[str, Any]) -> str:
    """Return a one-line summary."""
    return (
        f"{figures['spaces']} spaces, {figures['entities']} entities, "
        f"{figures['revisions']['count']} revisions; longest chain {figures['chains']['longest']}, "
        f"{figures['dedup']['ratio']} times the distinct bytes"
    )


def rows(figures: dict[str, Any]) -> int:
    """Return the number of log rows that were counted."""
    return int(figures["revisions"]["count"])


class _Documents:
    """The statistics of one cut."""

    def __init__(self, measure: CutStatistics) -> None:
        self._f = measure.functions
        self._measure = measure
        self._table = measure.table

    def sizes(self) -> dict[str, Any]:
        f = self._f
        commits = self._table("commits", "seq").count()
        branches = self._table("branches", "branch").count()
        revisions = self._table("revisions", "space,branch,id,data")
        totals = revisions.agg(
            f.count("*"),
            f.coalesce(f.sum(f.octet_length("data")), f.lit(0)),
            f.countDistinct("space", "branch", "id"),
        ).first()
        snapshots = self._measure.summed("snapshots", "document", f.octet_length("document"))
        blobs = self._measure.summed("blobs", "size", f.col("size"))
        return {
            "commits": commits,
            "branches": branches,
            "entities": totals[2],
            "revisions": {"count": totals[0], "bytes": totals[1]},
            "snapshots": snapshots,
            "blobs": blobs,
        }

    def chains(self) -> dict[str, int]:
        f = self._f
        measure = self._measure
        patch_counts = chains(measure.spark, measure.root, measure.cut)
        row = patch_counts.agg(
            f.percentile_approx("patches", [0.5, 0.99]), f.coalesce(f.max("patches"), f.lit(0))
        ).first()
        median, p99 = row[0] or (0, 0)
        return {"median": median, "p99": p99, "longest": row[1]}

    def duplicates(self) -> dict[str, Any]:
        """Compare all texts with the distinct ones of each space, as a fact history stores them."""
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


STATISTICS: Final = Statistics("revisions", figures, sentence, rows)

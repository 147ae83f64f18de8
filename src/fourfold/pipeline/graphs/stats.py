"""Statistics of graphs: the size of apps, how often objects change, and the lag of peers.

apps       how many, with the rows and bytes of all of them
kinds      rows, objects and current objects of each kind
numbers    how many seqs were assigned
peers      the greatest lag of a peer
hot        the apps with the most rows
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.models.graphs.records import KINDS
from fourfold.pipeline.jobs.stats import CutStatistics, Statistics


def figures(measure: CutStatistics, top: int) -> dict[str, Any]:
    """Return the statistics."""
    f = measure.functions
    apps = measure.table("apps", "app,rows,bytes")
    count, rows, size = apps.agg(
        f.count("*"), f.coalesce(f.sum("rows"), f.lit(0)), f.coalesce(f.sum("bytes"), f.lit(0))
    ).first()
    peers = measure.table("peers", "peer_id,lag,waiting").agg(
        f.countDistinct("peer_id"),
        f.coalesce(f.max("lag"), f.lit(0)),
        f.coalesce(f.max("waiting"), f.lit(0)),
    )
    peer_count, lag, waiting = peers.first()
    hot = apps.select("app", "rows", "bytes").orderBy(f.desc("rows"), "app").limit(top)
    return {
        "apps": count,
        "rows": rows,
        "bytes": size,
        "file_bytes": measure.file_bytes,
        "numbers": sum(bound.seq for bound in measure.cut.bounds),
        "kinds": _kinds(measure),
        "peers": {"count": peer_count, "lag": lag, "waiting": waiting},
        "hot": [row.asDict() for row in hot.collect()],
    }


def sentence(figures: dict[str, Any]) -> str:
    """Return a one-line summary."""
    return (
        f"{figures['apps']} apps, {figures['rows']} rows in {figures['numbers']} transactions; "
        f"{figures['peers']['count']} peers, maximum lag {figures['peers']['lag']}"
    )


def rows(figures: dict[str, Any]) -> int:
    """Return the number of log rows that were counted."""
    return int(figures["rows"])


def _kinds(measure: CutStatistics) -> dict[str, dict[str, int]]:
    f = measure.functions
    written = measure.table("changes", "root,app_id,kind,object_id").groupBy("kind")
    counted = written.agg(
        f.count("*").alias("rows"), f.countDistinct("root", "app_id", "object_id").alias("objects")
    )
    current = measure.table("current", "kind").groupBy("kind").count()
    kinds: dict[str, dict[str, int]] = {
        kind: {"rows": 0, "objects": 0, "current": 0} for kind in KINDS
    }
    for row in counted.collect():
        kinds[row["kind"]] |= {"rows": row["rows"], "objects": row["objects"]}
    for row in current.collect():
        kinds[row["kind"]]["current"] = row["count"]
    return kinds


STATISTICS: Final = Statistics("envelopes", figures, sentence, rows)

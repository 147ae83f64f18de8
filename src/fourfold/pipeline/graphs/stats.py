"""The figures of graphs: what the apps hold, how often objects change, how far peers are behind.

apps       how many, with the rows and bytes of all of them
kinds      rows, objects and current objects of each kind
numbers    how many were given out
peers      how far the one that is furthest behind is
hot        the apps with the most rows
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.models.graphs.records import KINDS
from fourfold.pipeline.jobs.stats import Measure

TABLE: Final = "envelopes"


def figures(measure: Measure, top: int) -> dict[str, Any]:
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
    known, lag, waiting = peers.first()
    hot = apps.select("app", "rows", "bytes").orderBy(f.desc("rows"), "app").limit(top)
    return {
        "apps": count,
        "rows": rows,
        "bytes": size,
        "file_bytes": measure.file_bytes,
        "numbers": sum(mark.seq for mark in measure.cut.marks),
        "kinds": _kinds(measure),
        "peers": {"count": known, "lag": lag, "waiting": waiting},
        "hot": [row.asDict() for row in hot.collect()],
    }


def sentence(found: dict[str, Any]) -> str:
    return (
        f"{found['apps']} apps, {found['rows']} rows under {found['numbers']} numbers; "
        f"{found['peers']['count']} peers, the last {found['peers']['lag']} numbers behind"
    )


def rows(found: dict[str, Any]) -> int:
    """How many rows of the log the figures are about."""
    return int(found["rows"])


def _kinds(measure: Measure) -> dict[str, dict[str, int]]:
    f = measure.functions
    written = measure.table("changes", "root,app_id,kind,object_id").groupBy("kind")
    counted = written.agg(
        f.count("*").alias("rows"), f.countDistinct("root", "app_id", "object_id").alias("objects")
    )
    current = measure.table("current", "kind").groupBy("kind").count()
    found: dict[str, dict[str, int]] = {
        kind: {"rows": 0, "objects": 0, "current": 0} for kind in KINDS
    }
    for row in counted.collect():
        found[row["kind"]] |= {"rows": row["rows"], "objects": row["objects"]}
    for row in current.collect():
        found[row["kind"]]["current"] = row["count"]
    return found

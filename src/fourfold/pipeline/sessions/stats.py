"""Statistics of sessions: their sizes, the outcomes of their turns, and usage.

sizes       sessions, events, messages, evals, heads, edges, payloads, and the bytes of each
turns       count by outcome, with tokens and cost
payloads    how often a payload is referenced: what storing each once saves
hot         the sessions with the most events
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.pipeline.jobs.stats import CutStatistics, Statistics

_REFERENCE: Final = r'\{"~ref":\{"id":"(sha256:[0-9a-f]{64})"'


def figures(measure: CutStatistics, top: int) -> dict[str, Any]:
    """Return the statistics."""
    f = measure.functions
    sessions = measure.table("sessions", "deleted,events").agg(
        f.count("*"), f.count("deleted"), f.coalesce(f.max("events"), f.lit(0))
    )
    session_count, deleted, longest = sessions.first()
    return {
        "sessions": session_count - deleted,
        "deleted": deleted,
        "longest": longest,
        "file_bytes": measure.file_bytes,
        "events": measure.summed("events", "body", f.octet_length("body")),
        "types": _types(measure),
        "messages": measure.summed("messages", "message", f.octet_length("message")),
        "heads": measure.table("heads", "head").count(),
        "edges": measure.table("edges", "edge").count(),
        "turns": _turns(measure),
        "payloads": _payloads(measure),
        "hot": _hot(measure, top),
    }


def sentence(figures: dict[str, Any]) -> str:
    """Return a one-line summary."""
    turns = sum(outcome["count"] for outcome in figures["turns"])
    return (
        f"{figures['sessions']} sessions, {figures['events']['count']} events, {turns} turns; "
        f"longest session {figures['longest']} events"
    )


def rows(figures: dict[str, Any]) -> int:
    """Return the number of log rows that were counted."""
    return int(figures["events"]["count"])


def _types(measure: CutStatistics) -> dict[str, int]:
    counted = measure.table("events", "type").groupBy("type").count().orderBy("type")
    return {row["type"]: row["count"] for row in counted.collect()}


def _turns(measure: CutStatistics) -> list[dict[str, Any]]:
    f = measure.functions
    turns = measure.table("turns", "outcome,steps,tokens,cost").groupBy("outcome")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("steps", "tokens", "cost")]
    totals = turns.agg(f.count("*").alias("count"), *sums).orderBy("outcome")
    return [row.asDict() for row in totals.collect()]


def _payloads(measure: CutStatistics) -> dict[str, Any]:
    f = measure.functions
    stored = measure.table("payloads", "hash,size,is_file")
    references = f.regexp_extract_all("body", f.lit(_REFERENCE), 1)
    refs = measure.table("events", "body").select(f.explode(references).alias("hash"))
    counts = refs.groupBy("hash").count()
    joined = stored.join(counts, "hash", "left").withColumn("count", f.coalesce("count", f.lit(0)))
    row = joined.agg(
        f.count("*"),
        f.coalesce(f.sum("size"), f.lit(0)),
        f.count_if("is_file"),
        f.coalesce(f.sum("count"), f.lit(0)),
        f.coalesce(f.sum(f.col("count") * f.col("size")), f.lit(0)),
        f.count_if(f.col("count") == 0),
    ).first()
    names = ("count", "bytes", "files", "references", "referred_bytes", "from_no_event")
    return dict(zip(names, row, strict=True))


def _hot(measure: CutStatistics, top: int) -> list[dict[str, Any]]:
    f = measure.functions
    existing = measure.table("sessions", "session,events,deleted").where(f.col("deleted").isNull())
    ordered = existing.select("session", "events").orderBy(f.desc("events"), "session").limit(top)
    return [row.asDict() for row in ordered.collect()]


STATISTICS: Final = Statistics("events", figures, sentence, rows)

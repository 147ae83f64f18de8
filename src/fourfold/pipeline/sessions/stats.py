"""The figures of sessions: how large they are, what their turns came to, and what they used up.

sizes       sessions, events, messages, evals, heads, edges, payloads, and the bytes of each
turns       how many ended how, with the tokens and the cost of each outcome
payloads    how often a payload is referred to: what storing each once saves
hot         the sessions with the most events
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.pipeline.jobs.stats import Measure

TABLE: Final = "events"
_REFERENCE: Final = r'\{"~ref":\{"id":"(sha256:[0-9a-f]{64})"'


def figures(measure: Measure, top: int) -> dict[str, Any]:
    f = measure.functions
    sessions = measure.table("sessions", "deleted,events").agg(
        f.count("*"), f.count("deleted"), f.coalesce(f.max("events"), f.lit(0))
    )
    known, deleted, longest = sessions.first()
    return {
        "sessions": known - deleted,
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


def sentence(found: dict[str, Any]) -> str:
    turns = sum(each["count"] for each in found["turns"])
    return (
        f"{found['sessions']} sessions, {found['events']['count']} events, {turns} turns; "
        f"longest session {found['longest']} events"
    )


def rows(found: dict[str, Any]) -> int:
    """How many rows of the log the figures are about."""
    return int(found["events"]["count"])


def _types(measure: Measure) -> dict[str, int]:
    counted = measure.table("events", "type").groupBy("type").count().orderBy("type")
    return {row["type"]: row["count"] for row in counted.collect()}


def _turns(measure: Measure) -> list[dict[str, Any]]:
    f = measure.functions
    turns = measure.table("turns", "outcome,steps,tokens,cost").groupBy("outcome")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("steps", "tokens", "cost")]
    told = turns.agg(f.count("*").alias("count"), *sums).orderBy("outcome")
    return [row.asDict() for row in told.collect()]


def _payloads(measure: Measure) -> dict[str, Any]:
    f = measure.functions
    stored = measure.table("payloads", "hash,size,is_file")
    found = f.regexp_extract_all("body", f.lit(_REFERENCE), 1)
    refs = measure.table("events", "body").select(f.explode(found).alias("hash"))
    often = refs.groupBy("hash").count()
    each = stored.join(often, "hash", "left").withColumn("count", f.coalesce("count", f.lit(0)))
    row = each.agg(
        f.count("*"),
        f.coalesce(f.sum("size"), f.lit(0)),
        f.count_if("is_file"),
        f.coalesce(f.sum("count"), f.lit(0)),
        f.coalesce(f.sum(f.col("count") * f.col("size")), f.lit(0)),
        f.count_if(f.col("count") == 0),
    ).first()
    names = ("count", "bytes", "files", "references", "referred_bytes", "from_no_event")
    return dict(zip(names, row, strict=True))


def _hot(measure: Measure, top: int) -> list[dict[str, Any]]:
    f = measure.functions
    known = measure.table("sessions", "session,events,deleted").where(f.col("deleted").isNull())
    ordered = known.select("session", "events").orderBy(f.desc("events"), "session").limit(top)
    return [row.asDict() for row in ordered.collect()]

"""Statistics of streams: how many there are, their records, and which are the largest.

streams     how many, how many of them are closed or forks, and the producers of all
records     all of them with their bytes; `published` are those that are in segments
hot         the streams with the most records
"""

from __future__ import annotations

from typing import Any, Final

from fourfold.pipeline.jobs.stats import CutStatistics, Statistics


def figures(measure: CutStatistics, top: int) -> dict[str, Any]:
    """Return the statistics."""
    f = measure.functions
    streams = measure.table("streams", "stream,closed,forked_from").agg(
        f.count("*"), f.count_if("closed"), f.count("forked_from")
    )
    count, closed, forks = streams.first()
    records = measure.table("records", "stream,size,position")
    by_stream = records.groupBy("stream").agg(
        f.count("*").alias("records"),
        f.sum("size").alias("bytes"),
        f.count_if(f.col("position").isNull()).alias("published"),
    )
    sums = (f.coalesce(f.sum(name), f.lit(0)) for name in ("records", "bytes", "published"))
    written, size, published = by_stream.agg(*sums).first()
    hot = by_stream.orderBy(f.desc("records"), "stream").limit(top)
    return {
        "streams": {"count": count, "closed": closed, "forks": forks},
        "records": {"count": written, "bytes": size, "published": published},
        "producers": measure.table("producers", "stream").count(),
        "file_bytes": measure.file_bytes,
        "hot": [row.asDict() for row in hot.collect()],
    }


def sentence(figures: dict[str, Any]) -> str:
    """Return a one-line summary."""
    records = figures["records"]
    return (
        f"{figures['streams']['count']} streams, {records['count']} records of "
        f"{records['bytes']} bytes, {records['published']} of them published"
    )


def rows(figures: dict[str, Any]) -> int:
    """Return the number of records that were counted."""
    return int(figures["records"]["count"])


STATISTICS: Final = Statistics("records", figures, sentence, rows)

"""Reads with Spark from published files, compared with the rows that SQLite has."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime

from fourfold.pipeline import cut, table_files
from fourfold.pipeline.archive_plan import plan_archive
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame


def publish(store):
    report = store.publish()
    report.raise_if_failed()
    return report.point


def options_of(root, table, model="documents", **more):
    model = "sessions" if table == "events" else model
    texts = {name: str(value) for name, value in more.items()}
    return {"root": str(root), "table": table, "model": model, **texts}


def archived(root, table="revisions", **more):
    """Return the databases that a read takes from the archive, and its plan."""
    options = read_options(options_of(root, table, **more))
    plan = plan_archive(cut.read_cut(options).bounds, options)
    return plan and {bound.space for bound in plan.archived}


def live_rows(options):
    """Return the rows that SQLite has, by the scan that streaming queries use."""
    parsed = read_options(options)
    files = table_files.table_files(cut.read_cut(parsed), parsed)
    rows = [
        row
        for part in files.parts
        for batch in table_files.read_part(part)
        for row in batch.to_pylist()
    ]
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def plain(value):
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def spark_rows(spark, reads):
    """Return the rows of several reads, in one Spark job."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - it needs pyspark

    frames = []
    for number, options in enumerate(reads):
        rows = frame(spark, options)
        times = {name for name, kind in rows.dtypes if kind == "timestamp"}
        columns = [
            f.unix_micros(name).alias(name) if name in times else f.col(name)
            for name in rows.columns
        ]
        text = f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})
        frames.append(rows.select(f.lit(number).alias("number"), text.alias("text")))
    joined = frames[0]
    for other in frames[1:]:
        joined = joined.union(other)
    result = [[] for _ in reads]
    for number, text in joined.collect():
        result[number].append(json.loads(text))
    return result


def micros(row, times):
    def changed(value):
        if not isinstance(value, str) or not value.endswith("+00:00"):
            return value
        return round(datetime.fromisoformat(value).timestamp() * 1_000_000)

    return {name: changed(value) if name in times else value for name, value in row.items()}


def same(spark, reads):
    """Assert that Spark returns the rows of the live files for each read."""
    for options, rows in zip(reads, spark_rows(spark, reads), strict=True):
        columns = read_options(options).table.columns
        times = {column.name for column in columns if column.type == "timestamp"}
        expected = [micros(row, times) for row in live_rows(options)]
        shown, wanted = texts_of(rows), texts_of(expected)
        differences = sorted(set(shown) ^ set(wanted))[:2]
        assert shown == wanted, (options, len(shown), len(wanted), differences)


def texts_of(rows):
    return sorted(repr(sorted(row.items())) for row in rows)

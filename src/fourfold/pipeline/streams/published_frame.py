"""Read published segments of a local folder with Spark's own Parquet reader.

Only the objects of the cut are read, under the names and sizes in the manifests. Spark takes both
from a log of files, as its streaming sinks write it beside theirs: so it lists no folder, and
checks no path. It reads the log when the DataFrame is created, so the folder of the log is
temporary.

Rows of a segment name their stream, so most segments are read as they are, one scan for each
content type. The rows of others are joined with a small table of files: segments of which only some
records belong to the stream, those that a fork shares with its source, and those of older versions,
whose rows do not name the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from fourfold import limits
from fourfold.objects import FolderStore
from fourfold.pipeline.streams.published_cut import ObjectRecords
from fourfold.pipeline.streams.published_scan import is_text
from fourfold.query.streams.promotion import Promote
from fourfold.query.tables import arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTENT_TYPES_MAX: Final = 16
"""Content types that get a scan of their own; with more of them, all files are joined."""

_LOG: Final = "_spark_metadata"
_RECORD: Final = (
    "offset bigint, append_time timestamp, routing_key binary, payload binary, headers binary"
)


def published_frame(
    spark: SparkSession,
    objects: FolderStore,
    parts: Sequence[ObjectRecords],
    addresses: Callable[[Sequence[str]], list[str]],
    *,
    until_ms: int | None = None,
    promote: Promote | None = None,
) -> DataFrame:
    """Return the records of these parts, of which there is at least one.

    `addresses` returns where executors find files. With `until_ms`, later records are left out.
    With `promote`, payloads are promoted in Python, if a query uses them.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    def scan(selected: Sequence[ObjectRecords], schema: str) -> DataFrame:
        files = {part.held.key: part.held.size for part in selected}
        places = addresses([str(objects.path(key)) for key in files])
        return _read_listed(spark, schema, dict(zip(places, files.values(), strict=True)))

    whole = [part for part in parts if part.whole and part.held.label == part.stream]
    if len({part.content_type for part in whole}) > CONTENT_TYPES_MAX:
        whole = []
    frames = []
    for content_type, group in groupby(sorted(whole, key=_content_type), _content_type):
        selected = list(group)
        rows = scan(selected, f"{_RECORD}, stream string")
        rows = rows.withColumn("content_type", F.lit(content_type))
        rows = rows.withColumn("textual", F.lit(is_text(content_type)))
        frames.append(rows.join(_generations(spark, selected), "stream", "left"))
    described = set(whole)
    others = [part for part in parts if part not in described]
    if others:
        rows = scan(others, _RECORD).withColumn("file", F.col("_metadata.file_name"))
        rows = rows.join(F.broadcast(_table_of_parts(spark, others)), "file")
        frames.append(rows.where("offset >= low and offset < high"))
    return reduce(
        lambda one, other: one.unionByName(other),
        [_shaped(frame, until_ms, promote) for frame in frames],
    )


def _read_listed(spark: SparkSession, schema: str, files: dict[str, int]) -> DataFrame:
    """Return the rows of Parquet files, given by address and size."""
    with TemporaryDirectory(prefix="fourfold-files-") as folder:
        log = Path(folder) / _LOG
        log.mkdir()
        lines = ("v1", *(_log_line(address, size) for address, size in files.items()))
        (log / "0").write_text("\n".join(lines), encoding="utf-8")
        # Names of folders say nothing about the rows.
        source = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return source.parquet(f"file://{folder}")


def _log_line(address: str, size: int) -> str:
    entry = {
        "path": quote(address, safe="/:[]"),
        "size": size,
        "isDir": False,
        "modificationTime": 0,
        "blockReplication": 1,
        "blockSize": 128 * limits.MIB,
        "action": "add",
    }
    return json.dumps(entry)


def _content_type(part: ObjectRecords) -> str:
    return part.content_type


def _shaped(frame: DataFrame, until_ms: int | None, promote: Promote | None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    if until_ms is not None:
        frame = frame.where(F.col("append_time") <= F.timestamp_millis(F.lit(until_ms)))
    if promote is not None:
        promoted = F.udf(promote, "binary", useArrow=False)("stream", "offset", "payload")
        frame = frame.withColumn("payload", promoted)
    return frame.select(*_columns())


def _columns() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    payload = F.col("payload")
    return [
        F.col("stream"),
        F.col("offset"),
        F.col("append_time").alias("time"),
        payload,
        F.when(F.col("textual"), payload.cast("string")).alias("text"),
        F.octet_length(payload).cast("bigint").alias("size"),
        F.col("routing_key").cast("string").alias("routing_key"),
        F.col("headers").cast("string").alias("headers"),
        F.col("content_type"),
        F.col("generation"),
    ]


def _generations(spark: SparkSession, parts: Sequence[ObjectRecords]) -> DataFrame:
    """Return the generation of each stream.

    It is grouped, so Spark knows that there is one row for each stream, and drops the join from a
    query that does not use the generation.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    generations = {part.stream: part.generation for part in parts}
    pa = arrow()
    columns = [pa.array(generations, pa.string()), pa.array(generations.values(), pa.int64())]
    table = spark.createDataFrame(pa.Table.from_arrays(columns, ["stream", "generation"]))
    return table.groupBy("stream").agg(F.max("generation").alias("generation"))


def _table_of_parts(spark: SparkSession, parts: Sequence[ObjectRecords]) -> DataFrame:
    """Return the files of parts, each with what the manifests say about its records."""
    rows = [
        {
            "file": part.held.key.rpartition("/")[2],
            "stream": part.stream,
            "content_type": part.content_type,
            "textual": is_text(part.content_type),
            "generation": part.generation,
            "low": part.low,
            "high": part.high,
        }
        for part in parts
    ]
    return spark.createDataFrame(arrow().Table.from_pylist(rows))

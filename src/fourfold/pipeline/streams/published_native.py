"""Read published segments of a local folder with Spark's own Parquet reader.

Only the objects in the cut are read, under the names in the manifests: see `PublishedFiles.java`.
It is the reader of `spark.read.parquet`, so it is as fast, prunes columns, and skips row groups by
their statistics; and a condition on `stream` or `content_type` skips files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fourfold.objects import FolderStore
from fourfold.pipeline import driver
from fourfold.pipeline.streams.published_cut import ObjectRecords
from fourfold.pipeline.streams.published_scan import is_text
from fourfold.query.streams.promotion import Promote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_STORED: Final = (
    "offset bigint, append_time timestamp, routing_key binary, flags int, payload binary, "
    "headers binary"
)
_CONSTANT: Final = (
    "stream string, content_type string, generation bigint, low bigint, high bigint, "
    "textual boolean"
)
_CLASS: Final = "org.fourfold.PublishedFiles"
_compiled: dict[int, Any] = {}


def frame(
    spark: SparkSession,
    objects: FolderStore,
    parts: Iterable[ObjectRecords],
    until_ms: int | None,
    *,
    bounded: bool,
    promote: Promote | None = None,
) -> DataFrame:
    """Return the records of these parts.

    With `bounded`, records outside the bounds of a part are filtered out. With `promote`, payloads
    are promoted in Python, if a query uses them.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    description = "\n".join(_lines(objects, parts))
    records = driver.frame(spark, _method(spark), description, _STORED, _CONSTANT)
    if bounded:
        records = records.where("offset >= low and offset < high")
    if until_ms is not None:
        records = records.where(F.col("append_time") <= F.timestamp_millis(F.lit(until_ms)))
    if promote is not None:
        promoted = F.udf(promote, "binary", useArrow=False)("stream", "offset", "payload")
        records = records.withColumn("payload", promoted)
    return records.select(*_columns())


def _columns() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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


def _lines(objects: FolderStore, parts: Iterable[ObjectRecords]) -> Iterator[str]:
    """Yield the description of the files as lines: one call per file would be slower than reading
    it.
    """
    groups: dict[tuple[str, str], list[ObjectRecords]] = {}
    for part in parts:
        folder = part.held.key.rpartition("/")[0]
        groups.setdefault((part.stream, folder), []).append(part)
    for (stream, _), group in groups.items():
        paths = [objects.path(part.held.key) for part in group]
        first, last = group[0], group[-1]
        head = (
            len(group),
            _encoded(str(paths[0].parent)),
            _encoded(stream),
            _encoded(first.content_type),
            first.generation,
            first.low,
            last.high,
            str(is_text(first.content_type)).lower(),
        )
        yield " ".join(map(str, head))
        for path, part in zip(paths, group, strict=True):
            yield f"{path.name} {part.held.size}"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _method(spark: SparkSession) -> Any:
    """Return the method that creates the relation, compiled once per JVM."""
    gateway = driver.gateway(spark)
    key = id(gateway)
    if key not in _compiled:
        source = files(__package__).joinpath("PublishedFiles.java").read_text(encoding="utf-8")
        loaded = driver.compile_source(gateway.jvm, source).getClassLoader().loadClass(_CLASS)
        _compiled.clear()
        _compiled[key] = driver.method(loaded, "frame")
    return _compiled[key]

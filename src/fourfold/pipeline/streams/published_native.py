"""Published segments of a local folder through Spark's own Parquet reader.

Exactly the objects that the cut names are read, under the names that the manifests say: see
`PublishedFiles.java`. It is the reader that `spark.read.parquet` uses, so it is as fast, prunes
columns, and skips row groups by their statistics; and a condition on `stream` or `content_type`
leaves out files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fourfold.objects import FolderStore
from fourfold.pipeline import driver
from fourfold.pipeline.streams.fold import Promote
from fourfold.pipeline.streams.published_cut import Part
from fourfold.pipeline.streams.published_scan import is_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_STORED: Final = (
    "offset bigint, append_time timestamp, routing_key binary, flags int, payload binary"
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
    parts: Iterable[Part],
    until_ms: int | None,
    *,
    bounded: bool,
    promote: Promote | None = None,
) -> DataFrame:
    """The records of these parts. With `bounded`, some objects have records that are not wanted.
    With `promote`, payloads are what it makes of them, in Python, where a query uses them.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    told = "\n".join(_lines(objects, parts))
    found = driver.frame(spark, _method(spark), told, _STORED, _CONSTANT)
    if bounded:
        found = found.where("offset >= low and offset < high")
    if until_ms is not None:
        found = found.where(F.col("append_time") <= F.timestamp_millis(F.lit(until_ms)))
    if promote is not None:
        made = F.udf(promote, "binary", useArrow=False)("stream", "offset", "payload")
        found = found.withColumn("payload", made)
    return found.select(*_columns())


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
        F.col("content_type"),
        F.col("generation"),
    ]


def _lines(objects: FolderStore, parts: Iterable[Part]) -> Iterator[str]:
    """What the JVM is told, as one text: a call for each file would take longer than to read it."""
    found: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        folder = part.held.key.rpartition("/")[0]
        found.setdefault((part.stream, folder), []).append(part)
    for (stream, _), own in found.items():
        paths = [objects.path(part.held.key) for part in own]
        first, last = own[0], own[-1]
        head = (
            len(own),
            _encoded(str(paths[0].parent)),
            _encoded(stream),
            _encoded(first.content_type),
            first.generation,
            first.low,
            last.high,
            str(is_text(first.content_type)).lower(),
        )
        yield " ".join(map(str, head))
        for path, part in zip(paths, own, strict=True):
            yield f"{path.name} {part.held.size}"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _method(spark: SparkSession) -> Any:
    """The method that makes the relation; it is compiled once for each JVM."""
    gateway = driver.gateway(spark)
    key = id(gateway)
    if key not in _compiled:
        source = files(__package__).joinpath("PublishedFiles.java").read_text(encoding="utf-8")
        made = driver.compiled(gateway.jvm, source).getClassLoader().loadClass(_CLASS)
        _compiled.clear()
        _compiled[key] = driver.method(made, "frame")
    return _compiled[key]

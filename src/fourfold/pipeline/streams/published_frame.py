"""Read published segments with Spark's own Parquet reader.

Only the objects of the cut are read: in a folder of objects where they are, those of another object
store from the cache of exports, into which each is downloaded once and checked by its digest.

Spark takes their names and sizes from a log of files, as its streaming sinks write it beside
theirs: so it lists no folder, and checks no path. It reads the log when the DataFrame is created,
so the folder of the log is temporary.

Rows of a segment name their stream, so most segments are read as they are, one scan for each
content type. The rows of others are joined with a small table of files: segments of which only some
records belong to the stream, those that a fork shares with its source, and those of older versions,
whose rows do not name the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from fourfold import limits
from fourfold.archive.uploads import download_checked
from fourfold.errors import CorruptData
from fourfold.objects import FolderStore, ObjectStore
from fourfold.pipeline.export_cache import ExportCache
from fourfold.pipeline.streams.published_cut import ObjectRecords, RecordsObject
from fourfold.pipeline.streams.published_scan import is_text
from fourfold.query.streams.promotion import Promote
from fourfold.query.tables import arrow
from fourfold.retry import Retries

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CONTENT_TYPES_MAX: Final = 16
"""Content types that get a scan of their own; with more of them, all files are joined."""

_LOG: Final = "_spark_metadata"
_RECORD: Final = (
    "offset bigint, append_time timestamp, routing_key binary, payload binary, headers binary"
)


SEGMENT_DOWNLOADS: Final = 8
"""Segments that are downloaded in parallel."""


class SegmentFiles:
    """The files of segments on this machine."""

    def __init__(self, objects: ObjectStore, cache: ExportCache) -> None:
        self._objects = objects
        self._cache = cache
        self._retries = Retries()

    def paths(self, segments: Iterable[RecordsObject]) -> dict[str, Path]:
        """Return the paths of segments by their keys, downloading those that are not here."""
        distinct = {segment.key: segment for segment in segments}
        if isinstance(self._objects, FolderStore):
            return {key: self._in_folder(self._objects, key) for key in distinct}
        with ThreadPoolExecutor(SEGMENT_DOWNLOADS) as pool:
            return dict(zip(distinct, pool.map(self._downloaded, distinct.values()), strict=True))

    @staticmethod
    def _in_folder(objects: FolderStore, key: str) -> Path:
        path = objects.path(key)
        if not path.is_file():
            raise CorruptData(
                f"object {key!r} is missing",
                hint="Gc may have removed it meanwhile: run the read again.",
            )
        return path

    def _downloaded(self, segment: RecordsObject) -> Path:
        known = self._cache.find(segment.digest)
        if known is not None:
            return known
        partial = self._cache.partial(segment.digest)
        try:
            self._retries.run(
                lambda: download_checked(self._objects, segment.key, segment.digest, partial)
            )
            return self._cache.add(segment.digest, partial)
        finally:
            partial.unlink(missing_ok=True)


def published_frame(
    spark: SparkSession,
    files: SegmentFiles,
    parts: Sequence[ObjectRecords],
    addresses: Callable[[Sequence[str]], list[str]],
    *,
    until_ms: int | None = None,
    since_ms: int | None = None,
    promote: Promote | None = None,
) -> DataFrame:
    """Return the records of these parts, of which there is at least one.

    `addresses` returns where executors find files. With `until_ms`, later records are left out,
    and with `since_ms` earlier ones. With `promote`, payloads are promoted in Python, if a query
    uses them.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    paths = files.paths(part.held for part in parts)

    def scan(selected: Sequence[ObjectRecords], schema: str) -> DataFrame:
        sizes = {str(paths[part.held.key]): part.held.size for part in selected}
        places = addresses(list(sizes))
        return _read_listed(spark, schema, dict(zip(places, sizes.values(), strict=True)))

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
        rows = rows.join(F.broadcast(_table_of_parts(spark, others, paths)), "file")
        frames.append(rows.where("offset >= low and offset < high"))
    return reduce(
        lambda one, other: one.unionByName(other),
        [_shaped(frame, since_ms, until_ms, promote) for frame in frames],
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


def _shaped(
    frame: DataFrame, since_ms: int | None, until_ms: int | None, promote: Promote | None
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

    if since_ms is not None:
        frame = frame.where(F.col("append_time") > F.timestamp_millis(F.lit(since_ms)))
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


def _table_of_parts(
    spark: SparkSession, parts: Sequence[ObjectRecords], paths: Mapping[str, Path]
) -> DataFrame:
    """Return the files of parts, each with what the manifests say about its records."""
    rows = [
        {
            "file": paths[part.held.key].name,
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

"""Published streams in Spark, read from the object store; the node need not be running.

    from fourfold.pipeline.streams.published import published
    frame = published(spark, "s3://bucket/shop")
    frame = published(spark, "shop/objects", streams="orders/*", at="2026-03-01T12:00:00Z")
    frame = published(spark, "shop/objects", table="messages") in the current version
    state = published_state(spark, "shop/objects")

The manifests are read once, when the function is called, and define what is read; so counting the
DataFrame twice uses the same records; those of a store, published or not, are the tables `records`,
`messages` and `state` of `read`. A local folder is
read by Spark's own Parquet reader, any other store by Fourfold's reader, in the workers. Only
objects with messages of an older version are read through Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.errors import FourfoldError
from fourfold.objects import FolderStore, open_objects
from fourfold.pipeline import driver
from fourfold.pipeline.conditions import Conditions, parse
from fourfold.pipeline.options import point
from fourfold.pipeline.reader import file_addresses
from fourfold.pipeline.spark import register, unwrap_error
from fourfold.pipeline.streams import published_cut
from fourfold.pipeline.streams.fold import fold_states
from fourfold.pipeline.streams.published_cut import ObjectRecords, PublishedCut
from fourfold.pipeline.streams.published_frame import SegmentFiles, published_frame
from fourfold.pipeline.streams.published_plan import narrow
from fourfold.pipeline.streams.published_tables import MESSAGES, PUBLISHED, RECORDS
from fourfold.pipeline.table_files import open_cache
from fourfold.query.streams.promotion import Promote, Registries, begin_of_version, promoter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_STATE = "stream string, type string, key string, value string"


def published(
    spark: SparkSession,
    objects: str | Path,
    *,
    streams: str | None = None,
    at: datetime | str | None = None,
    shared: bool = False,
    columns: Iterable[str] | None = None,
    skip_bad: bool = False,
    table: str = RECORDS,
    where: str | None = None,
) -> DataFrame:
    """Return the records of the streams that are published at `objects`, a folder or a URL.

    `streams` is a name or a pattern (`*`, `?`, `[...]`); `at` a time up to which records are read.
    With `shared`, a fork includes the records that it shares with its source, as a reader of
    the fork sees them; without, each record appears once. `skip_bad` skips streams whose manifest
    is damaged. The `table` is `records`, as stored, or `messages`, in the current version of the
    stream. `where` is the option of that name of a read.
    """
    url = address(objects)
    time = at if isinstance(at, datetime) else point(at, "at")
    until_ms = published_cut.until_ms_of(time)
    names = tuple(columns) if columns is not None else None
    selected = PUBLISHED.table(table).select_columns(names)
    conditions = parse(where, PUBLISHED.table(table))
    if not driver.is_reachable(spark) or not is_folder(url):
        register(spark)
        reader = spark.read.format("fourfold").option("objects", url).option("table", table)
        options = {
            "stream": streams,
            "at": None if time is None else time.isoformat(),  # type: ignore[union-attr]
            "shared": "true" if shared else None,
            "columns": None if names is None else ",".join(names),
            "skip_bad": "true" if skip_bad else None,
            "where": where,
        }
        for name, value in options.items():
            reader = reader if value is None else reader.option(name, value)
        try:
            return reader.load()
        except Exception as error:
            cause = unwrap_error(error)
            if isinstance(cause, FourfoldError):
                raise cause from error
            raise
    cut = published_cut.read_cut(
        url,
        streams=streams,
        shared=shared,
        skip_bad=skip_bad,
        promoted=table == MESSAGES,
    )
    read = dict.fromkeys((*(column.name for column in selected), *conditions.columns))
    frame = _native(spark, url, cut, tuple(read), conditions, until_ms=until_ms)
    for condition in conditions.spark_columns():
        frame = frame.where(condition)
    return frame.select(*(column.name for column in selected))


def published_state(
    spark: SparkSession,
    objects: str | Path,
    *,
    streams: str | None = None,
    at: datetime | str | None = None,
    skip_bad: bool = False,
) -> DataFrame:
    """Return the newest value of each key of every state stream: the table `state` of streams with
    published messages. The arguments are those of `published`.
    """
    messages = published(
        spark,
        objects,
        streams=streams,
        at=at,
        shared=True,
        columns=("stream", "offset", "payload", "content_type"),
        skip_bad=skip_bad,
        table=MESSAGES,
    )
    changes = messages.where("lower(content_type) like 'application/json%'").drop("content_type")
    grouped = changes.repartition("stream").sortWithinPartitions("stream", "offset")
    return grouped.mapInArrow(fold_states, _STATE)


def unreadable(url: str) -> tuple[tuple[str, str], ...]:
    """Return the manifests that cannot be read, by key, with the reason."""
    return published_cut.read_cut(url, skip_bad=True).bad


def address(objects: str | Path) -> str:
    """Return the absolute URL or path of an object store."""
    text = str(objects)
    if isinstance(objects, Path) or ":" not in text:
        return str(Path(text).expanduser().absolute())
    return text


def is_folder(url: str) -> bool:
    """Return True if the object store is a local folder."""
    with open_objects(url) as objects:
        return isinstance(objects, FolderStore)


def _native(
    spark: SparkSession,
    url: str,
    cut: PublishedCut,
    names: tuple[str, ...],
    conditions: Conditions,
    *,
    until_ms: int | None,
) -> DataFrame:
    """Return these columns of the records of a cut, read by Spark's own reader."""
    addresses = partial(file_addresses, spark)
    parts = [part for part in cut.parts if narrow(part, conditions) is not None]
    frames = []
    with open_objects(url) as objects:
        files = SegmentFiles(objects, open_cache(None))
        for group, promote in group_by_promotion(parts, cut.registries or {}):
            late = any(until_ms is not None and part.held.last_ms > until_ms for part in group)
            until = until_ms if late else None
            frame = published_frame(spark, files, group, addresses, until_ms=until, promote=promote)
            frames.append(frame.select(*names))
    columns = PUBLISHED.table(RECORDS).select_columns(names)
    if not frames:
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in columns)
        return spark.createDataFrame([], ddl)
    return reduce(lambda one, other: one.unionByName(other), frames)


def group_by_promotion(
    parts: Iterable[ObjectRecords], registries: Registries
) -> Iterator[tuple[list[ObjectRecords], Promote | None]]:
    """Yield the parts without outdated messages, and those with messages to promote."""
    groups: tuple[list[ObjectRecords], list[ObjectRecords]] = ([], [])
    for part in parts:
        groups[part.low < begin_of_version(registries, part.stream)].append(part)
    for group, promote in zip(groups, (None, promoter(registries)), strict=True):
        if group:
            yield group, promote

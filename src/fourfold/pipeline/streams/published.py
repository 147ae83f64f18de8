"""Published streams in Spark, straight from the object store: the node need not be up.

    from fourfold.pipeline.streams.published import published
    frame = published(spark, "s3://bucket/shop")
    frame = published(spark, "shop/objects", streams="orders/*", at="2026-03-01T12:00:00Z")
    frame = published(spark, "shop/objects", root="shop")      with what is not published yet
    frame = published(spark, "shop/objects", table="messages") in the version of their streams
    state = published_state(spark, "shop/objects", root="shop")

The manifests are read once, when this is called, and define what is read; so whoever counts the
DataFrame twice sees the same records. A local folder is read by Spark's own Parquet reader, and
anything else by Fourfold's, in the workers. Of messages, only those objects take the way through
Python that have some of an older version than their stream is at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.objects import FolderStore, open_objects
from fourfold.pipeline import driver
from fourfold.pipeline.conditions import parse
from fourfold.pipeline.options import point
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams import published_cut, published_native, published_plan
from fourfold.pipeline.streams.fold import Promote, begin_of_version, fold_states, promoter
from fourfold.pipeline.streams.published_cut import Part, PublishedCut
from fourfold.pipeline.streams.published_scan import TailWork, read_batches
from fourfold.pipeline.streams.published_tables import MESSAGES, PUBLISHED, RECORDS
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_STATE = "stream string, type string, key string, value string"


def published(
    spark: SparkSession,
    objects: str | Path,
    *,
    streams: str | None = None,
    at: datetime | str | None = None,
    root: str | Path | None = None,
    shared: bool = False,
    columns: Iterable[str] | None = None,
    skip_bad: bool = False,
    table: str = RECORDS,
    where: str | None = None,
) -> DataFrame:
    """The records of the streams that are published at `objects`, a folder or an address.

    `streams` is one name, or a pattern (`*`, `?`, `[...]`); `at` a moment, up to which records
    came. `root` is the folder of the node that publishes there: what is only in its log is read
    from its file. With `shared`, a fork has the records that it shares with its source as well,
    as a reader of the fork sees them; without, each record comes once. `skip_bad` leaves out
    streams whose manifest is damaged. The `table` is `records`, as they are stored, or `messages`,
    each in the version that its stream is at. `where` is the option of that name of a read.
    """
    url = address(objects)
    moment = at if isinstance(at, datetime) else point(at, "at")
    until_ms = published_cut.checked_moment(moment)
    names = tuple(columns) if columns is not None else None
    chosen = PUBLISHED.table(table).chosen(names)
    conditions = parse(where, PUBLISHED.table(table))
    if not driver.reachable(spark) or not is_folder(url):
        reader = spark.read.format("fourfold").option("objects", url).option("table", table)
        given = {
            "stream": streams,
            "at": None if moment is None else moment.isoformat(),  # type: ignore[union-attr]
            "root": None if root is None else str(root),
            "shared": "true" if shared else None,
            "columns": None if names is None else ",".join(names),
            "skip_bad": "true" if skip_bad else None,
            "where": where,
        }
        for name, value in given.items():
            reader = reader if value is None else reader.option(name, value)
        try:
            return reader.load()
        except Exception as error:
            told = unwrap_error(error)
            if isinstance(told, FourfoldError):
                raise told from error
            raise
    cut = published_cut.read_cut(
        url,
        root=None if root is None else str(root),
        streams=streams,
        shared=shared,
        skip_bad=skip_bad,
        promoted=table == MESSAGES,
    )
    found = _native(spark, url, cut, until_ms, shared=shared)
    for condition in conditions.spark_columns():
        found = found.where(condition)
    return found.select(*(column.name for column in chosen))


def published_state(
    spark: SparkSession,
    objects: str | Path,
    *,
    streams: str | None = None,
    at: datetime | str | None = None,
    root: str | Path | None = None,
    skip_bad: bool = False,
) -> DataFrame:
    """The newest value of each key of every state stream: the table `state` of streams, where
    their messages are published in part or as a whole. The arguments are those of `published`.
    """
    messages = published(
        spark,
        objects,
        streams=streams,
        at=at,
        root=root,
        shared=True,
        columns=("stream", "offset", "payload", "content_type"),
        skip_bad=skip_bad,
        table=MESSAGES,
    )
    changes = messages.where("lower(content_type) like 'application/json%'").drop("content_type")
    together = changes.repartition("stream").sortWithinPartitions("stream", "offset")
    return together.mapInArrow(fold_states, _STATE)


def unreadable(url: str) -> tuple[tuple[str, str], ...]:
    """The manifests that cannot be read, by key, and why."""
    return published_cut.read_cut(url, skip_bad=True).bad


def address(objects: str | Path) -> str:
    """The address of an object store, from wherever it is opened."""
    text = str(objects)
    if isinstance(objects, Path) or ":" not in text:
        return str(Path(text).expanduser().absolute())
    return text


def is_folder(url: str) -> bool:
    with open_objects(url) as objects:
        return isinstance(objects, FolderStore)


def _native(
    spark: SparkSession, url: str, cut: PublishedCut, until_ms: int | None, *, shared: bool
) -> DataFrame:
    table = PUBLISHED.table(RECORDS)
    frames = []
    for parts, promote in _by_way(cut):
        late = any(until_ms is not None and each.held.last_ms > until_ms for each in parts)
        bounded = shared or not all(part.whole for part in parts)
        until = until_ms if late else None
        with open_objects(url) as objects:
            assert isinstance(objects, FolderStore)
            frames.append(
                published_native.frame(
                    spark, objects, parts, until, bounded=bounded, promote=promote
                )
            )
    works = published_plan.plan_tail_tasks(
        cut, table.chosen(), until_ms, limits.SOURCE_PARTITION_BYTES, limits.SOURCE_BATCH_ROWS
    )
    if works:
        frames.append(_tail(spark, works))
    if not frames:
        return spark.createDataFrame([], table.ddl())
    return reduce(lambda one, other: one.unionByName(other), frames)


def _by_way(cut: PublishedCut) -> Iterator[tuple[list[Part], Promote | None]]:
    """The parts that are read as they are, and those with messages that have to be promoted."""
    known = cut.registries or {}
    ways: tuple[list[Part], list[Part]] = ([], [])
    for part in cut.parts:
        ways[part.low < begin_of_version(known, part.stream)].append(part)
    for parts, promote in zip(ways, (None, promoter(known)), strict=True):
        if parts:
            yield parts, promote


def _tail(spark: SparkSession, works: list[TailWork]) -> DataFrame:
    """The log of the node, in tasks of Spark's workers."""

    def read(numbers: Iterable[Any]) -> Iterator[Any]:
        pa = arrow()
        for batch in numbers:
            for place in batch.column(0).to_pylist():
                for rows in read_batches(works[place]):
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=rows.schema)

    tasks = spark.range(0, len(works), 1, len(works))
    return tasks.mapInArrow(read, PUBLISHED.table(RECORDS).ddl())

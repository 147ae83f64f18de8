"""Records of stores in Spark: published segments and the rows of the log after them.

Spark reads segments with its own Parquet reader, and the rows of the log as one more Parquet file.
So `records` and `messages` have every record that a store retains, once, and `state` is folded from
all of them. The position of a published record is null: segments do not contain it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold import limits, settings
from fourfold.errors import HistoryTruncated
from fourfold.objects import ObjectStore, open_objects
from fourfold.pipeline.cut import Cut, FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.reader import file_addresses, file_frame
from fourfold.pipeline.streams.fold import fold_states
from fourfold.pipeline.streams.node_cut import NodeCut, read_node
from fourfold.pipeline.streams.published import group_by_promotion
from fourfold.pipeline.streams.published_cut import PublishedCut
from fourfold.pipeline.streams.published_frame import SegmentFiles, published_frame
from fourfold.pipeline.streams.published_plan import narrow, plan_tail_tasks
from fourfold.pipeline.table_files import EXPORT_TASK_BYTES, export_tasks, open_cache, table_files
from fourfold.query.tables import ROOT, Column
from fourfold.store.store import objects_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.reader import FrameReader

_STATE: Final = "stream string, type string, key string, value string"
_MESSAGE: Final = ("stream", "offset", "payload", "content_type")
"""Columns from which states are folded."""
_ATTEMPTS: Final = 3
"""Plans of a read whose rows are published while they are exported."""


def read_records(spark: SparkSession, cut: Cut, options: ReadOptions) -> DataFrame | None:
    """Return the records, messages or states of stores; None if no store has published any."""
    shared = options.table_name == "state"
    nodes = _read_nodes(cut.bounds, options, shared=shared)
    live = [bound for bound, node in nodes if not node.is_published]
    if len(live) == len(nodes):
        return None
    frames = [
        _store_frame(spark, bound, node.cut, options, shared=shared)
        for bound, node in nodes
        if node.is_published
    ]
    if live:
        rest = Cut(tuple(live))
        frames.append(file_frame(spark, table_files(rest, options)))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _read_nodes(
    bounds: Sequence[FileBound], options: ReadOptions, *, shared: bool
) -> list[tuple[FileBound, NodeCut]]:
    promoted = options.table_name != "records"
    return [
        (bound, read_node(bound, options.stream, shared=shared, promoted=promoted))
        for bound in bounds
    ]


def _store_frame(
    spark: SparkSession,
    bound: FileBound,
    cut: PublishedCut,
    options: ReadOptions,
    *,
    shared: bool,
) -> DataFrame:
    """Return the selected columns of the rows of one store."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    output = [column.name for column in options.table.select_columns(options.columns)]
    if shared:
        rows = _record_frame(spark, bound, cut, options, _MESSAGE)
        changes = rows.where("lower(content_type) like 'application/json%'").drop("content_type")
        grouped = changes.repartition("stream").sortWithinPartitions("stream", "offset")
        frame = grouped.mapInArrow(fold_states, _STATE)
    else:
        needed = tuple(dict.fromkeys((*output, *options.conditions.columns)))
        frame = _record_frame(spark, bound, cut, options, needed)
    for condition in options.conditions.spark_columns():
        frame = frame.where(condition)
    if ROOT in output:
        frame = frame.withColumn(ROOT, f.lit(bound.root))
    return frame.select(*output)


def _record_frame(
    spark: SparkSession,
    bound: FileBound,
    cut: PublishedCut,
    options: ReadOptions,
    names: Sequence[str],
) -> DataFrame:
    """Return columns of the records of one store, promoted unless the table is `records`."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    columns = _columns(options, names)
    tails, cut = _export_tail(bound, cut, options, columns)
    addresses = partial(file_addresses, spark)
    parts = [part for part in cut.parts if narrow(part, options.conditions) is not None]
    frames = []
    if parts:
        with _objects(bound, options) as objects:
            files = SegmentFiles(objects, open_cache(options.root))
            for group, promote in group_by_promotion(parts, cut.registries or {}):
                rows = published_frame(
                    *(spark, files, group, addresses),
                    until_ms=bound.until_ms,
                    since_ms=bound.since_ms,
                    promote=promote,
                )
                rows = rows.withColumn("position", f.lit(None).cast("bigint"))
                frames.append(rows.select(*(column.name for column in columns)))
    schema = ", ".join(f"`{column.name}` {column.type}" for column in columns)
    if tails:
        source = spark.read.schema(schema).option("globPaths", "false")
        frames.append(source.parquet(*addresses([str(path) for path in tails])))
    if not frames:
        return spark.createDataFrame([], schema)
    return reduce(lambda one, other: one.union(other), frames)


def _columns(options: ReadOptions, names: Sequence[str]) -> tuple[Column, ...]:
    table = options.table if options.table_name != "state" else options.tables.table("messages")
    stored = [name for name in names if name != ROOT]
    return table.select_columns(stored or ["stream"])


def _export_tail(
    bound: FileBound, cut: PublishedCut, options: ReadOptions, columns: tuple[Column, ...]
) -> tuple[list[Path], PublishedCut]:
    """Return the exported rows of the log, and the cut; rows that are published meanwhile are in
    segments of another one.
    """
    attempt = 0
    while True:
        tasks = plan_tail_tasks(
            *(cut, columns, options.conditions),
            partition_bytes=EXPORT_TASK_BYTES,
            batch_rows=limits.SOURCE_BATCH_ROWS,
        )
        try:
            return export_tasks(open_cache(options.root), tasks), cut
        except HistoryTruncated:
            attempt += 1
            if attempt == _ATTEMPTS:
                raise
        shared = options.table_name == "state"
        [(_, node)] = _read_nodes([bound], options, shared=shared)
        cut = node.cut


def _objects(bound: FileBound, options: ReadOptions) -> ObjectStore:
    """Return the object store of the store of a file."""
    if options.urls:
        return open_objects(bound.root)
    root = Path(bound.root)
    return objects_of(root, settings.load(root, environ=os.environ))


TABLES: Final[Mapping[str, FrameReader]] = dict.fromkeys(
    ("records", "messages", "state"), read_records
)
"""Tables of streams that have rows in segments."""

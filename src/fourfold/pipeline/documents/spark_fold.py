"""The folds of documents as Spark transformations: rows are shuffled by entity, then folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents.fold import fold_history, fold_state, folded_ddl
from fourfold.pipeline.documents.lines import lines
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.reader import frame
from fourfold.query.documents.lines import BranchLine
from fourfold.query.tables import ROOT, SPACE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut

SHUFFLED_KEY: Final = (ROOT, SPACE, "branch", "id")
"""Includes the root, because two stores may have the same space, for instance as a copy."""
COLUMNS: Final = (*SHUFFLED_KEY, "seq", "op_index", "op", "data")
LINES: Final = f"{ROOT} string, {SPACE} string, read string, branch string, cap bigint"
"""The branches that a reader of the branch `read` sees, and the cap of each."""


def state(spark: SparkSession, **options: Any) -> DataFrame:
    """Return the state of every entity of a branch. Options are those of the source."""
    return newest(visible_operations(spark, **options))


def history(spark: SparkSession, **options: Any) -> DataFrame:
    """Return every version of every entity of a branch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    read, cut = _cut({**options, "table": "history"})
    rows = _visible(spark, read, cut)
    truncated = [
        (bound.root, bound.space, line.since)
        for bound, lines in _lines_of(cut.bounds, read)
        for line in lines[:1]
        if line.since
    ]
    if not truncated:
        return versions(rows)
    horizons = spark.createDataFrame(truncated, f"{ROOT} string, {SPACE} string, since bigint")

    def with_since(frame: DataFrame) -> DataFrame:
        joined = frame.join(f.broadcast(horizons), [ROOT, SPACE], "left")
        return joined.withColumn("since", f.coalesce("since", f.lit(0)))

    # The log before the first version is incomplete after gc.
    first = (f.col("since") > 0) & (f.col("seq") <= f.col("since") + 1)
    whole = _from_last(with_since(rows), (f.col("op") != "patch") & first, SHUFFLED_KEY).drop(
        "since"
    )
    return with_since(versions(whole)).where(f.col("seq") > f.col("since")).drop("since")


def newest(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the newest state of each entity in `operations`, whose `branch` is the one read."""
    rows = relevant(operations, key)
    return rows.mapInArrow(partial(_fold_state, key=tuple(key)), folded_ddl(key))


def versions(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the state of each entity after each commit that touched it."""
    rows = operations.repartition(*key).sortWithinPartitions(*key, "seq", "op_index")
    return rows.mapInArrow(partial(_fold_history, key=tuple(key)), folded_ddl(key))


def relevant(operations: DataFrame, key: Sequence[str] = SHUFFLED_KEY) -> DataFrame:
    """Return the rows from the last whole document of each entity, grouped and in order.

    A window finds them in one pass over rows that must be grouped and sorted anyway. Finding the
    last whole documents by an aggregation and joining them back was not faster, and reads
    everything twice.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return _from_last(operations, f.col("op") != "patch", key)


def _from_last(rows: DataFrame, matches: Column, key: Sequence[str]) -> DataFrame:
    """Return the rows of each entity from its last match on; all rows if none matches."""
    from pyspark.sql import Window  # noqa: PLC0415 - an optional dependency
    from pyspark.sql import functions as f  # noqa: PLC0415

    position = f.struct("seq", "op_index")
    of_entity = (
        Window.partitionBy(*key)
        .orderBy("seq", "op_index")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    last = f.max(f.when(matches, position)).over(of_entity)
    with_last = rows.repartition(*key).withColumn("last", last)
    return with_last.where(f.col("last").isNull() | (position >= f.col("last"))).drop("last")


def visible_operations(spark: SparkSession, **options: Any) -> DataFrame:
    """Return the operations that a reader of a branch sees; `branch` is the one read.

    They are found by a join with the lines of history on (branch, cap); the default branch has no
    ancestors and needs none.
    """
    read, cut = _cut({**options, "table": "state"})
    _check_horizon(cut, read)
    return _visible(spark, read, cut)


def _cut(options: Mapping[str, Any]) -> tuple[ReadOptions, Cut]:
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    read = read_options({name: str(value) for name, value in options.items()})
    if read.since is not None:
        raise InvalidInput("option 'since' is not supported by a fold", hint="Filter the result.")
    cut = cuts.read_cut(read)
    return read, replace(cut, bounds=tuple(replace(bound, since=0) for bound in cut.bounds))


def _check_horizon(cut: Cut, read: ReadOptions) -> None:
    """Raise HistoryTruncated below the horizon. Only the source's own `state` knows the points that
    gc retains there.
    """

    for bound in cut.bounds:
        [(horizon,)] = cuts.fetch_rows(bound, read.tables.kinds[bound.kind].queries.horizon)
        if bound.seq < horizon:
            raise HistoryTruncated(
                f"{bound.path}: history begins at seq {horizon}, got {bound.seq}",
                details={"horizon": horizon, "path": bound.path},
            )


def _visible(spark: SparkSession, read: ReadOptions, cut: Cut) -> DataFrame:
    options = {"table": "operations", "columns": ",".join(COLUMNS)}
    for name in ("root", "roots"):
        if getattr(read, name) is not None:
            options[name] = getattr(read, name)
    return select_visible(spark, read, cut.bounds, frame(spark, options, cut))


def select_visible(
    spark: SparkSession, read: ReadOptions, bounds: Sequence[FileBound], rows: DataFrame
) -> DataFrame:
    """Return the rows that a reader of the selected branch sees; `branch` is the one read."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    if not read.branch:
        return rows.where(f.col("branch") == "")
    links = [
        (bound.root, bound.space, line.branch, link.branch, link.cap)
        for bound, file_lines in _lines_of(bounds, read)
        for line in file_lines
        for link in line.links
    ]
    lines = spark.createDataFrame(links, LINES)
    joined = rows.join(f.broadcast(lines), [ROOT, SPACE, "branch"]).where(
        f.col("seq") <= f.col("cap")
    )
    return joined.withColumn("branch", f.col("read")).select(*COLUMNS)


def _lines_of(
    bounds: Sequence[FileBound], options: ReadOptions
) -> Iterator[tuple[FileBound, list[BranchLine]]]:
    return lines(bounds, options)


def _fold_state(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_state(batches, key)


def _fold_history(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return fold_history(batches, key)

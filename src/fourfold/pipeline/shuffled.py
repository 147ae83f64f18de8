"""The fold of documents over any DataFrame of operations, wherever its rows come from.

The source's own tables `state` and `history` fold file by file, in the order in which the rows lie
there. This module is for rows that lie in no order: it resolves branches by a join, lets Spark drop
the rows that later ones make void before Python sees any, brings the rows of each entity together,
and folds them with the very same function.

    state(spark, root=..., branch="draft", at=40)      as .option("table", "state") would give it
    newest(operations)                                 the same of a DataFrame that you have

One entity of a million revisions does not stop it: Spark's sort and window spill to disk, and the
fold streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.pipeline import folding
from fourfold.pipeline.tables import ROOT, SPACE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut, Mark
    from fourfold.pipeline.lines import Line
    from fourfold.pipeline.options import ReadOptions

KEY: Final = (ROOT, SPACE, "branch", "id")
"""The same space may lie in two stores, for instance as a copy."""
COLUMNS: Final = (*KEY, "seq", "op_index", "op", "data")
LINES: Final = f"{ROOT} string, {SPACE} string, read string, branch string, cap bigint"
"""Which branch a reader of the branch `read` sees, and how far."""


def state(spark: SparkSession, **options: Any) -> DataFrame:
    """Every entity that a branch shows. Options are those of the source."""
    return newest(visible_operations(spark, **options))


def history(spark: SparkSession, **options: Any) -> DataFrame:
    """Every version of every entity that a branch shows."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    asked, cut = _cut({**options, "table": "history"})
    rows = _visible(spark, asked, cut)
    given_up = [
        (mark.root, mark.space, line.since)
        for mark, lines in _lines_of(cut.marks, asked)
        for line in lines[:1]
        if line.since
    ]
    if not given_up:
        return versions(rows)
    begin = spark.createDataFrame(given_up, f"{ROOT} string, {SPACE} string, since bigint")

    def with_since(frame: DataFrame) -> DataFrame:
        met = frame.join(f.broadcast(begin), [ROOT, SPACE], "left")
        return met.withColumn("since", f.coalesce("since", f.lit(0)))

    # What a collection left of the log before the first version is not whole.
    first = (f.col("since") > 0) & (f.col("seq") <= f.col("since") + 1)
    whole = _from_last(with_since(rows), (f.col("op") != "patch") & first, KEY).drop("since")
    return with_since(versions(whole)).where(f.col("seq") > f.col("since")).drop("since")


def newest(operations: DataFrame, key: Sequence[str] = KEY) -> DataFrame:
    """The newest state of each entity of `operations`, whose `branch` is the one that is read."""
    rows = relevant(operations, key)
    return rows.mapInArrow(partial(_fold_state, key=tuple(key)), folding.folded_ddl(key))


def versions(operations: DataFrame, key: Sequence[str] = KEY) -> DataFrame:
    """The state of each entity after each commit that touched it."""
    rows = operations.repartition(*key).sortWithinPartitions(*key, "seq", "op_index")
    return rows.mapInArrow(partial(_fold_history, key=tuple(key)), folding.folded_ddl(key))


def relevant(operations: DataFrame, key: Sequence[str] = KEY) -> DataFrame:
    """The rows that make a difference to the newest state: from the last whole document of each
    entity on. They come out together and in order.

    A window finds them in one pass over rows that must be brought together and sorted anyway. To
    find the last whole documents by an aggregation, and to join them back, was no faster and reads
    everything twice.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    return _from_last(operations, f.col("op") != "patch", key)


def _from_last(rows: DataFrame, wanted: Column, key: Sequence[str]) -> DataFrame:
    """Of each entity the rows from the last wanted one on; all where there is none."""
    from pyspark.sql import Window  # noqa: PLC0415 - an optional dependency
    from pyspark.sql import functions as f  # noqa: PLC0415

    place = f.struct("seq", "op_index")
    of_entity = (
        Window.partitionBy(*key)
        .orderBy("seq", "op_index")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    last = f.max(f.when(wanted, place)).over(of_entity)
    marked = rows.repartition(*key).withColumn("last", last)
    return marked.where(f.col("last").isNull() | (place >= f.col("last"))).drop("last")


def visible_operations(spark: SparkSession, **options: Any) -> DataFrame:
    """The operations that a reader of a branch sees, `branch` being the one that is read.

    They are found by a join with the lines of history on (branch, cap); only the default branch,
    which has no ancestors, needs none.
    """
    asked, cut = _cut({**options, "table": "state"})
    _refuse_given_up(cut, asked)
    return _visible(spark, asked, cut)


def _cut(options: Mapping[str, Any]) -> tuple[ReadOptions, Cut]:
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel
    from fourfold.pipeline.options import read_options  # noqa: PLC0415

    asked = read_options({name: str(each) for name, each in options.items()})
    if asked.since is not None:
        raise InvalidInput("a fold needs the log from its beginning", hint="Filter the result.")
    cut = cuts.take(asked)
    return asked, replace(cut, marks=tuple(replace(mark, since=0) for mark in cut.marks))


def _refuse_given_up(cut: Cut, asked: ReadOptions) -> None:
    """The source's own `state` also knows the points that a collection kept below its horizon."""
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - it opens files through the kernel

    for mark in cut.marks:
        [(horizon,)] = cuts.rows(mark, asked.tables.kinds[mark.kind].queries.horizon)
        if mark.seq < horizon:
            raise HistoryTruncated(
                f"{mark.path}: how it was at seq {mark.seq} was given up by a collection, "
                f"which keeps the history of this space from seq {horizon} on",
                details={"horizon": horizon, "path": mark.path},
            )


def _visible(spark: SparkSession, asked: ReadOptions, cut: Cut) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    source = spark.read.format("fourfold").option("table", "operations")
    source = source.option("cut", cut.token()).option("columns", ",".join(COLUMNS))
    for name in ("root", "roots"):
        if getattr(asked, name) is not None:
            source = source.option(name, getattr(asked, name))
    rows = source.load()
    if not asked.branch:
        return rows.where(f.col("branch") == "")
    links = [
        (mark.root, mark.space, line.branch, link.branch, link.cap)
        for mark, found in _lines_of(cut.marks, asked)
        for line in found
        for link in line.links
    ]
    lines = spark.createDataFrame(links, LINES)
    met = rows.join(f.broadcast(lines), [ROOT, SPACE, "branch"]).where(f.col("seq") <= f.col("cap"))
    return met.withColumn("branch", f.col("read")).select(*COLUMNS)


def _lines_of(marks: Sequence[Mark], asked: ReadOptions) -> Iterator[tuple[Mark, list[Line]]]:
    from fourfold.pipeline.lines import lines  # noqa: PLC0415 - it opens files through the kernel

    return lines(marks, asked)


def _fold_state(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return folding.fold_state(batches, key)


def _fold_history(
    batches: Iterator[pa.RecordBatch], key: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    return folding.fold_history(batches, key)

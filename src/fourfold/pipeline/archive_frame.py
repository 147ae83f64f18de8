"""Tables as DataFrames over published files and the tail of live databases: see `archive_plan`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from fourfold.pipeline.archive_plan import ArchivedTable, ArchivePlan, FileGroup, archived_table
from fourfold.pipeline.conditions import Conditions
from fourfold.pipeline.cut import Cut, FileBound
from fourfold.pipeline.exporter import write_parquet
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.table_files import TableFiles, open_cache, table_files
from fourfold.query.tables import ROOT, SPACE, arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

_FILE_ID: Final = "file_id"
_POINT: Final = "_point"
_VISIBLE: Final = ("file_id", "base", "point", "since", "until")


class ArchiveReader:
    """Reads the parts of a plan. `addresses` returns where executors find files, and `frame` the
    rows of exported files.
    """

    def __init__(
        self,
        spark: SparkSession,
        addresses: Callable[[Sequence[str]], list[str]],
        frame: Callable[[TableFiles], DataFrame],
    ) -> None:
        self._spark = spark
        self._addresses = addresses
        self._frame = frame

    def read(self, plan: ArchivePlan, options: ReadOptions) -> DataFrame:
        """Return the rows of the table of a plan."""
        if options.tables.check is not None:
            options.tables.check((*plan.archived, *plan.live), options)
        output = [column.name for column in options.table.select_columns(options.columns)]
        if plan.table.fold is None:
            parts = [self._published(group, plan.table, options) for group in plan.groups]
            exported = (*plan.tails, *plan.live)
            if exported:
                parts.append(self._export(exported, options))
            return _union([part.select(*output) for part in parts])
        folded = self._folded(plan, options)
        parts = [folded.select(*output)]
        live = plan.live
        if options.branch:
            from fourfold.pipeline.documents.lines import file_lines  # noqa: PLC0415 - a fold's

            live = tuple(bound for bound in live if file_lines(bound, options))
        if live:
            parts.append(self._export(live, options).select(*output))
        return _union(parts)

    def _folded(self, plan: ArchivePlan, options: ReadOptions) -> DataFrame:
        table = plan.table
        raw = archived_table(options.model, table.rows)
        assert raw is not None
        assert table.fold is not None
        names = (ROOT, *(name for name in raw.columns if name in _INPUT))
        rows_options = replace(
            options, table_name=table.rows, columns=names, conditions=Conditions(), branch=""
        )
        parts = [self._published(group, raw, rows_options) for group in plan.groups]
        if plan.tails:
            parts.append(self._export(plan.tails, rows_options))
        rows = _union([part.select(*names) for part in parts])
        return table.fold(self._spark, options, plan.archived, rows)

    def _export(self, bounds: Sequence[FileBound], options: ReadOptions) -> DataFrame:
        return self._frame(table_files(Cut(tuple(bounds)), options))

    def _published(self, group: FileGroup, table: ArchivedTable, options: ReadOptions) -> DataFrame:
        """Return the published rows of a group, with the selected columns."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        names = [column.name for column in options.table.select_columns(options.columns)]
        rows = self._rows(group, table, options)
        lookup = table.lookup
        expressions: dict[str, Column] = {
            name: f.expr(text) for name, text in table.columns.items()
        }
        if group.root is not None:
            expressions[ROOT] = f.lit(group.root)
        if lookup is not None and table.needs_lookup(names):
            rows, joined = self._looked_up(rows, group, table, options)
            expressions |= joined
        needed = dict.fromkeys((*names, *options.conditions.columns))
        selected = rows.select(*(expressions[name].alias(name) for name in needed))
        for condition in options.conditions.spark_columns():
            selected = selected.where(condition)
        return selected

    def _rows(self, group: FileGroup, table: ArchivedTable, options: ReadOptions) -> DataFrame:
        """Return the rows of an archive table that count."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        parts = []
        position = f.col(table.position)
        whole, filtered = group.whole[table.source], group.filtered[table.source]
        if whole or not filtered:
            rows = self._scan(whole, table)
            if group.since:
                rows = rows.where(position > group.since)
            if group.until is not None:
                rows = rows.where(position <= group.until)
            parts.append(rows)
        if filtered:
            visible = f.broadcast(self._visible(group, options))
            rows = self._scan(filtered, table).join(visible, _FILE_ID)
            rows = rows.where(f.col(_POINT).between(f.col("base"), f.col("point")))
            rows = rows.where((position > f.col("since")) & (position <= f.col("until")))
            parts.append(rows.select(*table.schema))
        return _union(parts)

    def _scan(self, paths: Sequence[str], table: ArchivedTable) -> DataFrame:
        schema = ", ".join(f"`{name}` {type_}" for name, type_ in table.schema.items())
        if not paths:
            return self._spark.createDataFrame([], schema)
        source = self._spark.read.schema(schema).option("globPaths", "false")
        return source.parquet(*self._addresses(paths))

    def _visible(self, group: FileGroup, options: ReadOptions) -> DataFrame:
        """Return the intervals of a group as a small file, so that executors need no Python."""
        pa = arrow()
        columns = list(zip(*(map(_visible_row, group.visible)), strict=True))
        types = [pa.string(), *[pa.int64()] * 4]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(_VISIBLE))
        cache = open_cache(options.root)
        key = hashlib.sha256(repr(columns).encode()).hexdigest()
        path = cache.find(key)
        if path is None:
            partial = cache.partial(key)
            write_parquet(str(partial), batch.schema, [batch])
            path = cache.add(key, partial)
        schema = "file_id string, base bigint, point bigint, since bigint, until bigint"
        source = self._spark.read.schema(schema).option("globPaths", "false")
        return source.parquet(*self._addresses([str(path)]))

    def _looked_up(
        self, rows: DataFrame, group: FileGroup, table: ArchivedTable, options: ReadOptions
    ) -> tuple[DataFrame, Mapping[str, Column]]:
        """Return rows joined with the columns of another table, and their expressions."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        lookup = table.lookup
        assert lookup is not None
        expressions = {name: f.col(name) for name in lookup.columns}
        if lookup.live:
            live = replace(options, table_name=lookup.live, columns=None, conditions=Conditions())
            bounds = [replace(bound, since=0) for bound in group.bounds]
            return rows.join(self._export(bounds, live), list(lookup.on)), expressions
        assert lookup.source is not None
        other = self._rows(group, lookup.source, options)
        # Spark drops the join if no column of it is used, because its keys are unique.
        unique = other.groupBy(*lookup.on).agg(
            *(f.first(f.expr(text)).alias(name) for name, text in lookup.columns.items())
        )
        return rows.join(unique, list(lookup.on), "left"), expressions


_INPUT: Final = frozenset({SPACE, "branch", "id", "seq", "op_index", "op", "data"})


def _visible_row(visible: Any) -> tuple[Any, ...]:
    return tuple(getattr(visible, name) for name in _VISIBLE)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)

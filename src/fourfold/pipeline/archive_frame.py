"""Tables as DataFrames over published files and the tail of live databases: see `archive_plan`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from fourfold.pipeline.archive_plan import ArchivedTable, ArchivePlan, FileGroup
from fourfold.pipeline.conditions import Conditions
from fourfold.pipeline.cut import Cut, FileBound
from fourfold.pipeline.exporter import write_parquet
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.table_files import TableFiles, open_cache, table_files
from fourfold.query.tables import ROOT, arrow

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
        fold = plan.fold
        if fold is None:
            parts = [self._published(group, options) for group in plan.groups]
            exported = (*plan.tails, *plan.live)
            if exported:
                parts.append(self._export(exported, options))
            return _union([part.select(*output) for part in parts])
        names = (ROOT, *fold.input)
        rows_options = replace(
            options, table_name=fold.rows, columns=names, conditions=Conditions(), branch=""
        )
        parts = [self._published(group, rows_options) for group in plan.groups]
        if plan.tails:
            parts.append(self._export(plan.tails, rows_options))
        rows = _union([part.select(*names) for part in parts])
        parts = [fold.fold(self._spark, options, plan.archived, rows).select(*output)]
        live = plan.live
        if options.branch:
            from fourfold.pipeline.documents.lines import file_lines  # noqa: PLC0415 - a fold's

            live = tuple(bound for bound in live if file_lines(bound, options))
        if live:
            parts.append(self._export(live, options).select(*output))
        return _union(parts)

    def _export(self, bounds: Sequence[FileBound], options: ReadOptions) -> DataFrame:
        return self._frame(table_files(Cut(tuple(bounds)), options))

    def _published(self, group: FileGroup, options: ReadOptions) -> DataFrame:
        """Return the published rows of a group, with the selected columns."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        names = [column.name for column in options.table.select_columns(options.columns)]
        app = () if options.app is None else ("app", "app_id")
        needed = dict.fromkeys((*names, *options.conditions.columns, *app))
        parts = []
        for table in group.tables:
            rows = self._looked_up(self._rows(group, table, options), group, table, needed, options)
            expressions: dict[str, Column] = {name: f.col(name) for name in needed if name != ROOT}
            expressions |= {name: f.expr(text) for name, text in table.columns.items()}
            if group.root is not None:
                expressions[ROOT] = f.lit(group.root)
            parts.append(rows.select(*(expressions[name].alias(name) for name in needed)))
        selected = _union(parts)
        for condition in options.conditions.spark_columns():
            selected = selected.where(condition)
        if options.app is not None:
            number = f.col("app_id").cast("string")
            selected = selected.where((f.col("app") == options.app) | (number == options.app))
        return selected

    def _rows(self, group: FileGroup, table: ArchivedTable, options: ReadOptions) -> DataFrame:
        """Return the rows of an archive table that count."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        parts = []
        position = f.col(table.position) if table.position else None
        whole, filtered = group.whole[table.source], group.filtered[table.source]
        if whole or not filtered:
            rows = self._scan(whole, table)
            if position is not None and group.since:
                rows = rows.where(position > group.since)
            if position is not None and group.until is not None:
                rows = rows.where(position <= group.until)
            parts.append(rows)
        if filtered:
            visible = f.broadcast(self._visible(group, options))
            rows = self._scan(filtered, table).join(visible, _FILE_ID)
            rows = rows.where(f.col(_POINT).between(f.col("base"), f.col("point")))
            if position is not None:
                rows = rows.where((position > f.col("since")) & (position <= f.col("until")))
            parts.append(rows.select(*table.schema))
        rows = _union(parts)
        if not table.key:
            return rows
        newest = f.max_by(f.struct(*table.schema), _POINT).alias("newest")
        return rows.groupBy(*table.key).agg(newest).select("newest.*")

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
        self,
        rows: DataFrame,
        group: FileGroup,
        table: ArchivedTable,
        names: Iterable[str],
        options: ReadOptions,
    ) -> DataFrame:
        """Return rows joined with those of their columns that are in other tables."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        for lookup in table.needed_lookups(names):
            how = "inner" if lookup.required else "left"
            columns = [f.expr(text).alias(name) for name, text in lookup.columns.items()]
            keys = [f.expr(lookup.keys.get(name, f"`{name}`")).alias(name) for name in lookup.on]
            if lookup.source is None:
                live = replace(
                    options, table_name=lookup.live, columns=None, conditions=Conditions(), app=None
                )
                bounds = [replace(bound, since=0) for bound in group.bounds]
                other = self._export(bounds, live).select(*keys, *columns)
                rows = rows.join(other, list(lookup.on), how)
                continue
            source = lookup.source
            other = self._rows(group, source, options)
            other = self._looked_up(other, group, source, lookup.columns, options)
            # Spark drops the join if no column of it is used, because its keys are unique.
            unique = (
                other.select(*keys, *columns)
                .groupBy(*lookup.on)
                .agg(*(f.first(name).alias(name) for name in lookup.columns))
            )
            rows = rows.join(unique, list(lookup.on), how)
        return rows


def _visible_row(visible: Any) -> tuple[Any, ...]:
    return tuple(getattr(visible, name) for name in _VISIBLE)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.union(other), frames)

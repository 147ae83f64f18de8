"""`fourfold.pipeline.read`: read a table of one or many stores as a DataFrame.

The cut is read and its rows are exported when the DataFrame is created; Spark reads them with its
own Parquet reader, so it prunes columns, pushes filters down and knows their size. It is the table
that `spark.read.format("fourfold")` returns with the same options. Errors are Fourfold errors, not
Spark errors with a traceback inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from fourfold import settings
from fourfold.errors import InvalidInput
from fourfold.pipeline import driver
from fourfold.pipeline.exporter import ROW
from fourfold.pipeline.file_server import get_server
from fourfold.pipeline.models import get_model
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.spark import register, unwrap_error
from fourfold.pipeline.table_files import PIECE, TableFiles, fold_function, table_files
from fourfold.query.tables import FILES, ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut

    FrameReader = Callable[[SparkSession, Cut, ReadOptions], DataFrame | None]
    """Returns the rows of a table at a cut; None if they are read like those of any other."""


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """Read a table: `read(spark, root="my-store", table="revisions")`.

    The options are those of the format "fourfold"; numbers and flags may be passed as Python
    values. Invalid options and unreadable files raise here.
    """
    texts = {name: _text(value) for name, value in options.items() if value is not None}
    return frame(spark, texts)


def frame(spark: SparkSession, options: Mapping[str, str], cut: Cut | None = None) -> DataFrame:
    """Read a table with options as texts, at `cut` if one is given."""
    parsed = read_options(options)
    if parsed.urls:
        _check_archives(spark, parsed)
    if parsed.objects is not None or not driver.is_reachable(spark):
        return _frame_of_source(spark, options, cut)
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415 - workers do not need the kernel

    if parsed.table_name == FILES:
        bounds = cuts.Cut(())
    elif cut is None and parsed.urls:
        from fourfold.pipeline.archive_roots import archive_cut  # noqa: PLC0415 - so does this

        bounds = archive_cut(parsed)
    elif cut is None:
        bounds = cuts.read_cut(parsed)
    else:
        bounds = cuts.apply_bounds(cuts.select_space(cut, parsed.space), parsed)
    own = get_model(parsed.model).frames
    read_table = None if own is None else own().get(parsed.table_name)
    if read_table is not None:
        rows = read_table(spark, bounds, parsed)
        if rows is not None:
            return rows
    from fourfold.pipeline.archive_plan import plan_archive  # noqa: PLC0415 - it needs the kernel

    rooted = parsed.table.folded or ROOT in (parsed.columns or ())
    if parsed.urls:
        from fourfold.pipeline.archive_roots import plan_archives  # noqa: PLC0415 - so does this

        known, plan = plan_archives(bounds.bounds, parsed, rooted=rooted)
        bounds = cuts.Cut(known, bounds.bad)
    else:
        plan = plan_archive(bounds.bounds, parsed, rooted=rooted)
    if plan is None:
        return file_frame(spark, table_files(bounds, parsed))
    from fourfold.pipeline.archive_frame import ArchiveReader  # noqa: PLC0415 - it needs the kernel

    reader = ArchiveReader(spark, partial(file_addresses, spark), partial(file_frame, spark))
    return reader.read(plan, parsed)


def _check_archives(spark: SparkSession, options: ReadOptions) -> None:
    """Raise InvalidInput for reads of archives by URL that are not supported."""
    if not driver.is_reachable(spark):
        raise InvalidInput(
            "archives are not read by URL through Spark Connect",
            hint="Restore or follow the archive on the server, and read its folder.",
        )
    if options.table_name == FILES:
        raise InvalidInput("table 'files' lists the files of stores, not those of archives")
    if isinstance(options.since, datetime):
        raise InvalidInput(
            "since must be a seq in a read of archives, got a time",
            hint="Filter on the column time.",
        )


def file_frame(spark: SparkSession, files: TableFiles) -> DataFrame:
    """Return the rows of a table from its files."""
    schema = ", ".join(f"`{column.name}` {column.type}" for column in files.columns)
    # The paths are names of files, whatever characters they contain.
    source = spark.read.schema(schema).option("globPaths", "false")
    rows = source.parquet(*file_addresses(spark, [part.path for part in files.parts]))
    if files.fold is None:
        return rows
    if not files.whole:
        rows = rows.repartition(PIECE).sortWithinPartitions(PIECE, ROW)
    output = ", ".join(f"`{column.name}` {column.type}" for column in files.output)
    return rows.mapInArrow(fold_function(files.parts), output)


def file_addresses(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return where executors find files of this machine: the driver serves them on a cluster."""
    shared = settings.load(None, environ=os.environ).pipeline.cache_shared == "on"
    if shared or driver.is_local(spark):
        return [f"file://{path}" for path in paths]
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    server = get_server(conf.get("spark.driver.bindAddress") or host)
    return [server.add(path, host) for path in paths]


def _frame_of_source(spark: SparkSession, options: Mapping[str, str], cut: Cut | None) -> DataFrame:
    """Return the table as the format reads it: published objects, and Spark Connect, whose server
    has the files.
    """
    register(spark)
    reader = spark.read.format("fourfold").options(**options)
    if cut is not None and options.get("table") != FILES:
        reader = reader.option("cut", cut.token())
    try:
        return reader.load()
    except Exception as error:
        cause = unwrap_error(error)
        if cause is error:
            raise
        raise cause from error


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)

"""`fourfold.pipeline.read`: a table as a DataFrame, read in the JVM where that is possible.

It is the same table as `spark.read.format("fourfold")` gives with the same options, of a cut that
is taken when the DataFrame is made. What a query then wants decides who reads: a scan of a table
that lies in its files as it is goes through the JVM, anything else through the format. Only the
columns that a query uses are read, in either case.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fourfold.pipeline import driver
from fourfold.pipeline.options import read_options
from fourfold.pipeline.tables import FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """A table of one store or many: `read(spark, root="my-store", table="revisions")`.

    The options are those of the format "fourfold". Numbers and flags may be given as such.
    """
    given = {name: _text(value) for name, value in options.items() if value is not None}
    return frame(spark, given)


def frame(spark: SparkSession, given: Mapping[str, str], cut: Cut | None = None) -> DataFrame:
    """The same with options as texts, and with a cut that was taken before, if there is one."""
    options = read_options(given)
    if options.table_name == FILES or not driver.reachable(spark):
        return _format(spark, given, cut)
    from fourfold.pipeline.native import classes, told  # noqa: PLC0415 - they are for drivers

    if not told.is_plain(options):
        return _format(spark, given, cut)
    from fourfold.pipeline import cut as cuts  # noqa: PLC0415

    if cut is not None and options.at is None and options.since is None:
        taken = cuts.of_space(cut, options.space)
    else:
        taken = cuts.take(options)
    text = told.told(taken, options)
    if text is None:
        return _format(spark, _without_cut(given), taken)
    same = driver.gateway(spark).jvm.java.util.HashMap()
    for name, value in (_without_cut(given) | {"cut": taken.token()}).items():
        if name.lower() != "columns":
            same.put(name, value)
    shape = options.table.ddl(options.columns)
    return driver.frame(spark, classes.method(spark), same, shape, text)


def _format(spark: SparkSession, given: Mapping[str, str], cut: Cut | None) -> DataFrame:
    reader = spark.read.format("fourfold").options(**given)
    if cut is not None and given["table"] != FILES:
        reader = reader.option("cut", cut.token())
    return reader.load()


def _without_cut(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in given.items() if name.lower() not in {"at", "since", "cut"}
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)

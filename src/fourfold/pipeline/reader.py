"""`fourfold.pipeline.read`: read a table of one or many stores as a DataFrame.

It is the table that `spark.read.format("fourfold")` returns with the same options; the cut is read
when the DataFrame is created. Errors are Fourfold errors, not Spark errors with a traceback inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fourfold.pipeline.options import read_options
from fourfold.pipeline.spark import unwrap_error
from fourfold.query.tables import FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut


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
    reader = spark.read.format("fourfold").options(**options)
    if cut is not None and parsed.table_name != FILES:
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

"""`fourfold.pipeline.read`: a table of one store or many as a DataFrame.

It is the table that `spark.read.format("fourfold")` gives with the same options, with the cut taken
when the DataFrame is made. Errors are Fourfold's own, and not Spark's with a traceback in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fourfold.pipeline.options import read_options
from fourfold.pipeline.spark import typed
from fourfold.pipeline.tables import FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """Read a table: `read(spark, root="my-store", table="revisions")`.

    The options are those of the format "fourfold". Numbers and flags may be given as such. Errors
    of options and files are raised here.
    """
    given = {name: _text(value) for name, value in options.items() if value is not None}
    return frame(spark, given)


def frame(spark: SparkSession, given: Mapping[str, str], cut: Cut | None = None) -> DataFrame:
    """Read a table with options as texts, at a cut that was taken before if there is one."""
    options = read_options(given)
    reader = spark.read.format("fourfold").options(**given)
    if cut is not None and options.table_name != FILES:
        reader = reader.option("cut", cut.token())
    try:
        return reader.load()
    except Exception as error:
        cause = typed(error)
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

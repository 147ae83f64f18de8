"""Capabilities of a session's driver: over Spark Connect, its JVM cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_reachable(spark: SparkSession) -> bool:
    """Return True if the driver's JVM can be reached, which Spark Connect does not allow."""
    return hasattr(spark, "_jsparkSession")


def is_local(spark: SparkSession) -> bool:
    """Return True if the driver's process runs the tasks, too: the master is `local[...]`."""
    return is_reachable(spark) and str(spark.sparkContext.master).startswith("local")

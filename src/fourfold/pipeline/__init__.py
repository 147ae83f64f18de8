"""The data pipeline on Spark: everything that reads or rewrites history in bulk.

    from fourfold.pipeline import session, views
    spark = session()
    views(spark, "my-store")
    spark.sql("select id, document from state").show()

This is the only package that knows Spark. Importing it costs nothing: pyspark and a Java runtime
are looked for when a session is wanted, and their absence is a `MissingDependency` that says what
to install.
"""

from __future__ import annotations

from fourfold.pipeline.reader import read
from fourfold.pipeline.spark import register, session
from fourfold.pipeline.views import Views, sql, views

__all__ = ["Views", "read", "register", "session", "sql", "views"]

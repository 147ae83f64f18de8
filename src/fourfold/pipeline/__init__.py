"""The data pipeline on Spark: everything that reads or rewrites history in bulk.

    from fourfold.pipeline import session, views
    spark = session()
    views(spark, "my-store")
    spark.sql("select id, document from state").show()

This is the only package that uses Spark. Importing it is cheap: pyspark and a Java runtime
are located when a session is started; if one is missing, `MissingDependency` states what to
install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports
from fourfold.pipeline.reader import read
from fourfold.pipeline.spark import register, session
from fourfold.pipeline.views import Views, sql, views

if TYPE_CHECKING:
    from fourfold.pipeline.streams.published import published, published_state
else:
    # Workers import this package without object stores.
    _published = "fourfold.pipeline.streams.published"
    __getattr__, __dir__ = exports(
        __name__, {"published": _published, "published_state": _published}
    )

__all__ = [
    "Views",
    "published",
    "published_state",
    "read",
    "register",
    "session",
    "sql",
    "views",
]

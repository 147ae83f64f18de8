"""The data pipeline on Spark: everything that reads or rewrites history in bulk.

This is the only package that knows Spark. Importing it costs nothing: pyspark and a Java runtime
are looked for when a session is wanted, and their absence is a `MissingDependency` that says what
to install.
"""

from __future__ import annotations

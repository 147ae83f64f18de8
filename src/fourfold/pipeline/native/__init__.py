"""Scans of SQLite files inside Spark's JVM, as quick as those of Parquet.

    reading     fourfold.pipeline.read: a table as a DataFrame
    told        from a cut to what the JVM is told: stretches of files
    classes     the Java classes, compiled once and known to every executor

The classes, from the file to Spark:

    OpenFile        a file that is open in this JVM, and the locks on it
    Snapshot        one committed state of it: pages
    Record, Tree    fields of a record, a walk through the pages of a table; Bounds, Schema
    Times, Moment   when the commits were made that rows belong to
    Rows, Cells     the rows of a task, in batches; Stored, Piece, Part say of what
    StoreTable      the table that Spark sees; StoreBuilder, StoreScan, Readers
    Problem         an error that Python finds in what Spark reports

They are Java as Janino compiles it, the compiler that Spark brings along: no lambdas, no generics.
"""

"""Drive a streaming reader as Spark does with `availableNow`, in this process and without a JVM."""

from __future__ import annotations

from pyspark.sql.types import StructType

from fourfold.pipeline.source import FourfoldSource


def follow(columns, start=None, **options):
    """Return the rows of the stream, the sizes of its batches, and the offset where it ended.

    Args:
        columns: Names and types, as in "space string, seq long".
        start: The end of an earlier run.
    """
    schema = StructType()
    for column in columns.split(", "):
        schema = schema.add(*column.split())
    source = FourfoldSource({name: str(value) for name, value in options.items()})
    reader = source.streamReader(schema)
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset() if start is None else start
    rows, sizes = [], []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        batches = [batch for part in reader.partitions(at, end) for batch in reader.read(part)]
        batch = [tuple(row.values()) for each in batches for row in each.to_pylist()]
        rows += batch
        sizes.append(len(batch))
        at = end
    return sorted(rows), sizes, at

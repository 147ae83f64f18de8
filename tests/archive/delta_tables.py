"""Delta tables for tests: rows of one column in small Parquet files, and how others read them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from fourfold.archive.delta_actions import AddFile, Txn, table_actions
from fourfold.archive.delta_schema import file_statistics
from fourfold.retry import Retries

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])
NO_RETRIES = Retries(most=0)
QUICK = Retries(most=4, pause_s=0.0)


def parquet(rows, schema=SCHEMA):
    """The bytes of a Parquet file with these rows of (name, n)."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    table = pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)],
        schema=schema,
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def add_rows(log, objects, path, rows, schema=SCHEMA):
    """Put a data file and return its `add`."""
    data = parquet(rows, schema)
    objects.put(log.key(path), data)
    stats = file_statistics(pq.read_metadata(io.BytesIO(data)))
    return AddFile(path, len(data), 1_700_000_000_000, stats=stats)


def created(*actions, schema=SCHEMA, name="t"):
    """The actions of a first commit."""
    return [*table_actions(schema, name=name), *actions]


def txn(version, app="app"):
    return Txn(app, version)


def rows_in(log, objects, snapshot):
    """The rows of a snapshot, read with pyarrow only."""
    rows = []
    for path in snapshot.files:
        table = pq.read_table(io.BytesIO(objects.get(log.key(path)).data))
        rows += zip(*(table.column(name).to_pylist() for name in ("name", "n")), strict=True)
    return sorted(rows, key=repr)

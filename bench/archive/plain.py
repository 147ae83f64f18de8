"""The limits: plain pyarrow that writes the same Parquet, and that reads and joins it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fourfold.archive import segment_writer

Batches = Sequence[pa.RecordBatch]


def row_groups(path: Path) -> Batches:
    """The rows of a file, ready to be written again: a batch for each of its row groups."""
    file = pq.ParquetFile(path)
    found = []
    for at in range(file.num_row_groups):
        [batch] = file.read_row_group(at).combine_chunks().to_batches()
        found.append(batch)
    return found


def write(batches: Batches, path: Path) -> None:
    """A file with the settings of a segment, on disk."""
    options: dict[str, Any] = segment_writer._options()
    with path.open("wb") as file:
        with pq.ParquetWriter(file, segment_writer.schema(), **options) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=batch.num_rows)
        file.flush()
        os.fsync(file.fileno())


def write_rows(rows: Sequence[tuple[Any, ...]], sizes: Sequence[int], path: Path) -> None:
    """The same from rows as SQLite gives them, in row groups of these sizes."""
    kinds = [field.type for field in segment_writer.schema()]
    batches, at = [], 0
    for size in sizes:
        columns = zip(*rows[at : at + size], strict=True)
        arrays = [pa.array(each, type=kind) for each, kind in zip(columns, kinds, strict=True)]
        batches.append(pa.record_batch(arrays, schema=segment_writer.schema()))
        at += size
    write(batches, path)


def joined(path: Path) -> bytes:
    """The payloads of a file with commas between them, as the body of an answer has them."""
    column = pq.read_table(path, columns=[segment_writer.PAYLOAD]).column(0)
    values = pa.concat_arrays(column.chunks)
    ends = pa.array([0, len(values)], type=pa.int32())
    found: bytes = pc.binary_join(pa.ListArray.from_arrays(ends, values), b",")[0].as_py()
    return found

"""Rows on their way into streams: each task writes its own to a file, in Arrow's format.

What a row alone can be judged by is judged here. What depends on the stream is judged before the
first record of a batch is appended.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shape:
    """The one stream that all rows are for, if there is one, and the columns that order them."""

    stream: str | None = None
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task has staged."""

    path: str
    rows: int


def stage(batches: Iterator[pa.RecordBatch], shape: Shape, folder: Path) -> Staged:
    """Write rows to a file of their own in `folder`."""
    pa = arrow()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{uuid.uuid4().hex}.arrow"
    writer: Any = None
    rows = 0
    try:
        for batch in batches:
            checked = _checked(pa, batch, shape)
            if writer is None:
                writer = pa.ipc.new_file(str(path), checked.schema)
            writer.write_batch(checked)
            rows += batch.num_rows
    except BaseException:
        if writer is not None:
            writer.close()
        path.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.close()
    return Staged(str(path), rows)


def table_of(staged: list[Staged], shape: Shape) -> pa.Table | None:
    """All rows of a batch, those of a stream together and in order: as their columns say, or else
    task after task.
    """
    pa = arrow()
    tables = [pa.ipc.open_file(pa.memory_map(each.path)).read_all() for each in staged if each.rows]
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    if shape.stream is not None and not shape.order:
        # There is nothing to sort: the rows stay in their files, and are read from there.
        return whole
    numbered = whole.append_column("staged_row", pa.array(range(whole.num_rows), pa.int64()))
    names = ("stream", *shape.order, "staged_row")
    return numbered.sort_by([(name, "ascending") for name in names])


def by_stream(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each stream, in the order of their names, as they were sorted."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    start = 0
    counts = {
        each["values"]: each["counts"]
        for each in pc.value_counts(table.column("stream")).to_pylist()
    }
    for name in sorted(counts):
        yield name, table.slice(start, counts[name])
        start += counts[name]


def payloads(table: pa.Table) -> Iterator[list[bytes]]:
    """The payloads of rows, some at a time."""
    column = table.column("payload")
    for start in range(0, len(column), limits.SOURCE_BATCH_ROWS):
        yield column.slice(start, limits.SOURCE_BATCH_ROWS).to_pylist()


def _checked(pa: Any, batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    names = ("payload",) if shape.stream is not None else ("stream", "payload")
    for name in names:
        if batch.column(name).null_count:
            raise InvalidInput(f"a row has no {name}")
    payload = batch.column("payload").cast(pa.binary()).cast(pa.large_binary())
    stream = (
        batch.column("stream").cast(pa.string())
        if shape.stream is None
        else pa.repeat(pa.scalar(shape.stream, pa.string()), batch.num_rows)
    )
    columns = {"stream": stream, "payload": payload}
    columns |= {name: batch.column(name) for name in shape.order if name not in columns}
    return pa.RecordBatch.from_pydict(columns)

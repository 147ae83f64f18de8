"""Reading published segments in Spark's workers: Parquet to Arrow, object after object.

Of a segment only the columns that are wanted are fetched, and only row groups whose statistics do
not rule them out. What a manifest says already (the stream, dense offsets) is not read at all. An
object of which everything is wanted is one request; pages are checked against their checksums.

What is only in the file of the node is read by `scan`, as every other table is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.archive.retry import Retries
from fourfold.archive.segment_reader import RangeFile
from fourfold.archive.segment_writer import KEY, OFFSET, PAYLOAD, TIME
from fourfold.errors import CorruptData, FourfoldError, NotFound
from fourfold.objects import FolderStore, ObjectStore, open_objects
from fourfold.pipeline import scan
from fourfold.pipeline.scan import ScanTask
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.streams.fold import (
    Registries,
    begin_of_version,
    columns_read,
    promoted,
    shows_messages,
)
from fourfold.pipeline.streams.published_cut import Part
from fourfold.pipeline.tables import Column, arrow, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

_STORED: Final = {
    "offset": OFFSET,
    "time": TIME,
    "payload": PAYLOAD,
    "text": PAYLOAD,
    "size": PAYLOAD,
    "routing_key": KEY,
}
"""Columns of the table that stand in the segments, and under which name."""
_KNOWN: Final = frozenset({"stream", "offset", "content_type", "generation"})
"""Columns that a manifest tells."""


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """What one task reads of the object store."""

    url: str
    parts: tuple[Part, ...]
    columns: tuple[Column, ...]
    batch_rows: int
    until_ms: int | None = None
    keys: tuple[bytes, ...] | None = None
    """Routing keys; records with others are not wanted."""
    registries: Registries | None = None
    """By which older messages are promoted."""


@dataclass(frozen=True, slots=True)
class TailWork:
    """What one task reads of the file of the node; `work` has the column `time` at its end."""

    work: ScanTask
    columns: tuple[Column, ...]
    until_ms: int | None = None


def read_batches(work: SegmentWork | TailWork) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    if isinstance(work, TailWork):
        yield from _tail(work)
        return
    try:
        with open_objects(work.url) as objects:
            for part in work.parts:
                yield from _messages(work, part, objects)
    except FourfoldError as error:
        raise wrap_error(error) from error


def is_text(content_type: str) -> bool:
    """Whether the records of a stream are text, so that they have a column `text`."""
    kind = content_type.lower()
    return kind.startswith(("application/json", "text/"))


def _messages(work: SegmentWork, part: Part, objects: ObjectStore) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Only one with older messages takes the way through their lenses."""
    known = work.registries
    if (
        known is None
        or part.low >= begin_of_version(known, part.stream)
        or not shows_messages(work.columns)
    ):
        yield from _part(work, part, objects)
        return
    names = [column.name for column in work.columns]
    stored = replace(work, columns=columns_read(work.columns))
    for batch in promoted(_part(stored, part, objects), known):
        yield batch.select(names)


def _part(work: SegmentWork, part: Part, objects: ObjectStore) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in work.columns]
    untimed = work.until_ms is None or part.held.last_ms <= work.until_ms
    if _KNOWN.issuperset(names) and untimed and work.keys is None:
        yield from _told(work, part)
        return
    stored = {_STORED[name] for name in names if name in _STORED} | {OFFSET}
    if not untimed:
        stored.add(TIME)
    if work.keys is not None:
        stored.add(KEY)
    try:
        source = _source(objects, part, stored)
        try:
            for table in _tables(source, part, sorted(stored), work):
                rows = _filtered(table, work, timed=not untimed)
                if rows.num_rows:
                    yield _shaped(rows, part, work.columns)
        finally:
            source.close()
    except FourfoldError:
        raise
    except (OSError, ValueError, AttributeError) as error:
        raise CorruptData(
            f"object {part.held.key!r} of {part.stream!r} cannot be read: {error}",
            hint="`fourfold pipeline run verify ROOT --objects URL` shows all that is damaged.",
        ) from error


def _source(objects: ObjectStore, part: Part, stored: set[str]) -> Any:
    """A file to read from. From far away, an object of which most is wanted is fetched at once."""
    pa, key, size = arrow(), part.held.key, part.held.size
    try:
        if isinstance(objects, FolderStore):
            return pa.OSFile(str(objects.path(key)))
        if PAYLOAD in stored and part.whole:
            data = Retries().run(lambda: objects.get(key)).data
            if len(data) != size:
                raise CorruptData(f"object {key!r} has {len(data)} bytes; it should have {size}")
            return pa.BufferReader(data)
    except (NotFound, FileNotFoundError) as error:
        raise CorruptData(
            f"object {key!r} of {part.stream!r} is missing",
            hint="It may have been retired meanwhile: take the read again.",
        ) from error
    return RangeFile(objects, key, size, Retries())


def _tables(source: Any, part: Part, stored: list[str], work: SegmentWork) -> Iterator[pa.Table]:
    """Row groups with wanted records, several together, without the records around them."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
    metadata = file.metadata
    wanted: list[int] = []
    rows = size = 0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        offsets = group.column(0).statistics
        if offsets.max < part.low or offsets.min >= part.high or not _may_have(group, work.keys):
            continue
        wanted.append(at)
        rows += group.num_rows
        size += group.total_byte_size
        if rows >= work.batch_rows or size >= limits.SOURCE_BATCH_BYTES:
            yield _between(file.read_row_groups(wanted, stored, use_threads=False), part)
            wanted, rows, size = [], 0, 0
    if wanted:
        yield _between(file.read_row_groups(wanted, stored, use_threads=False), part)


def _may_have(group: Any, keys: tuple[bytes, ...] | None) -> bool:
    """Whether a row group may have a record with one of these routing keys."""
    if keys is None:
        return True
    told = group.column(2).statistics
    if told is None:
        return True
    if told.null_count == group.num_rows:
        return False
    return not told.has_min_max or any(told.min <= key <= told.max for key in keys)


def _between(table: pa.Table, part: Part) -> pa.Table:
    """Records from `low` up to, and without, `high`: offsets are in order."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    column = table.column(OFFSET)
    if column[0].as_py() >= part.low and column[-1].as_py() < part.high:
        return table
    kept = pc.and_(pc.greater_equal(column, part.low), pc.less(column, part.high))
    return table.filter(kept)


def _filtered(table: pa.Table, work: SegmentWork, *, timed: bool) -> pa.Table:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    if timed:
        table = table.filter(pc.less_equal(table.column(TIME), _moment(work.until_ms)))
    if work.keys is not None:
        wanted = arrow().array(work.keys, arrow().binary())
        table = table.filter(pc.is_in(table.column(KEY), value_set=wanted))
    return table


def _moment(ms: int | None) -> Any:
    pa = arrow()
    return pa.scalar(ms, pa.timestamp("ms", tz="UTC"))


def _told(work: SegmentWork, part: Part) -> Iterator[pa.RecordBatch]:
    """Rows of which all is known without reading the object: offsets have no holes."""
    pa = arrow()
    schema = arrow_schema(work.columns)
    for low in range(part.low, part.high, work.batch_rows):
        high = min(low + work.batch_rows, part.high)
        arrays = [
            pa.array(range(low, high), pa.int64())
            if field.name == "offset"
            else pa.repeat(pa.scalar(getattr(part, field.name), field.type), high - low)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shaped(table: pa.Table, part: Part, columns: tuple[Column, ...]) -> pa.RecordBatch:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    whole = table.combine_chunks()
    schema = arrow_schema(columns)
    arrays = []
    for field in schema:
        if field.name not in _STORED:
            constant = pa.scalar(getattr(part, field.name), field.type)
            arrays.append(pa.repeat(constant, whole.num_rows))
            continue
        stored = whole.column(_STORED[field.name])
        array = stored.chunk(0) if stored.num_chunks else pa.array([], stored.type)
        if field.name == "text":
            # Bytes as they are: SQLite and Spark do not look whether text is text, either.
            text = array.view(pa.string()) if is_text(part.content_type) else None
            arrays.append(pa.nulls(whole.num_rows, pa.string()) if text is None else text)
        elif field.name == "routing_key":
            arrays.append(array.view(pa.string()))
        elif field.name == "size":
            arrays.append(pc.binary_length(array).cast(pa.int64()))
        else:
            arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _tail(tail: TailWork) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    names = [column.name for column in tail.columns]
    for batch in scan.read_batches(tail.work):
        rows = batch
        if tail.until_ms is not None:
            rows = batch.filter(pc.less_equal(batch.column("time"), _moment(tail.until_ms)))
        if rows.num_rows:
            yield rows.select(names)

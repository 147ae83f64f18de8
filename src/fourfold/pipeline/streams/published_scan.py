"""Scan published segments in Spark's workers: Parquet to Arrow, one object after the other.

Only the selected columns of a segment are fetched, and only row groups whose statistics do not
exclude them. Values in the manifest (the stream, dense offsets) are not read at all. An object that
is read completely is one request; pages are verified against their checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.archive.segment_reader import RangeFile
from fourfold.archive.segment_writer import HEADERS, KEY, OFFSET, PAYLOAD, TIME
from fourfold.errors import CorruptData, FourfoldError, NotFound
from fourfold.objects import FolderStore, ObjectStore, open_objects
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.streams.fold import columns_read, promoted, shows_messages
from fourfold.pipeline.streams.published_cut import ObjectRecords
from fourfold.query.streams.promotion import Registries, begin_of_version
from fourfold.query.tables import Column, arrow, arrow_schema
from fourfold.retry import Retries

if TYPE_CHECKING:
    import pyarrow as pa

_STORED: Final = {
    "offset": OFFSET,
    "time": TIME,
    "payload": PAYLOAD,
    "text": PAYLOAD,
    "size": PAYLOAD,
    "routing_key": KEY,
    "headers": HEADERS,
}
"""Columns of the table that are stored in segments, with their names there."""
_KNOWN: Final = frozenset({"stream", "offset", "content_type", "generation"})
"""Columns whose values are in the manifest."""


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """The objects that one task reads."""

    url: str
    parts: tuple[ObjectRecords, ...]
    columns: tuple[Column, ...]
    batch_rows: int
    until_ms: int | None = None
    keys: tuple[bytes, ...] | None = None
    """Selected routing keys; None for all."""
    registries: Registries | None = None
    """Registries that promote older messages."""


def read_batches(task: SegmentWork) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task."""
    try:
        with open_objects(task.url) as objects:
            for part in task.parts:
                yield from _messages(task, part, objects)
    except FourfoldError as error:
        raise wrap_error(error) from error


def is_text(content_type: str) -> bool:
    """Return True if the records of a stream are text and have a column `text`."""
    kind = content_type.lower()
    return kind.startswith(("application/json", "text/"))


def _messages(
    task: SegmentWork, part: ObjectRecords, objects: ObjectStore
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, promoting only parts with older messages."""
    registries = task.registries
    if (
        registries is None
        or part.low >= begin_of_version(registries, part.stream)
        or not shows_messages(task.columns)
    ):
        yield from _part(task, part, objects)
        return
    names = [column.name for column in task.columns]
    stored = replace(task, columns=columns_read(task.columns))
    for batch in promoted(_part(stored, part, objects), registries):
        yield batch.select(names)


def _part(task: SegmentWork, part: ObjectRecords, objects: ObjectStore) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in task.columns]
    untimed = task.until_ms is None or part.held.last_ms <= task.until_ms
    if _KNOWN.issuperset(names) and untimed and task.keys is None:
        yield from _from_manifest(task, part)
        return
    stored = {_STORED[name] for name in names if name in _STORED} | {OFFSET}
    if not untimed:
        stored.add(TIME)
    if task.keys is not None:
        stored.add(KEY)
    try:
        source = _source(objects, part, stored)
        try:
            for table in _tables(source, part, sorted(stored), task):
                rows = _filtered(table, task, timed=not untimed)
                if rows.num_rows:
                    yield _shaped(rows, part, task.columns)
        finally:
            source.close()
    except FourfoldError:
        raise
    except (OSError, ValueError, AttributeError) as error:
        raise CorruptData(
            f"stream {part.stream!r}: cannot read object {part.held.key!r}: {error}",
            hint="Run `fourfold pipeline run verify ROOT --objects URL` to list all damage.",
        ) from error


def _source(objects: ObjectStore, part: ObjectRecords, stored: set[str]) -> Any:
    """Open an object. A remote object that is mostly needed is fetched in one request."""
    pa, key, size = arrow(), part.held.key, part.held.size
    try:
        if isinstance(objects, FolderStore):
            return pa.OSFile(str(objects.path(key)))
        if PAYLOAD in stored and part.whole:
            data = Retries().run(lambda: objects.get(key)).data
            if len(data) != size:
                raise CorruptData(f"object {key!r}: expected {size} bytes, found {len(data)}")
            return pa.BufferReader(data)
    except (NotFound, FileNotFoundError) as error:
        raise CorruptData(
            f"stream {part.stream!r}: object {key!r} is missing",
            hint="Gc may have removed it meanwhile: run the read again.",
        ) from error
    return RangeFile(objects, key, size, Retries())


def _tables(
    source: Any, part: ObjectRecords, stored: list[str], task: SegmentWork
) -> Iterator[pa.Table]:
    """Yield row groups with selected records, several together, without other records."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
    metadata = file.metadata
    groups: list[int] = []
    rows = size = 0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        offsets = group.column(0).statistics
        if offsets.max < part.low or offsets.min >= part.high or not _may_have(group, task.keys):
            continue
        groups.append(at)
        rows += group.num_rows
        size += group.total_byte_size
        if rows >= task.batch_rows or size >= limits.SOURCE_BATCH_BYTES:
            yield _between(file.read_row_groups(groups, stored, use_threads=False), part)
            groups, rows, size = [], 0, 0
    if groups:
        yield _between(file.read_row_groups(groups, stored, use_threads=False), part)


def _may_have(group: Any, keys: tuple[bytes, ...] | None) -> bool:
    """Return True if a row group may have a record with one of these routing keys."""
    if keys is None:
        return True
    statistics = group.column(2).statistics
    if statistics is None:
        return True
    if statistics.null_count == group.num_rows:
        return False
    return not statistics.has_min_max or any(
        statistics.min <= key <= statistics.max for key in keys
    )


def _between(table: pa.Table, part: ObjectRecords) -> pa.Table:
    """Return the records with `low` <= offset < `high`; offsets are sorted."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    column = table.column(OFFSET)
    if column[0].as_py() >= part.low and column[-1].as_py() < part.high:
        return table
    mask = pc.and_(pc.greater_equal(column, part.low), pc.less(column, part.high))
    return table.filter(mask)


def _filtered(table: pa.Table, task: SegmentWork, *, timed: bool) -> pa.Table:
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    if timed:
        table = table.filter(pc.less_equal(table.column(TIME), _timestamp(task.until_ms)))
    if task.keys is not None:
        keys = arrow().array(task.keys, arrow().binary())
        table = table.filter(pc.is_in(table.column(KEY), value_set=keys))
    return table


def _timestamp(ms: int | None) -> Any:
    pa = arrow()
    return pa.scalar(ms, pa.timestamp("ms", tz="UTC"))


def _from_manifest(task: SegmentWork, part: ObjectRecords) -> Iterator[pa.RecordBatch]:
    """Yield rows whose columns are all known without reading the object: offsets have no gaps."""
    pa = arrow()
    schema = arrow_schema(task.columns)
    for low in range(part.low, part.high, task.batch_rows):
        high = min(low + task.batch_rows, part.high)
        arrays = [
            pa.array(range(low, high), pa.int64())
            if field.name == "offset"
            else pa.repeat(pa.scalar(getattr(part, field.name), field.type), high - low)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shaped(table: pa.Table, part: ObjectRecords, columns: tuple[Column, ...]) -> pa.RecordBatch:
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
        if field.name == "headers" and HEADERS not in whole.column_names:
            arrays.append(pa.nulls(whole.num_rows, pa.string()))
            continue
        stored = whole.column(_STORED[field.name])
        array = stored.chunk(0) if stored.num_chunks else pa.array([], stored.type)
        if field.name == "text":
            # Not validated, like text in SQLite and Spark.
            text = array.view(pa.string()) if is_text(part.content_type) else None
            arrays.append(pa.nulls(whole.num_rows, pa.string()) if text is None else text)
        elif field.name in {"routing_key", "headers"}:
            arrays.append(array.view(pa.string()))
        elif field.name == "size":
            arrays.append(pc.binary_length(array).cast(pa.int64()))
        else:
            arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

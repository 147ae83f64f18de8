"""Writer of segments: Parquet files of records in the order of their offsets.

    offset int64, append_time timestamp (ms, UTC), routing_key binary, flags int32, payload binary,
    headers binary: only in a segment with headers of records, as JSON
    stream, file_id string: name and incarnation of the log, the same in every row

A segment is written under a temporary name, in row groups of bounded size and so in bounded memory;
then it is synced and renamed. So a file with its final name is complete. Every page has a checksum,
the file has a SHA-256, and a bloom filter excludes row groups without a routing key.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self, TypeVar

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.records import Row, SealedSegment
from fourfold.archive.temporary_files import held, put_in_place, unfinished
from fourfold.durability import sync_file
from fourfold.errors import InvalidInput
from fourfold.kernel import failpoints

R = TypeVar("R")
SEGMENT_BLOOM_FPP: Final = 0.01
"""False-positive rate of the Bloom filters of a segment."""


OFFSET, TIME, KEY, FLAGS, PAYLOAD = "offset", "append_time", "routing_key", "flags", "payload"
HEADERS = "headers"
STREAM, FILE_ID = "stream", "file_id"


class SegmentLabel(NamedTuple):
    """The log that the rows of a segment belong to: columns with one value each.

    With them a program that reads segments of many logs knows the log of each row.
    """

    stream: str
    file_id: str
    """Incarnation of the log: one that is deleted and created again has another."""

    def add_to(self, batch: Any) -> Any:
        """Return a batch of rows with these columns at the end."""
        pa, _ = arrow()
        indices = pa.repeat(pa.scalar(0, pa.int32()), len(batch))
        for name, value in zip((STREAM, FILE_ID), self, strict=True):
            column = pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))
            batch = batch.append_column(pa.field(name, column.type, nullable=False), column)
        return batch


@cache
def schema(*, headers: bool = False) -> Any:
    """Return the columns of a segment, with or without headers of records."""
    pa, _ = arrow()
    fields = [
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(TIME, pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field(KEY, pa.binary()),
        pa.field(FLAGS, pa.int32(), nullable=False),
        pa.field(PAYLOAD, pa.binary(), nullable=False),
    ]
    return pa.schema([*fields, pa.field(HEADERS, pa.binary())] if headers else fields)


def write_segment(
    rows: Iterable[Row],
    temporary: Path,
    named: Callable[[SealedSegment], Path],
    *,
    durable: bool = True,
    headers: bool = False,
    label: SegmentLabel | None = None,
) -> tuple[SealedSegment, Path]:
    """Write `rows` as a segment, and rename it to what `named` returns.

    If this raises, no file remains. With `durable=False` the caller syncs many files together.
    With `headers` the segment has a column for them.
    """
    groups = group_rows(rows, lambda row: len(row.payload) + len(row.headers or b""))
    batches = map(partial(_batch, schema(headers=headers)), groups)
    return write_batches(batches, temporary, named, durable=durable, label=label)


def write_batches(
    batches: Iterable[Any],
    temporary: Path,
    named: Callable[[SealedSegment], Path],
    *,
    durable: bool = True,
    beside: bool = True,
    label: SegmentLabel | None = None,
) -> tuple[SealedSegment, Path]:
    """Write batches of columns as a segment; each batch becomes a row group.

    With `beside` a row group is written while the next batch is computed.
    """
    if label is not None:
        batches = map(label.add_to, batches)
    with unfinished(temporary, "a segment"), held(temporary) as file:
        sealed = _write(batches, file, durable=durable, beside=beside)
        if failpoints.armed:
            failpoints.hit("archive.segment.built")
        final = named(sealed)
        put_in_place(temporary, final, durable=durable)
    if failpoints.armed:
        failpoints.hit("archive.segment.renamed")
    return sealed, final


def _write(batches: Iterable[Any], file: BinaryIO, *, durable: bool, beside: bool) -> SealedSegment:
    pa, _ = arrow()
    first = last = ts = -1
    count = size = groups = 0
    hashing = _HashingLater(file)
    with _SegmentFile(pa.PythonFile(hashing, mode="w"), beside=beside) as writing:
        for batch in batches:
            offsets, times, _, _, payloads = batch.columns[:5]
            if not groups:
                first, last = offsets[0].as_py(), offsets[0].as_py() - 1
            if not _follow(offsets, last):
                raise InvalidInput(f"{file.name}: records after {last} are not consecutive")
            held = pa.compute.sum(pa.compute.binary_length(payloads)).as_py()
            writing.add(batch, held)
            hashing.catch_up()
            last = offsets[-1].as_py()
            ts = max(ts, pa.compute.max(times.cast(pa.int64())).as_py())
            count += len(batch)
            size += held
            groups += 1
    if not count:
        raise InvalidInput(f"{file.name}: a segment has at least one record")
    hashing.catch_up()
    file.flush()
    if durable:
        sync_file(file.fileno())
    written = file.tell()
    return SealedSegment(first, last, count, size, ts, groups, written, hashing.digest.hexdigest())


class _SegmentFile:
    """Writes a row group on another thread while the next one is read.

    Parquet is compressed by one thread, which bounds the speed. So one more row group is queued for
    it, page headers are buffered, and hashing is left to other threads.
    """

    def __init__(self, sink: Any, *, beside: bool) -> None:
        pa, _ = arrow()
        self._sink = pa.BufferedOutputStream(sink, limits.SEGMENT_GROUP_BYTES)
        self._beside = beside
        self._writer: Any = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fourfold-segment")
        self._under_way: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def add(self, batch: Any, size: int) -> None:
        """Write a row group of `size` bytes after the previous ones."""
        if self._writer is None:
            _, pq = arrow()
            self._writer = pq.ParquetWriter(self._sink, batch.schema, **_options())
        small = size < limits.SEGMENT_GROUP_BYTES // 2 and len(batch) < limits.SEGMENT_GROUP_ROWS
        if small or not self._beside:
            # Probably the last, and often the only one: not worth a thread.
            self._wait(0)
            self._write(batch)
        else:
            self._under_way.append(self._pool.submit(self._write, batch))
            self._wait(1)

    def _write(self, batch: Any) -> None:
        self._writer.write_batch(batch, row_group_size=len(batch))

    def _wait(self, left: int) -> None:
        """Wait until at most `left` row groups are still to be written."""
        while len(self._under_way) > left:
            self._under_way.popleft().result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error, row groups that are not started need not be written.
        self._pool.shutdown(cancel_futures=kind is not None)
        try:
            if kind is None:
                self._wait(0)
        finally:
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self._sink.close()


def _follow(offsets: Any, last: int) -> bool:
    """Return True if offsets increase by one, starting after `last`."""
    pa, _ = arrow()
    if offsets[0].as_py() != last + 1:
        return False
    steps = pa.compute.min_max(pa.compute.pairwise_diff(offsets)).as_py()
    return steps in ({"min": 1, "max": 1}, {"min": None, "max": None})


def group_rows(rows: Iterable[R], size_of: Callable[[R], int]) -> Iterator[list[R]]:
    """Group rows into row groups, limited by bytes and number."""
    group: list[R] = []
    held = 0
    for row in rows:
        size = size_of(row)
        if group and (
            held + size > limits.SEGMENT_GROUP_BYTES or len(group) >= limits.SEGMENT_GROUP_ROWS
        ):
            yield group
            group, held = [], 0
        group.append(row)
        held += size
    if group:
        yield group


def _batch(columns: Any, group: list[Row]) -> Any:
    pa, _ = arrow()
    # Without a column for headers, no row has any.
    values = list(zip(*group, strict=True))[: len(columns)]
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(values, columns, strict=True)
    ]
    return pa.record_batch(arrays, schema=columns)


@cache
def _options() -> dict[str, Any]:
    _, pq = arrow()
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": limits.SEGMENT_ZSTD_LEVEL,
        "use_dictionary": [TIME, KEY, FLAGS, STREAM, FILE_ID],
        "column_encoding": {OFFSET: "DELTA_BINARY_PACKED", PAYLOAD: "PLAIN"},
        "write_statistics": [OFFSET, TIME, KEY, STREAM, FILE_ID],
        # Other programs read the types of Parquet: labels are text, not dictionaries.
        "store_schema": False,
        "write_page_index": True,
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(0)],
        "data_page_size": limits.SEGMENT_PAGE_BYTES,
    }
    # Older versions write no bloom filters; everything else is the same.
    if "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        ndv = limits.SEGMENT_GROUP_ROWS
        options["bloom_filter_options"] = {KEY: {"ndv": ndv, "fpp": SEGMENT_BLOOM_FPP}}
    return options


class HashingFile:
    """A file that hashes what is written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes and add them to the digest."""
        view = memoryview(data)
        self.digest.update(view)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        """Return the position in the file."""
        return int(self._file.tell())

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """Mark the file as closed; the file below stays open."""
        self.closed = True

    def readable(self) -> bool:
        """Return True if the file can be read."""
        return False

    def writable(self) -> bool:
        """Return True if the file can be written."""
        return True

    def seekable(self) -> bool:
        """Return True if the position can be set."""
        return False


class _HashingLater(HashingFile):
    """A file that hashes later, on the thread that requests the digest."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._written: deque[bytes] = deque()

    def write(self, data: Any) -> int:
        # The caller may reuse the buffer of a view.
        kept = data if type(data) is bytes else bytes(memoryview(data))
        self._file.write(kept)
        self._written.append(kept)
        return len(kept)

    def catch_up(self) -> None:
        """Hash what was written since the last call."""
        while self._written:
            self.digest.update(self._written.popleft())

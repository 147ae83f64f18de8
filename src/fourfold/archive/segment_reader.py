"""Reader of segments: from a local file, the cache, or the object store.

    local file ──> cache on disk ──> object store

A read decodes only the row groups that it needs, one at a time, so its memory does not depend on
the length of the log. From the object store it fetches the end of the file and the needed row
groups, by ranges; a segment that is read from its beginning, or a second time, is fetched as a
whole into the cache, and its digest is checked. Pages have checksums, so damage is detected in a
range, too.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.archive.key_filter import bitset_of, may_have
from fourfold.archive.manifest import key_of
from fourfold.archive.parquet import arrow
from fourfold.archive.records import Row
from fourfold.archive.segment_writer import FLAGS, HEADERS, KEY, OFFSET, PAYLOAD, TIME
from fourfold.cache import LruCache
from fourfold.errors import CorruptData, FourfoldError, NotFound, StorageError
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

ARCHIVE_TAIL_BYTES: Final = 64 * limits.KIB
"""Bytes at the end of a segment that the first request fetches: the footer is among them."""
ARCHIVE_INDEXES_MAX: Final = 1_024
"""Footers of segments cached in memory."""
ARCHIVE_GROUPS_HELD: Final = 16
"""Decoded row groups cached in memory for sequential readers."""

Record = tuple[int, bytes, int, bytes | None]
"""An offset, the payload of its record, its time in milliseconds since 1970, and its headers."""


class SegmentRequest(NamedTuple):
    """A segment to read: id, size, digest, and a path where it may be on this disk."""

    segment: str
    size_bytes: int
    digest: str
    local: Path | None = None
    key: str | None = None
    """Key of the object, if it is not a segment."""

    @property
    def object_key(self) -> str:
        """Key of the segment in the object store."""
        return self.key or key_of(self.segment)


def open_parquet(source: Any, metadata: Any = None, dictionaries: list[str] | None = None) -> Any:
    """Open a Parquet file whose bytes a Python object reads.

    Without buffering ahead, all reads happen on the calling thread: a thread of Arrow that still
    held the object when the interpreter ends would abort the process. Columns in `dictionaries` are
    read as numbers of distinct values.
    """
    _, pq = arrow()
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=dictionaries,
        page_checksum_verification=True,
        pre_buffer=False,
    )


class SegmentSource(Protocol):
    """A source of segments."""

    def records(self, request: SegmentRequest, start: int, end: int) -> Iterator[Record]:
        """Yield the records of a segment from `start` to before `end`, in order."""
        ...


class _Index(NamedTuple):
    """The metadata of a file, and the last offset of each row group."""

    metadata: Any
    firsts: list[int]
    lasts: list[int]


class OpenFile:
    """An open segment or another sorted file.

    The first column is the one that it is sorted by.
    """

    def __init__(self, source: Any, index: _Index) -> None:
        self._source = source
        self._metadata = index.metadata
        self.firsts, self.lasts = index.firsts, index.lasts
        """Lowest and highest value of the first column in each row group."""
        self._file: Any = None

    def read(self, at: int, columns: list[str] | None = None) -> Any:
        """Read a row group, or some of its columns."""
        if self._file is None:
            self._file = open_parquet(self._source, metadata=self._metadata)
        return self._file.read_row_group(at, columns=columns, use_threads=False)

    def has_column(self, column: str) -> bool:
        """Return True if the file has a column of that name."""
        return column in self._metadata.schema.names

    def has_only_nulls(self, at: int, column: str) -> bool:
        """Return True if a column of a row group has only nulls, by its statistics."""
        chunk = self._column(at, column)
        statistics = chunk.statistics
        return statistics is not None and bool(statistics.null_count == self._rows(at))

    def may_have(self, at: int, column: str, value: bytes, *, ordered: bool = False) -> bool:
        """Return True if a row group may contain a value, passed as the bytes that Parquet stores.

        Checks the bloom filter, and if the bytes are `ordered`, the statistics.
        """
        chunk = self._column(at, column)
        statistics = chunk.statistics
        if ordered and statistics is not None:
            if statistics.null_count == self._rows(at):
                return False
            if statistics.has_min_max and not statistics.min <= value <= statistics.max:
                return False
        start = getattr(chunk, "bloom_filter_offset", None)
        length = getattr(chunk, "bloom_filter_length", None)
        if not start or not length:
            return True
        self._source.seek(start)
        return may_have(bitset_of(self._source.read(length)), value)

    def _rows(self, at: int) -> int:
        return int(self._metadata.row_group(at).num_rows)

    def _column(self, at: int, column: str) -> Any:
        return self._metadata.row_group(at).column(self._metadata.schema.names.index(column))


def open_segments(
    objects: ObjectStore, cache: DiskCache, retries: Retries | None = None
) -> StoredSegments:
    """Return a reader of the segments in an object store, with a cache on disk."""
    return StoredSegments(objects, cache, retries or Retries())


class StoredSegments:
    """Segments of an object store, with a cache."""

    def __init__(self, objects: ObjectStore, cache: DiskCache, retries: Retries) -> None:
        self.objects = objects
        self.cache = cache
        self._retries = retries
        self._lock = threading.Lock()
        self._indexes: LruCache[str, _Index] = LruCache(ARCHIVE_INDEXES_MAX)
        self._groups: LruCache[tuple[str, int], Any] = LruCache(ARCHIVE_GROUPS_HELD)
        self._touched: LruCache[str, bool] = LruCache(ARCHIVE_INDEXES_MAX)
        self._fetching = tuple(threading.Lock() for _ in range(limits.ARCHIVE_LOCKS))
        self.opened = 0
        """Number of times that a segment was opened."""

    @contextmanager
    def open(self, request: SegmentRequest, start: int = 0) -> Iterator[OpenFile]:
        """Open a segment; invalid bytes raise CorruptData."""
        source = self._open(request, start)
        try:
            yield OpenFile(source, self._index(request, source))
        except FourfoldError:
            raise
        except (OSError, ValueError) as error:
            raise self._damaged(request, error) from error
        finally:
            source.close()

    def rows(self, request: SegmentRequest) -> Iterator[Row]:
        """Yield the rows of a segment, row group by row group."""
        pa, _ = arrow()
        with self.open(request) as file:
            for at in range(len(file.firsts)):
                table = file.read(at)
                times = table.column(TIME).cast(pa.int64())
                columns = [table.column(name) for name in (OFFSET, KEY, FLAGS, PAYLOAD)]
                columns.insert(1, times)
                lists = [column.to_pylist() for column in columns]
                yield from map(Row._make, zip(*lists, _headers(table), strict=True))

    def has_headers(self, request: SegmentRequest) -> bool:
        """Return True if a segment has a column for headers of records."""
        with self.open(request) as file:
            return file.has_column(HEADERS)

    def keyed(self, request: SegmentRequest, key: bytes, start: int, end: int) -> Iterator[Record]:
        """Yield the records with a routing key, from `start` to before `end`.

        Skips row groups by their bloom filters and statistics.
        """
        pa, _ = arrow()
        with self.open(request, start) as file:
            at = bisect_left(file.lasts, start)
            while at < len(file.lasts) and file.firsts[at] < end:
                if file.may_have(at, KEY, key, ordered=True):
                    keys = file.read(at, [KEY]).column(KEY).to_pylist()
                    first = file.firsts[at]
                    hits = [
                        row
                        for row, found in enumerate(keys)
                        if found == key and start <= first + row < end
                    ]
                    if hits:
                        part = file.read(at, [TIME, PAYLOAD, HEADERS]).take(pa.array(hits))
                        times = part.column(TIME).cast(pa.int64()).to_pylist()
                        payloads = part.column(PAYLOAD).to_pylist()
                        offsets = [first + row for row in hits]
                        yield from zip(offsets, payloads, times, _headers(part), strict=True)
                at += 1

    def records(self, request: SegmentRequest, start: int, end: int) -> Iterator[Record]:
        """Yield the records of a segment from `start` to before `end`."""
        source = self._open(request, start)
        try:
            index = self._index(request, source)
            at = bisect_left(index.lasts, start)
            while at < len(index.lasts) and index.firsts[at] < end:
                yield from self._group(request, source, index, at, (start, end))
                at += 1
        finally:
            source.close()

    def pick(self, request: SegmentRequest, offsets: Sequence[int]) -> Iterator[Record]:
        """Yield the records at some offsets of a segment, in the order of `offsets`."""
        if not offsets:
            return
        source = self._open(request, offsets[0])
        try:
            index = self._index(request, source)
            for offset in offsets:
                at = bisect_left(index.lasts, offset)
                yield from self._group(request, source, index, at, (offset, offset + 1))
        finally:
            source.close()

    def routing_keys(
        self, request: SegmentRequest, offsets: Sequence[int]
    ) -> dict[int, bytes | None]:
        """Return the routing keys of the records at some offsets of a segment."""
        keys: dict[int, bytes | None] = {}
        columns: dict[int, list[bytes | None]] = {}
        with self.open(request, min(offsets, default=0)) as file:
            for offset in offsets:
                at = bisect_left(file.lasts, offset)
                if at not in columns:
                    columns[at] = file.read(at, [KEY]).column(KEY).to_pylist()
                keys[offset] = columns[at][offset - file.firsts[at]]
        return keys

    def open_object(self, request: SegmentRequest) -> Any:
        """Open an object that is not a segment, from a local file if possible."""
        return self._open(request, 0)

    def joined(
        self, request: SegmentRequest, start: int, end: int, separator: bytes
    ) -> tuple[bytes, int]:
        """Return payloads from `start`, joined, up to `end` or the end of the row group.

        Also returns the offset to continue from. Builds no Python object per record.
        """
        pa, _ = arrow()
        source = self._open(request, start)
        try:
            index = self._index(request, source)
            at = bisect_left(index.lasts, start)
            first = index.firsts[at]
            last = min(end, index.lasts[at] + 1)
            table = self._decoded(request, source, index, at)
            part = table.column(PAYLOAD).slice(start - first, last - start)
            values = part.chunk(0) if part.num_chunks == 1 else pa.concat_arrays(part.chunks)
            ends = pa.array([0, len(values)], type=pa.int32())
            whole = pa.ListArray.from_arrays(ends, values)
            joined: bytes = pa.compute.binary_join(whole, separator)[0].as_py()
        except FourfoldError:
            raise
        except (OSError, ValueError, IndexError) as error:
            raise self._damaged(request, error) from error
        finally:
            source.close()
        return joined, last

    def _open(self, request: SegmentRequest, start: int) -> Any:
        """Open a segment, from a local file if possible."""
        if request.key is None:
            with self._lock:
                self.opened += 1
        for path in (request.local, self.cache.find(request.segment)):
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    # It was just moved into or evicted from the cache, or the cache was emptied.
                    if path != request.local:
                        self.cache.drop(request.segment)
        # Other files are small, and read repeatedly.
        again = self._is_touched(request.segment) or request.key is not None
        first = "0" if again else request.segment.rpartition("/")[2].split("-")[1]
        if (again or start <= int(first)) and self.cache.fits(request.size_bytes):
            path = self._fetch(request)
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    pass
        return RangeFile(self.objects, request.object_key, request.size_bytes, self._retries)

    def _is_touched(self, segment: str) -> bool:
        with self._lock:
            again = segment in self._touched
            self._touched.put(segment, True)
            return again

    def _fetch(self, request: SegmentRequest) -> Path | None:
        """Fetch a segment into the cache; concurrent callers share one fetch."""
        lock = self._fetching[hash(request.segment) % len(self._fetching)]
        with lock:
            found = self.cache.find(request.segment)
            if found is not None:
                return found
            key = request.object_key
            try:
                return self._retries.run(
                    lambda: self.cache.add(
                        request.segment,
                        self.objects.read(key, limits.ARCHIVE_CHUNK_BYTES),
                        request.digest,
                    )
                )
            except NotFound as error:
                raise _missing(key) from error

    def _index(self, request: SegmentRequest, source: Any) -> _Index:
        with self._lock:
            found = self._indexes.get(request.segment)
            if found is not None:
                return found
        try:
            metadata = open_parquet(source).metadata
            groups = [metadata.row_group(at).column(0) for at in range(metadata.num_row_groups)]
            index = _Index(
                metadata,
                [group.statistics.min for group in groups],
                [group.statistics.max for group in groups],
            )
        except FourfoldError:
            raise
        except (OSError, ValueError, AttributeError) as error:
            raise self._damaged(request, error) from error
        with self._lock:
            self._indexes.put(request.segment, index)
        return index

    def _group(
        self, request: SegmentRequest, source: Any, index: _Index, at: int, between: tuple[int, int]
    ) -> Iterator[Record]:
        try:
            table = self._decoded(request, source, index, at)
            first = index.firsts[at]
            low = max(between[0] - first, 0)
            count = min(between[1] - first, table.num_rows) - low
            part = table.slice(low, count)
            times = part.column(TIME).to_pylist()
            payloads = part.column(PAYLOAD).to_pylist()
            headers = _headers(part)
        except FourfoldError:
            raise
        except (OSError, ValueError) as error:
            raise self._damaged(request, error) from error
        offsets = range(first + low, first + low + count)
        yield from zip(offsets, payloads, times, headers, strict=True)

    def _decoded(self, request: SegmentRequest, source: Any, index: _Index, at: int) -> Any:
        """Return a row group; the last ones are cached."""
        known = (request.segment, at)
        with self._lock:
            table = self._groups.get(known)
            if table is not None:
                return table
        pa, _ = arrow()
        file = open_parquet(source, metadata=index.metadata)
        table = file.read_row_group(at, columns=[TIME, PAYLOAD, HEADERS], use_threads=False)
        column = table.schema.get_field_index(TIME)
        table = table.set_column(column, TIME, table.column(TIME).cast(pa.int64()))
        with self._lock:
            self._groups.put(known, table)
        return table

    def _damaged(self, request: SegmentRequest, error: Exception) -> FourfoldError:
        """Return the error for invalid bytes. A cached copy is dropped, so that it is fetched
        again.
        """
        self.cache.drop(request.segment)
        with self._lock:
            self._indexes.pop(request.segment)
        return CorruptData(
            f"segment {request.segment} cannot be read: {error}",
            hint="Run `fourfold verify --objects` to list all damage.",
        )


class RangeFile(io.RawIOBase):
    """An object as a seekable file; every read is a request."""

    def __init__(self, objects: ObjectStore, key: str, size: int, retries: Retries) -> None:
        super().__init__()
        self._objects = objects
        self._key = key
        self._size = size
        self._retries = retries
        self._at = 0
        self._tail: bytes | None = None

    def readable(self) -> bool:
        """Return True if the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True if the position can be set."""
        return True

    def tell(self) -> int:
        """Return the position in the file."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position in the file and return it."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = bases[whence] + offset
        return self._at

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, all that are left by default."""
        left = self._size - self._at
        length = left if size is None or size < 0 else min(size, left)
        if length <= 0:
            return b""
        data = self._from_tail(self._at, length)
        if data is None:
            data = self._get(self._at, length)
        self._at += len(data)
        return data

    def _from_tail(self, start: int, length: int) -> bytes | None:
        """Read from the prefetched end of the file, which Parquet reads in small steps."""
        first = max(0, self._size - ARCHIVE_TAIL_BYTES)
        if start < first:
            return None
        if self._tail is None:
            self._tail = self._get(first, self._size - first)
        return self._tail[start - first : start - first + length]

    def _get(self, start: int, length: int) -> bytes:
        try:
            data = self._retries.run(lambda: self._objects.get_range(self._key, start, length))
        except NotFound as error:
            raise _missing(self._key) from error
        if len(data) != length:
            raise StorageError(
                f"object {self._key!r} ends before byte {start + length}; expected {self._size}"
            )
        return data


def _headers(table: Any) -> list[bytes | None]:
    """Return the headers of each row; a segment without them has no such column."""
    if HEADERS not in table.column_names:
        return [None] * table.num_rows
    headers: list[bytes | None] = table.column(HEADERS).to_pylist()
    return headers


def _missing(key: str) -> CorruptData:
    return CorruptData(
        f"object {key!r} is missing",
        hint="Check that `objects.url` is the object store of this store, then run "
        "`fourfold verify --objects`.",
    )

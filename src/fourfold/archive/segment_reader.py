"""Reading segments from wherever they are: a local file, the cache, or the object store.

    local file ──> cache on disk ──> object store

A read decodes the row groups that it needs, one at a time, so it takes as much memory for a log of
any length. From the object store it fetches the end of the file and the row groups that it needs,
by ranges; a segment that is read from its beginning, or a second time, is fetched whole into the
cache, and its digest is checked. Pages have checksums of their own, so that damage is found also
in a range.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.archive.key_filter import bitset_of, may_have
from fourfold.archive.manifest import key_of
from fourfold.archive.parquet import arrow
from fourfold.archive.records import Row
from fourfold.archive.retry import Retries
from fourfold.archive.segment_writer import FLAGS, KEY, OFFSET, PAYLOAD, TIME
from fourfold.errors import CorruptData, FourfoldError, NotFound, StorageError
from fourfold.objects import ObjectStore

Record = tuple[int, bytes, int]
"""An offset, the payload of that record, and when it came, in milliseconds since 1970."""


class SegmentRequest(NamedTuple):
    """A segment to read: what it is called, its size and digest, where it may lie on this disk."""

    segment: str
    size_bytes: int
    digest: str
    local: Path | None = None
    key: str | None = None
    """The key of its object, for what is no segment."""

    @property
    def object_key(self) -> str:
        return self.key or key_of(self.segment)


class SegmentSource(Protocol):
    """Something that has segments."""

    def records(self, wanted: SegmentRequest, start: int, end: int) -> Iterator[Record]:
        """The records of a segment from `start` up to, and without, `end`, in order."""
        ...


class _Index(NamedTuple):
    """What the end of a file says: its metadata, and the last offset of each row group."""

    metadata: Any
    firsts: list[int]
    lasts: list[int]


class OpenFile:
    """A segment, or another sorted file, that is open: row group by row group. The first column is
    the one that it is sorted by.
    """

    def __init__(self, source: Any, index: _Index) -> None:
        self._source = source
        self._metadata = index.metadata
        self.firsts, self.lasts = index.firsts, index.lasts
        """The lowest and the highest value of the first column in each row group."""
        self._file: Any = None

    def read(self, at: int, columns: list[str] | None = None) -> Any:
        """A row group, or some columns of it."""
        if self._file is None:
            _, pq = arrow()
            self._file = pq.ParquetFile(
                self._source, metadata=self._metadata, page_checksum_verification=True
            )
        return self._file.read_row_group(at, columns=columns, use_threads=False)

    def has_only_nulls(self, at: int, column: str) -> bool:
        found = self._column(at, column)
        told = found.statistics
        return told is not None and bool(told.null_count == self._rows(at))

    def may_have(self, at: int, column: str, value: bytes, *, ordered: bool = False) -> bool:
        """Whether a row group may have a value, given as the bytes that Parquet stores of it: by
        its filter, and where these bytes are `ordered` by its lowest and highest.
        """
        found = self._column(at, column)
        told = found.statistics
        if ordered and told is not None:
            if told.null_count == self._rows(at):
                return False
            if told.has_min_max and not told.min <= value <= told.max:
                return False
        start = getattr(found, "bloom_filter_offset", None)
        length = getattr(found, "bloom_filter_length", None)
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
    return StoredSegments(objects, cache, retries or Retries())


class StoredSegments:
    """Segments of an object store, through a cache."""

    def __init__(self, objects: ObjectStore, cache: DiskCache, retries: Retries) -> None:
        self._objects = objects
        self.cache = cache
        self._retries = retries
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._touched: OrderedDict[str, None] = OrderedDict()
        self._fetching = tuple(threading.Lock() for _ in range(limits.ARCHIVE_LOCKS))
        self.opened = 0
        """How many times a segment was opened."""

    @contextmanager
    def open(self, wanted: SegmentRequest, start: int = 0) -> Iterator[OpenFile]:
        """A file to read from; what is wrong with its bytes is raised as such."""
        source = self._open(wanted, start)
        try:
            yield OpenFile(source, self._index(wanted, source))
        except FourfoldError:
            raise
        except (OSError, ValueError) as error:
            raise self._damaged(wanted, error) from error
        finally:
            source.close()

    def rows(self, wanted: SegmentRequest) -> Iterator[Row]:
        """The rows of a segment, row group by row group."""
        pa, _ = arrow()
        with self.open(wanted) as file:
            for at in range(len(file.firsts)):
                table = file.read(at)
                times = table.column(TIME).cast(pa.int64())
                columns = [table.column(name) for name in (OFFSET, KEY, FLAGS, PAYLOAD)]
                columns.insert(1, times)
                lists = [column.to_pylist() for column in columns]
                yield from map(Row._make, zip(*lists, strict=True))

    def keyed(self, wanted: SegmentRequest, key: bytes, start: int, end: int) -> Iterator[Record]:
        """The records with a routing key, from `start` up to, and without, `end`. Row groups whose
        filter or statistics say that they do not have it are not read.
        """
        pa, _ = arrow()
        with self.open(wanted, start) as file:
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
                        part = file.read(at, [TIME, PAYLOAD]).take(pa.array(hits))
                        times = part.column(TIME).cast(pa.int64()).to_pylist()
                        payloads = part.column(PAYLOAD).to_pylist()
                        offsets = [first + row for row in hits]
                        yield from zip(offsets, payloads, times, strict=True)
                at += 1

    def records(self, wanted: SegmentRequest, start: int, end: int) -> Iterator[Record]:
        source = self._open(wanted, start)
        try:
            index = self._index(wanted, source)
            at = bisect_left(index.lasts, start)
            while at < len(index.lasts) and index.firsts[at] < end:
                yield from self._group(wanted, source, index, at, (start, end))
                at += 1
        finally:
            source.close()

    def joined(
        self, wanted: SegmentRequest, start: int, end: int, separator: bytes
    ) -> tuple[bytes, int]:
        """The payloads from `start` on, up to the end of their row group or up to, and without,
        `end`, as one; and the offset to go on from. They are never made to objects one by one.
        """
        pa, _ = arrow()
        source = self._open(wanted, start)
        try:
            index = self._index(wanted, source)
            at = bisect_left(index.lasts, start)
            first = index.firsts[at]
            last = min(end, index.lasts[at] + 1)
            table = self._decoded(wanted, source, index, at)
            part = table.column(PAYLOAD).slice(start - first, last - start)
            values = part.chunk(0) if part.num_chunks == 1 else pa.concat_arrays(part.chunks)
            ends = pa.array([0, len(values)], type=pa.int32())
            whole = pa.ListArray.from_arrays(ends, values)
            joined: bytes = pa.compute.binary_join(whole, separator)[0].as_py()
        except FourfoldError:
            raise
        except (OSError, ValueError, IndexError) as error:
            raise self._damaged(wanted, error) from error
        finally:
            source.close()
        return joined, last

    def _open(self, wanted: SegmentRequest, start: int) -> Any:
        """A file to read from: local if it can be had."""
        if wanted.key is None:
            with self._lock:
                self.opened += 1
        for path in (wanted.local, self.cache.find(wanted.segment)):
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    # It went to the cache, or out of it, this very moment; or somebody emptied it.
                    if path != wanted.local:
                        self.cache.drop(wanted.segment)
        # What is no segment is small, and read again and again.
        again = self._is_touched(wanted.segment) or wanted.key is not None
        first = "0" if again else wanted.segment.rpartition("/")[2].split("-")[1]
        if (again or start <= int(first)) and self.cache.fits(wanted.size_bytes):
            path = self._fetch(wanted)
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    pass
        return RangeFile(self._objects, wanted.object_key, wanted.size_bytes, self._retries)

    def _is_touched(self, segment: str) -> bool:
        with self._lock:
            again = segment in self._touched
            self._touched[segment] = None
            self._touched.move_to_end(segment)
            if len(self._touched) > limits.ARCHIVE_INDEXES_MAX:
                self._touched.popitem(last=False)
            return again

    def _fetch(self, wanted: SegmentRequest) -> Path | None:
        """Bring a segment into the cache; once, also when many ask for it together."""
        lock = self._fetching[hash(wanted.segment) % len(self._fetching)]
        with lock:
            found = self.cache.find(wanted.segment)
            if found is not None:
                return found
            key = wanted.object_key
            try:
                return self._retries.run(
                    lambda: self.cache.add(
                        wanted.segment,
                        self._objects.read(key, limits.ARCHIVE_CHUNK_BYTES),
                        wanted.digest,
                    )
                )
            except NotFound as error:
                raise _missing(key) from error

    def _index(self, wanted: SegmentRequest, source: Any) -> _Index:
        with self._lock:
            found = self._indexes.get(wanted.segment)
            if found is not None:
                self._indexes.move_to_end(wanted.segment)
                return found
        _, pq = arrow()
        try:
            metadata = pq.ParquetFile(source).metadata
            groups = [metadata.row_group(at).column(0) for at in range(metadata.num_row_groups)]
            index = _Index(
                metadata,
                [group.statistics.min for group in groups],
                [group.statistics.max for group in groups],
            )
        except FourfoldError:
            raise
        except (OSError, ValueError, AttributeError) as error:
            raise self._damaged(wanted, error) from error
        with self._lock:
            self._indexes[wanted.segment] = index
            if len(self._indexes) > limits.ARCHIVE_INDEXES_MAX:
                self._indexes.popitem(last=False)
        return index

    def _group(
        self, wanted: SegmentRequest, source: Any, index: _Index, at: int, between: tuple[int, int]
    ) -> Iterator[Record]:
        try:
            table = self._decoded(wanted, source, index, at)
            first = index.firsts[at]
            low = max(between[0] - first, 0)
            count = min(between[1] - first, table.num_rows) - low
            part = table.slice(low, count)
            times = part.column(TIME).to_pylist()
            payloads = part.column(PAYLOAD).to_pylist()
        except FourfoldError:
            raise
        except (OSError, ValueError) as error:
            raise self._damaged(wanted, error) from error
        yield from zip(range(first + low, first + low + count), payloads, times, strict=True)

    def _decoded(self, wanted: SegmentRequest, source: Any, index: _Index, at: int) -> Any:
        """A row group; the last ones are kept."""
        known = (wanted.segment, at)
        with self._lock:
            table = self._groups.get(known)
            if table is not None:
                self._groups.move_to_end(known)
                return table
        pa, pq = arrow()
        file = pq.ParquetFile(source, metadata=index.metadata, page_checksum_verification=True)
        table = file.read_row_group(at, columns=[TIME, PAYLOAD], use_threads=False)
        column = table.schema.get_field_index(TIME)
        table = table.set_column(column, TIME, table.column(TIME).cast(pa.int64()))
        with self._lock:
            self._groups[known] = table
            if len(self._groups) > limits.ARCHIVE_GROUPS_HELD:
                self._groups.popitem(last=False)
        return table

    def _damaged(self, wanted: SegmentRequest, error: Exception) -> FourfoldError:
        """Bytes that are no segment. What is only a copy is dropped, so that it is fetched anew."""
        self.cache.drop(wanted.segment)
        with self._lock:
            self._indexes.pop(wanted.segment, None)
        return CorruptData(
            f"segment {wanted.segment} cannot be read: {error}",
            hint="Run `fourfold verify --objects` to see all that is damaged.",
        )


class RangeFile(io.RawIOBase):
    """An object as a file that can be read anywhere; every read is a request."""

    def __init__(self, objects: ObjectStore, key: str, size: int, retries: Retries) -> None:
        super().__init__()
        self._objects = objects
        self._key = key
        self._size = size
        self._retries = retries
        self._at = 0
        self._tail: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = bases[whence] + offset
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
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
        """The end of a file is read in small steps, so it is fetched at once."""
        first = max(0, self._size - limits.ARCHIVE_TAIL_BYTES)
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
                f"object {self._key!r} ends before byte {start + length}; it should have "
                f"{self._size}"
            )
        return data


def _missing(key: str) -> CorruptData:
    return CorruptData(
        f"object {key!r} is missing",
        hint="Check that `objects.url` is where the store was published to, then run "
        "`fourfold verify --objects`.",
    )

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
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fourfold import limits
from fourfold.archive.cache import DiskCache
from fourfold.archive.manifests import key_of
from fourfold.archive.parquet import arrow
from fourfold.archive.retrying import Retries
from fourfold.archive.segments import PAYLOAD, TIME
from fourfold.errors import CorruptData, FourfoldError, NotFound, StorageError
from fourfold.objects import ObjectStore

Record = tuple[int, bytes, int]
"""An offset, the payload of that record, and when it came, in milliseconds since 1970."""


class Wanted(NamedTuple):
    """A segment to read: what it is called, its size and digest, where it may lie on this disk."""

    segment: str
    size_bytes: int
    digest: str
    local: Path | None = None


class SegmentSource(Protocol):
    """Something that has segments."""

    def records(self, wanted: Wanted, start: int, end: int) -> Iterator[Record]:
        """The records of a segment from `start` up to, and without, `end`, in order."""
        ...


class _Index(NamedTuple):
    """What the end of a file says: its metadata, and the last offset of each row group."""

    metadata: Any
    firsts: list[int]
    lasts: list[int]


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

    def records(self, wanted: Wanted, start: int, end: int) -> Iterator[Record]:
        source = self._open(wanted, start)
        try:
            index = self._index(wanted, source)
            at = bisect_left(index.lasts, start)
            while at < len(index.lasts) and index.firsts[at] < end:
                yield from self._group(wanted, source, index, at, (start, end))
                at += 1
        finally:
            source.close()

    def _open(self, wanted: Wanted, start: int) -> Any:
        """A file to read from: local if it can be had."""
        for path in (wanted.local, self.cache.find(wanted.segment)):
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    # It went to the cache, or out of it, this very moment; or somebody emptied it.
                    if path != wanted.local:
                        self.cache.drop(wanted.segment)
        again = self._is_touched(wanted.segment)
        first = wanted.segment.rpartition("/")[2].split("-")[1]
        if (again or start <= int(first)) and self.cache.fits(wanted.size_bytes):
            path = self._fetch(wanted)
            if path is not None:
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    pass
        return RangeFile(self._objects, key_of(wanted.segment), wanted.size_bytes, self._retries)

    def _is_touched(self, segment: str) -> bool:
        with self._lock:
            again = segment in self._touched
            self._touched[segment] = None
            self._touched.move_to_end(segment)
            if len(self._touched) > limits.ARCHIVE_INDEXES_MAX:
                self._touched.popitem(last=False)
            return again

    def _fetch(self, wanted: Wanted) -> Path | None:
        """Bring a segment into the cache; once, also when many ask for it together."""
        lock = self._fetching[hash(wanted.segment) % len(self._fetching)]
        with lock:
            found = self.cache.find(wanted.segment)
            if found is not None:
                return found
            key = key_of(wanted.segment)
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

    def _index(self, wanted: Wanted, source: Any) -> _Index:
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
        self, wanted: Wanted, source: Any, index: _Index, at: int, between: tuple[int, int]
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

    def _decoded(self, wanted: Wanted, source: Any, index: _Index, at: int) -> Any:
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

    def _damaged(self, wanted: Wanted, error: Exception) -> FourfoldError:
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

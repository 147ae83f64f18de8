"""Reader of companions: open bundles, and which rows of a segment match a search.

Directories of bundles and open full-text indexes are cached. A bundle is read from the cache on
disk, or in ranges from the object store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from fourfold.archive.parquet import arrow
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments, open_parquet
from fourfold.cache import LruCache
from fourfold.errors import CorruptData, FourfoldError
from fourfold.kernel.text_index import TextIndex
from fourfold.models.streams.archive.sweep import segment_of
from fourfold.models.streams.search.companions import bundle
from fourfold.models.streams.search.companions.bundle import BundleMeta, SectionEntry, SectionFile
from fourfold.models.streams.search.companions.columns import ColumnReader
from fourfold.models.streams.search.companions.plans import CompanionPlan

DIRECTORIES_HELD: Final = 4_096
"""Directories of bundles in memory."""
INDEXES_HELD: Final = 64
"""Open full-text indexes; each has a cache of pages."""


class CompanionRow(NamedTuple):
    """A companion of a segment, as recorded."""

    object_key: str
    plan_generation: int
    sections_json: str
    size_bytes: int
    time_min_ms: int | None
    time_max_ms: int | None

    @property
    def request(self) -> SegmentRequest:
        """The object as the reader of segments opens it; its key contains the digest."""
        digest = self.object_key.rpartition("-")[2].partition(".")[0]
        return SegmentRequest(
            segment_of(self.object_key), self.size_bytes, digest, key=self.object_key
        )


class _Directory(NamedTuple):
    meta: BundleMeta
    entries: dict[str, SectionEntry]
    footers: dict[str, Any]
    """Metadata of Parquet sections that were read."""


class Companions:
    """The companions of a store's segments."""

    def __init__(self, segments: Callable[[], StoredSegments]) -> None:
        self._segments = segments
        self._lock = threading.Lock()
        self._directories: LruCache[str, _Directory] = LruCache(DIRECTORIES_HELD)
        self._indexes: LruCache[str, TextIndex] = LruCache(INDEXES_HELD)

    @contextmanager
    def open(
        self, row: CompanionRow, plan: CompanionPlan, segment: str
    ) -> Iterator[CompanionReader]:
        """Open the companion of a segment; raise CorruptData if it is not the companion of it."""
        source = self._segments().open_object(row.request)
        try:
            directory = self._directory(row, source)
            meta = directory.meta
            if meta.segment != segment or meta.plan_hash != plan.digest:
                raise CorruptData(f"companion {row.object_key!r} belongs to another segment")
            yield CompanionReader(self, row, plan, directory, source)
        except FourfoldError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise CorruptData(f"companion {row.object_key!r} cannot be read: {error}") from error
        finally:
            source.close()

    def _directory(self, row: CompanionRow, source: Any) -> _Directory:
        with self._lock:
            known = self._directories.get(row.object_key)
        if known is None:
            known = _Directory(*bundle.read_directory(source, row.object_key), {})
            with self._lock:
                self._directories.put(row.object_key, known)
        return known

    def find_text(
        self, row: CompanionRow, entry: SectionEntry, column: int, expression: str
    ) -> list[int]:
        """Return the rows whose text matches, by an index that stays open."""
        with self._lock:
            known = self._indexes.get(row.object_key)
        if known is None:
            known = self._open_index(row, entry)
            with self._lock:
                self._indexes.put(row.object_key, known)
        try:
            return known.find(column, expression)
        except CorruptData:
            with self._lock:
                self._indexes.pop(row.object_key)
            raise

    def _open_index(self, row: CompanionRow, entry: SectionEntry) -> TextIndex:
        source = self._segments().open_object(row.request)
        try:
            pages = _FilePages(os.dup(source.fileno()), entry.start)
        except OSError:
            # It is read in ranges from the object store.
            return TextIndex(_ObjectPages(source, entry.start).read, entry.size)
        source.close()
        return TextIndex(pages.read, entry.size)


class _FilePages:
    """Pages of a section of a file, which stays open as long as this object exists."""

    def __init__(self, descriptor: int, start: int) -> None:
        self._descriptor = descriptor
        self._start = start

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, self._start + at)

    def __del__(self) -> None:
        os.close(self._descriptor)


class _ObjectPages:
    """Pages of a section of an object."""

    def __init__(self, source: Any, start: int) -> None:
        self._source = source
        self._start = start

    def read(self, at: int, size: int) -> bytes:
        self._source.seek(self._start + at)
        data: bytes = self._source.read(size)
        return data


class CompanionReader:
    """An open companion of one segment."""

    def __init__(
        self,
        companions: Companions,
        row: CompanionRow,
        plan: CompanionPlan,
        directory: _Directory,
        source: Any,
    ) -> None:
        self._companions = companions
        self._row = row
        self.meta = directory.meta
        self._entries = directory.entries
        self._footers = directory.footers
        self._source = source
        self.columns = ColumnReader(
            partial(self._parquet, bundle.COL),
            directory.meta.rows,
            plan,
            self.find_text if bundle.FTS in directory.entries else None,
        )

    def find_text(self, column: int, expression: str) -> list[int]:
        """Return the rows whose text in a column matches an expression, the last first."""
        return self._companions.find_text(self._row, self._entries[bundle.FTS], column, expression)

    def read_rollup(self, ordinal: int, columns: list[str], equal: tuple[int, str] | None) -> Any:
        """Return columns of a rollup; with `equal`, only rows with a value of one field."""
        family = "agg" if equal is None else "mblk"
        name = bundle.rollup_entry(family, ordinal)
        if equal is None:
            return self._read_columns(name, columns)
        file = self._parquet(name)
        pa, _ = arrow()
        field, value = equal
        kept = []
        for at in range(file.num_row_groups):
            statistics = file.metadata.row_group(at).column(2 + field).statistics
            known = statistics is not None and statistics.has_min_max
            if not known or statistics.min <= value <= statistics.max:
                part = file.read_row_group(at, columns=columns, use_threads=False)
                kept.append(part.filter(pa.compute.equal(part.column(f"by{field}"), value)))
        return pa.concat_tables(kept) if kept else file.schema_arrow.empty_table().select(columns)

    def _read_columns(self, name: str, columns: list[str] | None) -> Any:
        return self._parquet(name).read(columns=columns, use_threads=False)

    def _parquet(self, name: str, dictionaries: list[str] | None = None) -> Any:
        """Open a section; `dictionaries` are columns to read as numbers of distinct values."""
        known = self._footers.get(name)
        section = SectionFile(self._source, self._entries[name])
        file = open_parquet(section, known, dictionaries)
        if known is None:
            self._footers[name] = file.metadata
        return file

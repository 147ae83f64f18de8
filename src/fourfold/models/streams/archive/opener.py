"""Opening of the archive over the streams of a store, as its settings require.

Reading published records needs no archive: a process that does not publish opens only the segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.archive import DiskCache, open_segments
from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import FourfoldError, ReadOnly
from fourfold.kernel import Database
from fourfold.models.model import StoreContext
from fourfold.models.streams.archive.cold_reader import ColdReader
from fourfold.models.streams.archive.records import CACHE, LOCAL, Policy
from fourfold.settings import Settings

if TYPE_CHECKING:
    from fourfold.models.streams.archive.archiver import Archive


def policy_of(settings: Settings) -> Policy:
    """Return the policy for sealing, indexing and compacting streams, from the settings."""
    archive = settings.archive
    return Policy(
        seal_bytes=archive.seal_bytes,
        seal_rows=archive.seal_rows,
        seal_age_s=archive.seal_age_s,
        cache_bytes=archive.cache_bytes,
        grace_s=archive.grace_s,
        concurrency=archive.concurrency,
        index=archive.index == "on",
        compact=archive.compact == "on",
        companions=archive.companions == "on",
        compact_bytes=archive.compact_bytes,
    )


class ArchiveOpener:
    """Opens the archive of a database of streams, and the reader of its segments, on first use."""

    def __init__(
        self, database: Database, folder: Path, context: StoreContext, clock: Callable[[], int]
    ) -> None:
        self._database = database
        self._folder = folder
        self._context = context
        self._clock = clock
        self._cache = _cache(folder, context)
        self._archive: Archive | None = None
        self._segments: StoredSegments | None = None
        self._opening = threading.Lock()
        # Not held while the archive is opened, which waits for the writer: a transaction may read.
        self._lock = threading.Lock()
        self.cold = ColdReader(self._open_segments, folder / LOCAL)
        """Reader of published records."""

    def open(self) -> Archive:
        """Return the archive; raise ReadOnly if the store is open for reading."""
        from fourfold.models.streams.archive.archiver import (  # noqa: PLC0415 - few stores publish
            Archive,
        )

        with self._opening:
            if self._archive is None:
                if not self._context.writable:
                    raise ReadOnly(f"{self._context.root} is open for reading; cannot publish")
                self._archive = Archive(
                    self._database,
                    self._context.objects(),
                    self._folder,
                    clock=self._clock,
                    policy=policy_of(self._context.settings),
                    cache=self._cache,
                    before_collect=self._context.before_collect,
                )
            return self._archive

    def settle(self, name: str) -> None:
        """Publish a stream now, before its writer gets a response."""
        self.open().settle(name)

    def failures(self) -> Mapping[str, FourfoldError]:
        """Return why streams are currently not published, by name."""
        archive = self._archive
        return {} if archive is None else archive.failures

    def _open_segments(self) -> StoredSegments:
        if self._archive is not None:
            # It counts the requests.
            return self._archive.segments
        with self._lock:
            if self._segments is None:
                self._segments = open_segments(self._context.objects(), self._cache)
            return self._segments


def _cache(folder: Path, context: StoreContext) -> DiskCache:
    if not context.writable:
        # The cache belongs to the writer, which may be another process.
        return DiskCache(folder / f".{CACHE}-of-readers", 0)
    return DiskCache(folder / CACHE, context.settings.archive.cache_bytes)

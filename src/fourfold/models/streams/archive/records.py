"""Records of the stream archive: policy, segments, results."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.manifest import Manifest, Segments
from fourfold.archive.segment_reader import SegmentRequest
from fourfold.errors import FourfoldError
from fourfold.kernel import load_queries

INDEX_SPAN: Final = 16
"""Segments of an index run of level 0."""
INDEX_FANOUT: Final = 16
"""Index runs that are merged into one of the next level."""
COMPACT_ROWS: Final = 4 * limits.SEGMENT_ROWS
"""Maximum records of a compacted segment."""
COMPACT_SEGMENTS: Final = 4
"""Minimum segments that are worth compacting."""

SQL = load_queries("fourfold.models.streams.archive")
NS = 1_000_000
"""Nanoseconds per millisecond."""


LOCAL: Final = "local"
"""Folder of segments that are not published yet, in the folder of the streams."""
CACHE: Final = "cache"
"""Folder of segments that were read from the object store."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds for publishing a stream, and the work per round."""

    seal_bytes: int = limits.SEGMENT_BYTES
    seal_rows: int = limits.SEGMENT_ROWS
    seal_age_s: float = limits.SEGMENT_AGE_S
    cache_bytes: int = limits.ARCHIVE_CACHE_BYTES
    grace_s: float = limits.ARCHIVE_GRACE_S
    concurrency: int = limits.ARCHIVE_CONCURRENCY
    trim_rows: int = limits.ARCHIVE_TRIM_ROWS
    index: bool = False
    """True if the background rounds also index and compact."""
    compact: bool = False
    companions: bool = False
    index_span: int = INDEX_SPAN
    index_fanout: int = INDEX_FANOUT
    compact_bytes: int = limits.COMPACT_BYTES
    compact_rows: int = COMPACT_ROWS
    compact_segments: int = COMPACT_SEGMENTS


class Segment(NamedTuple):
    """A row of `segments`."""

    segment_id: str
    number: int
    start_offset: int
    end_offset: int
    size_bytes: int
    payload_bytes: int
    groups: int
    last_append_ms: int
    digest: str
    local_path: str
    uploaded_at_ms: int | None

    def wanted(self, folder: Path) -> SegmentRequest:
        """Return the request for the file of the segment."""
        local = folder / self.local_path if self.local_path else None
        return SegmentRequest(self.segment_id, self.size_bytes, self.digest, local)


class Swap(NamedTuple):
    """A compacted segment that replaces those between its offsets."""

    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    payload_bytes: int
    groups: int
    last_append_ms: int
    digest: str


class SegmentArrays(NamedTuple):
    """The arrays of a stream's segments."""

    ends: tuple[int, ...] = ()
    """Last offset of each segment."""
    groups: tuple[int, ...] = ()
    last_ms: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    payloads: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()

    def first(self, count: int) -> SegmentArrays:
        """Return the first `count` segments."""
        return SegmentArrays._make(column[:count] for column in self)

    def swapped(self, swaps: Sequence[Swap]) -> SegmentArrays:
        """Return the arrays with compacted segments in place of their sources.

        A segment that does not fit any more is skipped.
        """
        meta = self
        for swap in swaps:
            at = bisect_left(meta.starts, swap.start_offset)
            end = bisect_left(meta.ends, swap.end_offset) + 1
            if meta.fits(swap):
                entry = (
                    swap.end_offset,
                    swap.groups,
                    swap.last_append_ms,
                    swap.start_offset,
                    swap.size_bytes,
                    swap.payload_bytes,
                    swap.digest,
                )
                meta = SegmentArrays._make(
                    (*column[:at], each, *column[end:])
                    for column, each in zip(meta, entry, strict=True)
                )
        return meta

    def fits(self, swap: Swap) -> bool:
        """Return True if a swap replaces whole segments."""
        return swap.start_offset in self.starts and swap.end_offset in self.ends

    def columns(self) -> Segments:
        """Return the segments as the columns of a manifest."""
        return Segments(
            start_offset=list(self.starts),
            end_offset=list(self.ends),
            size_bytes=list(self.sizes),
            payload_bytes=list(self.payloads),
            last_append_ms=list(self.last_ms),
            row_groups=list(self.groups),
            sha256=list(self.digests),
        )

    def packed(self) -> tuple[bytes, ...]:
        """Return the arrays as they are stored, in the order of their columns."""
        return (
            _integers("Q", [end + 1 for end in self.ends]),
            _integers("I", self.groups),
            _integers("Q", [ms * NS for ms in self.last_ms]),
            _integers("Q", self.starts),
            _integers("Q", self.sizes),
            _integers("Q", self.payloads),
            b"".join(bytes.fromhex(digest) for digest in self.digests),
        )


def meta_of_manifest(manifest: Manifest) -> SegmentArrays:
    """Return the segments that a manifest lists."""
    columns = manifest.segments
    return SegmentArrays(
        ends=tuple(columns.end_offset),
        groups=tuple(columns.row_groups),
        last_ms=tuple(columns.last_append_ms),
        starts=tuple(columns.start_offset),
        sizes=tuple(columns.size_bytes),
        payloads=tuple(columns.payload_bytes),
        digests=tuple(columns.sha256),
    )


def meta_of(row: Sequence[Any] | None) -> SegmentArrays:
    """Return the arrays of a row of `stream_segment_meta`; empty ones for None."""
    if row is None:
        return SegmentArrays()
    ends, groups, last_ns, starts, sizes, payloads, digests = row[1:]
    return SegmentArrays(
        ends=tuple(end - 1 for end in _unpacked("Q", ends)),
        groups=_unpacked("I", groups),
        last_ms=tuple(ns // NS for ns in _unpacked("Q", last_ns)),
        starts=_unpacked("Q", starts),
        sizes=_unpacked("Q", sizes),
        payloads=_unpacked("Q", payloads),
        digests=tuple(digests[at : at + 32].hex() for at in range(0, len(digests), 32)),
    )


def _integers(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *values)


def _unpacked(code: str, data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


class PublishResult(NamedTuple):
    """Result of publishing a stream."""

    stream: str
    generation: int
    uploaded_through: int
    segments: int
    """Number of segments added."""


@dataclass(slots=True)
class ArchiveRound:
    """Result of one round over all streams."""

    sealed: int = 0
    published: list[PublishResult] = field(default_factory=list)
    failures: dict[str, FourfoldError] = field(default_factory=dict)
    waiting: int = 0
    """Number of failed streams in backoff."""

    @property
    def idle(self) -> bool:
        """True if there was nothing to do."""
        return not self.sealed and not self.published and not self.failures


class PublishStatus(NamedTuple):
    """Publish status of all streams."""

    streams: int
    unsealed_records: int
    unsealed_bytes: int
    unpublished_segment_records: int
    unpublished_records: int


class UnpublishedStream(NamedTuple):
    """A stream with records that are only on this disk."""

    name: str
    records: int
    bytes: int


class UnpublishedStreams(NamedTuple):
    """Streams with records that are only on this disk."""

    largest: tuple[UnpublishedStream, ...]
    """Those with most bytes, the largest first."""
    streams: int
    records: int
    bytes: int
    complete: bool
    """False if the store has more streams than were examined."""


class RetiredSegment(NamedTuple):
    """An object that no manifest refers to any more."""

    key: str
    stream: str
    size_bytes: int
    retired_at_ms: int | None

"""Compaction: adjacent small segments become one large segment.

    group ──> a segment file on this disk ──> an object ──> one transaction ──> the next manifest

`groups` and `build` need no writer: a node calls them, and Spark calls the same `build` in its
workers. The new segment has the same records at the same offsets. It replaces the old ones in the
transaction that records the manifest that lists it. Readers of the old ones can continue, because
these are deleted after a grace period.

A group at least doubles its largest segment, so a record is rewritten only a few times in its life.
Segments of older versions, which do not name their stream, are rewritten once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fourfold import limits
from fourfold.archive import manifest
from fourfold.archive.records import SealedSegment
from fourfold.archive.segment_reader import StoredSegments
from fourfold.archive.segment_writer import SegmentLabel, write_segment
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.archive.records import SQL, Policy, Segment


class SegmentGroup(NamedTuple):
    """Adjacent segments that should become one."""

    stream: str
    incarnation: str
    segments: tuple[Segment, ...]

    def segment_id(self, sealed: SealedSegment) -> str:
        """Return the id of the segment that replaces the group."""
        start, digest = sealed.start_offset, sealed.digest
        return manifest.segment_id(self.stream, self.incarnation, start, digest)


class CompactedSegment(NamedTuple):
    """A compacted segment on disk."""

    group: SegmentGroup
    sealed: SealedSegment
    path: Path

    @property
    def segment_id(self) -> str:
        """Id of the segment."""
        return self.group.segment_id(self.sealed)


def due(snapshot: ReadTransaction, policy: Policy) -> Iterator[SegmentGroup]:
    """Return all groups of all streams."""
    after, count, page = "", policy.compact_segments, limits.ARCHIVE_STREAMS_PER_ROUND
    while rows := snapshot.all(SQL.streams_with_segments, (after, count, page)):
        for stream, incarnation in rows:
            yield from groups(snapshot, stream, incarnation, policy)
        after = rows[-1][0]


def groups(
    snapshot: ReadTransaction, stream: str, incarnation: str, policy: Policy
) -> Iterator[SegmentGroup]:
    """Return the groups of one stream."""
    if snapshot.one(SQL.swaps, (stream,)) is not None:
        # A compacted segment already waits for its manifest.
        return
    unlabeled = {row[0] for row in snapshot.all(SQL.unlabeled_starts, (stream,))}
    for held in _runs(snapshot, stream, policy):
        if _is_worth_it(held, policy) or any(entry.start_offset in unlabeled for entry in held):
            yield SegmentGroup(stream, incarnation, tuple(held))


def _runs(snapshot: ReadTransaction, stream: str, policy: Policy) -> Iterator[list[Segment]]:
    """Yield adjacent segments that fit into one; a large segment is alone."""
    held: list[Segment] = []
    for row in snapshot.rows(SQL.compactable, (stream,)):
        segment = Segment._make(row)
        if held and not _follows(held, segment, policy):
            yield held
            held = []
        if _is_small(segment, policy):
            held.append(segment)
        else:
            yield [segment]
    if held:
        yield held


def _rows(segment: Segment) -> int:
    return segment.end_offset - segment.start_offset + 1


def _is_small(segment: Segment, policy: Policy) -> bool:
    few = 2 * _rows(segment) <= policy.compact_rows
    return few and 2 * segment.payload_bytes <= policy.compact_bytes


def _follows(held: list[Segment], segment: Segment, policy: Policy) -> bool:
    """Return True if a segment can be added to the group."""
    size = segment.payload_bytes + sum(entry.payload_bytes for entry in held)
    rows = _rows(segment) + sum(map(_rows, held))
    fits = size <= policy.compact_bytes and rows <= policy.compact_rows
    next_one = segment.start_offset == held[-1].end_offset + 1
    return fits and next_one and _is_small(segment, policy)


def _is_worth_it(held: list[Segment], policy: Policy) -> bool:
    sizes = [entry.size_bytes for entry in held]
    return len(held) >= policy.compact_segments and sum(sizes) >= 2 * max(sizes)


def build(
    segments: StoredSegments, group: SegmentGroup, folder: Path, local: Path
) -> CompactedSegment:
    """Write the segment of a group into a folder; `local` is the folder of local segments.

    The node and Spark share this stage. It holds one row group of each kind at a time.
    """
    wanted = [segment.wanted(local) for segment in group.segments]
    rows = chain.from_iterable(map(segments.rows, wanted))
    sealed, path = write_segment(
        rows,
        # Separate files: Spark's workers build several at once, perhaps one of them twice.
        folder / f".{uuid.uuid4().hex}.partial",
        lambda sealed: folder / f"{group.segment_id(sealed)}.parquet",
        headers=any(map(segments.has_headers, wanted)),
        label=SegmentLabel(group.stream, group.incarnation),
    )
    return CompactedSegment(group, sealed, path)


def take_in(txn: Transaction, made: CompactedSegment) -> bool:
    """Register a compacted segment for the next manifest; return False if its sources changed."""
    group, sealed = made.group, made.sealed
    found = txn.one(SQL.is_stream, (group.stream,))
    if found is None or found[1] != group.incarnation:
        return False
    kept = {row[0] for row in txn.all(SQL.compactable, (group.stream,))}
    if not kept.issuperset(segment.segment_id for segment in group.segments):
        return False
    if txn.one(SQL.swaps, (group.stream,)) is not None:
        return _is_the_same(txn, made)
    params = (
        made.segment_id,
        group.stream,
        sealed.start_offset,
        sealed.end_offset,
        sealed.size_bytes,
        sealed.payload_bytes,
        sealed.groups,
        sealed.last_ts_ms,
        sealed.digest,
    )
    txn.execute(SQL.add_swap, params)
    txn.execute(SQL.due_again, (group.stream,))
    return True


def _is_the_same(txn: Transaction, made: CompactedSegment) -> bool:
    """Return True if this very segment is already registered."""
    rows = txn.all(SQL.swaps, (made.group.stream,))
    return made.segment_id in {row[0] for row in rows}

"""Reader of archived records: those that are in segments and no longer in the log.

A read transaction lists the segments, which never change, so both parts always fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import CorruptData
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.archive.indexes.lookups import KeySearch
from fourfold.models.streams.archive.records import SQL, Segment
from fourfold.models.streams.records import KeyStep, Record, RecordFilter

if TYPE_CHECKING:
    from fourfold.models.streams.search.companions.reader import Companions


class ColdReader:
    """Reads segments; the object store is opened for the first read."""

    def __init__(self, segments: Callable[[], StoredSegments], folder: Path) -> None:
        self._open = segments
        self._folder = folder

    @cached_property
    def companions(self) -> Companions:
        """Search companions of segments."""
        from fourfold.models.streams.search.companions.reader import (  # noqa: PLC0415 - for searches
            Companions,
        )

        return Companions(self._open)

    @property
    def segments(self) -> StoredSegments:
        """Segments on this disk and in the object store."""
        return self._open()

    def records(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int
    ) -> Iterator[Record]:
        """Yield the records from `start` to before `end`; raise if one is missing."""
        at = start
        for row in snapshot.all(SQL.segments_between, (sid, start, end)):
            segment = Segment._make(row)
            if segment.end_offset < at or segment.start_offset > at:
                break
            last = min(segment.end_offset + 1, end)
            for found in self.segments.records(segment.wanted(self._folder), at, last):
                at = found[0] + 1
                yield Record(*found)
            if at != last:
                break
            if at == end:
                return
        raise _missing(sid, at)

    def pick(self, segment: Segment, offsets: Sequence[int]) -> Iterator[Record]:
        """Yield the records at some offsets of a segment, in the order of `offsets`."""
        for row in self.segments.pick(segment.wanted(self._folder), offsets):
            yield Record(*row)

    def keyed_records(
        self, snapshot: ReadTransaction, sid: int, offsets: Sequence[int]
    ) -> Iterator[tuple[Record, bytes | None]]:
        """Yield the records at some offsets, in ascending order, with their routing keys."""
        left = list(offsets)
        while left:
            row = snapshot.one(SQL.segments_between, (sid, left[0], left[0] + 1))
            segment = None if row is None else Segment._make(row)
            if segment is None or not segment.start_offset <= left[0] <= segment.end_offset:
                raise _missing(sid, left[0])
            here = [offset for offset in left if offset <= segment.end_offset]
            left = left[len(here) :]
            keys = self.segments.routing_keys(segment.wanted(self._folder), here)
            for record in self.pick(segment, here):
                yield record, keys[record.offset]

    def joined(
        self, snapshot: ReadTransaction, sid: int, start: int, end: int, separator: bytes
    ) -> tuple[bytes, int]:
        """Return adjacent payloads from `start` to before `end`, joined, and the next offset."""
        row = snapshot.one(SQL.segments_between, (sid, start, end))
        segment = None if row is None else Segment._make(row)
        if segment is None or not segment.start_offset <= start <= segment.end_offset:
            raise _missing(sid, start)
        last = min(segment.end_offset + 1, end)
        return self.segments.joined(segment.wanted(self._folder), start, last, separator)

    def sought(
        self, snapshot: ReadTransaction, sid: int, sought: RecordFilter, start: int, end: int
    ) -> Iterator[KeyStep]:
        """Yield the records with a key from `start` to before `end`."""
        search = KeySearch(snapshot, self.segments, self._folder)
        return search.steps(sid, sought, start, end)

    def size_from(self, snapshot: ReadTransaction, sid: int, start: int, end: int) -> int:
        """Return the bytes of the records from `start` to before `end`."""
        held = 0
        for row in snapshot.all(SQL.segments_between, (sid, start, end)):
            segment = Segment._make(row)
            if segment.start_offset >= start and segment.end_offset < end:
                held += segment.payload_bytes
            elif segment.end_offset >= start:
                first, last = max(segment.start_offset, start), min(segment.end_offset + 1, end)
                held += sum(
                    len(record.payload) for record in self.records(snapshot, sid, first, last)
                )
        return held


def _missing(sid: int, offset: int) -> CorruptData:
    return CorruptData(
        f"record {offset} of stream {sid} is neither in the log nor in a segment",
        hint="Run `fourfold verify --objects` to list all damage.",
    )

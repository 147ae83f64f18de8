"""Read by key: find the segments of a key in the runs, and read its records from these alone.

For segments without a run, bloom filters and statistics decide. A run that cannot be read is
skipped, and its segments are scanned one by one: an index makes a read faster, and is never
required.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fourfold.archive import index_runs
from fourfold.archive.index_runs import IndexEntry
from fourfold.archive.key_filter import fingerprint
from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import CorruptData
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.archive.indexes.records import ROUTING_KEYS, SQL, IndexRunRow
from fourfold.models.streams.archive.records import Segment
from fourfold.models.streams.records import KeyStep, Record, RecordFilter


class _SearchPart(NamedTuple):
    segment: Segment
    start: int
    end: int


class KeySearch:
    """A search for a key in the segments of one stream, from an offset to before another."""

    def __init__(self, snapshot: ReadTransaction, segments: StoredSegments, folder: Path) -> None:
        self._snapshot = snapshot
        self._segments = segments
        self._folder = folder

    def steps(self, sid: int, sought: RecordFilter, start: int, end: int) -> Iterator[KeyStep]:
        """Yield the records with the key, in order, and the progress after each segment."""
        stream = self._snapshot.value(SQL.name_of, (sid,))
        key = sought.key
        assert key is not None
        for part in self._parts(stream, sought.field or ROUTING_KEYS, key, (start, end)):
            yield from self._within_segment(part, sought, key)
            yield KeyStep(part.end, None, segments=1)
        yield KeyStep(end, None)

    def _within_segment(
        self, part: _SearchPart, sought: RecordFilter, key: bytes
    ) -> Iterator[KeyStep]:
        wanted = part.segment.wanted(self._folder)
        if sought.field is None:
            for row in self._segments.keyed(wanted, key, part.start, part.end):
                yield KeyStep(row[0] + 1, Record(*row))
            return
        rows = self._segments.records(wanted, part.start, part.end)
        yield from fields.search(rows, sought.field, key)

    def _parts(
        self, stream: str, name: str, key: bytes, ends: tuple[int, int]
    ) -> Iterator[_SearchPart]:
        """Yield the parts of segments that may contain the key, in order, one for each segment."""
        start, end = ends
        known = self._snapshot.one(SQL.index, (stream, name))
        at = start
        if known is not None:
            secret, indexed = known
            sealed = fingerprint(secret, key)
            last: _SearchPart | None = None
            for entry in self._entries(stream, name, sealed, (start, min(end, indexed))):
                for part in self._within(stream, entry, start, end):
                    # Entries of one segment, once compacted, are read together.
                    if last is not None and last.segment.segment_id == part.segment.segment_id:
                        last = last._replace(end=max(last.end, part.end))
                        continue
                    if last is not None:
                        yield last
                    last = part
            if last is not None:
                yield last
                at = last.end
            at = max(at, min(indexed, end))
        if at < end:
            yield from self._within(stream, IndexEntry(at, end - 1, 0), at, end)

    def _entries(
        self, stream: str, name: str, sought: int, ends: tuple[int, int]
    ) -> Iterator[IndexEntry]:
        """Yield the entries of a fingerprint in the runs, in order."""
        for entry in self._snapshot.all(SQL.runs_between, (stream, name, *ends)):
            row = IndexRunRow._make(entry)
            try:
                found = index_runs.find(self._segments, row.wanted, sought)
            except CorruptData:
                found = [IndexEntry(row.start_offset, row.end_offset, 0)]
            yield from found

    def _within(
        self, stream: str, entry: IndexEntry, start: int, end: int
    ) -> Iterator[_SearchPart]:
        """Yield the parts of segments that an entry covers."""
        at, until = max(entry.first_offset, start), min(entry.last_offset + 1, end)
        while at < until:
            row = self._snapshot.one(SQL.segment_at, (stream, at))
            if row is None or row[3] < at:
                raise CorruptData(
                    f"record {at} of {stream!r} is neither in the log nor in a segment",
                    hint="Run `fourfold verify --objects` to list all damage.",
                )
            segment = Segment._make(row)
            upto = min(segment.end_offset + 1, until)
            yield _SearchPart(segment, max(at, segment.start_offset), upto)
            at = segment.end_offset + 1

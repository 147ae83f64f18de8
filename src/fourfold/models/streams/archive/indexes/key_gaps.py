"""Routing keys of segments that this node did not write: added to `stream_keys` one by one.

A transaction adds the keys of one segment and moves the gap, from the newest segment to the oldest;
so it can be stopped at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fourfold import limits
from fourfold.archive.segment_reader import StoredSegments
from fourfold.archive.segment_writer import KEY
from fourfold.kernel import Database, Transaction, load_queries
from fourfold.models.streams.archive.indexes.records import SQL
from fourfold.models.streams.archive.records import Segment

_STREAMS = load_queries("fourfold.models.streams")


class KeyGap(NamedTuple):
    """A stream whose keys below an offset may be missing, down to its first own record."""

    sid: int
    stream: str
    until: int
    first: int


def gaps(database: Database) -> Iterator[KeyGap]:
    """Yield the streams with a gap."""
    after, page = 0, limits.ARCHIVE_STREAMS_PER_ROUND
    while True:
        with database.read() as snapshot:
            rows = [KeyGap._make(row) for row in snapshot.all(_STREAMS.key_gaps, (after, page))]
        yield from rows
        if len(rows) < page:
            return
        after = rows[-1].sid


def fill(
    database: Database,
    segments: StoredSegments,
    folder: Path,
    gap: KeyGap,
    stop: Callable[[], bool],
) -> None:
    """Add the keys of the segments below the gap, the newest first."""
    while gap.until > gap.first and not stop():
        with database.read() as snapshot:
            row = snapshot.one(SQL.segment_at, (gap.stream, gap.until - 1))
        segment = None if row is None else Segment._make(row)
        if segment is None or segment.end_offset < gap.until - 1:
            # Retention has removed it, or another stream has the name now: looked at next time.
            return
        reached = max(gap.first, segment.start_offset)
        newest = _keys_of(segments, segment, folder, reached, gap.until)
        if not database.transact(lambda txn: _add(txn, gap, reached, newest)):  # noqa: B023
            return
        gap = gap._replace(until=reached)


def _keys_of(
    segments: StoredSegments, segment: Segment, folder: Path, start: int, end: int
) -> dict[bytes, int]:
    """Return the keys of a segment with the newest offset of each."""
    newest: dict[bytes, int] = {}
    with segments.open(segment.wanted(folder)) as file:
        for at, first in enumerate(file.firsts):
            if file.has_only_nulls(at, KEY):
                continue
            keys = file.read(at, [KEY]).column(KEY).to_pylist()
            newest |= {
                key: offset
                for offset, key in enumerate(keys, first)
                if key is not None and start <= offset < end
            }
    return newest


def _add(txn: Transaction, gap: KeyGap, reached: int, newest: dict[bytes, int]) -> bool:
    """Add keys and move the gap; return False if it was moved meanwhile."""
    if reached <= gap.first:
        txn.execute(_STREAMS.close_key_gap, (gap.sid, gap.until))
    else:
        txn.execute(_STREAMS.move_key_gap, (gap.sid, gap.until, reached))
    if not txn.changes:
        return False
    txn.execute_many(_STREAMS.put_key, [(gap.sid, *entry) for entry in newest.items()])
    return True

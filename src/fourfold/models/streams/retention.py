"""How much of a stream is kept. What is in published segments is given up segment by segment, what
is in the log record by record.
"""

from __future__ import annotations

from fourfold import limits
from fourfold.kernel import Snapshot, load_queries
from fourfold.models.streams import slices
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.writer import SQL

_ARCHIVE = load_queries("fourfold.models.streams.archive")


def step(snapshot: Snapshot, info: StreamInfo, kept: int) -> int:
    """The offset up to which records are given up in one transaction, on the way to `kept`."""
    reached = slices.next_slice(snapshot, info.sid, kept - 1, limits.ARCHIVE_TRIM_ROWS).through
    return kept if reached is None else reached + 1


def horizon(snapshot: Snapshot, info: StreamInfo, now_ms: int) -> int:
    """The first offset that the rules of a stream keep."""
    reached = info.first_offset
    if info.retention_seconds is not None:
        reached = _by_age(snapshot, info, now_ms - 1000 * info.retention_seconds)
    if info.retention_bytes is not None:
        reached = max(reached, _by_bytes(snapshot, info, info.retention_bytes))
    return reached


def _by_age(snapshot: Snapshot, info: StreamInfo, oldest_ms: int) -> int:
    params = (info.name, info.first_offset, oldest_ms)
    segment = snapshot.value(_ARCHIVE.first_not_older, params)
    if segment is not None:
        return max(info.first_offset, int(segment))
    found = snapshot.value(SQL.older_than, (info.sid, info.first_offset, oldest_ms))
    return info.next_offset if found is None else int(found)


def _by_bytes(snapshot: Snapshot, info: StreamInfo, most: int) -> int:
    if info.wal_bytes > most:
        found = snapshot.value(SQL.newest_that_fit, (info.sid, most))
        return 0 if found is None else int(found) + 1
    left = most - info.wal_bytes
    for start, end, size in snapshot.rows(_ARCHIVE.published_sizes, (info.name,)):
        if size > left:
            # Some of its records may fit: it is kept whole, or not at all.
            return int(start) if left else int(end) + 1
        left -= size
    return 0

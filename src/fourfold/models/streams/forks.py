"""Fork points: where a fork diverges from its source, and the bytes of all records before that.

Counting them takes time that grows with the stream, so it happens before the write transaction that
creates the fork, in short read transactions. Records never change: a fork point stays exact for as
long as the stream retains the requested record, which the write transaction checks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import reader, writer
from fourfold.models.streams.records import ColdRecords, StreamInfo
from fourfold.models.streams.writer import SQL, ForkPoint, StreamClock, StreamOptions, info_of

STREAM_FORK_SLICE: Final = 5_000
"""Records examined in one read transaction to find the size of a fork."""

Read = Callable[[], AbstractContextManager[ReadTransaction]]


class _LogChanged(Exception):
    """Records to be counted were removed from the log: measure again."""


def is_measured(options: StreamOptions) -> bool:
    """Return True for a fork that may diverge before the end of its source."""
    return options.fork is not None and options.fork.offset is not None


def measure(
    read: Read,
    options: StreamOptions,
    read_clock: Callable[[], StreamClock],
    cold: ColdRecords | None = None,
) -> ForkPoint | None:
    """Return the fork point, or None if there is nothing to measure.

    Raises:
        reader.NotInTheLog: the point is in a segment, and `cold` is None.
    """
    while True:
        with suppress(_LogChanged):
            return _measure(read, options, read_clock(), cold)


def _measure(
    read: Read, options: StreamOptions, now: StreamClock, cold: ColdRecords | None
) -> ForkPoint | None:
    fork = options.fork
    if fork is None or not is_measured(options):
        return None
    with read() as snapshot:
        if writer.find(snapshot, options.name, now) is not None:
            return None
        try:
            source, fork_at, start = writer.fork_start(snapshot, fork, now)
        except FourfoldError:
            # The write transaction raises it, unless the stream has changed by then.
            return None
    partial = b""
    if start is None:
        start, partial = _skip_bytes(read, source, fork_at, fork.sub_offset, cold)
    return ForkPoint(source.sid, fork_at, start, partial, _size_until(read, source, start, cold))


def _skip_bytes(
    read: Read, source: StreamInfo, start: int, left: int, cold: ColdRecords | None
) -> tuple[int, bytes]:
    """Return the record after `left` bytes, and the part of it that they include."""
    while start < source.next_offset:
        end = min(start + STREAM_FORK_SLICE, source.next_offset)
        with read() as snapshot:
            _row(snapshot, source.sid, start)
            for record in reader.records(snapshot, source, start, end, cold):
                if left < len(record.payload):
                    return record.offset, record.payload[:left]
                left -= len(record.payload)
        start = end
    if left:
        raise InvalidInput(f"stream {source.name!r} ends before the sub-offset of the fork")
    return start, b""


def _size_until(read: Read, source: StreamInfo, start: int, cold: ColdRecords | None) -> int:
    """Return the bytes of all records before `start`, including those that were trimmed.

    Counts the records in the log before `start` or those after it, whichever are fewer.
    """
    with read() as snapshot:
        info = _row(snapshot, source.sid, start)
        while info.fork_offset is not None and start < info.fork_offset:
            info = info_of(snapshot.one(SQL.stream_by_sid, (info.forked_from,)) or ())
        begin = _log_begin(snapshot, info)
        before_log = info.size_bytes - info.wal_bytes
        if start < begin:
            if cold is None:
                raise reader.NotInTheLog
            return before_log - cold.size_from(snapshot, info.sid, start, begin)
    if start - begin <= info.next_offset - start:
        return before_log + _bytes_between(read, info.sid, begin, start)
    return info.size_bytes - _bytes_between(read, info.sid, start, info.next_offset)


def _bytes_between(read: Read, sid: int, start: int, end: int) -> int:
    size = 0
    for first in range(start, end, STREAM_FORK_SLICE):
        with read() as snapshot:
            if first < _log_begin(snapshot, _row(snapshot, sid, first)):
                raise _LogChanged
            last = min(first + STREAM_FORK_SLICE, end)
            size += int(snapshot.value(SQL.bytes_between, (sid, first, last)))
    return size


def _row(snapshot: ReadTransaction, sid: int, offset: int) -> StreamInfo:
    """Return a stream that retains the record at an offset, or raise _LogChanged."""
    row = snapshot.one(SQL.stream_by_sid, (sid,))
    if row is None or info_of(row).first_offset > offset:
        raise _LogChanged
    return info_of(row)


def _log_begin(snapshot: ReadTransaction, info: StreamInfo) -> int:
    """Return the first offset in the log of the stream's own records."""
    published = int(snapshot.value(SQL.log_begin, (info.sid,)))
    return max(info.first_offset, info.fork_offset or 0, published)

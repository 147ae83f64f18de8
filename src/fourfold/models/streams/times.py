"""Times of records: find the first record that was appended at or after a time.

Every record has the time of its commit in milliseconds, by the clock of the machine that wrote it,
or that of the record before it if the clock was set back. Times never step back along a stream, so
a record is found by binary search: over the segments first, by the time of the last record of each,
and then over the records of one segment or of the log. Earlier versions stored the time of the
clock; in such records the search finds one at which they pass the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from fourfold.errors import InvalidInput
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.reader import NotInTheLog, source_ranges
from fourfold.models.streams.records import ColdRecords, StreamInfo
from fourfold.models.streams.validation import START
from fourfold.models.streams.writer import SQL

Time = datetime | str | int
"""A time: a datetime, ISO 8601 text, or milliseconds since 1970. Without a time zone it is UTC."""
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


def parse_time_ms(time: Time) -> int:
    """Return a time in milliseconds since 1970, rounded down.

    Raises:
        InvalidInput: it is none of the ways to write a time.
    """
    value: object = time
    if isinstance(value, str) and _MILLISECONDS.fullmatch(value):
        value = int(value)
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000 // 1)
    raise InvalidInput(
        f"since: must be a time or milliseconds since 1970, got {time!r:.80}",
        hint="Use a datetime, text such as 2026-03-01T12:00:00Z, or a number.",
    )


def check_start(offset: str | int, since: Time | None) -> int | None:
    """Return the time at which a read begins, in milliseconds; None if it begins at `offset`."""
    if since is None:
        return None
    if offset != START:
        raise InvalidInput("pass after or since, not both")
    return parse_time_ms(since)


def read_start(after: str | int, offset: str | int | None) -> str | int:
    """Return where a read begins; `offset` is the earlier name of `after`."""
    if offset is None:
        return after
    if after != START:
        raise InvalidInput("pass after or offset, not both")
    return offset


def find_offset(
    snapshot: ReadTransaction, info: StreamInfo, since_ms: int, cold: ColdRecords | None = None
) -> int:
    """Return the offset of the first retained record at or after a time; the end if there is none.

    Raises:
        NotInTheLog: the record is in a segment, and `cold` is None.
    """
    for sid, start, end in source_ranges(snapshot, info, info.first_offset, info.next_offset):
        edge = min(end, max(start, int(snapshot.value(SQL.log_begin, (sid,)))))
        if (segment := _find_segment(snapshot, sid, start, edge, since_ms)) is not None:
            if cold is None:
                raise NotInTheLog
            offset = _search(*segment, since_ms, partial(_time_in_segment, snapshot, cold, sid))
            if offset < segment[1]:
                return offset
        offset = _search(edge, end, since_ms, partial(_time_in_log, snapshot, sid))
        if offset < end:
            return offset
    return info.next_offset


def _search(start: int, end: int, since_ms: int, time_of: Callable[[int], int]) -> int:
    """Return the first offset from `start` to before `end` at or after a time, or `end`."""
    while start < end:
        middle = (start + end) // 2
        if time_of(middle) < since_ms:
            start = middle + 1
        else:
            end = middle
    return start


def _find_segment(
    snapshot: ReadTransaction, sid: int, start: int, end: int, since_ms: int
) -> tuple[int, int] | None:
    """Return the range of the first segment with a record at or after a time, or None."""
    segment = None
    low, high = start, end
    while low < high:
        row = snapshot.one(SQL.segment_of, (sid, (low + high) // 2))
        if row is None:
            # Reading the record reports that its segment is missing.
            return low, high
        first, last, last_ms = row
        if last_ms < since_ms:
            low = last + 1
        else:
            high, segment = first, (max(first, start), min(last + 1, end))
    return segment


def _time_in_segment(snapshot: ReadTransaction, cold: ColdRecords, sid: int, offset: int) -> int:
    return next(cold.records(snapshot, sid, offset, offset + 1)).ts_ms


def _time_in_log(snapshot: ReadTransaction, sid: int, offset: int) -> int:
    return int(snapshot.value(SQL.time_of, (sid, offset)))

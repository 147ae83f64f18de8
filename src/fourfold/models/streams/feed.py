"""Append notices: appended records that are delivered with the notification of live readers.

A live reader that an append wakes would read exactly the appended records from the log. Delivered
with the notification, they need no read, for ten thousand readers as for one. A notice is only a
hint: a reader uses it if it is of the same stream, starts at the reader's offset, and all notices
since follow without a gap. Otherwise, or if anything but records changed, it reads the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.streams.append import Outcome, StreamAppend
from fourfold.models.streams.records import Chunk, Record, StreamInfo
from fourfold.models.streams.validation import parse_offset

STREAM_NOTICE_BYTES: Final = 16 * limits.KIB
"""Largest append whose records are delivered with the notification; readers read larger ones."""


class AppendNotice(NamedTuple):
    """Records that were appended to a stream, and are on disk."""

    sid: int
    records: tuple[Record, ...]


def make_notice(
    appends: Sequence[StreamAppend], outcomes: Sequence[Outcome], name: str, sid: int, ts_ms: int
) -> AppendNotice | None:
    """Return the records that one commit appended to a stream.

    None if there are none, they are too large, or the stream was closed.
    """
    records: list[Record] = []
    size = 0
    for (stream, request), outcome in zip(appends, outcomes, strict=True):
        if stream != name or isinstance(outcome, FourfoldError) or outcome.duplicate:
            continue
        if outcome.closed:
            return None
        first = outcome.next_offset - len(request.records)
        for offset, payload in enumerate(request.records, first):
            record = Record(offset, payload, ts_ms, request.headers)
            records.append(record)
            size += record.size
        if size > STREAM_NOTICE_BYTES:
            return None
    return AppendNotice(sid, tuple(records)) if records else None


def chunk_from_notices(
    info: StreamInfo, at: str, notices: Sequence[object], records_max: int
) -> Chunk | None:
    """Return the chunk after `at` from notices, or None if the log must be read."""
    offset = parse_offset(at)
    if offset is None or offset.incarnation_number != info.incarnation_number:
        return None
    start = offset.record
    if info.expires_at_ms is not None or info.closed:
        return None
    records: list[Record] = []
    reached = start
    for notice in notices:
        if not isinstance(notice, AppendNotice) or notice.sid != info.sid:
            return None
        if notice.records[-1].offset < reached:
            # The last read of the log included it.
            continue
        if notice.records[0].offset != reached:
            return None
        records += notice.records
        reached += len(notice.records)
    if not records or len(records) > records_max:
        return None
    number = info.incarnation_number
    return Chunk(tuple(records), start, reached, True, False, number)

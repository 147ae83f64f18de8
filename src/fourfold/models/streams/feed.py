"""Echoes: what was just appended, said to those who wait for it at the end of a stream.

A live reader is woken by an append, and what it would then read from the log is what the append
brought. Said along with the ring, it can be handed on at once, to ten thousand readers as to one.
An echo is a hint and nothing else: a reader takes it only when it begins where the reader is, of
the same stream, and everything heard since follows without a gap. In any other case, or when
something but records changed, the reader looks at the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.streams.append import Asked, Outcome
from fourfold.models.streams.records import Chunk, Record, StreamInfo
from fourfold.models.streams.validation import read_offset


class AppendNotice(NamedTuple):
    """Records that were appended to a stream, and are on disk."""

    sid: int
    records: tuple[Record, ...]


def of(
    asked: Sequence[Asked], outcomes: Sequence[Outcome], name: str, sid: int, ts_ms: int
) -> AppendNotice | None:
    """What appends that shared a commit brought to one stream; None when it is too much to be
    carried around, or is not only records.
    """
    found: list[Record] = []
    size = 0
    for (each, request), outcome in zip(asked, outcomes, strict=True):
        if each != name or isinstance(outcome, FourfoldError) or outcome.duplicate:
            continue
        if outcome.closed:
            return None
        first = outcome.next_offset - len(request.records)
        for offset, payload in enumerate(request.records, first):
            found.append(Record(offset, payload, ts_ms))
            size += len(payload)
        if size > limits.STREAM_ECHO_BYTES:
            return None
    return AppendNotice(sid, tuple(found)) if found else None


def chunk(info: StreamInfo, at: str, heard: Sequence[object], records_max: int) -> Chunk | None:
    """What a reader at an offset has heard, as it would read it from the log; None when only the
    log can tell.
    """
    offset = read_offset(at)
    if offset is None or offset.incarnation_number != info.incarnation_number:
        return None
    start = offset.record
    if info.expires_at_ms is not None or info.closed:
        return None
    found: list[Record] = []
    reached = start
    for echo in heard:
        if not isinstance(echo, AppendNotice) or echo.sid != info.sid:
            return None
        if echo.records[-1].offset < reached:
            # It was heard before the last look at the log, which has seen it already.
            continue
        if echo.records[0].offset != reached:
            return None
        found += echo.records
        reached += len(echo.records)
    if not found or len(found) > records_max:
        return None
    number = info.incarnation_number
    return Chunk(tuple(found), start, reached, True, False, number)

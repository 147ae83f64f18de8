"""Reading streams: a range of offsets, through the forks that it lies in, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fourfold import limits
from fourfold.errors import InvalidInput, OffsetGone
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import rules
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.records import (
    Chunk,
    ColdRecords,
    Record,
    RecordFilter,
    Step,
    StreamInfo,
)
from fourfold.models.streams.validation import read_offset, show_offset
from fourfold.models.streams.writer import SQL, info_of, resolve


def pieces(
    snapshot: ReadTransaction, info: StreamInfo, start: int, end: int
) -> list[tuple[int, int, int]]:
    """The (sid, from, to) ranges that together are the offsets from `start` to `end` of a stream,
    in order: a fork has its own records, and those below its fork offset are its source's.
    """
    found = []
    while start < end:
        own = info.fork_offset or 0
        if end > own:
            found.append((info.sid, max(start, own), end))
        if info.forked_from is None:
            break
        end = min(end, own)
        info = info_of(snapshot.one(SQL.stream_by_sid, (info.forked_from,)) or ())
    return found[::-1]


class NotInTheLog(Exception):
    """Some of the records are in segments, and there is nothing to read those with."""


def records(
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    cold: ColdRecords | None = None,
) -> Iterator[Record]:
    """The records of a range, one by one: those of segments first, then those of the log."""
    for sid, first, last in pieces(snapshot, info, start, end):
        rows = snapshot.rows(SQL.records, (sid, first, last))
        head = next(rows, None)
        # The log has all that is not in segments, up to the end; so what it lacks is before it.
        edge = last if head is None else head[0]
        if edge > first:
            if cold is None:
                raise NotInTheLog
            yield from cold.records(snapshot, sid, first, edge)
        if head is not None:
            for row in chain((head,), rows):
                yield Record._make(row)


def chunk(
    snapshot: ReadTransaction,
    info: StreamInfo,
    offset: str | int,
    *,
    records_max: int,
    bytes_max: int,
    cold: ColdRecords | None = None,
) -> Chunk:
    """Read the next records after `offset`, as many as fit; at least one if there is one."""
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    found: list[Record] = []
    held = 0
    for record in records(snapshot, info, first, min(tail, first + records_max), cold):
        held += len(record.payload)
        if found and held > bytes_max:
            break
        found.append(record)
    reached = found[-1].offset + 1 if found else first
    kept = tuple(rules.promoted(snapshot, info, found))
    return _chunk(info, kept, first, reached)


def sought_chunk(
    snapshot: ReadTransaction,
    info: StreamInfo,
    offset: str | int,
    sought: RecordFilter,
    *,
    records_max: int,
    bytes_max: int,
    cold: ColdRecords | None = None,
) -> Chunk:
    """Read the next records with a key after `offset`, and report how far the search has come: a
    chunk may have none, and not reach the end. The search ends at a bound of the records, bytes
    and segments that it examined. What is looked at is what is stored.
    """
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    found: list[Record] = []
    held, reached = 0, first
    rows = size = segments = 0
    for step in _steps(snapshot, info, first, tail, sought, cold):
        if step.record is not None:
            held += len(step.record.payload)
            if found and held > bytes_max:
                break
            found.append(step.record)
        reached = max(reached, step.reached)
        rows, size, segments = rows + step.rows, size + step.bytes, segments + step.segments
        if (
            len(found) == records_max
            or rows >= limits.FIELD_READ_RECORDS
            or size >= limits.FIELD_READ_BYTES
            or segments >= limits.KEY_READ_SEGMENTS
        ):
            break
    else:
        reached = tail
    kept = tuple(rules.promoted(snapshot, info, found))
    return _chunk(info, kept, first, reached)


def _steps(  # noqa: PLR0917 - a range of a stream, and what is sought in it
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    sought: RecordFilter,
    cold: ColdRecords | None,
) -> Iterator[Step]:
    for sid, first, last in pieces(snapshot, info, start, end):
        edge = min(last, max(first, int(snapshot.value(SQL.log_begin, (sid,)))))
        if edge > first:
            if cold is None:
                raise NotInTheLog
            yield from cold.sought(snapshot, sid, sought, first, edge)
        if sought.field is None:
            for row in snapshot.rows(SQL.keyed_records, (sid, edge, last, sought.key)):
                yield Step(row[0] + 1, Record._make(row))
        else:
            rows = snapshot.rows(SQL.records, (sid, edge, last))
            yield from fields.search(rows, sought.field, sought.key)


def _chunk(info: StreamInfo, records: tuple[Record, ...], first: int, reached: int) -> Chunk:
    ended = reached == info.next_offset
    number = info.incarnation_number
    return Chunk(records, first, reached, ended, info.closed and ended, number)


def page(
    snapshot: ReadTransaction, info: StreamInfo, offset: str | int, records_max: int | None = None
) -> Chunk:
    """The next part of a stream by its offsets alone, without its records: about as much as fits
    one answer, by what a record of this stream has on average.
    """
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    count = max(1, limits.STREAM_PAGE_BYTES // _average(info))
    reached = min(tail, first + (count if records_max is None else min(count, records_max)))
    return _chunk(info, (), first, reached)


def joined(
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    cold: ColdRecords | None = None,
) -> tuple[bytes, int]:
    """The next records from `start` on as one piece of a body, and where to go on. SQLite joins
    them; how large a piece gets is bounded, whatever the records are.
    """
    if snapshot.value(SQL.is_there, (info.sid,)) is None:
        # Its records may still be in the log, until they are trimmed.
        raise _gone_meanwhile(info)
    sid, first, end = pieces(snapshot, info, start, end)[0]
    last = min(end, first + max(1, limits.STREAM_PIECE_BYTES // _average(info)))
    separator = "," if info.is_json else ""
    if info.schema_version and first < (edge := rules.begin_of_version(snapshot, info)):
        # Messages of an older version are brought into the one that the stream is at.
        return _joined_one_by_one(snapshot, info, first, min(last, edge), cold)
    while last - first > 1:
        found = snapshot.one_within(
            limits.STREAM_PIECE_BYTES_MAX, SQL.joined, (sid, first, last, separator)
        )
        if found is not None:
            if found[1] == last - first:
                return found[0], last
            break
        last = first + (last - first) // 2
    if cold is not None:
        edge = min(end, max(first, int(snapshot.value(SQL.log_begin, (sid,)))))
        if edge > first:
            return cold.joined(snapshot, sid, first, edge, separator.encode())
    return _joined_one_by_one(snapshot, info, first, last, cold)


def _joined_one_by_one(
    snapshot: ReadTransaction, info: StreamInfo, start: int, end: int, cold: ColdRecords | None
) -> tuple[bytes, int]:
    """The same for records that are large, just came, or are not all in the log."""
    found: list[Record] = []
    held = 0
    for record in records(snapshot, info, start, end, cold):
        if record.offset != start + len(found):
            break
        held += len(record.payload)
        if found and held > limits.STREAM_PIECE_BYTES_MAX:
            break
        found.append(record)
    if not found:
        raise _gone_meanwhile(info)
    kept = rules.promoted(snapshot, info, found)
    separator = b"," if info.is_json else b""
    return separator.join(each.payload for each in kept), start + len(found)


def _gone_meanwhile(info: StreamInfo) -> OffsetGone:
    return OffsetGone(f"a part of the stream {info.name!r} is gone meanwhile")


def _average(info: StreamInfo) -> int:
    return max(1, info.size_bytes // max(1, info.next_offset))


def start_of(snapshot: ReadTransaction, info: StreamInfo, offset: str | int) -> int:
    """Return the record at which a read from `offset` begins. `-1` is the earliest kept record, a
    bare number is the next record to read of the current incarnation.

    Raises:
        OffsetGone: retention trimmed the record that an explicit offset names.
        StreamRecreated: the offset is of another stream that had this name.
    """
    at = offset if type(offset) is int else read_offset(offset)
    if at is None:
        return info.next_offset
    start = resolve(snapshot, info, at)
    number = info.incarnation_number
    if 0 <= start < info.first_offset:
        first = show_offset(info.first_offset, number)
        raise OffsetGone(
            f"the stream {info.name!r} begins at {first}; what was before it is gone",
            details={"first_offset": first},
        )
    if not 0 <= start <= info.next_offset:
        raise InvalidInput(
            f"the stream {info.name!r} ends at {show_offset(info.next_offset, number)}, "
            f"and has no record {start}",
            hint="Go on from an offset that a read of this stream gave you.",
        )
    return start

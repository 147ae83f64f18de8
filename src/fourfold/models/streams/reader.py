"""Reads of a range of offsets, through the sources of forks, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, OffsetGone
from fourfold.kernel import Database, ReadTransaction
from fourfold.models.streams import json_messages, rules
from fourfold.models.streams.archive.indexes import fields
from fourfold.models.streams.records import (
    Chunk,
    ColdRecords,
    KeyStep,
    Record,
    RecordFilter,
    StreamInfo,
)
from fourfold.models.streams.validation import check_name, format_offset, parse_offset
from fourfold.models.streams.writer import SQL, StreamClock, get_stream, info_of, resolve

KEY_READ_SEGMENTS: Final = 256
"""Maximum segments that one read by key searches; the reader continues from its end."""
FIELD_READ_RECORDS: Final = 5_000
FIELD_READ_BYTES: Final = 8 * limits.MIB
"""Records, and their bytes, that one read by field scans; the reader continues from its end."""
STREAM_PAGE_BYTES: Final = 16 * limits.MIB
"""Approximate bytes of one response to a reader that catches up; it is sent in pieces."""
STREAM_PIECE_BYTES_MAX: Final = 4 * limits.STREAM_PIECE_BYTES
"""Maximum bytes of a piece, unless a single record is larger."""


def source_ranges(
    snapshot: ReadTransaction, info: StreamInfo, start: int, end: int
) -> list[tuple[int, int, int]]:
    """Return the ranges (sid, start, end) that hold the offsets from `start` to `end`, in order.

    The records of a fork below its fork offset are those of its source.
    """
    ranges = []
    while start < end:
        own = info.fork_offset or 0
        if end > own:
            ranges.append((info.sid, max(start, own), end))
        if info.forked_from is None:
            break
        end = min(end, own)
        info = info_of(snapshot.one(SQL.stream_by_sid, (info.forked_from,)) or ())
    return ranges[::-1]


class NotInTheLog(Exception):
    """Some of the records are in segments, and no segment reader was passed."""


def records(
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    cold: ColdRecords | None = None,
) -> Iterator[Record]:
    """Yield the records of a range: first those in segments, then those in the log."""
    for sid, first, last in source_ranges(snapshot, info, start, end):
        rows = snapshot.rows(SQL.records, (sid, first, last))
        head = next(rows, None)
        # The log holds the end of the stream; records that it lacks are before it, in segments.
        edge = last if head is None else head[0]
        if edge > first:
            if cold is None:
                raise NotInTheLog
            yield from cold.records(snapshot, sid, first, edge)
        if head is not None:
            for row in chain((head,), rows):
                yield Record._make(row)


def read_chunk(
    snapshot: ReadTransaction,
    info: StreamInfo,
    offset: str | int,
    *,
    records_max: int,
    bytes_max: int,
    cold: ColdRecords | None = None,
) -> Chunk:
    """Return the records from `offset` on that fit the limits; at least one if there is one."""
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    batch: list[Record] = []
    total_bytes = 0
    for record in records(snapshot, info, first, min(tail, first + records_max), cold):
        total_bytes += record.size
        if batch and total_bytes > bytes_max:
            break
        batch.append(record)
    reached = batch[-1].offset + 1 if batch else first
    promoted = tuple(rules.promote_records(snapshot, info, batch))
    return _chunk(info, promoted, first, reached)


def read_routing_keys(
    snapshot: ReadTransaction,
    info: StreamInfo,
    records: Sequence[Record],
    cold: ColdRecords | None = None,
) -> dict[int, bytes]:
    """Return the routing keys of records by offset; those without a key are left out.

    Raises:
        NotInTheLog: some of the records are in segments, and no segment reader was passed.
    """
    keys: dict[int, bytes] = {}
    offsets = [record.offset for record in records]
    bounds = (offsets[0], offsets[-1] + 1) if offsets else (0, 0)
    for sid, first, last in source_ranges(snapshot, info, *bounds):
        edge = min(last, max(first, int(snapshot.value(SQL.log_begin, (sid,)))))
        sealed = [offset for offset in offsets if first <= offset < edge]
        if sealed:
            if cold is None:
                raise NotInTheLog
            pairs = cold.keyed_records(snapshot, sid, sealed)
            keys |= {record.offset: key for record, key in pairs if key is not None}
        keys |= dict(snapshot.rows(SQL.keys_of_records, (sid, edge, last)))
    return keys


def find_routing_keys(
    database: Database,
    now: StreamClock,
    name: str,
    chunk: Chunk,
    cold: ColdRecords | None,
) -> dict[int, bytes]:
    """Return the routing keys of the records of a chunk, in a read transaction of its own."""
    with database.read_current() as snapshot:
        info = get_stream(snapshot, check_name(name), now)
        if info.incarnation_number != chunk.incarnation_number:
            return {}
        return read_routing_keys(snapshot, info, chunk.records, cold)


def read_matching(
    snapshot: ReadTransaction,
    info: StreamInfo,
    offset: str | int,
    sought: RecordFilter,
    *,
    records_max: int,
    bytes_max: int,
    cold: ColdRecords | None = None,
) -> Chunk:
    """Return the matching records from `offset` on; the chunk may be empty and end early.

    The search stops at a limit of examined records, bytes and segments. A key or a field is
    compared with messages as they are stored, a filter with messages as they are read: promoted to
    the current schema version.
    """
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    select = _make_select(snapshot, info, sought)
    batch: list[Record] = []
    total_bytes, reached = 0, first
    rows = size = segments = 0
    for step in _steps(snapshot, info, first, tail, sought, cold):
        if step.record is not None and (record := select(step.record)) is not None:
            total_bytes += record.size
            if batch and total_bytes > bytes_max:
                break
            batch.append(record)
        reached = max(reached, step.reached)
        rows, size, segments = rows + step.rows, size + step.bytes, segments + step.segments
        if sought.where is not None and step.record is not None:
            rows, size = rows + 1, size + len(step.record.payload)
        if (
            len(batch) == records_max
            or rows >= FIELD_READ_RECORDS
            or size >= FIELD_READ_BYTES
            or segments >= KEY_READ_SEGMENTS
        ):
            break
    else:
        reached = tail
    return _chunk(info, tuple(batch), first, reached)


def _make_select(
    snapshot: ReadTransaction, info: StreamInfo, sought: RecordFilter
) -> Callable[[Record], Record | None]:
    """Return the function that promotes a record and returns it if the filter matches."""
    promote = rules.make_promote(snapshot, info)
    if sought.where is None:
        return promote
    if not info.is_json:
        raise InvalidInput(
            f"stream {info.name!r} holds {info.content_type}: a filter requires JSON messages",
            hint="Read it without a filter, or by key.",
        )
    matches = sought.where.matches

    def select(record: Record) -> Record | None:
        promoted = promote(record)
        try:
            value = json_messages.decode(promoted.payload)
        except msgspec.DecodeError:
            # Valid JSON with a number that no decoder can represent, such as 1e400.
            return None
        return promoted if matches(value) else None

    return select


def _steps(  # noqa: PLR0917 - a range of a stream and a filter
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    sought: RecordFilter,
    cold: ColdRecords | None,
) -> Iterator[KeyStep]:
    for sid, first, last in source_ranges(snapshot, info, start, end):
        edge = min(last, max(first, int(snapshot.value(SQL.log_begin, (sid,)))))
        if edge > first:
            if cold is None:
                raise NotInTheLog
            if sought.key is None:
                yield from map(_step, cold.records(snapshot, sid, first, edge))
            else:
                yield from cold.sought(snapshot, sid, sought, first, edge)
        if sought.key is None:
            rows = snapshot.rows(SQL.records, (sid, edge, last))
            yield from map(_step, map(Record._make, rows))
        elif sought.field is None:
            for row in snapshot.rows(SQL.keyed_records, (sid, edge, last, sought.key)):
                yield _step(Record._make(row))
        else:
            rows = snapshot.rows(SQL.records, (sid, edge, last))
            yield from fields.search(rows, sought.field, sought.key)


def _step(record: Record) -> KeyStep:
    return KeyStep(record.offset + 1, record)


def _chunk(info: StreamInfo, records: tuple[Record, ...], first: int, reached: int) -> Chunk:
    ended = reached == info.next_offset
    number = info.incarnation_number
    return Chunk(records, first, reached, ended, info.closed and ended, number)


def plan_chunk(
    snapshot: ReadTransaction, info: StreamInfo, offset: str | int, records_max: int | None = None
) -> Chunk:
    """Return the bounds of the next chunk without its records.

    Its size is about that of one response, by the average record of the stream.
    """
    tail = info.next_offset
    first = start_of(snapshot, info, offset)
    count = max(1, STREAM_PAGE_BYTES // _average(info))
    reached = min(tail, first + (count if records_max is None else min(count, records_max)))
    return _chunk(info, (), first, reached)


def read_joined(
    snapshot: ReadTransaction,
    info: StreamInfo,
    start: int,
    end: int,
    cold: ColdRecords | None = None,
) -> tuple[bytes, int]:
    """Return the next records from `start` on joined as a body part, and the next offset.

    SQLite joins them; the size of the part is bounded.
    """
    if snapshot.value(SQL.is_there, (info.sid,)) is None:
        # The stream was deleted; its records may still be in the log until they are trimmed.
        raise _concurrently_removed(info)
    sid, first, end = source_ranges(snapshot, info, start, end)[0]
    last = min(end, first + max(1, limits.STREAM_PIECE_BYTES // _average(info)))
    separator = "," if info.is_json else ""
    if info.schema_version and first < (edge := rules.begin_of_version(snapshot, info)):
        # Messages of an older schema version are promoted to the current one.
        return _join_one_by_one(snapshot, info, first, min(last, edge), cold)
    while last - first > 1:
        row = snapshot.one_within(STREAM_PIECE_BYTES_MAX, SQL.joined, (sid, first, last, separator))
        if row is not None:
            if row[1] == last - first:
                return row[0], last
            break
        last = first + (last - first) // 2
    if cold is not None:
        edge = min(end, max(first, int(snapshot.value(SQL.log_begin, (sid,)))))
        if edge > first:
            return cold.joined(snapshot, sid, first, edge, separator.encode())
    return _join_one_by_one(snapshot, info, first, last, cold)


def _join_one_by_one(
    snapshot: ReadTransaction, info: StreamInfo, start: int, end: int, cold: ColdRecords | None
) -> tuple[bytes, int]:
    """Join records in Python: those that are large, new, or partly in segments."""
    batch: list[Record] = []
    total_bytes = 0
    for record in records(snapshot, info, start, end, cold):
        if record.offset != start + len(batch):
            break
        total_bytes += len(record.payload)
        if batch and total_bytes > STREAM_PIECE_BYTES_MAX:
            break
        batch.append(record)
    if not batch:
        raise _concurrently_removed(info)
    promoted = rules.promote_records(snapshot, info, batch)
    separator = b"," if info.is_json else b""
    return separator.join(record.payload for record in promoted), start + len(batch)


def _concurrently_removed(info: StreamInfo) -> OffsetGone:
    return OffsetGone(f"stream {info.name!r}: records were removed during the read")


def _average(info: StreamInfo) -> int:
    return max(1, info.size_bytes // max(1, info.next_offset))


def start_of(snapshot: ReadTransaction, info: StreamInfo, offset: str | int) -> int:
    """Return the record at which a read from `offset` starts.

    `-1` is the earliest retained record; an integer is a record of the current incarnation.

    Raises:
        OffsetGone: retention trimmed the record at an explicit offset.
        StreamRecreated: the offset belongs to an earlier stream of this name.
    """
    at = offset if type(offset) is int else parse_offset(offset)
    if at is None:
        return info.next_offset
    start = resolve(snapshot, info, at)
    number = info.incarnation_number
    if 0 <= start < info.first_offset:
        first = format_offset(info.first_offset, number)
        raise OffsetGone(
            f"stream {info.name!r}: records before offset {first} were removed",
            details={"first_offset": first},
        )
    if not 0 <= start <= info.next_offset:
        raise InvalidInput(
            f"stream {info.name!r}: no record {start}, the stream ends at "
            f"{format_offset(info.next_offset, number)}",
            hint="Continue from an offset that a read of this stream returned.",
        )
    return start

"""Reading streams: a range of offsets, through the forks that it lies in, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.errors import InvalidInput, OffsetGone
from fourfold.kernel import Snapshot
from fourfold.models.streams.names import show_offset
from fourfold.models.streams.records import Chunk, Record, StreamInfo
from fourfold.models.streams.writer import SQL, info_of


def pieces(
    snapshot: Snapshot, info: StreamInfo, start: int, end: int
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


def records(snapshot: Snapshot, info: StreamInfo, start: int, end: int) -> Iterator[Record]:
    """The records of a range, one by one."""
    for sid, first, last in pieces(snapshot, info, start, end):
        for row in snapshot.rows(SQL.records, (sid, first, last)):
            yield Record._make(row)


def chunk(
    snapshot: Snapshot,
    info: StreamInfo,
    start: int | None,
    *,
    records_max: int,
    bytes_max: int,
) -> Chunk:
    """The next records from `start` on, as many as fit; at least one if there is one. None is the
    end.
    """
    tail = info.next_offset
    first = tail if start is None else start
    check_offset(info, first)
    found: list[Record] = []
    held = 0
    for record in records(snapshot, info, first, min(tail, first + records_max)):
        held += len(record.payload)
        if found and held > bytes_max:
            break
        found.append(record)
    reached = found[-1].offset + 1 if found else first
    return Chunk(tuple(found), first, reached, reached == tail, info.closed and reached == tail)


def check_offset(info: StreamInfo, offset: int) -> None:
    if offset < info.first_offset:
        if offset == 0 and info.first_offset == 0:
            return
        raise OffsetGone(
            f"the stream {info.name!r} begins at {show_offset(info.first_offset)}; what was before "
            "it is gone",
            details={"first_offset": show_offset(info.first_offset)},
        )
    if offset > info.next_offset:
        raise InvalidInput(
            f"the stream {info.name!r} ends at {show_offset(info.next_offset)}, "
            f"before {show_offset(offset)}",
            hint="Go on from an offset that a read of this stream gave you.",
        )

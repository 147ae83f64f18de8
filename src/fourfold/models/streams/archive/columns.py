"""Records of a log as columns, to write segments.

SQLite aggregates the values of many records in one statement, and Arrow splits them again. So no
Python object is created per record, and other threads can run meanwhile: sealing must not slow down
appends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.segment_writer import schema
from fourfold.errors import CorruptData
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.archive.records import SQL, Policy


def batches(
    snapshot: ReadTransaction, sid: int, start: int, end: int, *, average: int, policy: Policy
) -> Iterator[Any]:
    """Yield the records from `start` to before `end`, at most one segment, as row groups.

    Yields at least one record, if there is one. `average` is the approximate size of a record.
    """
    rows, left, at = 0, policy.seal_bytes, start
    # All row groups of a segment have the same columns.
    headers = bool(snapshot.value(SQL.has_headers, (sid,)))
    while True:
        most = min(policy.seal_rows - rows, limits.SEGMENT_GROUP_ROWS)
        group = _group(
            snapshot,
            (sid, at, end),
            most=most,
            left=left,
            average=average,
            begins=not rows,
            headers=headers,
        )
        if group is None:
            return
        yield group
        size = _size(group)
        rows += len(group)
        left -= size
        at = group.column(0)[-1].as_py() + 1
        average = size // len(group)


def _group(
    snapshot: ReadTransaction,
    between: tuple[int, int, int],
    *,
    most: int,
    left: int,
    average: int,
    begins: bool,
    headers: bool,
) -> Any:
    """Return the next row group, or None.

    Rows are added until it is about full, because records may be larger or smaller than estimated.
    """
    sid, at, end = between
    parts: list[Any] = []
    rows = size = 0
    while at < end and rows < most and size <= limits.SEGMENT_GROUP_BYTES * 3 // 4:
        room = limits.SEGMENT_GROUP_BYTES - size
        # For a nearly full segment, do not read more than may fit.
        guess = max(1, min(room, 2 * (left - size)) // max(1, average))
        found = _batch(snapshot, sid, at, min(guess, most - rows, end - at), headers=headers)
        if found is None:
            break
        part = _cut(found, room, left - size, begins=begins and not parts, first=not parts)
        if part is None:
            break
        parts.append(part)
        rows += len(part)
        size += _size(part)
        at = part.column(0)[-1].as_py() + 1
        average = size // rows
        if len(part) < len(found):
            break
    if len(parts) <= 1:
        return parts[0] if parts else None
    pa, _ = arrow()
    [whole] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return whole


def _batch(snapshot: ReadTransaction, sid: int, start: int, most: int, *, headers: bool) -> Any:
    """Return at most `most` of the next records, fewer if they are large, or None."""
    bytes_max = 2 * limits.SEGMENT_GROUP_BYTES
    while True:
        params = (sid, start, start + most)
        if most == 1:
            row = snapshot.one(SQL.columns_to_seal, params)
        else:
            row = snapshot.one_within(bytes_max, SQL.columns_to_seal, params)
        if row is not None:
            break
        most //= 2
    count, first, last, *columns = row
    if not count:
        return None
    # It may start later than requested: retention removes records at any time.
    if last - first != count - 1:
        raise CorruptData(f"the log of stream {sid} has gaps between {first} and {last}")
    return _arranged(snapshot, (sid, first, last + 1), columns, headers=headers)


def _arranged(
    snapshot: ReadTransaction, between: tuple[int, int, int], columns: list[Any], *, headers: bool
) -> Any:
    pa, _ = arrow()
    times, lengths, payloads, least, most, keys = columns
    _, start, end = between
    count = end - start
    ends = pa.compute.cumulative_sum(_numbers("0," + lengths).cast(pa.int32()))
    rest = snapshot.all(SQL.keys_and_flags, between) if keys or least != most else None
    given = [
        pa.compute.add(pa.compute.cumulative_sum(pa.repeat(1, count)), start - 1),
        _numbers(times),
        pa.nulls(count, pa.binary())
        if rest is None
        else pa.array([row[0] for row in rest], type=pa.binary()),
        pa.repeat(pa.scalar(least, pa.int32()), count)
        if rest is None
        else pa.array([row[1] for row in rest], type=pa.int32()),
        pa.BinaryArray.from_buffers(
            pa.binary(), count, [None, ends.buffers()[1], pa.py_buffer(payloads)]
        ),
    ]
    if headers:
        values = [row[0] for row in snapshot.all(SQL.headers_to_seal, between)]
        given.append(pa.array(values, type=pa.binary()))
    fields = schema(headers=headers)
    arrays = [
        each if each.type == field.type else each.cast(field.type)
        for each, field in zip(given, fields, strict=True)
    ]
    return pa.record_batch(arrays, schema=fields)


def _numbers(listed: str) -> Any:
    pa, _ = arrow()
    return pa.compute.split_pattern(pa.array([listed]), ",").values.cast(pa.int64())


def _size(batch: Any) -> int:
    pa, _ = arrow()
    return int(pa.compute.sum(pa.compute.binary_length(batch.column(4))).as_py())


def _cut(batch: Any, room: int, left: int, *, begins: bool, first: bool) -> Any:
    """Return the part of a batch that fits into the row group (`room`) and the segment (`left`).

    Returns None if nothing fits. The `first` part of a row group has at least one record, and so
    has a segment that it `begins`.
    """
    pa, _ = arrow()
    allowed = min(left, room)
    if _size(batch) <= allowed:
        return batch
    ends = pa.compute.cumulative_sum(pa.compute.binary_length(batch.column(4))).to_pylist()
    fitting = bisect_right(ends, allowed)
    if not fitting:
        fitting = int(begins or (first and ends[0] <= left))
    return batch.slice(0, fitting) if fitting else None

"""Writing to streams: each function is the work of one transaction.

A stream is made with its first records, forked, trimmed and removed here; what is appended later is
the affair of `appending`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, NotFound, StreamGone, StreamRecreated
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import admission, rules, slices, tombstones
from fourfold.models.streams.records import CreateResult, Producer, StreamInfo
from fourfold.models.streams.validation import (
    Offset,
    check_content_type,
    check_name,
    plain_type,
    show_offset,
)

SQL = load_queries("fourfold.models.streams")
_DELETED = 1


class StreamClock(NamedTuple):
    """Now, and when streams were used last, by sid, as far as that is not written down yet."""

    ms: int
    used: Mapping[int, int]


class Fork(NamedTuple):
    """Where a new stream leaves another: behind `offset` records of it, and `sub_offset` more
    messages, or bytes where there are no messages.
    """

    source: str
    offset: int | Offset | None = None
    sub_offset: int = 0


class ForkPoint(NamedTuple):
    """Where a fork leaves the stream `sid` if it asks for the record `asked`: before the record
    `start`, of which it takes the bytes `partial` as its own. `size` counts all before `start`.
    """

    sid: int
    asked: int
    start: int
    partial: bytes
    size: int


class StreamOptions(NamedTuple):
    """What a stream shall be like."""

    name: str
    content_type: str | None
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    fork: Fork | None = None
    retention_seconds: int | None = None
    retention_bytes: int | None = None


def check_wanted(wanted: StreamOptions) -> StreamOptions:
    """What is asked for, checked before anything is written."""
    check_name(wanted.name)
    check_settings(
        wanted.ttl_seconds,
        wanted.expires_at_ms,
        wanted.retention_seconds,
        wanted.retention_bytes,
    )
    if wanted.fork is not None:
        check_name(wanted.fork.source)
        sub = wanted.fork.sub_offset
        if type(sub) is not int or not 0 <= sub <= limits.INTEGER_MAX:
            raise InvalidInput(f"sub_offset must be a number from 0, got {sub!r:.80}")
    kind = wanted.content_type
    return wanted._replace(content_type=None if kind is None else check_content_type(kind))


def check_settings(
    ttl_seconds: int | None,
    expires_at_ms: int | None,
    retention_seconds: int | None,
    retention_bytes: int | None,
) -> None:
    """Raise InvalidInput for settings that no stream can have."""
    if ttl_seconds is not None and expires_at_ms is not None:
        raise InvalidInput("a stream has a time to live or an end, not both")
    for what, value, most in (
        ("ttl", ttl_seconds, limits.STREAM_TTL_S_MAX),
        ("expires_at_ms", expires_at_ms, limits.STREAM_EXPIRES_MS_MAX),
        ("retention_seconds", retention_seconds, limits.INTEGER_MAX // 1000),
        ("retention_bytes", retention_bytes, limits.INTEGER_MAX // 1000),
    ):
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise InvalidInput(f"{what} must be a number from 0 to {most}, got {value!r:.80}")


def info_of(row: Sequence[Any]) -> StreamInfo:
    by = None if row[7] is None else Producer(row[7], row[8], row[9])
    return StreamInfo(
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        bool(row[6]),
        by,
        row[10],
        row[11],
        bool(row[12] & _DELETED),
        *row[13:],
    )


def find(snapshot: ReadTransaction, name: str, now: StreamClock) -> StreamInfo | None:
    """The stream of a name; None when there is none, or its time is over."""
    row = snapshot.one(SQL.stream_by_name, (name,))
    if row is None:
        return None
    info = as_used(info_of(row), now)
    return None if is_expired(info, now) else info


def as_used(info: StreamInfo, now: StreamClock) -> StreamInfo:
    """A stream whose end was moved on by a use that is not written down yet."""
    used = now.used.get(info.sid)
    if used is None or info.ttl_seconds is None:
        return info
    end = used + 1000 * info.ttl_seconds
    return info._replace(expires_at_ms=max(end, info.expires_at_ms or 0))


def is_expired(info: StreamInfo, now: StreamClock) -> bool:
    end = info.expires_at_ms
    return end is not None and end <= now.ms and not info.deleted


def living(snapshot: ReadTransaction, name: str, now: StreamClock) -> StreamInfo:
    """The stream of a name; NotFound when there is none, StreamGone when only its forks read it."""
    info = find(snapshot, name, now)
    if info is None:
        raise NotFound(f"there is no stream {name!r}")
    if info.deleted:
        raise StreamGone(f"the stream {name!r} was deleted; only its forks go on")
    return info


def resolve(snapshot: ReadTransaction, info: StreamInfo, offset: int | Offset) -> int:
    """Return the record that an offset names; a bare number is one of the current incarnation.

    A fork also accepts offsets of the streams that it came from, up to where it left them, unless
    an earlier stream of its own name had that number. The all-zero offset is the start, whatever
    the incarnation.

    Raises:
        StreamRecreated: the offset is of another stream that had this name.
    """
    if not isinstance(offset, Offset):
        return offset
    if offset.is_start:
        return info.first_offset
    if not _is_of(snapshot, info, offset):
        raise StreamRecreated(
            f"stream {info.name!r}: offset {offset} is of another incarnation",
            details={"first_offset": show_offset(info.first_offset, info.incarnation_number)},
        )
    return offset.record


def _is_of(snapshot: ReadTransaction, info: StreamInfo, offset: Offset) -> bool:
    """Return True if a stream, or one that it was forked from, had a record at an offset."""
    number = offset.incarnation_number
    if number == info.incarnation_number:
        return True
    past = snapshot.value(SQL.past_incarnation_of, (info.name,))
    if past is not None and number <= past:
        return False
    source, shared = info, limits.INTEGER_MAX
    while source.forked_from is not None:
        shared = min(shared, source.fork_offset or 0)
        source = info_of(snapshot.one(SQL.stream_by_sid, (source.forked_from,)) or ())
        if number == source.incarnation_number and offset.record <= shared:
            return True
    return False


def create(
    txn: Transaction,
    wanted: StreamOptions,
    records: Sequence[bytes],
    now: StreamClock,
    point: ForkPoint | None = None,
) -> CreateResult | None:
    """Create a stream with its first records, or return it if it is there and is like that.

    A fork before the end of its source needs its `point`, measured before. Returns None if it is
    missing, or that of another stream.
    """
    row = txn.one(SQL.stream_by_name, (wanted.name,))
    if row is not None:
        info = as_used(info_of(row), now)
        if not is_expired(info, now):
            _refuse_unlike(txn, info, wanted)
            return CreateResult(info, created=False)
        remove(txn, info, now.ms)
    made = _add(txn, wanted, now, point)
    if made is None:
        return None
    if records:
        asks = rules.find(txn, made)
        keys = None
        if asks is not None:
            records, keys = asks.take(records, now.ms, None)
        _write(txn, made, records, now.ms, keys)
        made = info_of(_row(txn, made.sid))
    return CreateResult(made, created=True)


def delete(txn: Transaction, name: str, now: StreamClock) -> None:
    """Remove a stream; one that has forks is only marked, since they read through it."""
    info = living(txn, name, now)
    if info.forks:
        txn.execute(SQL.mark_deleted, (info.sid, now.ms))
    else:
        remove(txn, info, now.ms)


def remove(txn: Transaction, info: StreamInfo, now_ms: int) -> None:
    """Delete a stream, and those that were kept only for it. What is large is trimmed later."""
    while True:
        if info.forks:
            # Its time is over, but forks read through it: the name becomes free once they are gone.
            txn.execute(SQL.mark_deleted, (info.sid, info.created_at_ms))
            return
        tombstones.bury(txn, info, now_ms)
        if info.forked_from is None:
            return
        txn.execute(SQL.add_fork, (info.forked_from, -1))
        info = info_of(_row(txn, info.forked_from))
        if not info.deleted or info.forks:
            return


def trim(txn: Transaction, info: StreamInfo, first_offset: int) -> int:
    """Give up the records below an offset; how many there were."""
    if info.forks or first_offset <= max(info.first_offset, info.fork_offset or 0):
        return 0
    counts = txn.one(SQL.held_below, (info.sid, first_offset)) or (0, 0, 0, 0)
    slices.drop_below(txn, info.sid, first_offset)
    txn.execute(SQL.trimmed, (info.sid, first_offset, *counts))
    return first_offset - info.first_offset


def end_of_life(info: StreamInfo, now_ms: int) -> int | None:
    """When a stream ends if it is used now."""
    if info.ttl_seconds is None:
        return info.expires_at_ms
    return now_ms + 1000 * info.ttl_seconds


def _write(
    txn: Transaction,
    info: StreamInfo,
    records: Sequence[bytes],
    now_ms: int,
    keys: Sequence[bytes | None] | None = None,
) -> None:
    """The first records of a stream, each with its routing key where there are any."""
    if keys is not None:
        columns = ("sid", "offset", "ts_ms", "payload", "payload_len", "routing_key")
        rows = [
            (info.sid, offset, now_ms, record, len(record), key)
            for offset, (record, key) in enumerate(
                zip(records, keys, strict=True), info.next_offset
            )
        ]
        txn.insert_many("wal_log", columns, rows)
    else:
        txn.insert_series(
            "wal_log",
            fixed={"sid": info.sid, "ts_ms": now_ms},
            counter=("offset", info.next_offset),
            values=("payload", records),
            lengths="payload_len",
        )
    txn.execute(SQL.place_last, (len(records),))
    size = sum(map(len, records))
    params = (info.sid, len(records), size, now_ms, end_of_life(info, now_ms), None)
    txn.execute(SQL.advance, params)


def _row(txn: Transaction, sid: int) -> Sequence[Any]:
    row = txn.one(SQL.stream_by_sid, (sid,))
    assert row is not None
    return row


def _add(
    txn: Transaction, wanted: StreamOptions, now: StreamClock, point: ForkPoint | None
) -> StreamInfo | None:
    source, partial = None, b""
    first = asked = start = size = 0
    profile, version = "generic", None
    content_type = wanted.content_type or "application/octet-stream"
    ttl, expires = wanted.ttl_seconds, wanted.expires_at_ms
    if wanted.fork is not None:
        source, point = _fork_point(txn, wanted.fork, now, point)
        if point is None:
            return None
        _, asked, start, partial, size = point
        if wanted.content_type is not None:
            admission.refuse_other_type(source, wanted.content_type)
        content_type, first = source.content_type, min(source.first_offset, start)
        if ttl is None and expires is None:
            ttl, expires = source.ttl_seconds, source.expires_at_ms
        profile, version = rules.inherit(txn, source, start, wanted.name, now.ms)
    if ttl is not None:
        expires = now.ms + 1000 * ttl
    params = (
        wanted.name,
        now.ms,
        start,
        content_type,
        ttl,
        expires,
        None if source is None else source.sid,
        None if source is None else start,
        uuid.uuid4().hex[:12],
        int(wanted.closed),
        first,
        profile,
        wanted.retention_seconds,
        wanted.retention_bytes,
        size,
        None if wanted.fork is None or wanted.fork.offset is None else asked,
        None if wanted.fork is None else wanted.fork.sub_offset,
        version,
        txn.value(SQL.next_incarnation, (wanted.name,)),
    )
    txn.execute(SQL.add_stream, params)
    if source is not None:
        txn.execute(SQL.add_fork, (source.sid, 1))
    made = info_of(txn.one(SQL.stream_by_name, (wanted.name,)) or ())
    if partial:
        _write(txn, made, [partial], now.ms)
        made = info_of(_row(txn, made.sid))
    return made


def _fork_point(
    txn: Transaction, fork: Fork, now: StreamClock, point: ForkPoint | None
) -> tuple[StreamInfo, ForkPoint | None]:
    """Return the stream to fork and where, if that is its end or was measured as `point`."""
    source, asked, start = fork_start(txn, fork, now)
    if start == source.next_offset:
        return source, ForkPoint(source.sid, asked, start, b"", source.size_bytes)
    if point is not None and (point.sid, point.asked) != (source.sid, asked):
        point = None
    return source, point


def fork_start(
    snapshot: ReadTransaction, fork: Fork, now: StreamClock
) -> tuple[StreamInfo, int, int | None]:
    """Return the stream to fork, the record asked for, and the first one that is not shared; that
    is None if bytes have to be counted to find it.
    """
    source = find(snapshot, fork.source, now)
    if source is None:
        raise NotFound(f"there is no stream {fork.source!r} to fork")
    if source.deleted:
        raise AlreadyExists(f"the stream {fork.source!r} was deleted; it cannot be forked")
    end, sub = source.next_offset, fork.sub_offset
    asked = end if fork.offset is None else _fork_asked(snapshot, source, fork.offset)
    if not sub:
        return source, asked, asked
    if not source.is_json:
        if asked == end:
            raise InvalidInput(f"the stream {source.name!r} ends before the fork's sub-offset")
        return source, asked, None
    if asked + sub > end:
        raise InvalidInput(f"the stream {fork.source!r} has no {sub} more messages")
    return source, asked, asked + sub


def _fork_asked(snapshot: ReadTransaction, source: StreamInfo, offset: int | Offset) -> int:
    # An incarnation that there never was is beyond the end of the stream, not before its start.
    number = offset.incarnation_number if isinstance(offset, Offset) else 0
    known = number <= source.incarnation_number or _is_of(snapshot, source, Offset(0, number))
    start = resolve(snapshot, source, offset) if known else -1
    if not source.first_offset <= start <= source.next_offset:
        shown = str(offset)
        raise InvalidInput(f"the stream {source.name!r} has no offset {shown} to fork at")
    return start


def _refuse_unlike(txn: Transaction, info: StreamInfo, wanted: StreamOptions) -> None:
    """A stream that is there must be what was asked for."""
    if info.deleted:
        raise AlreadyExists(f"the stream {info.name!r} was deleted, but forks still read it")
    fork = wanted.fork
    source = None
    if info.forked_from is not None:
        source = info_of(_row(txn, info.forked_from))
    unlike = [
        what
        for what, same in (
            ("content type", _same_type(info, wanted)),
            ("time to live", wanted.ttl_seconds == info.ttl_seconds or _inherits(wanted)),
            ("end", _same_end(info, wanted)),
            ("closed state", wanted.closed == info.closed),
            ("retention", _same_retention(info, wanted)),
            ("origin", (fork and fork.source) == (source and source.name)),
            ("fork offset", fork is None or source is None or _same_fork(txn, info, source, fork)),
        )
        if not same
    ]
    if unlike:
        raise AlreadyExists(
            f"the stream {info.name!r} exists with another {', '.join(unlike)}",
            details={"closed": info.closed},
        )


def _same_type(info: StreamInfo, wanted: StreamOptions) -> bool:
    kind = wanted.content_type
    return kind is None or plain_type(kind) == plain_type(info.content_type)


def _same_retention(info: StreamInfo, wanted: StreamOptions) -> bool:
    asked = wanted.retention_seconds, wanted.retention_bytes
    return asked == (info.retention_seconds, info.retention_bytes)


def _same_fork(txn: Transaction, info: StreamInfo, source: StreamInfo, fork: Fork) -> bool:
    if fork.sub_offset != (info.fork_sub_offset or 0):
        return False
    if fork.offset is None:
        return True
    return resolve(txn, source, fork.offset) in {info.fork_asked, info.fork_offset}


def _inherits(wanted: StreamOptions) -> bool:
    return wanted.fork is not None and wanted.ttl_seconds is None and wanted.expires_at_ms is None


def _same_end(info: StreamInfo, wanted: StreamOptions) -> bool:
    if info.ttl_seconds is not None or _inherits(wanted):
        return wanted.expires_at_ms is None
    return wanted.expires_at_ms == info.expires_at_ms

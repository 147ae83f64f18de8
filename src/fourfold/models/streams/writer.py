"""Writes to streams: each function runs in one transaction.

Streams are created with their first records, forked, trimmed and removed here; later appends are in
`append`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, NotFound, StreamGone, StreamRecreated
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import admission, record_ids, routing_keys, rules, slices, tombstones
from fourfold.models.streams.records import CreateResult, Producer, StreamInfo
from fourfold.models.streams.validation import (
    Offset,
    check_content_type,
    check_name,
    format_offset,
    plain_type,
)

STREAM_TTL_S_MAX: Final = 100 * 366 * 86_400
"""Longest time to live of a stream: about a hundred years."""

SQL = load_queries("fourfold.models.streams")
_DELETED = 1


class StreamClock(NamedTuple):
    """The current time, and the last uses of streams by sid that are not written yet."""

    ms: int
    used: Mapping[int, int]


class Fork(NamedTuple):
    """The source of a fork, shared up to `offset` and `sub_offset` more messages.

    In a stream that is not JSON, `sub_offset` counts bytes.
    """

    source: str
    offset: int | Offset | None = None
    sub_offset: int = 0


class ForkPoint(NamedTuple):
    """Point at which a fork of the stream `sid` diverges from it.

    It shares the records before `start`, whose bytes are `size`, and copies the first bytes of
    that record, `partial`.
    """

    sid: int
    fork_at: int
    start: int
    partial: bytes
    size: int


class StreamOptions(NamedTuple):
    """The settings of a stream to create."""

    name: str
    content_type: str | None
    ttl_seconds: int | None = None
    expires_at_ms: int | None = None
    closed: bool = False
    fork: Fork | None = None
    retention_seconds: int | None = None
    retention_bytes: int | None = None


def check_options(options: StreamOptions) -> StreamOptions:
    """Return the options of a new stream in normal form, or raise InvalidInput."""
    check_name(options.name)
    check_settings(
        options.ttl_seconds,
        options.expires_at_ms,
        options.retention_seconds,
        options.retention_bytes,
    )
    if options.fork is not None:
        check_name(options.fork.source)
        sub = options.fork.sub_offset
        if type(sub) is not int or not 0 <= sub <= limits.INTEGER_MAX:
            raise InvalidInput(f"sub_offset must be an integer from 0, got {sub!r:.80}")
    kind = options.content_type
    return options._replace(content_type=None if kind is None else check_content_type(kind))


def check_settings(
    ttl_seconds: int | None,
    expires_at_ms: int | None,
    retention_seconds: int | None,
    retention_bytes: int | None,
) -> None:
    """Raise InvalidInput for settings that no stream can have."""
    if ttl_seconds is not None and expires_at_ms is not None:
        raise InvalidInput("pass ttl or expires_at_ms, not both")
    for setting, value, maximum in (
        ("ttl", ttl_seconds, STREAM_TTL_S_MAX),
        ("expires_at_ms", expires_at_ms, limits.STREAM_EXPIRES_MS_MAX),
        ("retention_seconds", retention_seconds, limits.INTEGER_MAX // 1000),
        ("retention_bytes", retention_bytes, limits.INTEGER_MAX // 1000),
    ):
        if value is not None and (type(value) is not int or not 0 <= value <= maximum):
            raise InvalidInput(f"{setting} must be a number from 0 to {maximum}, got {value!r:.80}")


def info_of(row: Sequence[Any]) -> StreamInfo:
    """Convert a row of `streams`."""
    closed_by = None if row[7] is None else Producer(row[7], row[8], row[9])
    return StreamInfo(
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        bool(row[6]),
        closed_by,
        row[10],
        row[11],
        bool(row[12] & _DELETED),
        *row[13:],
    )


def find(snapshot: ReadTransaction, name: str, now: StreamClock) -> StreamInfo | None:
    """Return the stream of a name, or None if there is none or it expired."""
    row = snapshot.one(SQL.stream_by_name, (name,))
    if row is None:
        return None
    info = with_last_use(info_of(row), now)
    return None if is_expired(info, now) else info


def with_last_use(info: StreamInfo, now: StreamClock) -> StreamInfo:
    """Return a stream with its expiry extended by a use that is not written yet."""
    used = now.used.get(info.sid)
    if used is None or info.ttl_seconds is None:
        return info
    end = used + 1000 * info.ttl_seconds
    return info._replace(expires_at_ms=max(end, info.expires_at_ms or 0))


def is_expired(info: StreamInfo, now: StreamClock) -> bool:
    """Return True if the lifetime of a stream has ended."""
    end = info.expires_at_ms
    return end is not None and end <= now.ms and not info.deleted


def get_stream(snapshot: ReadTransaction, name: str, now: StreamClock) -> StreamInfo:
    """Return the stream of a name.

    Raises:
        NotFound: there is none, or it expired.
        StreamGone: it was deleted and exists for its forks only.
    """
    info = find(snapshot, name, now)
    if info is None:
        raise NotFound(f"unknown stream {name!r}")
    if info.deleted:
        raise StreamGone(f"stream {name!r} was deleted; only its forks exist")
    return info


def resolve(snapshot: ReadTransaction, info: StreamInfo, offset: int | Offset) -> int:
    """Return the record at an offset; an integer is one of the current incarnation.

    A fork also accepts offsets of its sources, up to where it diverged, unless an earlier stream of
    its own name had that incarnation number. The all-zero offset is the start of every incarnation.

    Raises:
        StreamRecreated: the offset belongs to an earlier stream of this name.
    """
    if not isinstance(offset, Offset):
        return offset
    if offset.is_start:
        return info.first_offset
    if not _is_of(snapshot, info, offset):
        raise StreamRecreated(
            f"stream {info.name!r}: offset {offset} belongs to another incarnation",
            details={"first_offset": format_offset(info.first_offset, info.incarnation_number)},
        )
    return offset.record


def _is_of(snapshot: ReadTransaction, info: StreamInfo, offset: Offset) -> bool:
    """Return True if an offset belongs to a stream or to one of its sources."""
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
    options: StreamOptions,
    records: Sequence[bytes],
    now: StreamClock,
    point: ForkPoint | None = None,
) -> CreateResult | None:
    """Create a stream with its first records, or return an existing one with equal settings.

    A fork before the end of its source needs its `point`. Returns None if it is missing, or belongs
    to another stream.
    """
    row = txn.one(SQL.stream_by_name, (options.name,))
    if row is not None:
        info = with_last_use(info_of(row), now)
        if not is_expired(info, now):
            _check_equal(txn, info, options)
            return CreateResult(info, created=False)
        remove(txn, info, now.ms)
    created = _add(txn, options, now, point)
    if created is None:
        return None
    if records:
        stream_rules = rules.find(txn, created)
        keys = None
        if stream_rules is not None:
            records, keys = stream_rules.admit(records, now.ms, None)
        _write(txn, created, records, now.ms, keys)
        created = info_of(_row(txn, created.sid))
    return CreateResult(created, created=True)


def delete(txn: Transaction, name: str, now: StreamClock) -> None:
    """Delete a stream; one with forks is only marked, because they read its records."""
    info = get_stream(txn, name, now)
    if info.forks:
        txn.execute(SQL.mark_deleted, (info.sid, now.ms))
    else:
        remove(txn, info, now.ms)


def remove(txn: Transaction, info: StreamInfo, now_ms: int) -> None:
    """Delete a stream, and deleted sources that only it used.

    A slice of the stream is trimmed, which is all of a small one; the rest is trimmed later.
    """
    sid = info.sid
    while True:
        if info.forks:
            # It expired, but forks read its records: the name becomes free once they are gone.
            txn.execute(SQL.mark_deleted, (info.sid, info.created_at_ms))
            return
        tombstones.bury(txn, info, now_ms)
        if info.sid == sid:
            tombstones.trim(txn, sid)
        if info.forked_from is None:
            return
        txn.execute(SQL.add_fork, (info.forked_from, -1))
        info = info_of(_row(txn, info.forked_from))
        if not info.deleted or info.forks:
            return


def trim(txn: Transaction, info: StreamInfo, first_offset: int) -> int:
    """Trim the records below an offset; return how many there were."""
    if info.forks or first_offset <= max(info.first_offset, info.fork_offset or 0):
        return 0
    counts = txn.one(SQL.held_below, (info.sid, first_offset)) or (0, 0, 0, 0)
    slices.drop_below(txn, info.sid, first_offset)
    routing_keys.forget(txn, info.sid, first_offset)
    txn.execute(SQL.trimmed, (info.sid, first_offset, *counts))
    return first_offset - info.first_offset


def append_copies(
    txn: Transaction,
    info: StreamInfo,
    copies: Sequence[tuple[bytes, bytes | None, bytes | None]],
    now_ms: int,
) -> None:
    """Append payloads with their routing keys and headers, as they are.

    It is no use of the stream: its TTL does not change.
    """
    now_ms = max(now_ms, info.updated_at_ms)
    held = record_ids.hold(txn)
    if any(headers is not None for _, _, headers in copies):
        txn.execute(SQL.mark_headers, (info.sid,))
    columns = ("sid", "offset", "ts_ms", "payload", "payload_len", "routing_key", "headers")
    rows = [
        (info.sid, offset, now_ms, payload, len(payload), key, headers)
        for offset, (payload, key, headers) in enumerate(copies, info.next_offset)
    ]
    txn.insert_many("wal_log", columns, rows)
    txn.execute(SQL.place_last, (len(rows),))
    record_ids.release(txn, held)
    size = sum(len(payload) for payload, _, _ in copies)
    txn.execute(SQL.advance, (info.sid, len(rows), size, now_ms, info.expires_at_ms, None))


def end_of_life(info: StreamInfo, now_ms: int) -> int | None:
    """Return when a stream expires if it is used now."""
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
    """Insert the first records of a stream, with their routing keys if there are any."""
    now_ms = max(now_ms, info.updated_at_ms)
    held = record_ids.hold(txn)
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
    record_ids.release(txn, held)
    size = sum(map(len, records))
    params = (info.sid, len(records), size, now_ms, end_of_life(info, now_ms), None)
    txn.execute(SQL.advance, params)


def _row(txn: Transaction, sid: int) -> Sequence[Any]:
    row = txn.one(SQL.stream_by_sid, (sid,))
    assert row is not None
    return row


def _add(
    txn: Transaction, options: StreamOptions, now: StreamClock, point: ForkPoint | None
) -> StreamInfo | None:
    source, partial = None, b""
    first = fork_at = start = size = 0
    profile, version = "generic", None
    content_type = options.content_type or "application/octet-stream"
    ttl, expires = options.ttl_seconds, options.expires_at_ms
    if options.fork is not None:
        source, point = _fork_point(txn, options.fork, now, point)
        if point is None:
            return None
        _, fork_at, start, partial, size = point
        if options.content_type is not None:
            admission.check_same_type(source, options.content_type)
        content_type, first = source.content_type, min(source.first_offset, start)
        if ttl is None and expires is None:
            ttl, expires = source.ttl_seconds, source.expires_at_ms
        profile, version = rules.inherit(txn, source, start, options.name, now.ms)
    if ttl is not None:
        expires = now.ms + 1000 * ttl
    params = (
        options.name,
        now.ms,
        start,
        content_type,
        ttl,
        expires,
        None if source is None else source.sid,
        None if source is None else start,
        uuid.uuid4().hex[:12],
        int(options.closed),
        first,
        profile,
        options.retention_seconds,
        options.retention_bytes,
        size,
        None if options.fork is None or options.fork.offset is None else fork_at,
        None if options.fork is None else options.fork.sub_offset,
        version,
        txn.value(SQL.next_incarnation, (options.name,)),
        now.ms if source is None else max(now.ms, source.updated_at_ms),
    )
    txn.execute(SQL.add_stream, params)
    if source is not None:
        txn.execute(SQL.add_fork, (source.sid, 1))
    created = info_of(txn.one(SQL.stream_by_name, (options.name,)) or ())
    if partial:
        _write(txn, created, [partial], now.ms)
        created = info_of(_row(txn, created.sid))
    return created


def _fork_point(
    txn: Transaction, fork: Fork, now: StreamClock, point: ForkPoint | None
) -> tuple[StreamInfo, ForkPoint | None]:
    """Return the stream to fork and its fork point: its end, or `point` if that belongs to it."""
    source, fork_at, start = fork_start(txn, fork, now)
    if start == source.next_offset:
        return source, ForkPoint(source.sid, fork_at, start, b"", source.size_bytes)
    if point is not None and (point.sid, point.fork_at) != (source.sid, fork_at):
        point = None
    return source, point


def fork_start(
    snapshot: ReadTransaction, fork: Fork, now: StreamClock
) -> tuple[StreamInfo, int, int | None]:
    """Return the stream to fork, the requested record, and the first one that is not shared.

    The last is None if bytes have to be counted to find it.
    """
    source = find(snapshot, fork.source, now)
    if source is None:
        raise NotFound(f"cannot fork: unknown stream {fork.source!r}")
    if source.deleted:
        raise AlreadyExists(f"cannot fork: stream {fork.source!r} was deleted")
    end, sub = source.next_offset, fork.sub_offset
    fork_at = end if fork.offset is None else _fork_record(snapshot, source, fork.offset)
    if not sub:
        return source, fork_at, fork_at
    if not source.is_json:
        if fork_at == end:
            raise InvalidInput(f"stream {source.name!r} ends before the sub-offset of the fork")
        return source, fork_at, None
    if fork_at + sub > end:
        raise InvalidInput(
            f"stream {fork.source!r}: fork sub-offset {sub} is after the last message"
        )
    return source, fork_at, fork_at + sub


def _fork_record(snapshot: ReadTransaction, source: StreamInfo, offset: int | Offset) -> int:
    # An incarnation that never existed is after the end of the stream, not before its start.
    number = offset.incarnation_number if isinstance(offset, Offset) else 0
    known = number <= source.incarnation_number or _is_of(snapshot, source, Offset(0, number))
    start = resolve(snapshot, source, offset) if known else -1
    if not source.first_offset <= start <= source.next_offset:
        raise InvalidInput(f"stream {source.name!r}: cannot fork at offset {offset}")
    return start


def _check_equal(txn: Transaction, info: StreamInfo, options: StreamOptions) -> None:
    """Raise AlreadyExists unless an existing stream has the requested settings."""
    if info.deleted:
        raise AlreadyExists(f"stream {info.name!r} was deleted, but forks still read it")
    fork = options.fork
    source = None
    if info.forked_from is not None:
        source = info_of(_row(txn, info.forked_from))
    different = [
        setting
        for setting, same in (
            ("content type", _same_type(info, options)),
            ("time to live", options.ttl_seconds == info.ttl_seconds or _inherits(options)),
            ("end", _same_end(info, options)),
            ("closed state", options.closed == info.closed),
            ("retention", _same_retention(info, options)),
            ("origin", (fork and fork.source) == (source and source.name)),
            ("fork offset", fork is None or source is None or _same_fork(txn, info, source, fork)),
        )
        if not same
    ]
    if different:
        raise AlreadyExists(
            f"stream {info.name!r} already exists with another {', '.join(different)}",
            details={"closed": info.closed},
        )


def _same_type(info: StreamInfo, options: StreamOptions) -> bool:
    kind = options.content_type
    return kind is None or plain_type(kind) == plain_type(info.content_type)


def _same_retention(info: StreamInfo, options: StreamOptions) -> bool:
    retention = options.retention_seconds, options.retention_bytes
    return retention == (info.retention_seconds, info.retention_bytes)


def _same_fork(txn: Transaction, info: StreamInfo, source: StreamInfo, fork: Fork) -> bool:
    if fork.sub_offset != (info.fork_sub_offset or 0):
        return False
    if fork.offset is None:
        return True
    return resolve(txn, source, fork.offset) in {info.fork_asked, info.fork_offset}


def _inherits(options: StreamOptions) -> bool:
    return (
        options.fork is not None and options.ttl_seconds is None and options.expires_at_ms is None
    )


def _same_end(info: StreamInfo, options: StreamOptions) -> bool:
    if info.ttl_seconds is not None or _inherits(options):
        return options.expires_at_ms is None
    return options.expires_at_ms == info.expires_at_ms

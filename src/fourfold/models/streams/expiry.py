"""Expiry and retention: delete expired streams, trim records that are not retained.

Each stream is swept in its own transactions, a long one in several, so that appends run between
them.

Retention trims published segments as a whole, and the log record by record.

Uses of streams with a TTL are buffered. A read extends the TTL of its stream; writing that with
every read would make it a commit. So it is buffered in memory, where the whole process sees it, and
written from time to time. A failed write keeps the buffer, so a stream in use never expires.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import Refused
from fourfold.kernel import Database, ReadTransaction, Transaction, failpoints, load_queries
from fourfold.kernel.process_writes import PROCESS_WRITES
from fourfold.models.streams import slices, tombstones, writer
from fourfold.models.streams.archive.throttle import Throttle
from fourfold.models.streams.records import GcReport, StreamInfo
from fourfold.models.streams.writer import SQL, StreamClock

if TYPE_CHECKING:
    from fourfold.models.streams.maintenance import StreamMaintenance


_ARCHIVE = load_queries("fourfold.models.streams.archive")


def next_trim_offset(snapshot: ReadTransaction, info: StreamInfo, now_ms: int) -> int:
    """Return the offset below which the next transaction trims what retention excludes.

    It is the first offset of the stream once everything left is retained. The cost is that of one
    slice, however much is excluded or retained.
    """
    reached = info.first_offset
    if info.retention_seconds is not None:
        reached = _by_age(snapshot, info, now_ms - 1000 * info.retention_seconds)
    if info.retention_bytes is not None:
        reached = max(reached, _by_bytes(snapshot, info, info.retention_bytes))
    through = slices.next_slice(snapshot, info.sid, reached - 1, limits.ARCHIVE_TRIM_ROWS).through
    return reached if through is None else through + 1


def _by_age(snapshot: ReadTransaction, info: StreamInfo, oldest_ms: int) -> int:
    params = (info.name, info.first_offset, oldest_ms)
    segment = snapshot.value(_ARCHIVE.first_not_older, params)
    if segment is not None:
        return max(info.first_offset, int(segment))
    older = (info.sid, info.first_offset, oldest_ms, limits.ARCHIVE_TRIM_ROWS)
    offset = snapshot.value(SQL.older_than, older)
    return info.next_offset if offset is None else int(offset)


def _by_bytes(
    snapshot: ReadTransaction,
    info: StreamInfo,
    bytes_max: int,
    rows_max: int = limits.ARCHIVE_TRIM_ROWS,
) -> int:
    excess = info.wal_bytes - bytes_max
    if excess > 0:
        params = (info.sid, limits.INTEGER_MAX, rows_max, excess)
        row = snapshot.one(SQL.slice, params)
        return 0 if row is None or row[0] is None else int(row[0]) + 1
    left = -excess
    for start, end, size in snapshot.rows(_ARCHIVE.published_sizes, (info.name,)):
        if size > left:
            # Some of its records may fit, but a segment is retained as a whole or not at all.
            return int(start) if left else int(end) + 1
        left -= size
    return 0


def expire(streams: StreamMaintenance, limit: int) -> int:
    """Delete at most `limit` expired streams; return how many there were."""
    with streams.database.read() as snapshot:
        due = [row[0] for row in snapshot.all(SQL.expired, (streams.clock(), limit))]
    return sum(streams.database.transact(partial(_expire, streams, name)) for name in due)


def _expire(streams: StreamMaintenance, name: str, txn: Transaction) -> int:
    row, now = txn.one(SQL.stream_by_name, (name,)), streams.read_clock()
    if row is None:
        return 0
    info = writer.with_last_use(writer.info_of(row), now)
    if not writer.is_expired(info, now):
        return 0
    writer.remove(txn, info, now.ms)
    streams.notifier.notify_on_commit(txn, (name,))
    return 1


def count_garbage(snapshot: ReadTransaction, now: StreamClock) -> GcReport:
    """Count what expired, what retention excludes, and what deleted streams left."""
    deleted, records, size = snapshot.one(SQL.deleted_rest) or (0, 0, 0)
    names = snapshot.all(SQL.expired, (now.ms, limits.INTEGER_MAX))
    infos = [writer.with_last_use(_info(snapshot, name), now) for (name,) in names]
    expired = [info for info in infos if writer.is_expired(info, now)]
    removed, unused = _removed(snapshot, expired)
    for info in removed:
        records += info.next_offset - _own_start(info)
        size += info.wal_bytes
    gone = {info.sid for info in [*removed, *expired]}
    names = snapshot.all(SQL.with_retention, ("", limits.INTEGER_MAX))
    for info in [*unused, *(_info(snapshot, name) for (name,) in names)]:
        first = _first_retained(snapshot, info, now.ms)
        if info.sid not in gone and first > _own_start(info):
            records += first - _own_start(info)
            size += (snapshot.one(SQL.held_below, (info.sid, first)) or (0, 0))[1]
    return GcReport(len(expired), deleted, records, size)


def _info(snapshot: ReadTransaction, name: str) -> StreamInfo:
    return writer.info_of(snapshot.one(SQL.stream_by_name, (name,)) or ())


def _own_start(info: StreamInfo) -> int:
    """Return the first offset of the records that a stream has itself, not its source."""
    return max(info.first_offset, info.fork_offset or 0)


def _removed(
    snapshot: ReadTransaction, expired: list[StreamInfo]
) -> tuple[list[StreamInfo], list[StreamInfo]]:
    """Return the expired streams without forks and deleted sources that only they used.

    Then the existing sources that only they used: their retention applies again.
    """
    names = {info.sid for info in expired}
    forks: Counter[int] = Counter()
    removed: dict[int, StreamInfo] = {}
    unused = []
    for stream in expired:
        info = stream
        while info.forks == forks[info.sid] and info.sid not in removed:
            if not info.deleted and info.sid not in names:
                unused.append(info)
                break
            removed[info.sid] = info
            if info.forked_from is None:
                break
            forks[info.forked_from] += 1
            info = writer.info_of(snapshot.one(SQL.stream_by_sid, (info.forked_from,)) or ())
    return list(removed.values()), unused


def _first_retained(snapshot: ReadTransaction, info: StreamInfo, now_ms: int) -> int:
    """Return the first offset of a stream once everything left is retained."""
    reached = info.first_offset
    if info.retention_seconds is not None:
        oldest_ms = now_ms - 1000 * info.retention_seconds
        while (
            first := _by_age(snapshot, info._replace(first_offset=reached), oldest_ms)
        ) > reached:
            reached = first
    if info.retention_bytes is not None:
        rows_max = limits.INTEGER_MAX
        reached = max(reached, _by_bytes(snapshot, info, info.retention_bytes, rows_max))
    return reached


def check_not_in_transaction(database: Database) -> None:
    """Raise Refused inside a transaction, which would hold all slices until its end."""
    if database.in_transaction():
        raise Refused(
            "streams: cannot sweep or compact inside a transaction",
            hint="Leave the transaction first.",
        )


def trim_deleted(streams: StreamMaintenance, slices: int) -> bool:
    """Trim deleted streams by at most `slices` slices, the earliest deleted first.

    Returns True while something is left.
    """
    database = streams.database
    pace = make_throttle(database)
    while True:
        with database.read() as snapshot:
            sid = snapshot.value(SQL.tombstones, (1,))
        if sid is None:
            return False
        done = False
        while not done:
            if not slices:
                return True
            slices -= 1
            with pace.piece():
                done = pace.transact(database, partial(_trim, sid))
            if failpoints.armed:
                failpoints.hit("streams.delete.sliced")


def make_throttle(database: Database) -> Throttle:
    """Return a throttle that lets the clients of a database write first."""
    return Throttle(
        PROCESS_WRITES.count_others,
        writing=PROCESS_WRITES.is_other_writing,
        writer_cpu=PROCESS_WRITES.other_cpu_seconds,
        pressing=database.is_checkpointing,
    )


def _trim(sid: int, txn: Transaction) -> bool:
    return tombstones.trim(txn, sid)


def retain(streams: StreamMaintenance, limit: int) -> None:
    """Trim records that the retention of streams excludes, `limit` streams per page."""
    after = ""
    while True:
        with streams.database.read() as snapshot:
            page = [row[0] for row in snapshot.all(SQL.with_retention, (after, limit))]
        for name in page:
            _retain_one(streams, name)
        if len(page) < limit:
            return
        after = page[-1]


def _retain_one(streams: StreamMaintenance, name: str) -> None:
    with streams.database.read(deadline_s=float("inf")) as snapshot:
        info = writer.find(snapshot, name, streams.read_clock())
        if info is None or next_trim_offset(snapshot, info, streams.clock()) <= info.first_offset:
            return

    def work(txn: Transaction) -> bool:
        now = writer.find(txn, name, streams.read_clock())
        if now is None or now.sid != info.sid:
            return False
        return writer.trim(txn, now, next_trim_offset(txn, now, streams.clock())) > 0

    pace = make_throttle(streams.database)
    left = True
    while left:
        with pace.piece():
            left = pace.transact(streams.database, work)


class Uses:
    """Buffered last uses of streams with a TTL, by sid.

    Their expiry follows from the use and the TTL at that time.
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._change = threading.Lock()

    @property
    def times(self) -> Mapping[int, int]:
        """Times of the uses that are not written yet, by sid."""
        return self._times

    def record(self, sid: int, now_ms: int) -> None:
        """Buffer the use of a stream."""
        with self._change:
            self._times[sid] = now_ms

    def flush(self, database: Database) -> None:
        """Write the buffered uses."""
        with self._change:
            uses = list(self._times.items())
        if not uses:
            return
        database.transact(lambda txn: txn.execute_many(SQL.touch, uses))
        with self._change:
            for sid, used_ms in uses:
                # A stream that was used again meanwhile is written next time.
                if self._times.get(sid) == used_ms:
                    del self._times[sid]

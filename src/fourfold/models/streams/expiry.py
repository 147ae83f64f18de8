"""Sweeping: expired streams are deleted, what is not retained and what is left of deleted streams
is trimmed.

Each stream has transactions of its own, and a long one takes several, so that appends take their
turns between them.

How much of a stream is kept. What is in published segments is given up segment by segment, what
is in the log record by record.

Uses of streams with a time to live, until they are written down.

A read moves the end of its stream on. Writing that down with every read would make a commit of it;
so it is kept in memory, counts from then on for everybody in this process, and is written down now
and then. What is not written down yet is never forgotten, also when writing fails: a stream that is
in use never looks as if its time were over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.kernel import Database, ReadTransaction, Transaction, failpoints, load_queries
from fourfold.models.streams import slices, tombstones, writer
from fourfold.models.streams.archive.throttle import Throttle
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.writer import SQL

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


_ARCHIVE = load_queries("fourfold.models.streams.archive")


def next_trim_offset(snapshot: ReadTransaction, info: StreamInfo, kept: int) -> int:
    """The offset up to which records are given up in one transaction, on the way to `kept`."""
    reached = slices.next_slice(snapshot, info.sid, kept - 1, limits.ARCHIVE_TRIM_ROWS).through
    return kept if reached is None else reached + 1


def retention_horizon(snapshot: ReadTransaction, info: StreamInfo, now_ms: int) -> int:
    """The first offset that the rules of a stream keep."""
    reached = info.first_offset
    if info.retention_seconds is not None:
        reached = _by_age(snapshot, info, now_ms - 1000 * info.retention_seconds)
    if info.retention_bytes is not None:
        reached = max(reached, _by_bytes(snapshot, info, info.retention_bytes))
    return reached


def _by_age(snapshot: ReadTransaction, info: StreamInfo, oldest_ms: int) -> int:
    params = (info.name, info.first_offset, oldest_ms)
    segment = snapshot.value(_ARCHIVE.first_not_older, params)
    if segment is not None:
        return max(info.first_offset, int(segment))
    found = snapshot.value(SQL.older_than, (info.sid, info.first_offset, oldest_ms))
    return info.next_offset if found is None else int(found)


def _by_bytes(snapshot: ReadTransaction, info: StreamInfo, most: int) -> int:
    if info.wal_bytes > most:
        found = snapshot.value(SQL.newest_that_fit, (info.sid, most))
        return 0 if found is None else int(found) + 1
    left = most - info.wal_bytes
    for start, end, size in snapshot.rows(_ARCHIVE.published_sizes, (info.name,)):
        if size > left:
            # Some of its records may fit: it is kept whole, or not at all.
            return int(start) if left else int(end) + 1
        left -= size
    return 0


def expire(streams: Streams, limit: int) -> int:
    """Remove streams whose time is over, so many at most; how many there were."""
    with streams.database.read() as snapshot:
        due = [row[0] for row in snapshot.all(SQL.expired, (streams.clock(), limit))]
    return sum(streams.database.transact(partial(_expire, streams, name)) for name in due)


def _expire(streams: Streams, name: str, txn: Transaction) -> int:
    row, now = txn.one(SQL.stream_by_name, (name,)), streams.moment()
    if row is None:
        return 0
    info = writer.as_used(writer.info_of(row), now)
    if not writer.is_expired(info, now):
        return 0
    writer.remove(txn, info, now.ms)
    streams.notifier.notify_on_commit(txn, (name,))
    return 1


def trim_deleted(streams: Streams, slices: int) -> bool:
    """Trim deleted streams, the earliest deleted first, by at most so many slices; return True
    while something is left.
    """
    database = streams.database
    pace = Throttle(
        lambda: database.transactions,
        writing=database.is_writing,
        pressing=database.is_checkpointing,
    )
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


def _trim(sid: int, txn: Transaction) -> bool:
    return tombstones.trim(txn, sid)


def retain(streams: Streams, limit: int) -> None:
    """Give up what streams do not keep; so many are looked up at a time."""
    after = ""
    while True:
        with streams.database.read() as snapshot:
            page = [row[0] for row in snapshot.all(SQL.with_retention, (after, limit))]
        for name in page:
            _retain_one(streams, name)
        if len(page) < limit:
            return
        after = page[-1]


def _retain_one(streams: Streams, name: str) -> None:
    with streams.database.read(deadline_s=float("inf")) as snapshot:
        info = writer.find(snapshot, name, streams.moment())
        if info is None:
            return
        kept = retention_horizon(snapshot, info, streams.clock())

    def work(txn: Transaction) -> bool:
        now = writer.find(txn, name, streams.moment())
        if now is None or now.sid != info.sid:
            return False
        step = next_trim_offset(txn, now, kept)
        writer.trim(txn, now, step)
        return step < kept

    pauses = streams.database.pauses
    pauses.start()
    while streams.database.transact(work):
        pauses.pause()


class Uses:
    """When streams with a time to live were used last, by sid. Their ends follow from that and from
    the time to live that they have by then.
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._change = threading.Lock()

    @property
    def times(self) -> Mapping[int, int]:
        return self._times

    def note(self, sid: int, now_ms: int) -> None:
        with self._change:
            self._times[sid] = now_ms

    def write_down(self, database: Database) -> None:
        with self._change:
            noted = list(self._times.items())
        if not noted:
            return
        database.transact(lambda txn: txn.execute_many(SQL.touch, noted))
        with self._change:
            for sid, used_ms in noted:
                # One that was used again meanwhile is written down the next time.
                if self._times.get(sid) == used_ms:
                    del self._times[sid]

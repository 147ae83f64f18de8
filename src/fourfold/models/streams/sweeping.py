"""Sweeping: expired streams are deleted, what is not retained and what is left of deleted streams
is trimmed.

Each stream has transactions of its own, and a long one takes several, so that appends take their
turns between them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fourfold.kernel import Transaction, faults
from fourfold.models.streams import retention, tombstones, writer
from fourfold.models.streams.archive.pace import Pace
from fourfold.models.streams.writer import SQL

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


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
    streams.bell.ring_on_commit(txn, (name,))
    return 1


def trim_deleted(streams: Streams, slices: int) -> bool:
    """Trim deleted streams, the earliest deleted first, by at most so many slices; return True
    while something is left.
    """
    database = streams.database
    pace = Pace(
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
            if faults.armed:
                faults.hit("streams.delete.sliced")


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
        kept = retention.horizon(snapshot, info, streams.clock())

    def work(txn: Transaction) -> bool:
        now = writer.find(txn, name, streams.moment())
        if now is None or now.sid != info.sid:
            return False
        step = retention.step(txn, now, kept)
        writer.trim(txn, now, step)
        return step < kept

    while streams.database.transact(work):
        pass

"""Sealing: pending records of a stream become a segment file, which then takes their place.

    claim ──> read a snapshot, write the file, bring it to disk, name it ──> one transaction

The transaction adds the segment, appends to the arrays, moves `sealed_through` on, takes the
records out of the counters of what is pending, and gives the claim back. The records stay in the
log until the segment is published. A crash at any point leaves a file that nothing speaks of, or a
claim that nobody holds; both are cleared when the archive is opened again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fourfold.archive import manifests
from fourfold.archive.records import Row, Sealed
from fourfold.archive.segments import write_segment
from fourfold.kernel import Database, Snapshot, Transaction, faults
from fourfold.models.streams.archive.records import SQL, Meta, Policy, meta_of


class _Sealable(NamedTuple):
    sid: int
    incarnation: str
    sealed_through: int
    start: int
    next_offset: int
    pending_bytes: int


def seal(
    database: Database,
    name: str,
    *,
    policy: Policy,
    folder: Path,
    now_ms: int,
) -> Sealed | None:
    """Seal the next segment of a stream; None when there was nothing to seal, or its stream is
    gone.
    """
    claimed = database.transact(lambda txn: _claim(txn, name))
    if claimed is None:
        return None
    path: Path | None = None
    done = False
    try:
        with database.read(deadline_s=float("inf")) as snapshot:
            rows = _rows(snapshot, claimed, policy)
            first = next(rows, None)
            if first is None:
                return None
            sealed, path = write_segment(
                _with(first, rows),
                folder / f".{claimed.incarnation}-{first.offset:016d}.partial",
                lambda sealed: folder / _local_path(name, claimed, sealed),
            )
        done = database.transact(lambda txn: _commit(txn, name, claimed, sealed, now_ms))
    finally:
        if not done:
            if path is not None:
                path.unlink(missing_ok=True)
            database.transact(lambda txn: txn.execute(SQL.unclaim, (claimed.sid,)))
    if faults.armed:
        faults.hit("archive.seal.committed")
    return sealed


def _claim(txn: Transaction, name: str) -> _Sealable | None:
    row = txn.one(SQL.sealable, (name,))
    if row is None:
        return None
    found = _Sealable._make(row)
    if found.start >= found.next_offset:
        return None
    txn.execute(SQL.claim, (found.sid,))
    return found if txn.changes else None


def _rows(snapshot: Snapshot, found: _Sealable, policy: Policy) -> Iterator[Row]:
    """Records up to the size of a segment; at least one, if there is one."""
    held = 0
    rows = snapshot.rows(SQL.rows_to_seal, (found.sid, found.start, found.next_offset))
    for count, row in enumerate(rows):
        held += len(row[4])
        if count and (held > policy.seal_bytes or count >= policy.seal_rows):
            return
        yield Row(*row)


def _with(first: Row, rest: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from rest


def _local_path(name: str, found: _Sealable, sealed: Sealed) -> str:
    start = sealed.start_offset
    return manifests.segment_id(name, found.incarnation, start, sealed.digest) + ".parquet"


def _commit(txn: Transaction, name: str, claimed: _Sealable, sealed: Sealed, now_ms: int) -> bool:
    """Whether the segment was taken in: not when its stream is gone, or all of it was given up."""
    row = txn.one(SQL.sealable, (name,))
    if row is None:
        return False
    now = _Sealable._make(row)
    same = (now.sid, now.sealed_through) == (claimed.sid, claimed.sealed_through)
    if not same or now.start > sealed.end_offset:
        return False
    rows, size = sealed.rows, sealed.payload_bytes
    if now.start != sealed.start_offset:
        # Retention gave some of them up meanwhile; those are not pending any more.
        rows, size = txn.one(
            SQL.held_between, (now.sid, sealed.start_offset, sealed.end_offset)
        ) or (0, 0)
    entry = Meta(
        (sealed.end_offset,),
        (sealed.groups,),
        (sealed.last_ts_ms,),
        (sealed.start_offset,),
        (sealed.size_bytes,),
        (sealed.payload_bytes,),
        (sealed.digest,),
    )
    index = txn.value(SQL.segment_count, (name,)) or 0
    path = _local_path(name, claimed, sealed)
    params = (
        path.removesuffix(".parquet"),
        name,
        index,
        sealed.start_offset,
        sealed.end_offset,
        sealed.size_bytes,
        sealed.payload_bytes,
        sealed.groups,
        sealed.last_ts_ms,
        sealed.digest,
        path,
        now_ms,
    )
    txn.execute(SQL.add_segment, params)
    txn.execute(SQL.append_meta, (name, *entry.packed()))
    txn.execute(SQL.sealed, (now.sid, sealed.end_offset, rows, size, now_ms))
    return True


def unseal(database: Database, name: str) -> None:
    """Take back the segments of a stream that are not published: a file of theirs is lost, and
    their records are still in the log.
    """

    def work(txn: Transaction) -> None:
        count = txn.value(SQL.uploaded_count, (name,))
        if count is None:
            return
        meta = meta_of(txn.one(SQL.meta, (name,))).first(count)
        txn.execute(SQL.drop_unpublished, (name,))
        if count:
            txn.execute(SQL.put_meta, (name, count, *meta.packed()))
        else:
            txn.execute(SQL.drop_meta, (name,))
        txn.execute(SQL.unsealed, (name,))

    database.transact(work)

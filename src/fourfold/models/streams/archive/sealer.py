"""Seal pending records of a stream into a segment file.

    claim ──> read, write the file, sync it, rename it ──> one transaction

The transaction adds the segment, appends to the arrays, advances `sealed_through`, subtracts the
records from the pending counters, and releases the claim. The records stay in the log until the
segment is published. A crash leaves at most an unreferenced file, or a claim without a holder; both
are cleaned up when the archive is opened again.
"""

from __future__ import annotations

import uuid
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fourfold.archive import manifest
from fourfold.archive.records import SealedSegment
from fourfold.archive.segment_writer import SegmentLabel, write_batches
from fourfold.kernel import Database, ReadTransaction, Transaction, failpoints
from fourfold.models.streams.archive import columns
from fourfold.models.streams.archive.records import SQL, Policy, SegmentArrays, meta_of
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle


class Sealable(NamedTuple):
    """The pending records of a stream."""

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
    pace: Throttle = NO_THROTTLE,
) -> SealedSegment | None:
    """Seal the next segment of a stream; return None if there is nothing to seal."""
    claimed = pace.transact(database, lambda txn: _claim(txn, name))
    if claimed is None:
        return None
    path: Path | None = None
    done = False
    try:
        with database.read(deadline_s=float("inf")) as snapshot:
            built = build(snapshot, name, claimed, policy=policy, folder=folder, pace=pace)
        if built is None:
            return None
        sealed, path = built
        done = pace.transact(database, lambda txn: commit(txn, name, claimed, sealed, now_ms))
    finally:
        if not done:
            if path is not None:
                path.unlink(missing_ok=True)
            database.transact(lambda txn: txn.execute(SQL.unclaim, (claimed.sid,)))
    if failpoints.armed:
        failpoints.hit("archive.seal.committed")
    return sealed


def build(
    snapshot: ReadTransaction,
    name: str,
    found: Sealable,
    *,
    policy: Policy,
    folder: Path,
    durable: bool = True,
    pace: Throttle = NO_THROTTLE,
) -> tuple[SealedSegment, Path] | None:
    """Write the next segment file of a stream; return None if there are no records.

    Nothing refers to it until `commit`: this may run anywhere, in many processes. With
    `durable=False` the caller syncs many files together before they are committed.
    """
    pending = max(1, found.next_offset - found.start)
    average = found.pending_bytes // pending
    between = (found.sid, found.start, found.next_offset)
    batches = pace.through(columns.batches(snapshot, *between, average=average, policy=policy))
    first = next(batches, None)
    if first is None:
        return None
    return write_batches(
        chain((first,), batches),
        # A separate file: two processes that seal the same records must not share one.
        folder / f".{uuid.uuid4().hex}.partial",
        lambda sealed: folder / local_path(name, found, sealed),
        durable=durable,
        beside=pace is NO_THROTTLE,
        label=SegmentLabel(name, found.incarnation),
    )


def _claim(txn: Transaction, name: str) -> Sealable | None:
    row = txn.one(SQL.sealable, (name,))
    if row is None:
        return None
    found = Sealable._make(row)
    if found.start >= found.next_offset:
        return None
    txn.execute(SQL.claim, (found.sid,))
    return found if txn.changes else None


def local_path(name: str, found: Sealable, sealed: SealedSegment) -> str:
    """Return the path of a segment file, relative to the folder of local segments."""
    start = sealed.start_offset
    return manifest.segment_id(name, found.incarnation, start, sealed.digest) + ".parquet"


def commit(
    txn: Transaction, name: str, claimed: Sealable, sealed: SealedSegment, now_ms: int
) -> bool:
    """Add a segment; return False if its stream is gone or all its records were removed."""
    row = txn.one(SQL.sealable, (name,))
    if row is None:
        return False
    now = Sealable._make(row)
    same = (now.sid, now.sealed_through) == (claimed.sid, claimed.sealed_through)
    if not same or now.start > sealed.end_offset:
        return False
    rows, size = sealed.rows, sealed.payload_bytes
    if now.start != sealed.start_offset:
        # Retention removed some of them meanwhile; those are not pending any more.
        rows, size = txn.one(
            SQL.held_between, (now.sid, sealed.start_offset, sealed.end_offset)
        ) or (0, 0)
    entry = SegmentArrays(
        (sealed.end_offset,),
        (sealed.groups,),
        (sealed.last_ts_ms,),
        (sealed.start_offset,),
        (sealed.size_bytes,),
        (sealed.payload_bytes,),
        (sealed.digest,),
    )
    index = txn.value(SQL.segment_count, (name,)) or 0
    path = local_path(name, claimed, sealed)
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
    """Remove unpublished segments of a stream after a file was lost.

    Their records are still in the log.
    """

    def work(txn: Transaction) -> None:
        count = txn.value(SQL.uploaded_count, (name,))
        if count is None:
            return
        txn.execute(SQL.drop_unpublished, (name,))
        # A segment that is being trimmed stays: its object is uploaded.
        count = max(count, txn.value(SQL.last_segment, (name,)) or 0)
        meta = meta_of(txn.one(SQL.meta, (name,))).first(count)
        if count:
            txn.execute(SQL.put_meta, (name, count, *meta.packed()))
        else:
            txn.execute(SQL.drop_meta, (name,))
        _, sealed = txn.one(SQL.ends, (name,)) or (-1, -1)
        txn.execute(SQL.unsealed, (name, sealed))

    database.transact(work)

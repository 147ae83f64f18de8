"""Apply a published manifest to the database.

    replace compacted segments ──> trim the log, slice by slice ──> record the manifest

Each step is a transaction of bounded size, so that appends can run in between, and all invariants
hold after each: `uploaded_through` advances with the trimmed records, and may be within a segment
for a while. The token of the manifest is stored until the last step. A node that is killed in
between finds it, and finishes the work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fourfold import limits
from fourfold.archive.manifest import Manifest
from fourfold.kernel import Database, Transaction, failpoints
from fourfold.models.streams import slices
from fourfold.models.streams.archive import manifest_rules
from fourfold.models.streams.archive.indexes import catalog
from fourfold.models.streams.archive.records import SQL, PublishResult, Swap, meta_of
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle
from fourfold.models.streams.search.companions import catalog as companions


class KnownRows(NamedTuple):
    """A manifest that is in the object store."""

    manifest: Manifest
    version: str
    size: int


def record(
    database: Database,
    stream: str,
    known: KnownRows,
    etags: dict[int, str],
    *,
    now: int,
    trim_rows: int,
    pace: Throttle = NO_THROTTLE,
) -> PublishResult:
    """Apply everything that follows from a published manifest."""
    manifest = known.manifest
    added = 0
    while True:
        with pace.piece():
            done = pace.transact(
                database,
                lambda txn: _step(txn, known, etags, now, trim_rows),
                deadline_s=limits.ARCHIVE_RECORD_DEADLINE_S,
            )
        added += done.segments
        if done.last:
            return PublishResult(stream, manifest.generation, manifest.uploaded_through, added)
        if failpoints.armed:
            failpoints.hit("archive.manifest.sliced")


def _step(
    txn: Transaction, known: KnownRows, etags: dict[int, str], now: int, trim_rows: int
) -> _Slice:
    """Do the work of one transaction; usually there is only one."""
    manifest = known.manifest
    _swap_all(txn, manifest.name, manifest, now)
    done = _trim(txn, manifest, etags, now, trim_rows)
    if done.last:
        _finish(txn, manifest.name, known, now)
    return done


class _Slice(NamedTuple):
    segments: int
    last: bool


def _of(txn: Transaction, stream: str, manifest: Manifest) -> tuple[Any, ...] | None:
    """Return the row of the stream that a manifest describes."""
    row = txn.one(SQL.published_row, (stream,))
    if row is None or manifest.deleted or row[1] != manifest.incarnation:
        return None
    return row


def _swap_all(txn: Transaction, stream: str, manifest: Manifest, now: int) -> None:
    """Replace segments by the compacted ones that the manifest lists."""
    if _of(txn, stream, manifest) is None:
        return
    digests = set(manifest.segments.sha256)
    for row in txn.all(SQL.swaps, (stream,)):
        swap = Swap._make(row)
        if swap.digest in digests:
            _swap(txn, stream, swap, now)
        elif not _fits(txn, stream, swap):
            # Retention removed its sources, or a part of them.
            key = f"streams/{swap.segment_id.replace('/', '/segments/')}.parquet"
            txn.execute(SQL.retire_object, (key, stream, swap.size_bytes, now))
            txn.execute(SQL.drop_swap, (swap.segment_id,))


def _fits(txn: Transaction, stream: str, swap: Swap) -> bool:
    return meta_of(txn.one(SQL.meta, (stream,))).fits(swap)


def _swap(txn: Transaction, stream: str, swap: Swap, now: int) -> None:
    meta = meta_of(txn.one(SQL.meta, (stream,)))
    txn.execute(SQL.drop_swap, (swap.segment_id,))
    if swap.digest in meta.digests:
        return
    first = meta.starts.index(swap.start_offset)
    last = meta.ends.index(swap.end_offset)
    ends = (swap.start_offset, swap.end_offset)
    txn.execute(SQL.retire_swapped, (stream, *ends, now))
    txn.execute(SQL.drop_swapped, (stream, *ends))
    txn.execute(SQL.renumber_segments, (stream, swap.end_offset, last - first))
    params = (
        swap.segment_id,
        stream,
        first,
        *ends,
        swap.size_bytes,
        swap.payload_bytes,
        swap.groups,
        swap.last_append_ms,
        swap.digest,
        now,
        1,
    )
    txn.execute(SQL.restore_segment, params)
    changed = meta.swapped((swap,))
    txn.execute(SQL.put_meta, (stream, len(changed.ends), *changed.packed()))
    txn.execute(SQL.fewer_segments, (stream, last - first))
    txn.execute(SQL.retire_companions, (stream, first, last, now))
    txn.execute(SQL.drop_companions, (stream, first, last))
    txn.execute(SQL.renumber_companions, (stream, last, last - first))
    txn.execute(SQL.renumber_runs, (stream,))
    txn.execute(SQL.renumber_indexes, (stream,))


def _trim(
    txn: Transaction, manifest: Manifest, etags: dict[int, str], now: int, trim_rows: int
) -> _Slice:
    """Trim the next records that the manifest covers; return True if there are no more."""
    stream = manifest.name
    row = _of(txn, stream, manifest)
    if row is None or row[18] >= manifest.uploaded_through:
        return _Slice(0, last=True)
    sid, count, through = row[0], row[19], manifest.uploaded_through
    reached, rows, size = slices.next_slice(txn, sid, through, trim_rows)
    if reached is None:
        # Retention has already removed the rest.
        reached = through
    slices.drop_below(txn, sid, reached + 1, keys=True)
    starts, ends, at = manifest.segments.start_offset, manifest.segments.end_offset, count
    while at < manifest.segment_count and ends[at] <= reached:
        txn.execute(SQL.uploaded_segments, (stream, at, now, etags.get(starts[at])))
        at += 1
    txn.execute(SQL.recorded_stream, (sid, reached, at, rows, size))
    return _Slice(at - count, last=reached == through)


def _settings(manifest: Manifest) -> tuple[Any, ...]:
    """Return the changeable settings of a stream; with a TTL, its expiry moves with every use."""
    fixed_end = manifest.ttl_seconds is None and manifest.expires_at_ms
    kept = (manifest.retention_seconds, manifest.retention_bytes)
    return (manifest.ttl_seconds, fixed_end, *kept)


def _finish(txn: Transaction, stream: str, known: KnownRows, now: int) -> None:
    manifest = known.manifest
    row = _of(txn, stream, manifest)
    if row is not None:
        first = row[15]
        txn.execute(SQL.retire_companions, (stream, 0, manifest.first_segment - 1, now))
        txn.execute(SQL.drop_companions, (stream, 0, manifest.first_segment - 1))
        txn.execute(SQL.retire_segments, (stream, manifest.first_segment, now))
        txn.execute(SQL.drop_retired, (stream, manifest.first_segment))
        catalog.record_published(txn, manifest, now)
        manifest_rules.record_published(txn, manifest)
        published = (manifest.closed, manifest.hidden, manifest.first_offset)
        closed = bool(row[6]) and manifest.uploaded_through == row[16] - 1
        more = published != (closed, bool(row[12] & 1), first)
        more = more or _settings(manifest) != (row[10], row[10] is None and row[11], *row[13:15])
        more = (
            more
            or catalog.has_changed(txn, manifest)
            or companions.has_changed(txn, manifest)
            or manifest_rules.has_changed(txn, manifest)
        )
        more = more or txn.one(SQL.swaps, (stream,)) is not None
    else:
        # Another stream has the name, or none; the manifest must record that.
        gone = txn.one(SQL.published_row, (stream,)) is None
        more = not gone or not manifest.deleted
    if manifest.deleted or row is not None:
        txn.execute(SQL.begin_grace, (stream, now))
    told_of = manifest.incarnation or None
    params = (stream, manifest.generation, now, known.version, known.size, int(more), told_of)
    txn.execute(SQL.recorded_manifest, params)

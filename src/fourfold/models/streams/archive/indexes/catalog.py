"""The indexes of a stream in its manifest, and the effects of a published manifest."""

from __future__ import annotations

import os
from typing import Any

from fourfold.archive.key_filter import SECRET_BYTES
from fourfold.archive.manifest import IndexRun, LogIndex, Manifest
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.archive.indexes.records import ROUTING_KEYS, SQL, IndexRunRow
from fourfold.models.streams.archive.records import SQL as ARCHIVE


def declare(txn: Transaction, stream: str, field: str, now: int) -> None:
    """Index a field of the messages of a stream, including existing messages."""
    if txn.one(SQL.index, (stream, field)) is None:
        txn.execute(SQL.put_index, (stream, field, os.urandom(SECRET_BYTES), 0, 0, now))
        txn.execute(ARCHIVE.due_again, (stream,))


def manifest_fields(snapshot: ReadTransaction, stream: str, first_offset: int) -> dict[str, Any]:
    """Return the indexes of a stream for its manifest."""
    found = {
        name: LogIndex(
            secret.hex(), indexed_offset, list(_runs(snapshot, stream, name, first_offset))
        )
        for name, secret, indexed_offset in snapshot.all(SQL.indexes, (stream,))
    }
    return {"index": found.pop(ROUTING_KEYS, None), "secondary": found}


def _runs(snapshot: ReadTransaction, stream: str, name: str, first_offset: int) -> list[IndexRun]:
    rows = map(IndexRunRow._make, snapshot.all(SQL.runs, (stream, name)))
    return [
        IndexRun(
            key=row.object_key,
            level=row.level,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            size_bytes=row.size_bytes,
            filter_bytes=row.filter_len,
            entries=row.record_count,
            sha256=row.digest,
        )
        for row in rows
        if row.end_offset >= first_offset
    ]


def record_published(txn: Transaction, manifest: Manifest, now: int) -> None:
    """Retire runs that a manifest omits; the grace period of their objects starts."""
    stream = manifest.name
    txn.execute(SQL.retire_given_up, (stream, manifest.first_offset, now))
    kept = {run.key for run in manifest.runs()}
    for run_id, key, size, retired_at_ms, gen in txn.all(SQL.all_runs, (stream,)):
        if retired_at_ms is not None and gen is None and key not in kept:
            txn.execute(SQL.left_out, (run_id, manifest.generation))
            txn.execute(ARCHIVE.retire_object, (key, stream, size, now))


def has_changed(txn: Transaction, manifest: Manifest) -> bool:
    """Return True if the current runs differ from those in the manifest."""
    active = {row[0] for row in txn.all(SQL.active_runs, (manifest.name,))}
    return active != {run.key for run in manifest.runs()}


def restore(txn: Transaction, manifest: Manifest, now: int) -> None:
    """Restore the indexes of a stream from its manifest."""
    named = dict(manifest.secondary)
    if manifest.index is not None:
        named[ROUTING_KEYS] = manifest.index
    for name, whole in named.items():
        index = _up_to(whole, manifest.uploaded_through)
        through = txn.value(SQL.indexed_through, (manifest.name, index.indexed_offset))
        params = (manifest.name, name, bytes.fromhex(index.secret), through)
        txn.execute(SQL.put_index, (*params, index.indexed_offset, now))
        for run in index.runs:
            add(txn, manifest.name, row_of(name, run))


def _up_to(index: LogIndex, through: int) -> LogIndex:
    """Return an index truncated to the records up to an offset.

    A stream restored to an older point ends before its index, and continues differently.
    """
    if index.indexed_offset <= through + 1:
        return index
    kept = [run for run in index.runs if run.end_offset <= through]
    cut = [run.start_offset for run in index.runs if run.end_offset > through]
    return LogIndex(index.secret, min([*cut, through + 1]), kept)


def row_of(index_name: str, run: IndexRun) -> IndexRunRow:
    """Return the row of the catalog for a run of a manifest."""
    folder, file = run.key.split("/")[1::2]
    return IndexRunRow(
        f"{folder}/{file.removesuffix('.parquet')}",
        index_name,
        run.level,
        run.start_offset,
        run.end_offset,
        run.key,
        run.size_bytes,
        run.filter_bytes,
        run.entries,
        run.sha256,
    )


def add(txn: Transaction, stream: str, row: IndexRunRow) -> None:
    """Add a run to the catalog."""
    params = (
        row.run_id,
        stream,
        row.index_name,
        row.level,
        row.start_offset,
        row.end_offset,
        row.object_key,
        row.size_bytes,
        row.filter_len,
        row.record_count,
        row.digest,
    )
    txn.execute(SQL.add_run, params)

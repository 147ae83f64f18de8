"""Index builder: plan tasks, build runs, and add them to the index.

    task ──> a run file on this disk ──> an object ──> one transaction ──> the next manifest

`tasks` and `build` need no writer: a node calls them, and Spark calls the same `build` in its
workers. A run covers the offsets from the end of the index, segment by segment, or those of the
runs that it merges. A run whose sources have changed meanwhile is rejected.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.archive import index_runs, manifest
from fourfold.archive.index_runs import RunFile
from fourfold.archive.key_filter import SECRET_BYTES
from fourfold.archive.parquet import arrow
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.archive.indexes import catalog, fields
from fourfold.models.streams.archive.indexes.records import ROUTING_KEYS, SQL, IndexRunRow
from fourfold.models.streams.archive.records import SQL as ARCHIVE
from fourfold.models.streams.archive.records import Policy, Segment

INDEX_LEVELS: Final = 4
"""The last level of index runs."""
INDEX_SPAN_ROWS: Final = 2_000_000
"""Approximate records of an index run of level 0: they are sorted in memory."""


class RunTask(NamedTuple):
    """A run to build: from segments, or from runs."""

    stream: str
    incarnation: str
    index_name: str
    secret: bytes
    level: int
    indexed_offset: int
    """Where the index ended when the task was planned."""
    start_offset: int
    end_offset: int
    segments: tuple[SegmentRequest, ...]
    merges: tuple[IndexRunRow, ...] = ()
    keep_from: int = 0

    def row(self, made: RunFile) -> IndexRunRow:
        """Return the row of the catalog for the file that was made."""
        start, secondary = self.start_offset, self.index_name != ROUTING_KEYS
        name = manifest.run_id(self.stream, self.incarnation, self.level, start, made.digest)
        return IndexRunRow(
            name,
            self.index_name,
            self.level,
            start,
            self.end_offset,
            manifest.run_key(name, secondary=secondary),
            made.size_bytes,
            made.filter_bytes,
            made.entries,
            made.digest,
        )


class BuiltRun(NamedTuple):
    """A run on disk; None if no record has a key."""

    task: RunTask
    run: RunFile | None
    path: Path | None


def streams_to_index(
    snapshot: ReadTransaction, policy: Policy, *, everything: bool
) -> Iterator[tuple[str, str]]:
    """Return the streams with something to index, and their incarnations."""
    least = 1 if everything else policy.index_span
    for query in (SQL.streams_to_index, SQL.declared):
        after = ""
        page = limits.ARCHIVE_STREAMS_PER_ROUND
        while rows := snapshot.all(query, (after, page, least)):
            yield from rows
            after = rows[-1][0]


def tasks(
    snapshot: ReadTransaction,
    stream: str,
    incarnation: str,
    policy: Policy,
    folder: Path,
    *,
    everything: bool,
) -> list[RunTask]:
    """Yield the runs of level 0 that a stream needs now, in order."""
    found: list[RunTask] = []
    known = {row[0]: row[1:] for row in snapshot.all(SQL.indexes, (stream,))}
    known.setdefault(ROUTING_KEYS, (os.urandom(SECRET_BYTES), 0))
    for name, (secret, indexed_offset) in known.items():
        at = indexed_offset
        while True:
            rows = snapshot.all(SQL.unindexed, (stream, at, policy.index_span))
            spanned = _span([Segment._make(row) for row in rows])
            whole = len(spanned) < len(rows) or len(rows) >= policy.index_span
            if not spanned or not (whole or everything):
                break
            found.append(
                RunTask(
                    stream,
                    incarnation,
                    name,
                    secret,
                    0,
                    at,
                    max(at, spanned[0].start_offset),
                    spanned[-1].end_offset,
                    tuple(entry.wanted(folder) for entry in spanned),
                )
            )
            at = spanned[-1].end_offset + 1
    return found


def _span(segments: list[Segment]) -> list[Segment]:
    """Return as many segments as one run may cover."""
    rows = 0
    for at, each in enumerate(segments):
        rows += each.end_offset - each.start_offset + 1
        if at and rows > INDEX_SPAN_ROWS:
            return segments[:at]
    return segments


def next_merge(
    snapshot: ReadTransaction, stream: str, incarnation: str, policy: Policy
) -> RunTask | None:
    """Return runs of one level that should be merged into one of the next."""
    for name, secret, at in snapshot.all(SQL.indexes, (stream,)):
        group: list[IndexRunRow] = []
        for row in map(IndexRunRow._make, snapshot.all(SQL.runs, (stream, name))):
            if group and group[-1].level != row.level:
                group = []
            group.append(row)
            if len(group) == policy.index_fanout and row.level < INDEX_LEVELS:
                first, last = group[0].start_offset, group[-1].end_offset
                kept = snapshot.value(ARCHIVE.first_kept, (stream,))
                merges = tuple(group)
                level = row.level + 1
                return RunTask(
                    stream, incarnation, name, secret, level, at, first, last, (), merges, kept
                )
    return None


def build(segments: StoredSegments, task: RunTask, folder: Path) -> BuiltRun:
    """Write the run of a task into a folder. The node and Spark share this stage."""
    pa, _ = arrow()
    if task.merges:
        sources = [(row.wanted, row.record_count) for row in task.merges]
        parts = index_runs.merged(segments, sources, task.keep_from)
    else:
        key_of = None
        if task.index_name != ROUTING_KEYS:
            key_of = partial(fields.key_of, field=task.index_name)
        found = [
            index_runs.entries_of(segments, segment, task.secret, task.start_offset, key_of)
            for segment in task.segments
        ]
        whole = pa.concat_tables(found)
        if not whole.num_rows:
            return BuiltRun(task, None, None)
        parts = iter([whole])
    # Separate files: Spark's workers build several at once, perhaps one of them twice.
    temporary = folder / f".{uuid.uuid4().hex}.partial"
    made, path = index_runs.write_run(
        parts, temporary, lambda run: folder / f"{task.row(run).run_id}.parquet"
    )
    return BuiltRun(task, made, path)


def take_in(txn: Transaction, built: BuiltRun, now_ms: int) -> bool:
    """Add a run to the index; return False if its sources changed."""
    task, stream = built.task, built.task.stream
    found = txn.one(ARCHIVE.is_stream, (stream,))
    if found is None or found[1] != task.incarnation:
        return False
    known = txn.one(SQL.index, (stream, task.index_name))
    if known is None and task.index_name != ROUTING_KEYS:
        return False
    if known is not None and known[0] != task.secret:
        return False
    if task.merges:
        active = {row[0] for row in txn.all(SQL.runs, (stream, task.index_name))}
        if not active.issuperset(merge.run_id for merge in task.merges):
            return False
        for merge in task.merges:
            txn.execute(SQL.retire_run, (merge.run_id, now_ms))
    else:
        if (0 if known is None else known[1]) != task.indexed_offset:
            return False
        reached = task.end_offset + 1
        through = txn.value(SQL.indexed_through, (stream, reached))
        params = (stream, task.index_name, task.secret, through, reached, now_ms)
        txn.execute(SQL.put_index, params)
    if built.run is not None and built.run.entries:
        catalog.add(txn, stream, task.row(built.run))
    if built.run is not None:
        txn.execute(ARCHIVE.due_again, (stream,))
    return True

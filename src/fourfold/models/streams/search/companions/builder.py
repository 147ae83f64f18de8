"""Builder of companions: plan tasks, build bundles, and register them.

    task ──> a bundle on this disk ──> an object ──> one transaction ──> the next manifest

`tasks` and `build` need no writer. A bundle whose segment or plan has changed meanwhile is
rejected.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import manifest
from fourfold.archive.segment_reader import SegmentRequest, StoredSegments
from fourfold.content.json_pointer import lookup
from fourfold.content.text import FTS5_TOKENIZER, searchable
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.kernel.text_index import write_text_index
from fourfold.models.streams.archive.records import SQL as ARCHIVE
from fourfold.models.streams.archive.records import Segment
from fourfold.models.streams.rules import SQL as RULES
from fourfold.models.streams.schemas.registry import EMPTY, Registry, decoded
from fourfold.models.streams.search.companions import bundle
from fourfold.models.streams.search.companions.columns import ColumnWriter
from fourfold.models.streams.search.companions.plans import FORMAT, SQL, CompanionPlan, read_plan
from fourfold.models.streams.search.companions.rollups import RollupWriter
from fourfold.models.streams.search.query import decode_message
from fourfold.models.streams.search.timestamps import compile_time

TASKS_MAX = 64
"""Bundles of one stream that are planned at a time."""


class BundleTask(NamedTuple):
    """A bundle to build."""

    stream: str
    incarnation: str
    generation: int
    plan: CompanionPlan
    registry: Registry
    segment: Segment
    request: SegmentRequest


class BundleFile(NamedTuple):
    """A bundle on disk."""

    task: BundleTask
    path: Path
    size_bytes: int
    digest: str
    sizes: dict[str, int]
    times: tuple[int, int] | None

    @property
    def object_key(self) -> str:
        """Key of the object; it contains the whole digest."""
        folder, _, file = self.task.segment.segment_id.partition("/")
        name = f"{file}-{self.task.generation}-{self.digest}"
        return f"{manifest.ROOT}/{folder}/segments/{name}{manifest.COMPANION_SUFFIX}"


def streams_with_plans(snapshot: ReadTransaction) -> Iterator[tuple[str, str]]:
    """Yield the streams that have a plan, and their incarnations."""
    after, page = "", limits.ARCHIVE_STREAMS_PER_ROUND
    while rows := snapshot.all(SQL.planned_streams, (after, page)):
        yield from rows
        after = rows[-1][0]


def tasks(
    snapshot: ReadTransaction,
    stream: str,
    incarnation: str,
    folder: Path,
    *,
    limit: int = TASKS_MAX,
) -> list[BundleTask]:
    """Return the bundles that a stream needs now, the newest segments first; -1 for all."""
    known = read_plan(snapshot, stream)
    if known is None or not known[1].families:
        return []
    generation, plan = known
    text = snapshot.value(RULES.schema, (stream,))
    registry = EMPTY if text is None else decoded(text)
    rows = snapshot.all(SQL.due_segments, (stream, generation, limit))
    return [
        BundleTask(stream, incarnation, generation, plan, registry, segment, segment.wanted(folder))
        for segment in map(Segment._make, rows)
    ]


def build(segments: StoredSegments, task: BundleTask, folder: Path) -> BundleFile:
    """Write the bundle of a task into a folder. The node and Spark share this stage."""
    plan = task.plan
    parts = folder / f".{uuid.uuid4().hex}.partial"
    parts.mkdir(parents=True)
    try:
        columns = ColumnWriter(plan.column_fields)
        rollups = [RollupWriter(rollup) for rollup in plan.rollups]
        messages = _messages(segments, task)
        texts = _collect(plan, messages, columns, rollups)
        sections: dict[str, Path] = {}
        if plan.text:
            sections[bundle.FTS] = parts / "fts"
            write_text_index(sections[bundle.FTS], len(plan.text), texts, FTS5_TOKENIZER)
        else:
            for _ in texts:
                pass
        sections[bundle.COL] = parts / "col"
        columns.write(sections[bundle.COL])
        present = [at for at, rollup in enumerate(rollups) if rollup.is_exact]
        for at in present:
            agg, mblk = parts / f"agg{at}", parts / f"mblk{at}"
            rollups[at].write(agg, mblk)
            sections[bundle.rollup_entry("agg", at)] = agg
            sections[bundle.rollup_entry("mblk", at)] = mblk
        sizes = bundle.section_sizes(sections)
        meta = bundle.BundleMeta(
            format=FORMAT,
            plan_hash=plan.digest,
            segment=task.segment.segment_id,
            rows=task.segment.end_offset - task.segment.start_offset + 1,
            rollups=present,
            with_containers=[at for at in present if rollups[at].has_containers],
        )
        path = folder / f".{uuid.uuid4().hex}.cix.partial"
        size, digest = bundle.write_bundle(path, meta, sections)
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    return BundleFile(task, path, size, digest, sizes, columns.times)


def _messages(segments: StoredSegments, task: BundleTask) -> Iterator[tuple[Any, int]]:
    """Yield the messages of a segment in the current schema version, and when they arrived."""
    registry, version = task.registry, task.registry.current_version
    start, end = task.segment.start_offset, task.segment.end_offset + 1
    for offset, payload, appended_ms, _ in segments.records(task.request, start, end):
        if version:
            payload = registry.promote(payload, offset, version)  # noqa: PLW2901
        yield decode_message(payload), appended_ms


def _collect(
    plan: CompanionPlan,
    messages: Iterator[tuple[Any, int]],
    columns: ColumnWriter,
    rollups: list[RollupWriter],
) -> Iterator[tuple[str | None, ...]]:
    """Add messages to columns and rollups; yield their texts."""
    time_of = compile_time(plan.timestamp)
    paths = [tuple(field.split(".")) for field in plan.fields]
    for message, appended_ms in messages:
        values = [lookup(message, path) for path in paths]
        time_ms = time_of(message, appended_ms)
        columns.add(time_ms, [values[at] for at in plan.columns])
        for writer, rollup in zip(rollups, plan.rollups, strict=True):
            writer.add(
                time_ms,
                [values[at] for at in rollup.by],
                [values[at] for at in rollup.measures],
            )
        yield tuple(searchable(values[at]) if type(values[at]) is str else None for at in plan.text)


def take_in(txn: Transaction, built: BundleFile, now_ms: int) -> bool:
    """Register a bundle for the next manifest; return False if it is outdated."""
    task = built.task
    row = txn.one(ARCHIVE.is_stream, (task.stream,))
    if row is None or row[1] != task.incarnation:
        return False
    known = txn.one(SQL.plan, (task.stream,))
    if known is None or known[0] != task.generation or known[1] != task.plan.digest:
        return False
    index = txn.value(SQL.segment_index_of, (task.segment.segment_id,))
    if index is None:
        return False
    old = txn.one(SQL.companion, (task.stream, index))
    if old is not None and old[0] != built.object_key:
        txn.execute(ARCHIVE.retire_object, (old[0], task.stream, old[2], None))
    low, high = built.times or (None, None)
    params = (
        task.stream,
        index,
        built.object_key,
        task.generation,
        json.dumps(list(built.sizes)),
        msgspec.json.encode(built.sizes).decode(),
        built.size_bytes,
        low,
        high,
        now_ms,
    )
    txn.execute(SQL.put_companion, params)
    txn.execute(ARCHIVE.due_again, (task.stream,))
    return True

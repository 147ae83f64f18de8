"""Plan reads of published segments by Fourfold's own reader, and of the log of a node."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from fourfold import limits
from fourfold.pipeline import plan
from fourfold.pipeline.conditions import Conditions
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.scan import Piece, ScanTask
from fourfold.pipeline.streams.fold import columns_read, promoted, ranges, shows_messages
from fourfold.pipeline.streams.published_cut import LiveTail, ObjectRecords, PublishedCut
from fourfold.pipeline.streams.published_scan import SegmentWork
from fourfold.pipeline.task_groups import pack
from fourfold.query.streams.promotion import Registries, begin_of_version
from fourfold.query.tables import Column

PUBLISHED_TASK_BYTES_MIN: Final = 4 * limits.MIB
"""Minimum input of a task that reads an object store."""


def plan_tasks(
    cut: PublishedCut,
    url: str,
    columns: tuple[Column, ...],
    conditions: Conditions,
    *,
    until_ms: int | None,
    partition_bytes: int,
    batch_rows: int,
) -> list[SegmentWork]:
    """Return the tasks: objects packed to a target size."""
    keys = _keys(conditions)
    narrowed = (narrow(part, conditions) for part in cut.parts)
    parts_read = [part for part in narrowed if part is not None]
    return [
        SegmentWork(url, parts, columns, batch_rows, until_ms, keys, _registries(cut, parts))
        for parts in _packed(parts_read, partition_bytes)
    ]


def plan_tail_tasks(
    cut: PublishedCut,
    columns: tuple[Column, ...],
    conditions: Conditions,
    *,
    partition_bytes: int,
    batch_rows: int,
) -> list[ScanTask]:
    """Return the tasks that read the log of a node."""
    tails = [tail for tail in cut.tails if conditions.allow("stream", tail.stream)]
    if cut.bound is None or not tails:
        return []
    registries = _registries(cut, tails) if shows_messages(columns) else None
    read = columns if registries is None else columns_read(columns)
    parts = (
        (limits.SOURCE_PARTITION_BYTES // 4, replace(piece, context=registries))
        for piece in _pieces(cut.bound, tails, read)
    )
    return [
        ScanTask(
            pieces=tuple(pieces),
            columns=read,
            setup=plan.setup(),
            attach=plan.ATTACH,
            detach=plan.DETACH,
            batch_rows=batch_rows,
            fold=None if registries is None else promoted,
            output=columns,
        )
        for pieces in plan.pack_parts(parts, partition_bytes)
    ]


def _registries(cut: PublishedCut, parts: Iterable[ObjectRecords | LiveTail]) -> Registries | None:
    """Return the registries that promote any of these parts, or None."""
    known = cut.registries or {}
    old = {part.stream for part in parts if part.low < begin_of_version(known, part.stream)}
    return {name: known[name] for name in old} or None


def _pieces(
    bound: FileBound, tails: Sequence[LiveTail], columns: tuple[Column, ...]
) -> Iterator[Piece]:
    """Yield the ranges of the log. Records that a fork shares get the fork's name."""
    own = [(tail.sid, tail.low, tail.high) for tail in tails if tail.stream == tail.source]
    yield from ranges(bound, columns, own)
    for tail in tails:
        if tail.stream != tail.source:
            for piece in ranges(bound, columns, [(tail.sid, tail.low, tail.high)]):
                yield replace(piece, constants=(*piece.constants, ("stream", tail.stream)))


def _keys(conditions: Conditions) -> tuple[bytes, ...] | None:
    """Return the selected routing keys, or None if all are selected."""
    equal = [
        condition for condition in conditions.on("routing_key") if condition.sign in {"=", "in"}
    ]
    return tuple(key.encode() for key in equal[0].values) if equal else None


def narrow(part: ObjectRecords, conditions: Conditions) -> ObjectRecords | None:
    """Return a part limited to the selected offsets, or None if no record of it can match."""
    after, until = conditions.bounds("offset")
    low = max(part.low, after + 1)
    high = part.high if until is None else min(part.high, until + 1)
    fits = conditions.allow("content_type", part.content_type)
    if low < high and fits and conditions.allow("stream", part.stream):
        return part._replace(low=low, high=high)
    return None


def _packed(
    parts: Sequence[ObjectRecords], partition_bytes: int
) -> Iterator[tuple[ObjectRecords, ...]]:
    """Yield the parts of each task: enough tasks for every core, but no tiny ones.
    `partition_bytes` refers to uncompressed data, and objects are compressed.
    """
    costs = [part.held.size + limits.SOURCE_FILE_COST_BYTES for part in parts]
    share = sum(costs) // (2 * (os.cpu_count() or 1))
    limit = min(max(share, PUBLISHED_TASK_BYTES_MIN), max(partition_bytes // 4, 1))
    for group in pack(zip(costs, parts, strict=True), limit):
        yield tuple(group)

"""The tasks of a read of published segments by Fourfold's own reader."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fourfold import limits
from fourfold.pipeline import plan
from fourfold.pipeline.conditions import Conditions
from fourfold.pipeline.scan import Piece, ScanTask
from fourfold.pipeline.streams.fold import (
    Registries,
    begin_of_version,
    columns_read,
    ranges,
    shows_messages,
)
from fourfold.pipeline.streams.published_cut import Part, PublishedCut, Tail
from fourfold.pipeline.streams.published_scan import SegmentWork, TailWork
from fourfold.pipeline.tables import Column

_TIME = Column("time", "timestamp", nullable=False)
_PROMOTED = "fourfold.pipeline.streams.fold:promoted"


def works(
    cut: PublishedCut,
    url: str,
    columns: tuple[Column, ...],
    conditions: Conditions,
    *,
    until_ms: int | None,
    partition_bytes: int,
    batch_rows: int,
) -> list[SegmentWork | TailWork]:
    """Objects packed into tasks of a good size, and the tail of the node in others."""
    keys = _keys(conditions)
    found: list[SegmentWork | TailWork] = [
        SegmentWork(url, parts, columns, batch_rows, until_ms, keys, _registries(cut, parts))
        for parts in _packed(list(_pruned(cut.parts, conditions)), partition_bytes)
    ]
    return [
        *found,
        *plan_tail_tasks(cut, columns, until_ms, partition_bytes, batch_rows, conditions),
    ]


def plan_tail_tasks(  # noqa: PLR0917 - these are what it is made of
    cut: PublishedCut,
    columns: tuple[Column, ...],
    until_ms: int | None,
    partition_bytes: int,
    batch_rows: int,
    conditions: Conditions | None = None,
) -> list[TailWork]:
    if cut.mark is None or not cut.tails:
        return []
    names = {column.name for column in columns}
    kept = columns if until_ms is None or "time" in names else (*columns, _TIME)
    wanted = [
        tail for tail in cut.tails if conditions is None or conditions.allow("stream", tail.stream)
    ]
    told = _registries(cut, wanted) if shows_messages(columns) else None
    read = kept if told is None else columns_read(kept)
    parts = (
        (limits.SOURCE_PARTITION_BYTES // 4, replace(piece, context=told))
        for piece in _pieces(cut, wanted, read)
    )
    return [
        TailWork(
            ScanTask(
                pieces=tuple(pieces),
                columns=read,
                setup=plan.setup(),
                attach=plan.ATTACH,
                detach=plan.DETACH,
                batch_rows=batch_rows,
                fold="" if told is None else _PROMOTED,
                output=kept,
            ),
            columns,
            until_ms,
        )
        for pieces in plan.pack_parts(parts, partition_bytes)
    ]


def _registries(cut: PublishedCut, wanted: Iterable[Part | Tail]) -> Registries | None:
    """Those by which something of what is wanted is promoted; None when nothing is."""
    known = cut.registries or {}
    old = {each.stream for each in wanted if each.low < begin_of_version(known, each.stream)}
    return {name: known[name] for name in old} or None


def _pieces(
    cut: PublishedCut, tails: Sequence[Tail], columns: tuple[Column, ...]
) -> Iterator[Piece]:
    """Ranges of the log. What a fork shares comes under its own name."""
    assert cut.mark is not None
    stored = [column for column in columns if column.name != "generation"]
    unpublished = ("generation", None)
    own = [(tail.sid, tail.low, tail.high) for tail in tails if tail.stream == tail.source]
    for piece in ranges(cut.mark, stored, own):
        yield replace(piece, constants=(*piece.constants, unpublished))
    for tail in tails:
        if tail.stream != tail.source:
            named = (unpublished, ("stream", tail.stream))
            for piece in ranges(cut.mark, stored, [(tail.sid, tail.low, tail.high)]):
                yield replace(piece, constants=(*piece.constants, *named))


def _keys(conditions: Conditions) -> tuple[bytes, ...] | None:
    """The routing keys that are asked for; None when others are wanted, too."""
    equal = [each for each in conditions.on("routing_key") if each.sign in {"=", "in"}]
    return tuple(key.encode() for key in equal[0].values) if equal else None


def _pruned(parts: Iterable[Part], conditions: Conditions) -> Iterator[Part]:
    """The parts that conditions leave, each no longer than they ask for."""
    after, until = conditions.bounds("offset")
    for part in parts:
        low = max(part.low, after + 1)
        high = part.high if until is None else min(part.high, until + 1)
        fits = conditions.allow("content_type", part.content_type)
        if low < high and fits and conditions.allow("stream", part.stream):
            yield part._replace(low=low, high=high)


def _packed(parts: Sequence[Part], partition_bytes: int) -> Iterator[tuple[Part, ...]]:
    """Parts for each task: enough tasks for every core, but none that hardly has a thing to do.
    What is meant by the bytes of a partition is not compressed, and objects are.
    """
    costs = [part.held.size + limits.SOURCE_FILE_COST_BYTES for part in parts]
    share = sum(costs) // (2 * (os.cpu_count() or 1))
    most = min(max(share, limits.PUBLISHED_TASK_BYTES_MIN), max(partition_bytes // 4, 1))
    ready: list[Part] = []
    size = 0
    for part, cost in zip(parts, costs, strict=True):
        if ready and size + cost > most:
            yield tuple(ready)
            ready, size = [], 0
        ready.append(part)
        size += cost
    if ready:
        yield tuple(ready)

"""The records of the streams of a store: segments, and the rows of the log after them.

One state of the file lists both, so that the two join without a gap. A position bounds them, as in
the tables of other models: the ids of records in the log are their positions, and the trail of the
feed has those of records that have left it. A time bounds published records by their own times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from fourfold.archive.manifest import key_of
from fourfold.errors import HistoryTruncated
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.streams.published_cut import (
    LiveTail,
    PublishedCut,
    PublishedInfo,
    RecordsObject,
    registries_of,
    select_records,
)
from fourfold.query.streams.tables import SQL as TABLES

SQL: Final = load_queries("fourfold.pipeline.streams", "node.sql")
_FIELDS: Final = 12
"""Columns of a stream in the query `node`; those of a segment follow."""
_UNLIMITED: Final = (None, 0, sys.maxsize)
"""No registry, and no limits of the read."""


class NodeCut(NamedTuple):
    """The records of a file, up to its bound."""

    cut: PublishedCut
    is_published: bool
    """True if records of a stream have left the log for segments."""


def read_node(
    bound: FileBound, pattern: str | None, *, shared: bool = False, promoted: bool = False
) -> NodeCut:
    """Return the records of the file up to its bound, of the streams that match a pattern.

    Args:
        shared: A fork includes the records that it shares with its source; `since` has no effect.
        promoted: The cut includes the registries that promote messages.

    Raises:
        HistoryTruncated: The bound is a position that is not known any more.
    """
    with cuts.read_file(bound) as snapshot:
        infos = {}
        for _, rows in groupby(snapshot.rows(SQL.node), itemgetter(0)):
            info = _node_info(list(rows))
            infos[info.name] = info
        if promoted:
            _add_registries(snapshot, infos)
        is_timed = bound.newest is not None
        newest = bound.seq if bound.newest is None else bound.newest
        ends = _offsets_after(snapshot, newest, bound.path)
        starts = None
        if bound.since and not is_timed and not shared:
            starts = _offsets_after(snapshot, bound.since, bound.path)
        for name, info in infos.items():
            start = 0 if starts is None else starts.get(info.sid, info.next)
            infos[name] = info._replace(start=start, end=ends.get(info.sid, info.next))
        cut = select_records(infos, pattern, _find_nothing, shared=shared)
        if is_timed:
            since = 0 if shared else bound.since
            tails = _limit_tails(snapshot, cut.tails, since, bound.seq)
            cut = cut._replace(tails=tuple(tails))
    is_published = any(
        info.through > max(info.first, info.fork) or info.segments for info in infos.values()
    )
    registries = registries_of(infos) if promoted else None
    return NodeCut(cut._replace(bound=bound, registries=registries), is_published)


def _find_nothing(name: str) -> PublishedInfo | None:
    """Return None: one state of a file has everything that a fork shares."""
    del name
    return None


def _node_info(rows: list[Any]) -> PublishedInfo:
    """Return the description of a stream from its rows in the file."""
    fields = list(rows[0][:_FIELDS])
    fields[4] = bool(fields[4])
    name = fields[0]
    segments = tuple(
        RecordsObject._make((key_of(segment_id), *facts, name if labeled else None))
        for segment_id, *facts, labeled in (row[_FIELDS:] for row in rows)
        if segment_id is not None
    )
    return PublishedInfo._make((*fields, segments, *_UNLIMITED))


def _add_registries(snapshot: ReadTransaction, infos: dict[str, PublishedInfo]) -> None:
    for _, name, incarnation, text, _ in snapshot.rows(TABLES.registries, (None,)):
        info = infos.get(name)
        if info is not None and info.incarnation == incarnation:
            infos[name] = info._replace(registry=text)


def _offsets_after(snapshot: ReadTransaction, position: int, path: str) -> dict[int, int]:
    """Return the offset of the first record after a position, by the key of its stream."""
    horizon = snapshot.value(SQL.horizon)
    if position < horizon:
        raise HistoryTruncated(
            f"{path}: positions until {horizon} are no longer known, got {position}",
            hint="Pass a time, such as 2026-03-01T12:00:00Z.",
        )
    return _offsets(snapshot, SQL.offsets_after, position)


def _offsets(snapshot: ReadTransaction, sql: str, position: int) -> dict[int, int]:
    return {int(sid): int(offset) for sid, offset in snapshot.rows(sql, (position,))}


def _limit_tails(
    snapshot: ReadTransaction, tails: tuple[LiveTail, ...], since: int, until: int
) -> Iterator[LiveTail]:
    """Yield the parts of tails with positions after `since` until `until`."""
    starts = _offsets(snapshot, SQL.logged_after, since) if since else None
    ends = _offsets(snapshot, SQL.logged_after, until)
    for tail in tails:
        low = tail.low if starts is None else max(tail.low, starts.get(tail.sid, tail.high))
        high = min(tail.high, ends.get(tail.sid, tail.high))
        if low < high:
            yield tail._replace(low=low, high=high)

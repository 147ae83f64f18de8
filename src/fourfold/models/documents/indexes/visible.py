"""Entries that a branch shows: its own, and those of its ancestors that it has not overwritten.

A branch copies nothing from its parent. What it shows of an index at a seq is, for each branch of
its chain, the entries that held there, without the entities that a nearer branch had written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from fourfold.models.documents.ancestry import BranchLink, last_seq
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes.declaration import SQL, Index

Entry = tuple[bytes, str]
"""A key, and the id of the entity that has it."""

_QUERIES = {
    name: (getattr(SQL, name).format(hidden=""), getattr(SQL, name).format(hidden=SQL.hidden))
    for name in (
        *("live", "past", "live_descending", "past_descending"),
        *("count_live", "count_past", "groups_live", "groups_past"),
    )
}
"""Each query for the nearest branch, and for an ancestor whose entities may be overwritten."""


class IndexRange(NamedTuple):
    """Keys from `low`, inclusive, to `high`, exclusive."""

    low: bytes
    high: bytes


EVERYTHING = IndexRange(b"", b"\xff")


def one_key(key: bytes) -> IndexRange:
    """Return the range of a single key."""
    return IndexRange(key, key + b"\x00")


class VisibleEntries:
    """Entries of an index that are visible at the end of a chain of branches."""

    def __init__(self, view: HistoryReader, index: Index, links: Sequence[BranchLink]) -> None:
        self._view = view
        self._ix = index.ix
        self._links = links
        self._newest = last_seq(view)

    def iter(
        self, keys: IndexRange, after: Entry | None = None, *, descending: bool = False
    ) -> Iterator[Entry]:
        """Yield the entries of a range in order, after an entry."""
        suffix = "_descending" if descending else ""
        if descending:
            start = min(after, (keys.high, "")) if after else (keys.high, "")
        else:
            start = max(after, (keys.low, "")) if after else (keys.low, "")
        streams = [
            self._view.rows(sql, (*parameters, nearer, *start))
            for sql, parameters, nearer in self._statements(f"live{suffix}", f"past{suffix}", keys)
        ]
        if len(streams) == 1:
            return streams[0]
        return heapq.merge(*streams, reverse=descending)

    def count(self, keys: IndexRange) -> int:
        """Return the number of entries of a range."""
        return sum(
            self._view.value(sql, (*parameters, nearer) if nearer else parameters)
            for sql, parameters, nearer in self._statements("count_live", "count_past", keys)
        )

    def groups(self, keys: IndexRange) -> Iterator[tuple[bytes, int]]:
        """Yield the keys of a range in order, each with the number of its entries."""
        streams = [
            self._view.rows(sql, (*parameters, nearer) if nearer else parameters)
            for sql, parameters, nearer in self._statements("groups_live", "groups_past", keys)
        ]
        last, count = b"", 0
        for key, entries in heapq.merge(*streams, key=itemgetter(0)):
            if key != last and count:
                yield last, count
                count = 0
            last, count = key, count + entries
        if count:
            yield last, count

    def _statements(
        self, live: str, past: str, keys: IndexRange
    ) -> Iterator[tuple[str, tuple[object, ...], str]]:
        """Yield the queries, their parameters, and the branches that come before, if any."""
        for depth, link in enumerate(self._links):
            parameters = (self._ix, link.branch, link.cap, *keys)
            nearer = trusted(self._links[:depth]) if depth else ""
            yield _QUERIES[live][depth > 0], parameters, nearer
            if link.cap < self._newest:
                yield _QUERIES[past][depth > 0], parameters, nearer

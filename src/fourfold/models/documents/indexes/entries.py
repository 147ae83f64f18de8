"""Entries of one entity of one branch: when it had which values, computed from its log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fourfold import limits
from fourfold.models.documents import fold, reader
from fourfold.models.documents.ancestry import BranchLink
from fourfold.models.documents.encoding import stored
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes.declaration import SQL, HistoryScope, Index
from fourfold.models.documents.records import Document, State

Interval = tuple[int, int | None]
"""From a seq on, and before another; None if it still holds."""
Snapshot = tuple[int, Document | None]
"""A seq, and the document that an entity had from then on; None if it was deleted."""


class EntityLog:
    """The states of an entity that one branch wrote, in order.

    Args:
        parents: What the branch inherits from.
    """

    def __init__(self, parents: Sequence[BranchLink], branch: str, entity: str) -> None:
        self._parents = parents
        self.branch = branch
        self.entity = entity
        self._state: State | None = None
        self.seq = 0
        """Seq of the newest row that was read."""

    def skip(self, view: HistoryReader, seq: int) -> Document | None:
        """Continue after a seq at which the branch wrote the entity; return the document there."""
        links = [BranchLink(self.branch, seq), *self._parents]
        entry = reader.entry(view, links, self.entity)
        assert entry is not None
        self._state, self.seq = State(entry.document, entry.op, entry.seq), seq
        return entry.document

    def read(self, view: HistoryReader) -> Iterator[Snapshot]:
        """Yield the state after each commit since the last call."""
        key = (self.branch, self.entity)
        begun = self.seq > 0
        bases = {seq for (seq,) in view.rows(SQL.entity_bases, key)}
        rows = view.rows(view.sql.revisions_of_entity, (*key, self.seq, limits.INTEGER_MAX))
        for seq, group in groupby(rows, key=lambda row: row[2]):
            operations = [(seq, row[4], _data(row[5])) for row in group]
            if seq in bases:
                # The log before was collected, and this state stored instead.
                entry = reader.entry(view, [BranchLink(self.branch, seq)], self.entity)
                assert entry is not None
                self._state = State(entry.document, entry.op, seq)
            else:
                if not begun and operations[0][1] == "patch":
                    entry = reader.entry(view, self._parents, self.entity)
                    if entry is not None:
                        self._state = State(entry.document, entry.op, entry.seq)
                self._state = fold.fold(self._state, operations)
            begun = True
            self.seq = seq
            assert self._state is not None
            yield seq, self._state.document


def _data(text: str | None) -> object:
    return None if text is None else stored(text)


class EntryBuilder:
    """The entries of an index for one entity, state by state."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.live: dict[bytes, int] = {}
        self.past: list[tuple[bytes, int, int]] = []

    def add(self, states: Iterable[Snapshot]) -> None:
        """Add states that follow those before."""
        for seq, document in states:
            keys = self._index.keys(document)
            for key in self.live.keys() - keys:
                self.past.append((key, self.live.pop(key), seq))
            for key in keys:
                self.live.setdefault(key, seq)

    def intervals(self) -> dict[bytes, list[Interval]]:
        """Return when the entity had each value, oldest first."""
        result: dict[bytes, list[Interval]] = {}
        for key, begin, end in self.past:
            result.setdefault(key, []).append((begin, end))
        for key, begin in self.live.items():
            result.setdefault(key, []).append((begin, None))
        return result


def readable_intervals(intervals: Iterable[Interval], retained: Sequence[int]) -> list[Interval]:
    """Reduce intervals to what readers can see of them.

    `retained` are the seqs below the horizon at which the branch can be read, in order, and then
    the horizon: two lists of intervals with the same result give the same answers everywhere.
    """
    result: list[Interval] = []
    for begin, end in intervals:
        first = _next_readable(begin, retained)
        last = None if end is None else _next_readable(end, retained)
        if first == last:
            continue
        if result and result[-1][1] == first:
            result[-1] = (result[-1][0], last)
        else:
            result.append((first, last))
    return result


def readable_versions(
    versions: Iterable[tuple[bytes, Interval]], retained: Sequence[int], history: HistoryScope
) -> list[tuple[bytes, Interval]]:
    """Reduce the versions of one entity to what readers can see of them, as above."""
    result: list[tuple[bytes, Interval]] = []
    for version, interval in versions:
        for begin, end in readable_intervals([interval], retained):
            if result and result[-1] == (version, (result[-1][1][0], begin)):
                result[-1] = (version, (result[-1][1][0], end))
            else:
                result.append((version, (begin, end)))
    if history == "now":
        return [(version, (0, None)) for version, (_, end) in result if end is None]
    return result


def _next_readable(seq: int, retained: Sequence[int]) -> int:
    """Return the first seq from `seq` on at which the branch can be read."""
    if seq >= retained[-1]:
        return seq
    return retained[bisect_left(retained, seq)]

"""Verification of indexes: what commits maintained equals what a build from the log gives.

Entries are compared by what readers can see of them: garbage collection may have removed the rows
of the log from which an entry below the horizon came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, Protocol

from fourfold import limits
from fourfold.models.documents.ancestry import BranchLink, chain
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.plan import stored_points
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import SQL, Index
from fourfold.models.documents.indexes.entries import (
    EntityLog,
    EntryBuilder,
    Interval,
    readable_intervals,
)
from fourfold.models.documents.indexes.text_upkeep import TextCheck
from fourfold.models.documents.indexes.vector import VectorCheck
from fourfold.models.documents.problems import KeyRange, Rule, make_problem
from fourfold.models.problem import Problem

Retained = dict[str, list[int]]


def has_indexes(view: HistoryReader) -> bool:
    """Return True if a space has an index to verify."""
    return bool(_complete(view))


def _complete(view: HistoryReader) -> list[Index]:
    return [index for index in declaration.load(view.snapshot) if index.is_complete]


def _indexes(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    del part
    indexes = _complete(view)
    if not indexes:
        return
    least = horizon(view)
    retained = {branch: [*seqs, least] for branch, seqs in stored_points(view).items()}
    for index in indexes:
        yield from _CHECKS[index.kind](view, index, retained, least).problems()


class _IndexCheck(Protocol):
    """The comparison of one index with the log."""

    def problems(self) -> Iterator[Problem]: ...


class _ValueCheck:
    """The comparison of one index with the log."""

    def __init__(self, view: HistoryReader, index: Index, retained: Retained, least: int) -> None:
        self._view = view
        self._index = index
        self._retained = retained
        self._least = least
        self._parents: dict[str, list[BranchLink]] = {}
        self._groups = 0
        """Entries that the log gives; -1 after a problem."""

    def problems(self) -> Iterator[Problem]:
        """Yield the entries that are missing or wrong, and then those that should not be."""
        place = ("", "")
        while page := self._view.all(SQL.heads_page, (*place, limits.MAINTENANCE_PAGE_ROWS)):
            for branch, entity, _ in page:
                yield from self._check(branch, entity)
            place = page[-1][:2]
        yield from self._surplus()

    def _expected(self, branch: str, entity: str) -> dict[bytes, list[Interval]]:
        if branch not in self._parents:
            self._parents[branch] = chain(self._view, branch, limits.INTEGER_MAX)[1:]
        build = EntryBuilder(self._index)
        build.add(EntityLog(self._parents[branch], branch, entity).read(self._view))
        return {
            key: readable
            for key, intervals in build.intervals().items()
            if (readable := self._readable(branch, intervals))
        }

    def _readable(self, branch: str, intervals: list[Interval]) -> list[Interval]:
        readable = readable_intervals(intervals, self._retained.get(branch, [self._least]))
        if self._index.options.history == "now":
            return [(0, None)] if readable and readable[-1][1] is None else []
        return readable

    def _check(self, branch: str, entity: str) -> Iterator[Problem]:
        for key, expected in self._expected(branch, entity).items():
            self._groups += self._groups >= 0
            rows = self._view.all(SQL.intervals, (self._index.ix, branch, key, entity))
            readable = self._readable(branch, [(begin, end) for begin, end in rows])
            if readable != expected:
                self._groups = -1
                yield self._problem("is not what the log gives", branch, key, entity)

    def _surplus(self) -> Iterator[Problem]:
        """Yield the entries that the log does not give, if there are more than it gives."""
        if sum(1 for _ in self._stored()) == self._groups:
            return
        for branch, key, entity in self._stored():
            if key not in self._expected(branch, entity):
                yield self._problem("is not in the log", branch, key, entity)

    def _stored(self) -> Iterator[tuple[str, bytes, str]]:
        rows = self._view.rows(SQL.stored_entries, (self._index.ix,))
        for key, group in groupby(rows, key=lambda row: row[:3]):
            if self._readable(key[0], [(begin, end) for *_, begin, end in group]):
                yield key

    def _problem(self, wrong: str, branch: str, key: bytes, entity: str) -> Problem:
        return make_problem(
            f"index {self._index.name!r}: the entry of {entity!r} on {branch!r} {wrong}",
            "index_live",
            {"ix": self._index.ix, "branch": branch, "value": key.hex(), "id": entity},
        )


_CHECKS: Final[dict[str, Callable[..., _IndexCheck]]] = {
    "value": _ValueCheck,
    "text": TextCheck,
    "vector": VectorCheck,
}
NAME: Final = "indexes"
"""The rule that compares all entries of an index with the log as of the same time."""
RULES = (Rule(NAME, "", _indexes),)

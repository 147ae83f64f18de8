"""The two kinds of history of a space, with one interface.

A history is a schema, the named queries that answer every question of the readers in the same
shape, and a function that appends a commit. All else (chains, replay, admission, snapshots,
verification) is written once, against a View.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec

from fourfold.kernel import Migration, Profile, Queries, ReadTransaction, Transaction
from fourfold.kernel import Sequence as Counter
from fourfold.kernel.index_build import IndexPlan
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.problems import WHOLE, Rule
from fourfold.models.documents.request import RequestStep
from fourfold.models.problem import Problem

Row = tuple[Any, ...]


class AppendedRows(msgspec.Struct, frozen=True):
    """The rows of a commit to append."""

    seq: int
    branch: str
    session: str
    local_seq: int
    original: str
    steps: Sequence[RequestStep]
    resolved: Sequence[dict[str, int]] = ()
    created_at: str = ""
    """Time of the commit; empty means now. An import retains the original times."""


@dataclass(frozen=True, slots=True)
class GcStatements:
    """Statements by which gc removes rows from a log."""

    sound: Callable[[HistoryReader, int], bool]
    """Returns True if a commit from which nothing was removed is unchanged."""
    remove: Callable[[Transaction, str, str, Sequence[Row]], Tally]
    """Takes rows of an entity of a branch, and what nothing refers to then."""
    release: Callable[[Transaction, Sequence[str | None]], Tally]
    """Takes those of some values to which nothing refers any more."""
    indexes: tuple[IndexPlan, ...]
    """Indexes that the others need; the first gc of a space builds them."""
    unreferred: Callable[[Callable[[], AbstractContextManager[HistoryReader]]], Iterator[list[str]]]
    """The values to which nothing refers, page by page."""


@dataclass(frozen=True, slots=True)
class History:
    """A kind of history. `name` is stored in a space."""

    name: str
    profile: Profile
    migrations: tuple[Migration, ...]
    sql: Queries
    seq: Counter
    append: Callable[[Transaction, AppendedRows], None]
    """Puts the rows of one commit into the log, its heads included."""
    keep_snapshot: Callable[[Transaction, str, str, int, str], None]
    """Stores the full document (a text) that an entity of a branch had after a seq."""
    rules: tuple[Rule, ...]
    """Checks of the log and of the heads."""
    collecting: GcStatements

    def problems(self, view: HistoryReader) -> Iterator[Problem]:
        """Yield the problems of the log and of the heads."""
        for rule in self.rules:
            yield from rule.check(view, WHOLE[rule.by])

    def view(self, snapshot: ReadTransaction) -> HistoryReader:
        """Return a reader of this kind of history in a read transaction."""
        return HistoryReader(snapshot, self.sql)


class HistoryReader:
    """A consistent state of a space, and the queries that its history answers."""

    __slots__ = ("snapshot", "sql")

    def __init__(self, snapshot: ReadTransaction, sql: Queries) -> None:
        self.snapshot = snapshot
        self.sql = sql

    def all(self, sql: str, params: Row = ()) -> list[Row]:
        """Return all rows of a query."""
        return self.snapshot.all(sql, params)

    def one(self, sql: str, params: Row = ()) -> Row | None:
        """Return the only row of a query, or None."""
        return self.snapshot.one(sql, params)

    def value(self, sql: str, params: Row = ()) -> Any:
        """Return the only value of a query, or None."""
        return self.snapshot.value(sql, params)

    def rows(self, sql: str, params: Row = ()) -> Iterator[Row]:
        """Yield the rows of a query."""
        return self.snapshot.rows(sql, params)

"""The two ways to keep a space's history, behind one set of questions.

A history is a schema, the named queries that answer every question of the readers in the same
shape, and a function that appends a commit. All else (chains, replay, admission, snapshots,
verification) is written once, against a View.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fourfold.kernel import Migration, Profile, Queries, Snapshot, Transaction
from fourfold.kernel import Sequence as Counter
from fourfold.models.documents.request import Step

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """A commit on its way into the log."""

    seq: int
    branch: str
    session: str
    local_seq: int
    original: str
    steps: Sequence[Step]
    resolved: Sequence[dict[str, int]] = ()
    created_at: str = ""
    """When it was made, if that was before now: an import keeps the times of what it brings."""


@dataclass(frozen=True, slots=True)
class History:
    """One way to keep history. `name` is what a space says it has."""

    name: str
    profile: Profile
    migrations: tuple[Migration, ...]
    sql: Queries
    seq: Counter
    append: Callable[[Transaction, Appended], None]
    """Puts the rows of one commit into the log, its heads included."""
    keep_snapshot: Callable[[Transaction, str, str, int, str], None]
    """Puts down the whole document (a text) that an entity of a branch had after a seq."""
    problems: Callable[[View], Iterator[str]]
    """Where the log, or a head, contradicts itself."""

    def view(self, snapshot: Snapshot) -> View:
        return View(snapshot, self.sql)


@dataclass(frozen=True, slots=True)
class View:
    """A consistent state of a space, and the queries that its history answers."""

    snapshot: Snapshot
    sql: Queries

    def all(self, sql: str, params: Row = ()) -> list[Row]:
        return self.snapshot.all(sql, params)

    def one(self, sql: str, params: Row = ()) -> Row | None:
        return self.snapshot.one(sql, params)

    def value(self, sql: str, params: Row = ()) -> Any:
        return self.snapshot.value(sql, params)

    def rows(self, sql: str, params: Row = ()) -> Iterator[Row]:
        return self.snapshot.rows(sql, params)

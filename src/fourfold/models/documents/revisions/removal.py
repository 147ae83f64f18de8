"""Taking rows out of a log of revisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import Row, View

_SQL = load_queries("fourfold.models.documents.revisions", "removal.sql")


def remove(txn: Transaction, branch: str, entity: str, rows: Sequence[Row]) -> Tally:
    """Take revisions of an entity of a branch."""
    places = [(branch, entity, row[2], row[3]) for row in rows]
    txn.execute_many(_SQL.delete_revision, places)
    tally = Tally()
    tally.note("revisions", len(rows), sum(len(row[5] or b"") for row in rows))
    return tally


def release(_txn: Transaction, _refs: Sequence[str | None]) -> Tally:
    """A snapshot of a revision holds its own value; there is nothing beside it."""
    return Tally()


def prepare(_txn: Transaction) -> None:
    """Nothing points at a revision but its head, and a head's revision stays."""


def unreferred(_view: Callable[[], AbstractContextManager[View]]) -> Iterator[list[str]]:
    yield from ()

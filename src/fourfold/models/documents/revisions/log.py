"""The log of revisions: one row for each operation, keyed by branch, entity, seq and position in
its commit.

Taking rows out of a log of revisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from fourfold.kernel import Transaction, load_queries
from fourfold.kernel.bulk_insert import values_statement
from fourfold.models.documents import database
from fourfold.models.documents.gc.records import Tally
from fourfold.models.documents.history import (
    AppendedRows,
    GcStatements,
    History,
    HistoryReader,
    Row,
)
from fourfold.models.documents.revisions.verify import RULES, resolution, sound
from fourfold.models.documents.timestamps import next_moment

_REMOVAL_SQL = load_queries("fourfold.models.documents.revisions", "removal.sql")


def remove(txn: Transaction, branch: str, entity: str, rows: Sequence[Row]) -> Tally:
    """Delete revisions of an entity of a branch."""
    places = [(branch, entity, row[2], row[3]) for row in rows]
    txn.execute_many(_REMOVAL_SQL.delete_revision, places)
    tally = Tally()
    tally.note("revisions", len(rows), sum(len(row[5] or b"") for row in rows))
    return tally


def release(_txn: Transaction, _refs: Sequence[str | None]) -> Tally:
    """Do nothing: the snapshot of a revision contains its own value."""
    return Tally()


def unreferred(_view: Callable[[], AbstractContextManager[HistoryReader]]) -> Iterator[list[str]]:
    """Yield nothing: every row of this history is reachable."""
    yield from ()


_PACKAGE = "fourfold.models.documents.revisions"
_COLLECTION = "fourfold.models.documents.gc"
_SQL = load_queries(_PACKAGE).over(load_queries(_COLLECTION))
_COLUMNS = ("branch", "id", "seq", "op_index", "op", "data", "commit_seq")
_INSERT_REVISION = values_statement("revision", _COLUMNS, 1)


def append(txn: Transaction, appended: AppendedRows) -> None:
    """Insert the commit row, and a revision for each operation."""
    seq, branch, steps = appended.seq, appended.branch, appended.steps
    rows = [
        (branch, step.id, seq, index, step.op, step.text, seq) for index, step in enumerate(steps)
    ]
    row = (
        seq,
        branch,
        appended.session,
        appended.local_seq,
        None,
        None,
        appended.original,
        appended.created_at or next_moment(txn.value(_SQL.newest_moment)),
    )
    txn.execute(_SQL.insert_commit, (*row, resolution(row, rows, appended.resolved)))
    if len(rows) == 1:
        txn.execute(_INSERT_REVISION, rows[0])
        txn.execute(_SQL.upsert_head, (branch, steps[0].id, seq, 0))
        return
    txn.insert_many("revision", _COLUMNS, rows)
    last = {step.id: index for index, step in enumerate(steps)}
    heads = [(branch, entity, seq, index) for entity, index in last.items()]
    if heads:
        txn.execute_many(_SQL.upsert_head, heads)


def keep_snapshot(txn: Transaction, branch: str, entity: str, seq: int, text: str) -> None:
    """Store the full document of an entity after a seq."""
    txn.execute(_SQL.insert_snapshot, (branch, entity, seq, text))


REVISIONS = History(
    name="revisions",
    profile=database.profile("documents"),
    migrations=database.migrations(_PACKAGE),
    sql=_SQL,
    seq=database.counter(_SQL),
    append=append,
    keep_snapshot=keep_snapshot,
    rules=RULES,
    collecting=GcStatements(sound, remove, release, (), unreferred),
)

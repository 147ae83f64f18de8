"""The log of revisions: one row for each operation, keyed by branch, entity, seq and position in
its commit.
"""

from __future__ import annotations

from fourfold.kernel import Migration, Transaction, load_queries
from fourfold.kernel.bulk import values_statement
from fourfold.kernel.statements import read_sql
from fourfold.models.documents import files
from fourfold.models.documents.history import Appended, Collecting, History
from fourfold.models.documents.moments import next_moment
from fourfold.models.documents.revisions import removal
from fourfold.models.documents.revisions.digest import resolution, sound
from fourfold.models.documents.revisions.verification import RULES

_PACKAGE = "fourfold.models.documents.revisions"
_COLLECTION = "fourfold.models.documents.gc"
_SQL = load_queries(_PACKAGE).over(load_queries(_COLLECTION))
_COLUMNS = ("branch", "id", "seq", "op_index", "op", "data", "commit_seq")
_INSERT_REVISION = values_statement("revision", _COLUMNS, 1)


def append(txn: Transaction, appended: Appended) -> None:
    """The commit row, and a revision for each operation."""
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
    txn.execute(_SQL.insert_snapshot, (branch, entity, seq, text))


REVISIONS = History(
    name="revisions",
    profile=files.profile("documents"),
    migrations=(
        Migration(1, "revisions", read_sql(_PACKAGE, "0001_revisions.sql")),
        Migration(2, "collection", read_sql(_COLLECTION, "0002_collection.sql")),
    ),
    sql=_SQL,
    seq=files.counter(_SQL),
    append=append,
    keep_snapshot=keep_snapshot,
    rules=RULES,
    collecting=Collecting(
        sound, removal.remove, removal.release, removal.prepare, removal.unreferred
    ),
)

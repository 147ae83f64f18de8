"""The log of revisions: one row for each operation, keyed by branch, entity, seq and position in
its commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fourfold.kernel import Migration, Transaction, load_queries, profiles
from fourfold.kernel import Sequence as Counter
from fourfold.kernel.statements import read_sql
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import Appended, History, Row, View

_PACKAGE = "fourfold.models.documents.revisions"
_SQL = load_queries(_PACKAGE)
_ENCODER = msgspec.json.Encoder()
_COLUMNS = ("branch", "id", "seq", "op_index", "op", "data", "commit_seq")


def append(txn: Transaction, appended: Appended) -> None:
    """The commit row, and a revision for each operation."""
    seq, branch = appended.seq, appended.branch
    rows = [
        (branch, step.id, seq, index, step.op, step.text, seq)
        for index, step in enumerate(appended.steps)
    ]
    row = (
        seq,
        branch,
        appended.session,
        appended.local_seq,
        None,
        None,
        appended.original,
        appended.created_at or _now(),
    )
    txn.execute(_SQL.insert_commit, (*row, resolution(row, rows, appended.resolved)))
    txn.insert_many("revision", _COLUMNS, rows)
    last = {step.id: index for index, step in enumerate(appended.steps)}
    heads = [(branch, entity, seq, index) for entity, index in last.items()]
    if heads:
        txn.execute_many(_SQL.upsert_head, heads)


def keep_snapshot(txn: Transaction, branch: str, entity: str, seq: int, text: str) -> None:
    txn.execute(_SQL.insert_snapshot, (branch, entity, seq, text))


def resolution(row: Row, rows: Iterable[Row], resolved: Sequence[dict[str, int]]) -> str:
    """What was decided about a commit, with a digest of its row, of that and of its revisions, so
    that a changed byte in any of them is found.
    """
    decided: dict[str, Any] = {"seq": row[0]}
    if resolved:
        decided["resolved_pending_reads"] = list(resolved)
    hasher = hashlib.sha256(_ENCODER.encode((decided, row)))
    for each in rows:
        hasher.update(_ENCODER.encode(each))
    decided["digest"] = f"sha256:{hasher.hexdigest()}"
    return trusted(decided)


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def problems(view: View) -> Iterator[str]:
    """Where the log contradicts itself."""
    for *row, decided in view.rows(_SQL.verify_commits):
        seq = row[0]
        rows = view.all(_SQL.verify_revisions, (seq,))
        try:
            read = [tuple(map(_text, each)) for each in (row, *rows)]
            resolved = decode(decided).get("resolved_pending_reads", ())
            same = resolution(read[0], read[1:], resolved) == _text(decided)
        except (AttributeError, TypeError, ValueError):
            same = False
        if not same:
            yield f"commit {seq}: its row, or a revision of it, is not what was committed"
    for branch, entity, seq in view.rows(_SQL.verify_strays):
        yield f"revision of {shown(entity)} on {shown(branch)} at seq {seq} belongs to no commit"
    for branch, entity in view.rows(_SQL.verify_heads):
        yield f"head of {shown(entity)} on {shown(branch)} is not its newest revision"


def _text(value: Any) -> Any:
    """A column as it was written. Verification reads bytes, since damaged ones may be no text."""
    return value.decode() if isinstance(value, bytes) else value


def shown(name: bytes) -> str:
    """A name from the file as a message gives it, also when it is damaged."""
    return repr(name.decode(errors="backslashreplace"))


REVISIONS = History(
    name="revisions",
    profile=profiles.DOCUMENTS,
    migrations=(Migration(1, "revisions", read_sql(_PACKAGE, "0001_revisions.sql")),),
    sql=_SQL,
    # The log itself is the counter; the kernel's row is only a floor for restores.
    seq=Counter(
        "seq",
        read=_SQL.last_seq,
        claim=_SQL.claim_seq,
        advance=_SQL.lift_seq,
        seed=_SQL.seed_seq,
        used=_SQL.greatest_seq,
    ),
    append=append,
    keep_snapshot=keep_snapshot,
    problems=problems,
)

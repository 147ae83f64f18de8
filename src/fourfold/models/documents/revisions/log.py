"""The log of revisions: one row for each operation, keyed by branch, entity, seq and position in
its commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from fourfold.kernel import Migration, Sequence, Transaction, load_queries, profiles
from fourfold.kernel.statements import read_sql
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import Appended, History, View

_PACKAGE = "fourfold.models.documents.revisions"
_SQL = load_queries(_PACKAGE)
_COLUMNS = ("branch", "id", "seq", "op_index", "op", "data", "commit_seq")


def append(txn: Transaction, appended: Appended) -> None:
    """The commit row, and a revision for each operation."""
    seq, branch = appended.seq, appended.branch
    rows = [
        (branch, step.id, seq, index, step.op, step.text, seq)
        for index, step in enumerate(appended.steps)
    ]
    resolution: dict[str, Any] = {"seq": seq, "digest": digest(appended.original, rows)}
    if appended.resolved:
        resolution["resolved_pending_reads"] = list(appended.resolved)
    txn.execute(
        _SQL.insert_commit,
        (
            seq,
            branch,
            appended.session,
            appended.local_seq,
            appended.original,
            trusted(resolution),
        ),
    )
    txn.insert_many("revision", _COLUMNS, rows)
    last = {step.id: index for index, step in enumerate(appended.steps)}
    heads = [(branch, entity, seq, index) for entity, index in last.items()]
    if heads:
        txn.execute_many(_SQL.upsert_head, heads)


def keep_snapshot(txn: Transaction, branch: str, entity: str, seq: int, text: str) -> None:
    txn.execute(_SQL.insert_snapshot, (branch, entity, seq, text))


def digest(original: str, rows: Iterable[tuple[Any, ...]]) -> str:
    """A fingerprint of a commit and its rows, kept in its resolution, so that a changed byte is
    found.
    """
    hasher = hashlib.sha256(original.encode())
    for branch, entity, seq, op_index, op, data, *_ in rows:
        text = "" if data is None else data
        head = f"\x00{branch}\x00{entity}\x00{seq}\x00{op_index}\x00{op}\x00{len(text)}\x00"
        hasher.update(head.encode())
        hasher.update(text.encode())
    return f"sha256:{hasher.hexdigest()}"


def problems(view: View) -> Iterator[str]:
    """Where the log contradicts itself."""
    for seq, original, resolution in view.rows(_SQL.verify_commits):
        try:
            expected = decode(resolution)
        except ValueError:
            yield f"commit {seq}: its resolution is not readable"
            continue
        rows = view.all(_SQL.revisions_of_commit, (seq,))
        if not isinstance(expected, dict) or expected.get("seq") != seq:
            yield f"commit {seq}: its resolution names another seq"
        elif expected.get("digest") != digest(original, rows):
            yield f"commit {seq}: its rows are not those that were committed"
    for branch, entity, seq in view.rows(_SQL.verify_strays):
        yield f"revision of {entity!r} on {branch!r} at seq {seq} belongs to no commit"
    for branch, entity in view.rows(_SQL.verify_heads):
        yield f"head of {entity!r} on {branch!r} is not its newest revision"


REVISIONS = History(
    name="revisions",
    profile=profiles.DOCUMENTS,
    migrations=(Migration(1, "revisions", read_sql(_PACKAGE, "0001_revisions.sql")),),
    sql=_SQL,
    # The log itself is the counter; the kernel's row is only a floor for restores.
    seq=Sequence(
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

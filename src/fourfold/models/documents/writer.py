"""Writing: what an admitted transaction puts into the log, and what is derived beside it.

In one database transaction: a row of `commit`, a row of `revision` for each operation, the heads
that moved, the branch's own head, and here and there a snapshot. Every patch is applied before it
is stored, so what is in the log can always be read. Requests that share a database transaction see
each other's entities through its scratch space; the cache hears of them only when they are
committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import Sequence, Transaction, load_queries
from fourfold.models.documents import admission, patch, reader
from fourfold.models.documents.cache import DocumentCache, Entry, Key
from fourfold.models.documents.chain import chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.records import Commit, Revision
from fourfold.models.documents.request import Request, Step

_SQL = load_queries("fourfold.models.documents.revisions")
_SCRATCH = "documents"
_EMPTY_BYTES = 2
_REVISION = ("branch", "id", "seq", "op_index", "op", "data", "commit_seq")

SEQ = Sequence(
    "seq",
    read=_SQL.last_seq,
    claim=_SQL.claim_seq,
    advance=_SQL.lift_seq,
    seed=_SQL.seed_seq,
    used=_SQL.greatest_seq,
)
"""The order of commits, across all branches of a space. The log itself is the counter."""


def commit(txn: Transaction, request: Request, cache: DocumentCache) -> Commit:
    """Admit `request` and write it; the commit that it became."""
    if request.replayable:
        known = admission.replayed(txn, request)
        if known is not None:
            return known
    admission.active_branch(txn, request.branch)
    admission.check_preconditions(txn, request)
    resolved = admission.check_reads(txn, request)
    seq = txn.claim(SEQ)
    touched = _apply(txn, request, cache, seq)
    rows = [
        (request.branch, step.id, seq, index, step.op, step.text, seq)
        for index, step in enumerate(request.steps)
    ]
    resolution: dict[str, Any] = {"seq": seq, "digest": digest(request.original, rows)}
    if resolved:
        resolution["resolved_pending_reads"] = resolved
    txn.execute(
        _SQL.insert_commit,
        (
            seq,
            request.branch,
            request.session,
            request.local_seq,
            request.original,
            trusted(resolution),
        ),
    )
    txn.insert_many("revision", _REVISION, rows)
    last = {step.id: index for index, step in enumerate(request.steps)}
    txn.execute_many(
        _SQL.upsert_head, [(request.branch, entity, seq, index) for entity, index in last.items()]
    )
    txn.execute(_SQL.raise_branch_head, (request.branch, seq))
    published = _snapshots(txn, request.branch, seq, touched)
    txn.scratch.setdefault(_SCRATCH, {}).update(published)
    txn.after_commit(lambda: cache.publish(published))
    return Commit(
        seq, request.branch, request.session, request.local_seq, tuple(_revisions(request, seq))
    )


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


def _apply(txn: Transaction, request: Request, cache: DocumentCache, seq: int) -> dict[Key, Entry]:
    """The entities as they are after each operation in turn."""
    touched: dict[Key, Entry] = {}
    shared: dict[Key, Entry] = txn.scratch.get(_SCRATCH, {})
    for index, step in enumerate(request.steps):
        key = (request.branch, step.id)
        if step.op == "set":
            assert step.text is not None
            touched[key] = Entry(seq, "set", step.value, len(step.text), 0, 0)
        elif step.op == "delete":
            touched[key] = Entry(seq, "delete", None, _EMPTY_BYTES, 0, 0)
        else:
            before = touched.get(key) or shared.get(key) or cache.get(key)
            if before is None:
                before = reader.entry(txn, chain(txn, request.branch, seq), step.id)
            touched[key] = _patched(index, step, before, seq)
    return touched


def _patched(index: int, step: Step, before: Entry | None, seq: int) -> Entry:
    assert step.text is not None
    base = before.document if before is not None and before.document is not None else {}
    try:
        document = patch.apply(base, step.value)
    except FourfoldError as error:
        raise type(error)(
            f"operation {index} on {step.id!r}: {error.message}",
            hint=error.hint,
            details={"entity": step.id, "operation": index},
        ) from error
    if before is None or before.document is None:
        return Entry(seq, "patch", document, _EMPTY_BYTES, 1, len(step.text))
    return Entry(
        seq,
        "patch",
        document,
        before.base_bytes,
        before.patches + 1,
        before.patch_bytes + len(step.text),
    )


def _snapshots(
    txn: Transaction, branch: str, seq: int, touched: dict[Key, Entry]
) -> dict[Key, Entry]:
    """Store whole documents where the patches since the last one outweigh it.

    Then all snapshots together are about as large as the log, every past state is a short replay
    away, and a large document is not rewritten for every few small patches.
    """
    published = dict(touched)
    for key, entry in touched.items():
        due = entry.patches >= limits.SNAPSHOT_PATCHES_MIN and entry.patch_bytes >= entry.base_bytes
        if due and entry.op == "patch":
            text = trusted(entry.document)
            txn.execute(_SQL.insert_snapshot, (branch, key[1], seq, text))
            published[key] = entry._replace(base_bytes=len(text), patches=0, patch_bytes=0)
    return published


def _revisions(request: Request, seq: int) -> Iterable[Revision]:
    for index, step in enumerate(request.steps):
        data = None if step.text is None else decode(step.text)
        yield Revision(request.branch, step.id, seq, index, step.op, data)

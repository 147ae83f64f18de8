"""Writes: the rows of an admitted transaction, and what is derived from them.

In one database transaction: a row of `commit`, a row of `revision` for each operation, the heads
that moved, the branch's own head, and here and there a snapshot. Every patch is applied before it
is stored, so what is in the log can always be read. Requests that share a database transaction see
each other's entities through its scratch space; the cache receives them only when they are
committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import Transaction
from fourfold.models.documents import conflicts, patch, reader
from fourfold.models.documents.ancestry import chain
from fourfold.models.documents.cache import CacheEntry, DocumentCache, Key, LogEnd, Tip
from fourfold.models.documents.encoding import (
    PATCH_GROWTH,
    bytes_at_most,
    check_document_size,
    trusted,
)
from fourfold.models.documents.history import AppendedRows, History, HistoryReader
from fourfold.models.documents.indexes import declaration, maintenance
from fourfold.models.documents.records import Commit
from fourfold.models.documents.request import DocumentRequest, RequestStep, WriteCounts
from fourfold.models.documents.timestamps import next_moment

SNAPSHOT_PATCHES_MIN: Final = 10
"""Minimum patches between two snapshots of an entity."""

_SCRATCH = "documents"
_TIP = "documents.tip"
_EMPTY_BYTES = 2


def commit(
    txn: Transaction,
    history: History,
    request: DocumentRequest,
    cache: DocumentCache,
    lookback: conflicts.OldReads | None = None,
) -> Commit:
    """Admit `request` and write it; the commit that it became."""
    view = history.view(txn)
    if request.replayable:
        accepted = conflicts.replayed(view, request)
        if accepted is not None:
            return accepted
    shared: dict[Key, CacheEntry] = txn.scratch.setdefault(_SCRATCH, {})

    def known(key: Key) -> CacheEntry | None:
        return shared.get(key) or cache.get(key)

    tip = _tip(txn, cache)
    indexes = declaration.load(txn) if tip is None else tip.indexes
    standing = _standing(view, request.branch, tip)
    conflicts.check_preconditions(view, request, standing.newest)
    resolved = conflicts.check_reads(
        view, request, standing.newest, known, lookback or conflicts.OldReads()
    )
    # The log is the counter, and no other writer can append to it before this transaction ends.
    seq = standing.newest + 1
    touched = _apply(view, request, known, seq)
    if request.check is not None:
        for (_, entity), entry in touched.items():
            request.check(entity, entry.copied())
    changes = maintenance.changes_of(view, request.steps, touched, known, seq) if indexes else []
    moment = request.created_at or next_moment(standing.moment)
    history.append(
        txn,
        AppendedRows(
            seq,
            request.branch,
            request.session,
            request.local_seq,
            request.original,
            request.steps,
            resolved,
            moment,
        ),
    )
    txn.execute(history.sql.raise_branch_head, (request.branch, seq))
    if indexes:
        # What was accepted elsewhere before stays accepted, also by unique indexes.
        enforce = not request.created_at
        maintenance.write(txn, view, indexes, changes, enforce=enforce)
    published = _snapshots(txn, history, request.branch, seq, touched)
    cache.withdraw(published)
    shared.update(published)
    tip = Tip(txn.total_changes, request.branch, LogEnd(seq, moment), indexes)
    txn.scratch[_TIP] = tip
    txn.after_commit(lambda: cache.publish(published, tip))
    return Commit(
        seq, request.branch, request.session, request.local_seq, WriteCounts(request, seq)
    )


def _tip(txn: Transaction, cache: DocumentCache) -> Tip | None:
    """Return the state after the last commit, if no row of the file has changed since."""
    tip: Tip | None = txn.scratch.get(_TIP) or cache.tip
    return tip if tip is not None and tip.mark == txn.total_changes else None


def _standing(view: HistoryReader, branch: str, tip: Tip | None) -> LogEnd:
    """Return the end of the log, if the branch can be written."""
    if tip is not None and tip.branch == branch:
        return tip.standing
    return conflicts.standing(view, branch)


def _apply(
    view: HistoryReader,
    request: DocumentRequest,
    cached: Callable[[Key], CacheEntry | None],
    seq: int,
) -> dict[Key, CacheEntry]:
    """Return the entities after each operation in turn."""
    touched: dict[Key, CacheEntry] = {}
    for index, step in enumerate(request.steps):
        key = (request.branch, step.id)
        if step.op == "set":
            assert step.text is not None
            # The decoded value is the caller's, who finds it in the commit.
            touched[key] = CacheEntry(
                seq, "set", None, len(step.text), 0, 0, bytes_at_most(step.text), step.text
            )
        elif step.op == "delete":
            touched[key] = CacheEntry(seq, "delete", None, _EMPTY_BYTES, 0, 0, _EMPTY_BYTES)
        else:
            before = touched.get(key) or cached(key)
            if before is None:
                before = reader.entry(view, chain(view, request.branch, seq), step.id)
            # What was accepted elsewhere before stays accepted, whatever its size.
            bounded = not request.created_at
            touched[key] = _patched(index, step, before, seq, bounded=bounded)
    return touched


def _patched(
    index: int, step: RequestStep, before: CacheEntry | None, seq: int, *, bounded: bool
) -> CacheEntry:
    assert step.text is not None
    base = None if before is None else before.opened()
    bytes_max = _EMPTY_BYTES if before is None or base is None else before.bytes_max
    bytes_max += PATCH_GROWTH * bytes_at_most(step.text)
    try:
        document = patch.apply({} if base is None else base, step.value)
        if bounded and bytes_max > limits.DOCUMENT_BYTES_MAX:
            # The bound says too much for most; only then the document is encoded to measure it.
            bytes_max = check_document_size(document)
    except FourfoldError as error:
        raise type(error)(
            f"operation {index} on {step.id!r}: {error.message}",
            hint=error.hint,
            details={"entity": step.id, "operation": index},
        ) from error
    if before is None or base is None:
        return CacheEntry(seq, "patch", document, _EMPTY_BYTES, 1, len(step.text), bytes_max)
    return CacheEntry(
        seq,
        "patch",
        document,
        before.base_bytes,
        before.patches + 1,
        before.patch_bytes + len(step.text),
        bytes_max,
    )


def _snapshots(
    txn: Transaction, history: History, branch: str, seq: int, touched: dict[Key, CacheEntry]
) -> dict[Key, CacheEntry]:
    """Store whole documents where the patches since the last one outweigh it.

    Then all snapshots together are about as large as the log, every past state is a short replay
    away, and a large document is not rewritten for every few small patches.
    """
    published = dict(touched)
    for key, entry in touched.items():
        if entry.op == "patch" and snapshot_due(entry):
            text = trusted(entry.document)
            history.keep_snapshot(txn, branch, key[1], seq, text)
            published[key] = replace(
                entry, base_bytes=len(text), patches=0, patch_bytes=0, bytes_max=bytes_at_most(text)
            )
    return published


def snapshot_due(entry: CacheEntry) -> bool:
    """Return True if the patches since the last full document are many, and larger than it."""
    return entry.patches >= SNAPSHOT_PATCHES_MIN and entry.patch_bytes >= entry.base_bytes

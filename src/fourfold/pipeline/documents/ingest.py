"""Commit staged rows to spaces, each batch exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    NotFound,
    ReplayMismatch,
    WriterLocked,
)
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents import Space, writer
from fourfold.models.documents.cache import CacheEntry, DocumentCache, Key, Tip
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.request import make_request
from fourfold.pipeline.documents.staging import (
    Batch,
    Located,
    RefusedRow,
    StagedFile,
    StagedOperation,
    StagedReader,
    index_parts,
)
from fourfold.pipeline.jobs.job import Progress, ignore_progress
from fourfold.retry import Retries
from fourfold.store import Store, open_store

if TYPE_CHECKING:
    from fourfold.client import RemoteStore

SINK_COMMIT_OPERATIONS: Final = 10_000
"""Operations in one commit of the sink. A batch with more of them becomes several commits in the
same transaction.
"""
SINK_COMMIT_BYTES: Final = 8 * limits.MIB
SINK_SLICE_OPERATIONS: Final = 1_000
SINK_SLICE_BYTES: Final = limits.MIB
"""Operations and bytes of a commit that the sink sends to a server."""
SINK_REMEMBERED_OPERATIONS: Final = 50_000
"""Operations of a transaction whose documents the sink caches for later patches."""
SINK_SPACES_OPEN: Final = 32

_SQL = load_queries("fourfold.pipeline.documents", "sink.sql")
_SLOW_MS: Final = 3_600_000
_PARTS: Final = 1 << 20
"""Maximum commits of one batch in one space; local_seq is the batch number times this."""


class BatchReport(msgspec.Struct, frozen=True):
    """The outcome of a batch. A replayed space had it already."""

    rows: int = 0
    commits: int = 0
    spaces: int = 0
    replayed: int = 0
    refused: tuple[RefusedRow, ...] = ()
    refused_rows: int = 0


class _Undo(Exception):
    """Rolls back a trial transaction."""


def ingest(
    root: str | Path,
    staged: Sequence[StagedFile],
    batch: Batch,
    advance: Progress = ignore_progress,
) -> BatchReport:
    """Commit staged rows into the spaces of a store, skipping spaces that have the batch."""
    refused, refused_rows = _refused(staged, batch)
    parts = index_parts(staged)
    reader = StagedReader()
    _check_orders(staged, parts, reader)
    risky = [did for did, located in parts.items() if len(parts) > 1 and _is_risky(located)]
    for did, space in _spaces(Path(root), risky, batch, create=False):
        _write(space, reader.rows(parts[did]), batch, trial=True)
    rows = commits = replayed = 0
    for done, (did, space) in enumerate(_spaces(Path(root), list(parts), batch, create=True)):
        advance(did, done, len(parts))
        written = _write(space, reader.rows(parts[did]), batch)
        if written is None:
            replayed += 1
        else:
            commits += written
            rows += sum(part.rows for _, part in parts[did])
        # Once Spark counts the batch as done, it must survive a power failure.
        space.database.make_durable()
    return BatchReport(rows, commits, len(parts), replayed, refused, refused_rows)


def ingest_through_api(
    store: RemoteStore, staged: Sequence[StagedFile], batch: Batch
) -> BatchReport:
    """Commit staged rows into the spaces of a server, in slices that it commits once.

    `store` is that of `fourfold.connect`.
    """
    refused, refused_rows = _refused(staged, batch)
    parts = index_parts(staged)
    reader = StagedReader()
    _check_orders(staged, parts, reader)
    rows = commits = replayed = 0
    for did, located in parts.items():
        space = store.documents.open(did) if did in store.documents else None
        space = space or store.space(did, batch.history)
        slices = _chunks(reader.rows(located), SINK_SLICE_OPERATIONS, SINK_SLICE_BYTES)
        is_new = False
        for number, (branch, chunk) in enumerate(slices, start=batch.number * _PARTS):
            operations = [_operation(row) for row in chunk]
            try:
                commit = space.transact(
                    operations, session=batch.session, local_seq=number, branch=branch
                )
            except FourfoldError as error:
                raise _located(error, did, chunk) from error
            if not commit.replayed:
                is_new, rows, commits = True, rows + len(chunk), commits + 1
        replayed += not is_new
    return BatchReport(rows, commits, len(parts), replayed, refused, refused_rows)


def _refused(staged: Sequence[StagedFile], batch: Batch) -> tuple[tuple[RefusedRow, ...], int]:
    """Return the rows that tasks refused, and their number; raise unless they may be skipped."""
    refused = tuple(itertools.chain.from_iterable(file.refused for file in staged))
    count = sum(file.refused_rows for file in staged)
    if count and not batch.skip_bad:
        raise _refused_error(refused, count)
    return refused, count


def _check_orders(
    staged: Sequence[StagedFile], parts: Mapping[str, Sequence[Located]], reader: StagedReader
) -> None:
    if not all(file.ordered for file in staged if file.path):
        for did, located in parts.items():
            _check_order(did, reader.find_duplicate(located))


def _write(
    space: Space, rows: Iterator[StagedOperation], batch: Batch, *, trial: bool = False
) -> int | None:
    """Commit the rows of one space in one transaction; return the number of commits, or None if it
    has them already. A trial is rolled back.
    """
    cache = _TransactionCache()
    numbers = itertools.count(batch.number * _PARTS)
    count = 0
    try:
        with space.database.write(deadline_s=float("inf")) as txn:
            if _has_batch(txn, space.did, batch):
                return None
            for branch, chunk in _chunks(rows, SINK_COMMIT_OPERATIONS, SINK_COMMIT_BYTES):
                try:
                    request = make_request(
                        [_operation(row) for row in chunk],
                        branch=branch,
                        session=batch.session,
                        local_seq=next(numbers),
                        replayable=False,
                    )
                    writer.commit(txn, space.history_kind, request, cache)
                except FourfoldError as error:
                    raise _located(error, space.did, chunk) from error
                cache.count(len(chunk), txn)
                count += 1
            _end(space, txn, trial=trial)
    except _Undo:
        return None
    return count


def _end(space: Space, txn: Transaction, *, trial: bool) -> None:
    if trial:
        raise _Undo
    txn.after_commit(space.waiters.notify_all)


def _located(error: FourfoldError, did: str, chunk: Sequence[StagedOperation]) -> FourfoldError:
    """Return the error with the space and the row in its message."""
    index = error.details.get("operation")
    where = f"{chunk[index].where}: " if isinstance(index, int) else ""
    return error.with_message(f"space {did}: {where}{error.message}")


def _operation(row: StagedOperation) -> dict[str, Any]:
    operation: dict[str, Any] = {"op": row.op, "id": row.id}
    if row.text is not None:
        operation["value" if row.op == "set" else "patches"] = decode(row.text)
    return operation


def _has_batch(txn: Transaction, did: str, batch: Batch) -> bool:
    """Return True if the space has this batch; raise ReplayMismatch if it has a later one."""
    newest = txn.value(_SQL.newest_of_session, (batch.session,))
    if newest is None or newest < batch.number * _PARTS:
        return False
    if newest >= (batch.number + 1) * _PARTS:
        raise ReplayMismatch(
            f"space {did}: {batch.session!r} already wrote batch {newest // _PARTS}, "
            f"got batch {batch.number}",
            hint="If its checkpoint was deleted, this is a new query: name it with the option "
            "`query`; rows that it reads again are written again.",
        )
    return True


def _chunks(
    rows: Iterator[StagedOperation], operations_max: int, bytes_max: int
) -> Iterator[tuple[str, list[StagedOperation]]]:
    """Yield the rows of each branch in chunks of the size of a commit."""
    for branch, group in itertools.groupby(rows, key=lambda row: row.branch):
        chunk: list[StagedOperation] = []
        size = 0
        for row in group:
            chunk.append(row)
            size += len(row.text or "")
            if len(chunk) >= operations_max or size >= bytes_max:
                yield branch, chunk
                chunk, size = [], 0
        if chunk:
            yield branch, chunk


def _is_risky(located: Sequence[Located]) -> bool:
    """Return True if rows may prove invalid only against the space."""
    return any(part.patches or set(part.branches) != {""} for _, part in located)


class _TransactionCache(DocumentCache):
    """Caches the documents of a transaction for the patches that follow.

    The writer keeps the documents of every commit until the end of its transaction. With millions
    of operations that would be too much, so they are evicted from time to time; a later patch then
    reads its document from the file.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._pending: list[dict[Key, CacheEntry]] = []
        self._operations = 0

    def withdraw(self, keys: Any) -> None:
        """Collect the entries of a commit, to evict them later."""
        if isinstance(keys, dict):
            self._pending.append(keys)

    def publish(self, entries: dict[Key, CacheEntry], tip: Tip) -> None:
        """Do nothing: no reader uses this cache after the transaction."""

    def count(self, operations: int, txn: Transaction) -> None:
        """Count operations, and evict all documents when there are too many."""
        self._operations += operations
        if self._operations >= SINK_REMEMBERED_OPERATIONS:
            self._operations = 0
            txn.scratch.clear()
            for entries in self._pending:
                entries.clear()
            self._pending.clear()


def _spaces(
    root: Path, dids: Sequence[str], batch: Batch, *, create: bool
) -> Iterator[tuple[str, Space]]:
    """Yield the spaces, open for writing, a few at a time. Without `create`, a missing space is
    created in memory for a trial.
    """
    for start in range(0, len(dids), SINK_SPACES_OPEN):
        # A batch is one long transaction, which the slow log should not report.
        with open_store(root, settings={"kernel.slow_transaction_ms": _SLOW_MS}) as store:
            existing = set(store.spaces())
            for did in dids[start : start + SINK_SPACES_OPEN]:
                if did in existing or create:
                    history = None if did in existing else batch.history
                    yield did, _opened(store, did, history, batch.wait_s)
                else:
                    with open_store(":memory:") as temporary:
                        yield did, temporary.space(did, history=batch.history)


def _opened(store: Store, did: str, history: str | None, wait_s: float) -> Space:
    """Open a space, waiting for another writer to release it."""
    retries = Retries.every(limits.JOB_RECORDS_POLL_S, on=WriterLocked, within_s=wait_s)
    try:
        return retries.run(lambda: store.space(did, history=history))
    except WriterLocked as error:
        raise WriterLocked(
            error.message,
            hint="The sink needs the space's single writer. Close the store in the "
            "process that holds it, or open it there with mode='r', while Spark writes.",
        ) from error


def _refused_error(refused: Sequence[RefusedRow], count: int) -> InvalidInput:
    first = refused[0]
    more = f"; and {count - 1} more rows" if count > 1 else ""
    return InvalidInput(
        f"{first}{more}",
        hint="Nothing was written. Fix the rows, or skip them with the option skip_bad.",
        details={"refused": [msgspec.to_builtins(row) for row in refused], "rows": count},
    )


def _check_order(did: str, duplicate: tuple[str, str] | None) -> None:
    if duplicate is not None:
        branch, entity = duplicate
        where = f" on branch {branch!r}" if branch else ""
        raise InvalidInput(
            f"space {did}: duplicate row for {entity!r}{where} without an order",
            hint="Add an order column (seq, or one named by the option `order`).",
        )


def check_root(root: str | Path | None) -> Path:
    """Return the folder of an existing store; a misspelt path must not create one."""
    if not root:
        raise InvalidInput("option 'root', the folder of the store, is required")
    folder = Path(root).absolute()
    with open_store(folder, mode="r") as store:
        if not store.root.is_dir():
            raise NotFound(f"{folder}: store does not exist")
    return folder

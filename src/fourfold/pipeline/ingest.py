"""Staged rows become commits: one transaction for each space, exactly once.

The ledger is the log itself. A batch has a name, (session, number), and each commit that it becomes
carries that name as its session and local_seq. They are written in the very transaction that brings
the rows, so a space either has all rows of a batch and its name, or neither. A batch that comes
again, because Spark did not hear that it was through, finds its name and changes nothing; where a
crash came between two spaces, the one is skipped and the other completed.

Rows of one branch become one commit, or several where there are very many: a commit has bounded
size, and all commits of the batch share the space's one transaction, so it is still all or nothing.

What a row alone can be judged by was judged when it was staged. What depends on the space (does the
branch exist, does the patch apply) is tried out first, in a transaction that is undone, if more
than one space is written: so a row that cannot go in stops the batch before anything is written.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, ReplayMismatch, WriterLocked
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents import Space, writer
from fourfold.models.documents.cache import DocumentCache, Entry, Key, Tip
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.request import make_request
from fourfold.pipeline.jobs.progress import Advance, silent
from fourfold.pipeline.staged_reading import Located, Reading, Row, index_of
from fourfold.pipeline.staging import Batch, Refused, Staged
from fourfold.store import Store, open_store

_SQL = load_queries("fourfold.pipeline", "sink.sql")
_PATIENT_MS: Final = 3_600_000
_PARTS: Final = 1 << 20
"""Commits that one batch can become in one space; local_seq is the batch's number times this."""


class Ingested(msgspec.Struct, frozen=True):
    """What came of a batch. A replayed space had it already."""

    rows: int = 0
    commits: int = 0
    spaces: int = 0
    replayed: int = 0
    refused: tuple[Refused, ...] = ()
    refused_rows: int = 0


class _Undo(Exception):
    """Ends a transaction that was only a trial."""


def ingest(
    root: str | Path, staged: Sequence[Staged], batch: Batch, advance: Advance = silent
) -> Ingested:
    """Commit staged rows into the spaces of the store in `root`; nothing that is there already."""
    refused = tuple(itertools.chain.from_iterable(each.refused for each in staged))
    refused_rows = sum(each.refused_rows for each in staged)
    if refused_rows and not batch.skip_bad:
        raise _refusal(refused, refused_rows)
    parts = index_of(staged)
    reading = Reading()
    if not all(each.ordered for each in staged if each.path):
        for did, located in parts.items():
            _refuse_without_order(did, reading.twice(located))
    risky = [did for did, located in parts.items() if len(parts) > 1 and _is_risky(located)]
    for did, space in _spaces(Path(root), risky, batch, create=False):
        _write(space, reading.rows(parts[did]), batch, trial=True)
    rows = commits = replayed = 0
    for done, (did, space) in enumerate(_spaces(Path(root), list(parts), batch, create=True)):
        advance(did, done, len(parts))
        written = _write(space, reading.rows(parts[did]), batch)
        if written is None:
            replayed += 1
        else:
            commits += written
            rows += sum(part.rows for _, part in parts[did])
        # Whoever counts this batch as done must find it after a power cut too.
        space.database.make_durable()
    return Ingested(rows, commits, len(parts), replayed, refused, refused_rows)


def _write(space: Space, rows: Iterator[Row], batch: Batch, *, trial: bool = False) -> int | None:
    """Commit the rows of one space in one transaction: how many commits they became, or None if
    they are there already. A trial is undone.
    """
    memory = _Memory()
    numbers = itertools.count(batch.number * _PARTS)
    count = 0
    try:
        with space.database.write(deadline_s=float("inf")) as txn:
            if _is_there(txn, space.did, batch):
                return None
            for branch, chunk in _chunks(rows):
                try:
                    request = make_request(
                        [_operation(row) for row in chunk],
                        branch=branch,
                        session=batch.session,
                        local_seq=next(numbers),
                        replayable=False,
                    )
                    writer.commit(txn, space.history_kind, request, memory)
                except FourfoldError as error:
                    raise _located(error, space.did, chunk) from error
                memory.count(len(chunk), txn)
                count += 1
            _end(space, txn, trial=trial)
    except _Undo:
        return None
    return count


def _end(space: Space, txn: Transaction, *, trial: bool) -> None:
    if trial:
        raise _Undo
    txn.after_commit(space.waiters.notify_all)


def _located(error: FourfoldError, did: str, chunk: Sequence[Row]) -> FourfoldError:
    """The same error, saying which row of which space it is about."""
    index = error.details.get("operation")
    where = f"{chunk[index].where}: " if isinstance(index, int) else ""
    return error.with_message(f"space {did}: {where}{error.message}")


def _operation(row: Row) -> dict[str, Any]:
    operation: dict[str, Any] = {"op": row.op, "id": row.id}
    if row.text is not None:
        operation["value" if row.op == "set" else "patches"] = decode(row.text)
    return operation


def _is_there(txn: Transaction, did: str, batch: Batch) -> bool:
    """Whether the space has this batch. Refuses one that comes after a later one: then it is not
    the batch that this number once named.
    """
    newest = txn.value(_SQL.newest_of_session, (batch.session,))
    if newest is None or newest < batch.number * _PARTS:
        return False
    if newest >= (batch.number + 1) * _PARTS:
        raise ReplayMismatch(
            f"space {did}: {batch.session!r} has already written batch {newest // _PARTS} here, "
            f"and now comes with batch {batch.number}",
            hint="If its checkpoint was deleted, this is a new query: give it a new name with the "
            "option `query`, and expect what it reads again to be written again.",
        )
    return True


def _chunks(rows: Iterator[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each branch, in pieces of the size of a commit."""
    for branch, group in itertools.groupby(rows, key=lambda row: row.branch):
        chunk: list[Row] = []
        size = 0
        for row in group:
            chunk.append(row)
            size += len(row.text or "")
            if len(chunk) >= limits.SINK_COMMIT_OPERATIONS or size >= limits.SINK_COMMIT_BYTES:
                yield branch, chunk
                chunk, size = [], 0
        if chunk:
            yield branch, chunk


def _is_risky(located: Sequence[Located]) -> bool:
    """Whether rows may turn out bad only when they meet the space."""
    return any(part.patches or set(part.branches) != {""} for _, part in located)


class _Memory(DocumentCache):
    """What a transaction remembers of its own documents, for the patches that follow them.

    The writer leaves the documents of every commit with its transaction until the end. In one of
    millions of operations that would be too much, so it is told to forget them from time to time;
    a later patch then reads its document from the file.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._left: list[dict[Key, Entry]] = []
        self._operations = 0

    def withdraw(self, keys: Any) -> None:
        if isinstance(keys, dict):
            self._left.append(keys)

    def publish(self, entries: dict[Key, Entry], tip: Tip) -> None:
        """Nobody reads here after the transaction."""

    def count(self, operations: int, txn: Transaction) -> None:
        self._operations += operations
        if self._operations >= limits.SINK_REMEMBERED_OPERATIONS:
            self._operations = 0
            txn.scratch.clear()
            for each in self._left:
                each.clear()
            self._left.clear()


# The spaces


def _spaces(
    root: Path, dids: Sequence[str], batch: Batch, *, create: bool
) -> Iterator[tuple[str, Space]]:
    """The spaces, open for writing, a few at a time. Without `create`, one that does not exist yet
    is made elsewhere, for a trial.
    """
    for start in range(0, len(dids), limits.SINK_SPACES_OPEN):
        # A batch is one transaction and takes what it takes; that is nothing for the slow log.
        with open_store(root, settings={"kernel.slow_transaction_ms": _PATIENT_MS}) as store:
            known = set(store.spaces())
            for did in dids[start : start + limits.SINK_SPACES_OPEN]:
                if did in known or create:
                    history = None if did in known else batch.history
                    yield did, _opened(store, did, history, batch.wait_s)
                else:
                    with open_store(":memory:") as elsewhere:
                        yield did, elsewhere.space(did, history=batch.history)


def _opened(store: Store, did: str, history: str | None, wait_s: float) -> Space:
    """The space; waits a little for another writer to let go of it."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return store.space(did, history=history)
        except WriterLocked as error:
            if time.monotonic() >= until:
                raise WriterLocked(
                    error.message,
                    hint="The sink writes through the space's one writer. Close the store in the "
                    "process that the message names, or open it there with mode='r', while Spark "
                    "writes into it.",
                ) from error
            time.sleep(limits.JOB_RECORDS_POLL_S)


def _refusal(refused: Sequence[Refused], count: int) -> InvalidInput:
    first = refused[0]
    more = f"; {count - 1} more rows are bad" if count > 1 else ""
    return InvalidInput(
        f"{first}{more}",
        hint="Nothing was written. Mend the rows, or leave bad ones out with `skip_bad`.",
        details={"refused": [msgspec.to_builtins(each) for each in refused], "rows": count},
    )


def _refuse_without_order(did: str, twice: tuple[str, str] | None) -> None:
    if twice is not None:
        branch, entity = twice
        where = f" on the branch {branch!r}" if branch else ""
        raise InvalidInput(
            f"space {did}: {entity!r}{where} comes more than once, and nothing says in which order",
            hint="Add a column that says the order (seq, or one that the option `order` names).",
        )


def check_root(root: str | Path | None) -> Path:
    """The folder of a store that exists, or a refusal: a misspelt one must not become a store."""
    if not root:
        raise InvalidInput("the option `root`, the folder of the store, is missing")
    folder = Path(root).absolute()
    with open_store(folder, mode="r") as store:
        if not store.root.is_dir():
            raise NotFound(f"{folder}: there is no such store")
    return folder

"""The sink: rows of a DataFrame, or of a stream, become commits in spaces.

    rows.write.format("fourfold").mode("append").options(root=ROOT, job="import-7").save()
    rows.writeStream.format("fourfold").options(root=ROOT, checkpointLocation=...).start()

A row is an operation: `id`, `op` (set if there is no such column), `data` (JSON text), and where
needed `space`, `branch` and the columns that say the order. Tasks check and stage; one process, on
the machine of Spark's driver, commits through the spaces' own writers. Each space gets the rows of
a batch in one transaction, once, however often Spark sends them; see `ingest`.

Staged rows become commits: one transaction for each space, exactly once.

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

import difflib
import hashlib
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from fourfold import errors, limits
from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    MissingDependency,
    NotFound,
    ReplayMismatch,
    WriterLocked,
)
from fourfold.kernel import Transaction, load_queries
from fourfold.models.documents import Space, writer
from fourfold.models.documents.cache import DocumentCache, Entry, Key, Tip
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.request import make_request
from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.staging import (
    Batch,
    Located,
    RefusedRow,
    Row,
    Shape,
    StagedFile,
    StagedReader,
    index_of,
)
from fourfold.pipeline.jobs.job import Advance, silent
from fourfold.pipeline.scratch import staging_folder
from fourfold.pipeline.spark import wrap_error
from fourfold.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


try:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )
except ImportError as error:
    raise MissingDependency(
        "pyspark is not installed", hint="Install it: `pip install 'fourfold[spark]'`."
    ) from error


BATCH_OPTIONS: Final = ("root", "space", "history", "order", "staging", "skip_bad", "wait_s", "job")
STREAM_OPTIONS: Final = (*BATCH_OPTIONS[:-1], "query")
_OF_SPARK: Final = ("path", "checkpointlocation", "queryname", "model", "table")
"""What Spark itself may add, and what says only that this is the sink of documents."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for."""

    root: Path
    shape: Shape
    folder: Path
    """Where its tasks stage."""
    batch: Batch


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the committing process."""

    staged: StagedFile


class BatchWriter(DataSourceArrowWriter):
    """Of `df.write`. With a `job`, writing the same again does nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        return _stage(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(messages, self._options, self._options.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _discard(messages)
        # A task that failed has sent no message; what it left is in the folder of this write.
        staging.sweep(self._options.folder.parent, self._options.folder, until=float("inf"))


class StreamWriter(DataSourceStreamArrowWriter):
    """Of `df.writeStream`. A batch that comes again does nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        return _stage(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        batch = self._options.batch
        named = Batch(batch.session, batchId, batch.history, batch.skip_bad, batch.wait_s)
        _commit(messages, self._options, named)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        del batchId
        _discard(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `DataSource.writer`."""
    try:
        given = _known(options, BATCH_OPTIONS)
        refuse_overwriting(overwrite)
        job = given.get("job", "")
        name = f"job:{job}" if job else f"write:{uuid.uuid4().hex}"
        return BatchWriter(_write_options(given, schema, name))
    except FourfoldError as error:
        raise wrap_error(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `DataSource.streamWriter`."""
    try:
        given = _known(options, STREAM_OPTIONS)
        refuse_overwriting(overwrite)
        query = given.get("query") or query_of(given.get("checkpointlocation", ""))
        return StreamWriter(_write_options(given, schema, f"query:{query}"))
    except FourfoldError as error:
        raise wrap_error(error) from error


def _stage(iterator: Iterator[Any], options: WriteOptions) -> Message:
    from pyspark import TaskContext  # noqa: PLC0415 - only in a task

    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    return Message(staging.stage(iterator, options.shape, options.folder, partition))


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.staged for message in messages if isinstance(message, Message)]


def _commit(
    messages: list[WriterCommitMessage | None], options: WriteOptions, batch: Batch
) -> None:

    staged = _staged(messages)
    try:
        ingest(options.root, staged, batch)
        until = staging.newest(staged)
    except FourfoldError as error:
        raise wrap_error(error) from error
    staging.sweep(options.folder.parent, options.folder, until=until)


def _discard(messages: list[WriterCommitMessage | None]) -> None:
    staging.remove(_staged(messages))


# Options


def known(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The options of a sink, by names in lower case; one that it does not have is refused."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in names and name not in _OF_SPARK:
            near = difflib.get_close_matches(name, names, n=1)
            raise InvalidInput(
                f"{name!r} is not an option of the sink fourfold",
                hint=f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(names)}.",
            )
    return given


def _known(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    given = known(options, names)
    if given.get("model", "documents") != "documents":
        raise NotFound(
            f"there is no sink for {given['model']!r}", hint="Write documents, or streams."
        )
    return given


def _write_options(given: Mapping[str, str], schema: StructType, session: str) -> WriteOptions:
    from fourfold.models.documents import HISTORIES  # noqa: PLC0415 - workers do without the kernel

    root = check_root(given.get("root"))
    order = given.get("order")
    shape = staging.shape_of(
        [(field.name, field.dataType.simpleString()) for field in schema.fields],
        space=given.get("space"),
        order=None if order is None else [name.strip() for name in order.split(",")],
    )
    history = given.get("history")
    if history is not None and history not in HISTORIES:
        raise InvalidInput(
            f"{history!r} is not a way to keep history", hint=f"One of: {', '.join(HISTORIES)}."
        )
    batch = Batch(
        session,
        history=history,
        skip_bad=_flag(given.get("skip_bad", "false")),
        wait_s=seconds(given.get("wait_s", str(limits.SINK_LOCK_WAIT_S))),
    )
    place = Path(given["staging"]) if "staging" in given else staging_folder(root)
    return WriteOptions(root, shape, place.absolute() / folder_name(session), batch)


def folder_name(session: str) -> str:
    """The folder of one write or query among the staged files."""
    kind = session.partition(":")[0]
    return f"{kind}-{hashlib.sha256(session.encode()).hexdigest()[:24]}"


def refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise errors.Refused(
            "the sink appends to history; it never replaces any",
            hint='Write with mode("append"). To replace a document, write it with op "set".',
        )


def _flag(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"the option skip_bad is true or false, not {text!r}")
    return text.strip().lower() == "true"


def seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidInput(f"the option wait_s is a number of seconds, not {text!r}")
    return seconds


def query_of(checkpoint: str) -> str:
    """The id that Spark gave a query, from its checkpoint: batch numbers are unique only with it,
    since a query whose checkpoint was deleted begins again at 0.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in {"", "file"}:
        raise InvalidInput(
            f"the query cannot be told from its checkpoint ({checkpoint or 'none is given'})",
            hint="Give option('checkpointLocation', ...) on a local folder, or name the query: "
            "option('query', ...), another one for each new checkpoint.",
        )
    path = Path(unquote(parts.path) if parts.scheme else checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path}: does not say the id of the query: {error}",
            hint="Name the query: option('query', ...), another one for each new checkpoint.",
        ) from error


_SQL = load_queries("fourfold.pipeline", "sink.sql")
_PATIENT_MS: Final = 3_600_000
_PARTS: Final = 1 << 20
"""Commits that one batch can become in one space; local_seq is the batch's number times this."""


class IngestReport(msgspec.Struct, frozen=True):
    """What came of a batch. A replayed space had it already."""

    rows: int = 0
    commits: int = 0
    spaces: int = 0
    replayed: int = 0
    refused: tuple[RefusedRow, ...] = ()
    refused_rows: int = 0


class _Undo(Exception):
    """Ends a transaction that was only a trial."""


def ingest(
    root: str | Path, staged: Sequence[StagedFile], batch: Batch, advance: Advance = silent
) -> IngestReport:
    """Commit staged rows into the spaces of the store in `root`; nothing that is there already."""
    refused = tuple(itertools.chain.from_iterable(each.refused for each in staged))
    refused_rows = sum(each.refused_rows for each in staged)
    if refused_rows and not batch.skip_bad:
        raise _refusal(refused, refused_rows)
    parts = index_of(staged)
    reading = StagedReader()
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
    return IngestReport(rows, commits, len(parts), replayed, refused, refused_rows)


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


def _refusal(refused: Sequence[RefusedRow], count: int) -> InvalidInput:
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

"""The sink of documents: rows of a DataFrame or a stream become commits in spaces.

    rows.write.format("fourfold").mode("append").options(root=ROOT, job="import-7").save()
    rows.writeStream.format("fourfold").options(root=ROOT, checkpointLocation=...).start()

A row is an operation: `id`, `op` (default set), `data` (JSON text), and if needed `space`, `branch`
and the order columns. Tasks check and stage rows; one process, on the machine of Spark's driver,
commits them through the writers of the spaces. Each space gets the rows of a batch in one
transaction, exactly once, however often Spark sends them.

The log itself is the ledger. A batch has a name, (session, number), and each of its commits carries
that name as its session and local_seq. They are written in the transaction that writes the rows, so
a space has either all rows of a batch and its name, or neither. A batch that Spark sends again
finds its name and changes nothing; after a crash between two spaces, the first is skipped and the
second completed.

Rows of one branch become one commit, or several if there are very many: a commit has bounded size,
and all commits of the batch share one transaction of the space, so it is still all or nothing.

Staging checks all that a row alone determines. What depends on the space (does the branch exist,
does the patch apply) is tested first, in a transaction that is rolled back, if more than one space
is written: so an invalid row stops the batch before anything is written.
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
    index_parts,
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
"""Options that Spark itself adds, or that select this sink."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a write."""

    root: Path
    shape: Shape
    folder: Path
    """Folder where its tasks stage rows."""
    batch: Batch


@dataclass
class Message(WriterCommitMessage):
    """The message of a task to the committing process."""

    staged: StagedFile


class BatchWriter(DataSourceArrowWriter):
    """Writer of `df.write`. With a `job`, repeating the write does nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Stage the rows of a task."""
        return _stage(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the staged rows."""
        _commit(messages, self._options, self._options.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows."""
        _discard(messages)
        # A failed task has sent no message; its files are in the folder of this write.
        staging.sweep(self._options.folder.parent, self._options.folder, until=float("inf"))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`. Repeating a batch does nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Stage the rows of a task."""
        return _stage(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the staged rows of a batch."""
        batch = self._options.batch
        named = Batch(batch.session, batchId, batch.history, batch.skip_bad, batch.wait_s)
        _commit(messages, self._options, named)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged rows of a batch."""
        del batchId
        _discard(messages)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer for `DataSource.writer`."""
    try:
        texts = _parse_options(options, BATCH_OPTIONS)
        check_append_mode(overwrite)
        job = texts.get("job", "")
        name = f"job:{job}" if job else f"write:{uuid.uuid4().hex}"
        return BatchWriter(_write_options(texts, schema, name))
    except FourfoldError as error:
        raise wrap_error(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer for `DataSource.streamWriter`."""
    try:
        texts = _parse_options(options, STREAM_OPTIONS)
        check_append_mode(overwrite)
        query = texts.get("query") or query_id(texts.get("checkpointlocation", ""))
        return StreamWriter(_write_options(texts, schema, f"query:{query}"))
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
        until = staging.newest_mtime(staged)
    except FourfoldError as error:
        raise wrap_error(error) from error
    staging.sweep(options.folder.parent, options.folder, until=until)


def _discard(messages: list[WriterCommitMessage | None]) -> None:
    staging.remove(_staged(messages))


# Options


def parse_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options of a sink by lower-case name; raise InvalidInput for unknown ones."""
    texts = {name.lower(): value for name, value in options.items()}
    for name in texts:
        if name not in names and name not in _OF_SPARK:
            near = difflib.get_close_matches(name, names, n=1)
            raise InvalidInput(
                f"unknown option {name!r} of the sink fourfold",
                hint=f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(names)}.",
            )
    return texts


def _parse_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    texts = parse_options(options, names)
    if texts.get("model", "documents") != "documents":
        raise NotFound(f"model {texts['model']!r} has no sink", hint="Write documents or streams.")
    return texts


def _write_options(texts: Mapping[str, str], schema: StructType, session: str) -> WriteOptions:
    from fourfold.models.documents import HISTORIES  # noqa: PLC0415 - workers do not need the kernel

    root = check_root(texts.get("root"))
    order = texts.get("order")
    shape = staging.shape_of(
        [(field.name, field.dataType.simpleString()) for field in schema.fields],
        space=texts.get("space"),
        order=None if order is None else [name.strip() for name in order.split(",")],
    )
    history = texts.get("history")
    if history is not None and history not in HISTORIES:
        raise InvalidInput(
            f"unknown history {history!r}", hint=f"Use one of: {', '.join(HISTORIES)}."
        )
    batch = Batch(
        session,
        history=history,
        skip_bad=_flag(texts.get("skip_bad", "false")),
        wait_s=seconds(texts.get("wait_s", str(limits.SINK_LOCK_WAIT_S))),
    )
    folder = Path(texts["staging"]) if "staging" in texts else staging_folder(root)
    return WriteOptions(root, shape, folder.absolute() / folder_name(session), batch)


def folder_name(session: str) -> str:
    """Return the name of the staging folder of a write or query."""
    kind = session.partition(":")[0]
    return f"{kind}-{hashlib.sha256(session.encode()).hexdigest()[:24]}"


def check_append_mode(overwrite: bool) -> None:
    """Raise Refused if Spark asks to overwrite."""
    if overwrite:
        raise errors.Refused(
            "the sink cannot overwrite history",
            hint='Write with mode("append"). To replace a document, write it with op "set".',
        )


def _flag(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"option 'skip_bad' must be true or false, got {text!r}")
    return text.strip().lower() == "true"


def seconds(text: str) -> float:
    """Parse the option `wait_s`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidInput(f"option 'wait_s' must be a number of seconds, got {text!r}")
    return seconds


def query_id(checkpoint: str) -> str:
    """Return the id of a query from its checkpoint.

    Batch numbers are unique only with it: a query whose checkpoint was deleted begins again at 0.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in {"", "file"}:
        raise InvalidInput(
            f"checkpointLocation must be a local folder, got {checkpoint or 'none'}",
            hint="Set option('checkpointLocation', ...) to a local folder, or name the query: "
            "option('query', ...), another one for each new checkpoint.",
        )
    path = Path(unquote(parts.path) if parts.scheme else checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path}: cannot read the id of the query: {error}",
            hint="Name the query: option('query', ...), another one for each new checkpoint.",
        ) from error


_SQL = load_queries("fourfold.pipeline", "sink.sql")
_SLOW_MS: Final = 3_600_000
_PARTS: Final = 1 << 20
"""Maximum commits of one batch in one space; local_seq is the batch number times this."""


class IngestReport(msgspec.Struct, frozen=True):
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
    root: str | Path, staged: Sequence[StagedFile], batch: Batch, advance: Advance = silent
) -> IngestReport:
    """Commit staged rows into the spaces of a store, skipping spaces that have the batch."""
    refused = tuple(itertools.chain.from_iterable(file.refused for file in staged))
    refused_rows = sum(file.refused_rows for file in staged)
    if refused_rows and not batch.skip_bad:
        raise _refused_error(refused, refused_rows)
    parts = index_parts(staged)
    reader = StagedReader()
    if not all(file.ordered for file in staged if file.path):
        for did, located in parts.items():
            _check_order(did, reader.find_duplicate(located))
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
    return IngestReport(rows, commits, len(parts), replayed, refused, refused_rows)


def _write(space: Space, rows: Iterator[Row], batch: Batch, *, trial: bool = False) -> int | None:
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
            for branch, chunk in _chunks(rows):
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


def _located(error: FourfoldError, did: str, chunk: Sequence[Row]) -> FourfoldError:
    """Return the error with the space and the row in its message."""
    index = error.details.get("operation")
    where = f"{chunk[index].where}: " if isinstance(index, int) else ""
    return error.with_message(f"space {did}: {where}{error.message}")


def _operation(row: Row) -> dict[str, Any]:
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


def _chunks(rows: Iterator[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each branch in chunks of the size of a commit."""
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
        self._pending: list[dict[Key, Entry]] = []
        self._operations = 0

    def withdraw(self, keys: Any) -> None:
        """Collect the entries of a commit, to evict them later."""
        if isinstance(keys, dict):
            self._pending.append(keys)

    def publish(self, entries: dict[Key, Entry], tip: Tip) -> None:
        """Do nothing: no reader uses this cache after the transaction."""

    def count(self, operations: int, txn: Transaction) -> None:
        """Count operations, and evict all documents when there are too many."""
        self._operations += operations
        if self._operations >= limits.SINK_REMEMBERED_OPERATIONS:
            self._operations = 0
            txn.scratch.clear()
            for entries in self._pending:
                entries.clear()
            self._pending.clear()


# The spaces


def _spaces(
    root: Path, dids: Sequence[str], batch: Batch, *, create: bool
) -> Iterator[tuple[str, Space]]:
    """Yield the spaces, open for writing, a few at a time. Without `create`, a missing space is
    created in memory for a trial.
    """
    for start in range(0, len(dids), limits.SINK_SPACES_OPEN):
        # A batch is one long transaction, which the slow log should not report.
        with open_store(root, settings={"kernel.slow_transaction_ms": _SLOW_MS}) as store:
            parse_options = set(store.spaces())
            for did in dids[start : start + limits.SINK_SPACES_OPEN]:
                if did in parse_options or create:
                    history = None if did in parse_options else batch.history
                    yield did, _opened(store, did, history, batch.wait_s)
                else:
                    with open_store(":memory:") as temporary:
                        yield did, temporary.space(did, history=batch.history)


def _opened(store: Store, did: str, history: str | None, wait_s: float) -> Space:
    """Open a space, waiting for another writer to release it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return store.space(did, history=history)
        except WriterLocked as error:
            if time.monotonic() >= deadline:
                raise WriterLocked(
                    error.message,
                    hint="The sink needs the space's single writer. Close the store in the "
                    "process that holds it, or open it there with mode='r', while Spark writes.",
                ) from error
            time.sleep(limits.JOB_RECORDS_POLL_S)


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

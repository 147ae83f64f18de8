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

With the option `url` instead of `root` the commits reach a running server through its API, in
slices. A slice has the name of the batch and its number, so it is committed once; but the rows of a
space are then several transactions, and what depends on the space is found when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold import limits
from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    MissingDependency,
)
from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.staging import (
    Batch,
    ColumnRoles,
    StagedFile,
)
from fourfold.pipeline.sink import (
    Destination,
    Sink,
    check_append_mode,
    folder_name,
    parse_destination,
    parse_options,
    query_id,
    seconds,
    write_name,
)
from fourfold.pipeline.spark import wrap_error

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


BATCH_OPTIONS: Final = (
    *("root", "url", "key", "space", "history", "order", "staging", "skip_bad", "wait_s"),
    "job",
)
STREAM_OPTIONS: Final = (*BATCH_OPTIONS[:-1], "query")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a write."""

    destination: Destination
    shape: ColumnRoles
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
        texts = parse_options(options, BATCH_OPTIONS)
        check_append_mode(overwrite)
        return BatchWriter(_write_options(texts, schema, write_name(texts)))
    except FourfoldError as error:
        raise wrap_error(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer for `DataSource.streamWriter`."""
    try:
        texts = parse_options(options, STREAM_OPTIONS)
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
    from fourfold.pipeline.documents import ingest  # noqa: PLC0415 - tasks need no kernel

    staged = _staged(messages)
    destination = options.destination
    try:
        if destination.root is not None:
            ingest.ingest(destination.root, staged, batch)
        else:
            with destination.connect() as store:
                ingest.ingest_through_api(store, staged, batch)
        until = staging.newest_mtime(staged)
    except FourfoldError as error:
        raise wrap_error(error) from error
    staging.sweep(options.folder.parent, options.folder, until=until)


def _discard(messages: list[WriterCommitMessage | None]) -> None:
    staging.remove(_staged(messages))


# Options


def _write_options(texts: Mapping[str, str], schema: StructType, session: str) -> WriteOptions:
    from fourfold.models.documents import HISTORIES  # noqa: PLC0415 - workers do not need the kernel

    destination = parse_destination(texts)
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
    folder = destination.staging(texts)
    return WriteOptions(destination, shape, folder / folder_name(session), batch)


def _flag(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidInput(f"option 'skip_bad' must be true or false, got {text!r}")
    return text.strip().lower() == "true"


SINK: Final = Sink(batch_writer, stream_writer)

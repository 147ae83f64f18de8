"""The sink of streams: rows of a DataFrame or of a Spark stream become records.

    rows.write.format("fourfold").mode("append").options(model="streams", root=ROOT, stream="s")
    rows.writeStream.format("fourfold").options(model="streams", root=ROOT, ...).start()

A row is a record: `payload`, bytes or text, and `stream` unless the option names it. Each task
checks its rows and stages them in an Arrow file; one process, on the machine of Spark's driver,
appends them as a producer.

The producers of a stream are the ledger. A query is the producer, and the number of a batch its
epoch: batch numbers increase, and not every batch has rows for every stream, which epochs allow and
sequence numbers do not. The rows of a batch for a stream are request 0 of that epoch, in one
transaction; if they are very large, they are requests 0, 1, 2 and so on, split the same way each
time. A batch that Spark sends again is a duplicate for the streams that have it, and is completed
in those that do not. A batch of a query that was presumed dead, sent after its successor continued,
is refused.

All rows of a batch are checked before the first is appended, also against the schemas and profiles
of their streams. So a refused batch has written nothing, and can be sent again, corrected, under
the same number.

With the option `url` instead of `root` the appends reach a running server through its API. The
server checks schemas and profiles when it appends, and a request to a stream of bytes has one
record.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
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
from fourfold.query.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class StreamColumns:
    """The stream of all rows, if there is only one, and the order columns."""

    stream: str | None = None
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """The file that a task has staged."""

    path: str
    rows: int


def stage(batches: Iterator[pa.RecordBatch], shape: StreamColumns, folder: Path) -> StagedRecords:
    """Write the rows of a task to a new file in `folder`."""
    pa = arrow()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{uuid.uuid4().hex}.arrow"
    writer: Any = None
    rows = 0
    try:
        for batch in batches:
            checked = _checked(pa, batch, shape)
            if writer is None:
                writer = pa.ipc.new_file(str(path), checked.schema)
            writer.write_batch(checked)
            rows += batch.num_rows
    except BaseException:
        if writer is not None:
            writer.close()
        path.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.close()
    return StagedRecords(str(path), rows)


def table_of(staged: list[StagedRecords], shape: StreamColumns) -> pa.Table | None:
    """Return all rows of a batch, grouped by stream and sorted by the order columns, or else in
    task order.
    """
    pa = arrow()
    tables = [pa.ipc.open_file(pa.memory_map(file.path)).read_all() for file in staged if file.rows]
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    if shape.stream is not None and not shape.order:
        # Nothing to sort: the rows are read from their memory-mapped files.
        return whole
    numbered = whole.append_column("staged_row", pa.array(range(whole.num_rows), pa.int64()))
    names = ("stream", *shape.order, "staged_row")
    return numbered.sort_by([(name, "ascending") for name in names])


def by_stream(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each stream, ordered by name."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    start = 0
    counts = {
        entry["values"]: entry["counts"]
        for entry in pc.value_counts(table.column("stream")).to_pylist()
    }
    for name in sorted(counts):
        yield name, table.slice(start, counts[name])
        start += counts[name]


def payloads(table: pa.Table) -> Iterator[list[bytes]]:
    """Yield the payloads of rows in chunks."""
    column = table.column("payload")
    for start in range(0, len(column), limits.SOURCE_BATCH_ROWS):
        yield column.slice(start, limits.SOURCE_BATCH_ROWS).to_pylist()


def _checked(pa: Any, batch: pa.RecordBatch, shape: StreamColumns) -> pa.RecordBatch:
    names = ("payload",) if shape.stream is not None else ("stream", "payload")
    for name in names:
        if batch.column(name).null_count:
            raise InvalidInput(f"column {name!r} must not be null")
    payload = batch.column("payload").cast(pa.binary()).cast(pa.large_binary())
    stream = (
        batch.column("stream").cast(pa.string())
        if shape.stream is None
        else pa.repeat(pa.scalar(shape.stream, pa.string()), batch.num_rows)
    )
    columns = {"stream": stream, "payload": payload}
    columns |= {name: batch.column(name) for name in shape.order if name not in columns}
    return pa.RecordBatch.from_pydict(columns)


_OPTIONS: Final = ("root", "url", "key", "stream", "content_type", "order", "staging", "wait_s")
_TYPES: Final = {"payload": ("binary", "string"), "stream": ("string",)}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a write."""

    destination: Destination
    shape: StreamColumns
    folder: Path
    """Folder where its tasks stage rows."""
    producer: str
    content_type: str | None
    wait_s: float


@dataclass
class Message(WriterCommitMessage):
    """The message of a task to the committing process."""

    staged: StagedRecords


class _Writer:
    """Common part of both writers."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Stage the rows of a task."""
        try:
            return Message(stage(iterator, self._options.shape, self._options.folder))
        except FourfoldError as error:
            raise wrap_error(error) from error

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        from fourfold.pipeline.streams import ingest  # noqa: PLC0415 - tasks need no kernel

        options = self._options
        staged = [message.staged for message in messages if isinstance(message, Message)]
        named: dict[str, Any] = {
            "producer": options.producer,
            "batch": batch,
            "content_type": options.content_type,
        }
        root = options.destination.root
        try:
            if root is not None:
                ingest.ingest(root, staged, options.shape, wait_s=options.wait_s, **named)
            else:
                with options.destination.connect() as store:
                    ingest.append_staged(store.streams, staged, options.shape, **named)
        except FourfoldError as error:
            raise wrap_error(error) from error
        self._discard()

    def _discard(self) -> None:
        """Remove the staged files. Batches run one after the other, so any other file here was left
        by a killed task or query.
        """
        shutil.rmtree(self._options.folder, ignore_errors=True)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writer of `df.write`. With a `job`, repeating the write does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the staged rows."""
        self._commit(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows."""
        del messages
        self._discard()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`. Repeating a batch does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append the staged rows of a batch."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged rows of a batch."""
        del messages, batchId
        self._discard()


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer for `DataSource.writer` of streams."""
    try:
        texts = parse_options(options, (*_OPTIONS, "job"))
        check_append_mode(overwrite)
        return BatchWriter(_write_options(texts, schema, write_name(texts)))
    except FourfoldError as error:
        raise wrap_error(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer for `DataSource.streamWriter` of streams."""
    try:
        texts = parse_options(options, (*_OPTIONS, "query"))
        check_append_mode(overwrite)
        query = texts.get("query") or query_id(texts.get("checkpointlocation", ""))
        return StreamWriter(_write_options(texts, schema, f"query:{query}"))
    except FourfoldError as error:
        raise wrap_error(error) from error


def _write_options(texts: Mapping[str, str], schema: StructType, producer: str) -> WriteOptions:
    destination = parse_destination(texts)
    order = tuple(name.strip() for name in texts.get("order", "").split(",") if name.strip())
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    stream = texts.get("stream")
    for name in types:
        if name not in {"payload", "stream", *order} or (name == "stream" and stream):
            raise InvalidInput(
                f"unknown column {name!r} of the sink of streams",
                hint="Select payload, and stream unless the option stream is set.",
            )
    for name in ("payload", *(() if stream else ("stream",)), *order):
        if name not in types:
            raise InvalidInput(f"column {name!r} is required")
        if types[name] not in _TYPES.get(name, (types[name],)):
            raise InvalidInput(f"column {name!r} must be string or binary, got {types[name]}")
    return WriteOptions(
        destination=destination,
        shape=StreamColumns(stream, order),
        folder=destination.staging(texts) / f"streams-{folder_name(producer)}",
        producer=producer,
        content_type=texts.get("content_type"),
        wait_s=seconds(texts.get("wait_s", str(limits.SINK_LOCK_WAIT_S))),
    )


SINK: Final = Sink(batch_writer, stream_writer)

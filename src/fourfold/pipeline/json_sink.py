"""The sink of models whose rows are JSON texts: events of sessions, envelopes of graphs.

    rows.write.format("fourfold").mode("append").options(model="sessions", root=ROOT, job="import")
    rows.writeStream.format("fourfold").options(model="graphs", root=ROOT, ...).start()

Each task checks its rows and stages them in an Arrow file; one process, on the machine of Spark's
driver, writes them through the model, or with `url` through the API of a server. The rows of a
batch are divided into pages, always in the same way, and each page is one transaction that the
model recognizes when it is sent again. So a batch that Spark repeats changes nothing where it was
written, and is completed where it was not.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, WriterLocked
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
from fourfold.retry import Retries
from fourfold.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fourfold.client import RemoteStore

    SinkStore = Store | RemoteStore

JSON_SINK_PAGE: Final = 500
"""Rows that the sink writes in one transaction."""

Page = Sequence[Any]
"""Rows of one transaction, decoded."""


@dataclass(frozen=True, slots=True)
class BatchName:
    """The name of a write or query, and the number of its batch."""

    name: str
    number: int

    @property
    def key(self) -> str:
        """The name with a fixed length, for a model that limits it."""
        return f"spark:{folder_name(self.name)}"


@dataclass(frozen=True, slots=True)
class JsonRows:
    """A model's part of its sink. Functions are pickled by name."""

    model: str
    value: str
    """Column with the JSON text."""
    group: str | None
    """Column with the log of a row, if the model has several; rows of each are written in order."""
    check: Callable[[Any, str | None], None]
    """Raises InvalidInput for a value that its log would never accept."""
    write: Callable[[SinkStore, str | None, Iterator[Page], BatchName], None]
    """Writes the pages of a log, each once."""
    option_names: tuple[str, ...] = ()
    prepare: Callable[[SinkStore, Sequence[str], Mapping[str, str]], None] | None = None
    """Checks all logs of a batch, before the first page is written."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a write."""

    destination: Destination
    rows: JsonRows
    order: tuple[str, ...]
    folder: Path
    """Folder where its tasks stage rows."""
    name: str
    wait_s: float
    texts: Mapping[str, str]


@dataclass
class StagedMessage(WriterCommitMessage):
    """The message of a task to the committing process: its file, if it had rows."""

    path: str | None


class _JsonWriter:
    """Common part of both writers."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        """Check and stage the rows of a task."""
        try:
            return StagedMessage(_stage(iterator, self._options))
        except FourfoldError as error:
            raise wrap_error(error) from error

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        options = self._options
        paths = [message.path for message in messages if isinstance(message, StagedMessage)]
        try:
            table = _table([path for path in paths if path is not None], options)
            if table is not None:
                with _opened(options) as store:
                    _write_table(store, table, options, BatchName(options.name, batch))
        except FourfoldError as error:
            raise wrap_error(error) from error
        self._discard()

    def _discard(self) -> None:
        """Remove the staged files. Batches run one after the other, so any other file here was left
        by a killed task or query.
        """
        shutil.rmtree(self._options.folder, ignore_errors=True)


class JsonBatchWriter(_JsonWriter, DataSourceArrowWriter):
    """Writer of `df.write`. With a `job`, repeating the write does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the staged rows."""
        self._commit(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows."""
        del messages
        self._discard()


class JsonStreamWriter(_JsonWriter, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`. Repeating a batch does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the staged rows of a batch."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged rows of a batch."""
        del messages, batchId
        self._discard()


def json_sink(rows: JsonRows) -> Sink:
    """Return the sink of a model."""
    names = ("root", "url", "key", "order", "staging", "wait_s", *rows.option_names)

    def batch_writer(
        options: Mapping[str, str], schema: StructType, overwrite: bool
    ) -> JsonBatchWriter:
        try:
            texts = parse_options(options, (*names, "job"))
            check_append_mode(overwrite)
            return JsonBatchWriter(_write_options(texts, schema, write_name(texts), rows))
        except FourfoldError as error:
            raise wrap_error(error) from error

    def stream_writer(
        options: Mapping[str, str], schema: StructType, overwrite: bool
    ) -> JsonStreamWriter:
        try:
            texts = parse_options(options, (*names, "query"))
            check_append_mode(overwrite)
            query = texts.get("query") or query_id(texts.get("checkpointlocation", ""))
            return JsonStreamWriter(_write_options(texts, schema, f"query:{query}", rows))
        except FourfoldError as error:
            raise wrap_error(error) from error

    return Sink(batch_writer, stream_writer)


def _write_options(
    texts: Mapping[str, str], schema: StructType, name: str, rows: JsonRows
) -> WriteOptions:
    destination = parse_destination(texts)
    order = tuple(part.strip() for part in texts.get("order", "").split(",") if part.strip())
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    needed = (rows.value, *(() if rows.group is None else (rows.group,)))
    for column in types:
        if column not in {*needed, *order}:
            raise InvalidInput(
                f"unknown column {column!r} of the sink of {rows.model}",
                hint=f"Select {', '.join(needed)}, and the columns of the option order.",
            )
    for column in (*needed, *order):
        if column not in types:
            raise InvalidInput(f"column {column!r} is required")
    for column in needed:
        if types[column] != "string":
            raise InvalidInput(f"column {column!r} must be string, got {types[column]}")
    return WriteOptions(
        destination=destination,
        rows=rows,
        order=order,
        folder=destination.staging(texts) / f"{rows.model}-{folder_name(name)}",
        name=name,
        wait_s=seconds(texts.get("wait_s", str(limits.SINK_LOCK_WAIT_S))),
        texts=dict(texts),
    )


def _stage(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> str | None:
    """Write the rows of a task to a new file; return its path, or None if there are none."""
    pa = arrow()
    options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = options.folder / f"{uuid.uuid4().hex}.arrow"
    writer: Any = None
    try:
        for batch in batches:
            _check_batch(batch, options.rows)
            if writer is None:
                writer = pa.ipc.new_file(str(path), batch.schema)
            writer.write_batch(batch)
    except BaseException:
        if writer is not None:
            writer.close()
        path.unlink(missing_ok=True)
        raise
    if writer is None:
        return None
    writer.close()
    return str(path)


def _check_batch(batch: pa.RecordBatch, rows: JsonRows) -> None:
    for name in (rows.value, *(() if rows.group is None else (rows.group,))):
        if batch.column(name).null_count:
            raise InvalidInput(f"column {name!r} must not be null")
    texts = batch.column(rows.value).to_pylist()
    groups = [None] * len(texts) if rows.group is None else batch.column(rows.group).to_pylist()
    for text, group in zip(texts, groups, strict=True):
        try:
            rows.check(msgspec.json.decode(text), group)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"column {rows.value!r} is not valid JSON: {error}: {text[:200]}"
            ) from None
        except InvalidInput as error:
            raise InvalidInput(f"{error.message}: {text[:200]}", hint=error.hint) from error


def _table(paths: Sequence[str], options: WriteOptions) -> pa.Table | None:
    """Return all rows of a batch in their order: by log, then by the order columns, or in that of
    the tasks.
    """
    pa = arrow()
    tables = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths]
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    numbered = whole.append_column("staged_row", pa.array(range(whole.num_rows), pa.int64()))
    group = () if options.rows.group is None else (options.rows.group,)
    names = (*group, *options.order, "staged_row")
    return numbered.sort_by([(name, "ascending") for name in names])


def _write_table(
    store: SinkStore, table: pa.Table, options: WriteOptions, batch: BatchName
) -> None:
    """Write the rows of a batch, log by log."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    rows = options.rows
    if rows.group is None:
        rows.write(store, None, _pages(table, rows), batch)
        return
    entries = pc.value_counts(table.column(rows.group)).to_pylist()
    counts = sorted((entry["values"], entry["counts"]) for entry in entries)
    if rows.prepare is not None:
        rows.prepare(store, [name for name, _ in counts], options.texts)
    start = 0
    for name, count in counts:
        rows.write(store, name, _pages(table.slice(start, count), rows), batch)
        start += count


def _pages(table: pa.Table, rows: JsonRows) -> Iterator[Page]:
    column = table.column(rows.value)
    for start in range(0, len(column), JSON_SINK_PAGE):
        texts = column.slice(start, JSON_SINK_PAGE).to_pylist()
        yield [msgspec.json.decode(text) for text in texts]


@contextmanager
def _opened(options: WriteOptions) -> Iterator[SinkStore]:
    """Open the store and the model for writing, waiting for another writer to release it; or
    connect to the server that has it open.
    """
    root = options.destination.root
    if root is None:
        with options.destination.connect() as remote:
            yield remote
        return
    retries = Retries.every(limits.LOCK_LOOK_S, on=WriterLocked, within_s=options.wait_s)
    with open_store(root) as store:
        try:
            retries.run(lambda: getattr(store, options.rows.model))
        except WriterLocked as error:
            raise WriterLocked(
                error.message,
                hint=f"Stop the server or program that writes the {options.rows.model}, or wait "
                "longer with the option wait_s.",
            ) from error
        yield store

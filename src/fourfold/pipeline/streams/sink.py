"""The sink of streams: rows of a DataFrame, or of a stream of Spark's, become records.

    rows.write.format("fourfold").mode("append").options(model="streams", root=ROOT, stream="s")
    rows.writeStream.format("fourfold").options(model="streams", root=ROOT, ...).start()

A row is a record: `payload`, bytes or text, and `stream` unless the option names it. Tasks stage
their rows; one process, on the machine of Spark's driver, appends them as a producer. A query is
the producer, a batch its epoch, and the parts of a batch are its requests; so a batch that comes
again is known to every stream, and changes nothing. See `ingest`.

Staged rows become records: each batch once, whatever is killed.

The ledger is what every stream knows of its producers. A batch is appended under the producer of
its query, with the number of the batch as its epoch: batches go up, and not every one has rows for
every stream, which epochs allow and requests do not. The rows that a batch has for a stream are
request 0 of that epoch, in one transaction; only where they are very large they are requests 0, 1,
2 and so on, each of as many rows as fit, which are the same ones when the batch comes again. A
batch that comes again, because Spark did not hear that it was through, is a duplicate to the
streams that have it, and is completed in those that do not. One that comes from a query that was
taken for dead, after its successor went on, is refused.

All rows of a batch are judged before the first of them is appended, by the schemas and profiles of
their streams too. So a batch that is refused has left nothing behind, and comes again, mended,
under the same number.

Rows on their way into streams: each task writes its own to a file, in Arrow's format.

What a row alone can be judged by is judged here. What depends on the stream is judged before the
first record of a batch is appended.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, WriterLocked
from fourfold.models.streams import Append, Producer, StreamInfo, Streams, rules, writer
from fourfold.models.streams.admission import KnownProducer
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.validation import JSON
from fourfold.pipeline.documents.sink import (
    folder_name,
    known,
    query_of,
    refuse_overwriting,
    seconds,
)
from fourfold.pipeline.scratch import staging_folder
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.tables import arrow
from fourfold.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Shape:
    """The one stream that all rows are for, if there is one, and the columns that order them."""

    stream: str | None = None
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """What a task has staged."""

    path: str
    rows: int


def stage(batches: Iterator[pa.RecordBatch], shape: Shape, folder: Path) -> StagedRecords:
    """Write rows to a file of their own in `folder`."""
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


def table_of(staged: list[StagedRecords], shape: Shape) -> pa.Table | None:
    """All rows of a batch, those of a stream together and in order: as their columns say, or else
    task after task.
    """
    pa = arrow()
    tables = [pa.ipc.open_file(pa.memory_map(each.path)).read_all() for each in staged if each.rows]
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    if shape.stream is not None and not shape.order:
        # There is nothing to sort: the rows stay in their files, and are read from there.
        return whole
    numbered = whole.append_column("staged_row", pa.array(range(whole.num_rows), pa.int64()))
    names = ("stream", *shape.order, "staged_row")
    return numbered.sort_by([(name, "ascending") for name in names])


def by_stream(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each stream, in the order of their names, as they were sorted."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    start = 0
    counts = {
        each["values"]: each["counts"]
        for each in pc.value_counts(table.column("stream")).to_pylist()
    }
    for name in sorted(counts):
        yield name, table.slice(start, counts[name])
        start += counts[name]


def payloads(table: pa.Table) -> Iterator[list[bytes]]:
    """The payloads of rows, some at a time."""
    column = table.column("payload")
    for start in range(0, len(column), limits.SOURCE_BATCH_ROWS):
        yield column.slice(start, limits.SOURCE_BATCH_ROWS).to_pylist()


def _checked(pa: Any, batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    names = ("payload",) if shape.stream is not None else ("stream", "payload")
    for name in names:
        if batch.column(name).null_count:
            raise InvalidInput(f"a row has no {name}")
    payload = batch.column("payload").cast(pa.binary()).cast(pa.large_binary())
    stream = (
        batch.column("stream").cast(pa.string())
        if shape.stream is None
        else pa.repeat(pa.scalar(shape.stream, pa.string()), batch.num_rows)
    )
    columns = {"stream": stream, "payload": payload}
    columns |= {name: batch.column(name) for name in shape.order if name not in columns}
    return pa.RecordBatch.from_pydict(columns)


_OPTIONS: Final = ("root", "stream", "content_type", "order", "staging", "wait_s")
_TYPES: Final = {"payload": ("binary", "string"), "stream": ("string",)}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for."""

    root: Path
    shape: Shape
    folder: Path
    """Where its tasks stage."""
    producer: str
    content_type: str | None
    wait_s: float


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the committing process."""

    staged: StagedRecords


class _Writer:
    """What both writers do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        try:
            return Message(stage(iterator, self._options.shape, self._options.folder))
        except FourfoldError as error:
            raise wrap_error(error) from error

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:

        options = self._options
        try:
            ingest(
                options.root,
                [each.staged for each in messages if isinstance(each, Message)],
                options.shape,
                producer=options.producer,
                batch=batch,
                content_type=options.content_type,
                wait_s=options.wait_s,
            )
        except FourfoldError as error:
            raise wrap_error(error) from error
        self._discard()

    def _discard(self) -> None:
        """Remove what was staged. Batches come one after the other, so whatever else lies there was
        left by a task or a query that was killed.
        """
        shutil.rmtree(self._options.folder, ignore_errors=True)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Of `df.write`. With a `job`, writing the same again does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages
        self._discard()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Of `df.writeStream`. A batch that comes again does nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        del messages, batchId
        self._discard()


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `DataSource.writer` for streams."""
    try:
        given = known(options, (*_OPTIONS, "job"))
        refuse_overwriting(overwrite)
        job = given.get("job", "")
        name = f"job:{job}" if job else f"write:{uuid.uuid4().hex}"
        return BatchWriter(_write_options(given, schema, name))
    except FourfoldError as error:
        raise wrap_error(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `DataSource.streamWriter` for streams."""
    try:
        given = known(options, (*_OPTIONS, "query"))
        refuse_overwriting(overwrite)
        query = given.get("query") or query_of(given.get("checkpointlocation", ""))
        return StreamWriter(_write_options(given, schema, f"query:{query}"))
    except FourfoldError as error:
        raise wrap_error(error) from error


def _write_options(given: Mapping[str, str], schema: StructType, producer: str) -> WriteOptions:
    from fourfold.pipeline.documents.sink import check_root  # noqa: PLC0415 - workers need no kernel

    root = check_root(given.get("root"))
    order = tuple(name.strip() for name in given.get("order", "").split(",") if name.strip())
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    stream = given.get("stream")
    for name in types:
        if name not in {"payload", "stream", *order} or (name == "stream" and stream):
            raise InvalidInput(
                f"the column {name!r} means nothing to the sink of streams",
                hint="Select payload, and stream unless the option stream names it.",
            )
    for name in ("payload", *(() if stream else ("stream",)), *order):
        if name not in types:
            raise InvalidInput(f"the sink of streams needs the column {name!r}")
        if types[name] not in _TYPES.get(name, (types[name],)):
            raise InvalidInput(f"the column {name!r} is a {types[name]}, not text or bytes")
    place = Path(given["staging"]) if "staging" in given else staging_folder(root)
    return WriteOptions(
        root=root,
        shape=Shape(stream, order),
        folder=place.absolute() / f"streams-{folder_name(producer)}",
        producer=producer,
        content_type=given.get("content_type"),
        wait_s=seconds(given.get("wait_s", str(limits.SINK_LOCK_WAIT_S))),
    )


class IngestReport(NamedTuple):
    """What came of a batch. A replayed stream had it already."""

    rows: int = 0
    streams: int = 0
    replayed: int = 0


def ingest(
    root: Path,
    staged: Sequence[StagedRecords],
    shape: Shape,
    *,
    producer: str,
    batch: int,
    content_type: str | None = None,
    wait_s: float = 0.0,
) -> IngestReport:
    """Append staged rows to the streams of the store in `root`; nothing that is there already."""
    table = table_of(list(staged), shape)
    if table is None:
        return IngestReport()
    with _opened(root, wait_s) as streams:
        # All rows are judged before the first of them is written.
        parts = dict(by_stream(table))
        for name, rows in parts.items():
            info = _info(streams, name, content_type)
            _check(info, rows)
            if info.has_rules:
                _judge(streams, info, rows, producer, batch)
        written = replayed = 0
        for name, rows in parts.items():
            fresh = False
            for number, records in enumerate(_requests(rows)):
                request = Append(records, None, Producer(producer, batch, number))
                done = streams.append(name, request)
                fresh = fresh or not done.duplicate
                written += 0 if done.duplicate else len(records)
            replayed += not fresh
    return IngestReport(written, len(parts), replayed)


def _info(streams: Streams, name: str, content_type: str | None) -> StreamInfo:
    try:
        return streams.info(name)
    except NotFound:
        if content_type is None:
            raise NotFound(
                f"there is no stream {name!r}",
                hint="Create it first, or give the option content_type, which creates it.",
            ) from None
        streams.create(name, content_type)
        return streams.info(name)


def _check(info: StreamInfo, rows: pa.Table) -> None:
    for some in payloads(rows):
        for payload in some:
            if not payload:
                raise InvalidInput(f"a row for {info.name!r} has an empty payload")
            if info.is_json and len(split(b"[" + payload + b"]", JSON)) != 1:
                raise InvalidInput(f"a row for {info.name!r} is not one JSON message")


def _judge(streams: Streams, info: StreamInfo, rows: pa.Table, producer: str, batch: int) -> None:
    """Refuse rows that the schema or the profile of their stream refuses. What the stream took when
    the batch came before is not judged again: its rules may have changed since.
    """
    with streams.database.read(deadline_s=float("inf")) as snapshot:
        asked = rules.find(snapshot, info)
        row = snapshot.one(writer.SQL.producer, (info.sid, producer))
    known = None if row is None else KnownProducer(*row)
    before = 0
    for number, records in enumerate(_requests(rows)):
        is_there = known is not None and known >= (batch, number)
        if asked is not None and not is_there:
            try:
                asked.take(records, streams.clock(), None)
            except InvalidInput as error:
                counted = f", counted from row {before + 1} on" if before else ""
                raise InvalidInput(
                    f"of the rows for {info.name!r}{counted}, {error.message}",
                    hint=error.hint or "Mend the rows and write them again, under the same name.",
                    details=error.details,
                ) from error
        before += len(records)


def _requests(rows: pa.Table) -> Iterator[list[bytes]]:
    """The rows as requests of a bounded size: one, but where they are very large."""
    ready: list[bytes] = []
    size = 0
    for some in payloads(rows):
        for payload in some:
            if ready and size + len(payload) > limits.SINK_REQUEST_BYTES:
                yield ready
                ready, size = [], 0
            ready.append(payload)
            size += len(payload)
    if ready:
        yield ready


@contextmanager
def _opened(root: Path, wait_s: float) -> Iterator[Streams]:
    """The streams, open for writing; waits a little for another writer to let go of them."""
    until = time.monotonic() + wait_s
    while True:
        with open_store(root) as store:
            try:
                streams = store.streams
            except WriterLocked as error:
                if time.monotonic() >= until:
                    raise WriterLocked(
                        error.message,
                        hint="Stop the server or the program that writes the streams, or wait "
                        "longer: the option wait_s.",
                    ) from error
            else:
                yield streams
                return
        time.sleep(limits.LOCK_LOOK_S)

"""The sink of streams: rows of a DataFrame, or of a stream of Spark's, become records.

    rows.write.format("fourfold").mode("append").options(model="streams", root=ROOT, stream="s")
    rows.writeStream.format("fourfold").options(model="streams", root=ROOT, ...).start()

A row is a record: `payload`, bytes or text, and `stream` unless the option names it. Tasks stage
their rows; one process, on the machine of Spark's driver, appends them as a producer. A query is
the producer, a batch its epoch, and the parts of a batch are its requests; so a batch that comes
again is known to every stream, and changes nothing. See `ingest`.
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
from fourfold.pipeline.failures import carried
from fourfold.pipeline.scratch import staging_folder
from fourfold.pipeline.sink import folder_name, known, query_of, refuse_overwriting, seconds
from fourfold.pipeline.streams.staged_records import Shape, Staged, stage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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

    staged: Staged


class _Writer:
    """What both writers do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        try:
            return Message(stage(iterator, self._options.shape, self._options.folder))
        except FourfoldError as error:
            raise carried(error) from error

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        from fourfold.pipeline.streams.ingest import ingest  # noqa: PLC0415 - not in workers

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
            raise carried(error) from error
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
        raise carried(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `DataSource.streamWriter` for streams."""
    try:
        given = known(options, (*_OPTIONS, "query"))
        refuse_overwriting(overwrite)
        query = given.get("query") or query_of(given.get("checkpointlocation", ""))
        return StreamWriter(_write_options(given, schema, f"query:{query}"))
    except FourfoldError as error:
        raise carried(error) from error


def _write_options(given: Mapping[str, str], schema: StructType, producer: str) -> WriteOptions:
    from fourfold.pipeline.ingest import check_root  # noqa: PLC0415 - workers need no kernel

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

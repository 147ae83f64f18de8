"""The sink: rows of a DataFrame, or of a stream, become commits in spaces.

    rows.write.format("fourfold").mode("append").options(root=ROOT, job="import-7").save()
    rows.writeStream.format("fourfold").options(root=ROOT, checkpointLocation=...).start()

A row is an operation: `id`, `op` (set if there is no such column), `data` (JSON text), and where
needed `space`, `branch` and the columns that say the order. Tasks check and stage; one process, on
the machine of Spark's driver, commits through the spaces' own writers. Each space gets the rows of
a batch in one transaction, once, however often Spark sends them; see `ingest`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, MissingDependency, NotFound, Refused
from fourfold.pipeline import staging
from fourfold.pipeline.failures import carried
from fourfold.pipeline.scratch import staging_folder
from fourfold.pipeline.staging import Batch, Shape, Staged

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

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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

    staged: Staged


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
        raise carried(error) from error


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `DataSource.streamWriter`."""
    try:
        given = _known(options, STREAM_OPTIONS)
        refuse_overwriting(overwrite)
        query = given.get("query") or query_of(given.get("checkpointlocation", ""))
        return StreamWriter(_write_options(given, schema, f"query:{query}"))
    except FourfoldError as error:
        raise carried(error) from error


def _stage(iterator: Iterator[Any], options: WriteOptions) -> Message:
    from pyspark import TaskContext  # noqa: PLC0415 - only in a task

    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    return Message(staging.stage(iterator, options.shape, options.folder, partition))


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, Message)]


def _commit(
    messages: list[WriterCommitMessage | None], options: WriteOptions, batch: Batch
) -> None:
    from fourfold.pipeline.ingest import ingest  # noqa: PLC0415 - workers do without the kernel

    staged = _staged(messages)
    try:
        ingest(options.root, staged, batch)
        until = staging.newest(staged)
    except FourfoldError as error:
        raise carried(error) from error
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
    from fourfold.pipeline.ingest import check_root  # noqa: PLC0415

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
        raise Refused(
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

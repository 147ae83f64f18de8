"""Append staged records to streams, each batch exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput, NotFound, WriterLocked
from fourfold.models.streams import Append, Producer, StreamInfo, Streams, rules, writer
from fourfold.models.streams.admission import KnownProducer
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.validation import JSON
from fourfold.retry import Retries
from fourfold.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from fourfold.client import RemoteStreams
from fourfold.pipeline.streams.sink import (
    StagedRecords,
    StreamColumns,
    by_stream,
    payloads,
    table_of,
)

SINK_REQUEST_BYTES: Final = 64 * limits.MIB
SINK_SENT_BYTES: Final = 8 * limits.MIB
"""Bytes of one append of the sink, to a store and to a server."""


class BatchReport(NamedTuple):
    """The outcome of a batch. A replayed stream had it already."""

    rows: int = 0
    streams: int = 0
    replayed: int = 0


def ingest(
    root: Path,
    staged: Sequence[StagedRecords],
    shape: StreamColumns,
    *,
    producer: str,
    batch: int,
    content_type: str | None = None,
    wait_s: float = 0.0,
) -> BatchReport:
    """Append staged rows to the streams of a store, skipping streams that have the batch."""
    with _opened(root, wait_s) as streams:
        return append_staged(
            *(streams, staged, shape), producer=producer, batch=batch, content_type=content_type
        )


def append_staged(
    streams: Streams | RemoteStreams,
    staged: Sequence[StagedRecords],
    shape: StreamColumns,
    *,
    producer: str,
    batch: int,
    content_type: str | None = None,
) -> BatchReport:
    """Append staged rows to streams of a store or of a server, unless they have the batch."""
    table = table_of(list(staged), shape)
    if table is None:
        return BatchReport()
    # Check all rows before writing the first.
    parts = dict(by_stream(table))
    sizes: dict[str, int] = {}
    for name, rows in parts.items():
        info = _info(streams, name, content_type)
        _check(info, rows)
        sizes[name] = SINK_REQUEST_BYTES
        if not isinstance(streams, Streams):
            sizes[name] = SINK_SENT_BYTES if info.is_json else 0
        elif info.has_rules:
            _check_rules(streams, info, rows, producer, batch)
    written = replayed = 0
    for name, rows in parts.items():
        fresh = False
        for number, records in enumerate(_requests(rows, sizes[name])):
            request = Append(records, None, Producer(producer, batch, number))
            result = streams.append(name, request)
            fresh = fresh or not result.duplicate
            written += 0 if result.duplicate else len(records)
        replayed += not fresh
    return BatchReport(written, len(parts), replayed)


def _info(streams: Streams | RemoteStreams, name: str, content_type: str | None) -> StreamInfo:
    try:
        return streams.info(name)
    except NotFound:
        if content_type is None:
            raise NotFound(
                f"unknown stream {name!r}",
                hint="Create it first, or set the option content_type, which creates it.",
            ) from None
        streams.create(name, content_type)
        return streams.info(name)


def _check(info: StreamInfo, rows: pa.Table) -> None:
    for chunk in payloads(rows):
        for payload in chunk:
            if not payload:
                raise InvalidInput(f"stream {info.name!r}: payload must not be empty")
            if info.is_json and len(split(b"[" + payload + b"]", JSON)) != 1:
                raise InvalidInput(f"stream {info.name!r}: payload must be one JSON message")


def _check_rules(
    streams: Streams, info: StreamInfo, rows: pa.Table, producer: str, batch: int
) -> None:
    """Raise InvalidInput for rows that the schema or profile of their stream rejects. Rows that the
    stream accepted in an earlier attempt are not checked again: its rules may have changed.
    """
    with streams.database.read(deadline_s=float("inf")) as snapshot:
        stream_rules = rules.find(snapshot, info)
        row = snapshot.one(writer.SQL.producer, (info.sid, producer))
    known = None if row is None else KnownProducer(*row)
    before = 0
    for number, records in enumerate(_requests(rows, SINK_REQUEST_BYTES)):
        is_there = known is not None and known >= (batch, number)
        if stream_rules is not None and not is_there:
            try:
                stream_rules.admit(records, streams.clock(), None)
            except InvalidInput as error:
                position = f", counting from row {before + 1}" if before else ""
                raise InvalidInput(
                    f"stream {info.name!r}{position}: {error.message}",
                    hint=error.hint or "Fix the rows and write them again under the same name.",
                    details=error.details,
                ) from error
        before += len(records)


def _requests(rows: pa.Table, bytes_max: int) -> Iterator[list[bytes]]:
    """Yield the rows as requests of bounded size, normally one; of one row each if it is 0."""
    records: list[bytes] = []
    size = 0
    for chunk in payloads(rows):
        for payload in chunk:
            if records and size + len(payload) > bytes_max:
                yield records
                records, size = [], 0
            records.append(payload)
            size += len(payload)
    if records:
        yield records


@contextmanager
def _opened(root: Path, wait_s: float) -> Iterator[Streams]:
    """Open the streams for writing, waiting for another writer to release them."""
    retries = Retries.every(limits.LOCK_LOOK_S, on=WriterLocked, within_s=wait_s)
    with open_store(root) as store:
        try:
            streams = retries.run(lambda: store.streams)
        except WriterLocked as error:
            raise WriterLocked(
                error.message,
                hint="Stop the server or program that writes the streams, or wait longer "
                "with the option wait_s.",
            ) from error
        yield streams

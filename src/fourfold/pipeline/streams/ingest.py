"""Staged rows become records: each batch once, whatever is killed.

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
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput, NotFound, WriterLocked
from fourfold.models.streams import Append, Producer, StreamInfo, Streams, rules, writer
from fourfold.models.streams.admission import Known
from fourfold.models.streams.messages import split
from fourfold.models.streams.names import JSON
from fourfold.pipeline.streams.staged_records import (
    Shape,
    Staged,
    by_stream,
    payloads,
    table_of,
)
from fourfold.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa


class Ingested(NamedTuple):
    """What came of a batch. A replayed stream had it already."""

    rows: int = 0
    streams: int = 0
    replayed: int = 0


def ingest(
    root: Path,
    staged: Sequence[Staged],
    shape: Shape,
    *,
    producer: str,
    batch: int,
    content_type: str | None = None,
    wait_s: float = 0.0,
) -> Ingested:
    """Append staged rows to the streams of the store in `root`; nothing that is there already."""
    table = table_of(list(staged), shape)
    if table is None:
        return Ingested()
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
    return Ingested(written, len(parts), replayed)


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
    known = None if row is None else Known(*row)
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

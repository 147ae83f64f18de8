"""Fourfold's additions to the protocol: streams as rows, and records with offsets and times.

`format=records` returns each record with its offset and time, where the protocol joins them into
one body; `limit` is the maximum number. It is for tools that show streams record by record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from fourfold.content.filters import decode_filter
from fourfold.errors import InvalidInput
from fourfold.kernel.pauses import Pauses
from fourfold.models.streams import Chunk, StreamInfo
from fourfold.models.streams.archive.status import ArchiveStatus
from fourfold.models.streams.feed_records import StreamRecord
from fourfold.models.streams.json_messages import decode
from fourfold.models.streams.records import Details, Record, RecordFilter
from fourfold.models.streams.stream import sought as make_filter
from fourfold.models.streams.validation import format_offset
from fourfold.wire.streams import (
    ArchiveDetails,
    ArchiveIndex,
    ArchiveRequest,
    FeedRecord,
    ReadQuery,
    StreamDetails,
    StreamRow,
)


def stream_row(info: StreamInfo) -> StreamRow:
    """Return the row of a stream in a list."""
    return StreamRow(**_row_fields(info))


def _row_fields(info: StreamInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "content_type": info.content_type,
        "created_at_ms": info.created_at_ms,
        "ttl_seconds": info.ttl_seconds,
        "expires_at_ms": info.expires_at_ms,
        "first_offset": format_offset(info.first_offset, info.incarnation_number),
        "next_offset": format_offset(info.next_offset, info.incarnation_number),
        "size_bytes": info.size_bytes,
        "closed": info.closed,
    }


def stream_details(details: Details) -> StreamDetails:
    """Return a stream with its statistics."""
    info = details.info
    return StreamDetails(
        **_row_fields(info),
        updated_at_ms=details.updated_at_ms,
        rows=info.next_offset - info.first_offset,
        wal_rows=details.wal_rows,
        wal_bytes=details.wal_bytes,
        pending_rows=details.pending_rows,
        pending_bytes=details.pending_bytes,
        profile=info.profile,
        schema_version=info.schema_version,
        retention_seconds=info.retention_seconds,
        retention_bytes=info.retention_bytes,
        forked_from=details.forked_from,
        fork_offset=None
        if info.fork_offset is None
        else format_offset(info.fork_offset, info.incarnation_number),
        forks=info.forks,
        producers=details.producers,
        subscriptions=details.subscriptions,
        archive=_archive_details(details.archived, info.incarnation_number),
    )


def _archive_details(status: ArchiveStatus, incarnation_number: int) -> ArchiveDetails:
    """Return how far a stream is sealed and published, and at what cost."""
    return ArchiveDetails(
        sealed_offset=format_offset(status.sealed_through + 1, incarnation_number),
        published_offset=format_offset(status.uploaded_through + 1, incarnation_number),
        segments=status.segments,
        published_segments=status.uploaded_segments,
        generation=status.generation,
        published_generation=status.uploaded_generation,
        published_at_ms=status.uploaded_at_ms,
        manifest_bytes=status.manifest_bytes,
        requests=[
            ArchiveRequest(
                artifact=entry.artifact, op=entry.op, count=entry.number, bytes=entry.bytes
            )
            for entry in status.requests
        ],
        indexes=[
            ArchiveIndex(
                field=entry.name or None,
                indexed_offset=format_offset(entry.indexed_offset, incarnation_number),
                indexed_segments=entry.indexed_segments,
                runs=entry.runs,
                bytes=entry.bytes,
                levels=entry.levels,
            )
            for entry in status.indexes
        ],
        compactions_pending=status.swaps,
    )


def parse_filter(query: ReadQuery) -> RecordFilter | None:
    """Return the filter of a read: `key` and `filter`, or a `field` and its `value` as JSON."""
    key = None if query.key is UNSET else query.key
    if query.filter is not UNSET:
        if query.field is not UNSET or query.value is not UNSET:
            raise InvalidInput("parameters filter and field must not be sent together")
        return make_filter(key, decode_filter(query.filter))
    if (query.field is UNSET) != (query.value is UNSET):
        raise InvalidInput("parameters field and value must be sent together")
    if query.field is UNSET or query.value is UNSET:
        return make_filter(key)
    try:
        return make_filter(key, (query.field, decode(query.value.encode())))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"value: must be JSON: {error}", hint='Quote text, as in "Ada".'
        ) from None


class _RecordRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record with its offset and time."""

    offset: str
    ts_ms: int
    text: str | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET
    headers: msgspec.Raw | UnsetType = UNSET
    key: str | UnsetType = UNSET
    """The routing key, percent-encoded as in the header `Stream-Key`."""


def feed_record(item: StreamRecord) -> FeedRecord:
    """Return a record of the feed over all streams."""
    record = item.record
    fields: dict[str, Any] = {
        "stream": item.stream,
        "offset": format_offset(record.offset, item.incarnation_number),
        "ts_ms": record.ts_ms,
        "headers": record.headers or UNSET,
    }
    try:
        return FeedRecord(**fields, text=record.payload.decode())
    except UnicodeDecodeError:
        return FeedRecord(**fields, base64=record.payload)


_encode_rows = msgspec.json.Encoder().encode
_RECORDS_PER_STEP: Final = 200
"""Records encoded in one call, which no other thread can interrupt."""


def encode_records(
    chunk: Chunk, pauses: Pauses | None = None, keys: Mapping[int, bytes] | None = None
) -> bytes:
    """Encode the records of a chunk as JSON: text as it is, other bytes as base64.

    `keys` has the routing keys of records, by offset.
    With `pauses`, many records are encoded in short steps while other threads write.
    """
    if pauses is not None:
        pauses.start()
    parts = []
    for first in range(0, len(chunk.records), _RECORDS_PER_STEP):
        records = chunk.records[first : first + _RECORDS_PER_STEP]
        rows = [_record_row(record, chunk.incarnation_number, keys) for record in records]
        parts.append(_encode_rows(rows)[1:-1])
        if pauses is not None:
            pauses.pause()
    return b"[" + b",".join(parts) + b"]"


def _record_row(
    record: Record, incarnation_number: int, keys: Mapping[int, bytes] | None
) -> _RecordRow:
    offset = format_offset(record.offset, incarnation_number)
    encoded = record.encoded_headers
    headers = UNSET if encoded is None else msgspec.Raw(encoded)
    key = keys.get(record.offset) if keys else None
    coded = UNSET if key is None else quote(key)
    try:
        return _RecordRow(offset, record.ts_ms, record.payload.decode(), headers=headers, key=coded)
    except UnicodeDecodeError:
        return _RecordRow(offset, record.ts_ms, base64=record.payload, headers=headers, key=coded)

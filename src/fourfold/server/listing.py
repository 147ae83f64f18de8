"""Fourfold's additions to the protocol: streams as rows, and records with offsets and times.

`format=records` returns each record with its offset and time, where the protocol joins them into
one body; `limit` is the maximum number. It is for tools that show streams record by record.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel.pauses import Pauses
from fourfold.models.streams import Chunk, StreamInfo
from fourfold.models.streams.json_messages import decode
from fourfold.models.streams.records import RecordFilter
from fourfold.models.streams.stream import sought as make_filter
from fourfold.models.streams.validation import format_offset


def stream_row(info: StreamInfo) -> dict[str, Any]:
    """Return the row of a stream in a listing."""
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


def wants_records(parameters: Mapping[str, str]) -> bool:
    """Return True if a read requests records with offsets and times."""
    format_name = parameters.get("format")
    if format_name not in {None, "records"}:
        raise InvalidInput(f"format: must be records, got {format_name!r:.80}")
    return format_name is not None


def parse_filter(parameters: Mapping[str, str]) -> RecordFilter | None:
    """Return the filter of a read: `key`, or a `field` of JSON messages and its `value` as JSON."""
    key, field, value = parameters.get("key"), parameters.get("field"), parameters.get("value")
    if (field is None) != (value is None):
        raise InvalidInput("parameters field and value must be sent together")
    if field is None or value is None:
        return make_filter(key)
    try:
        return make_filter(key, (field, decode(value.encode())))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"value: must be JSON: {error}", hint='Quote text, as in "Ada".'
        ) from None


def parse_limit(parameters: Mapping[str, str]) -> int:
    """Return the maximum number of records of a read."""
    text = parameters.get("limit")
    if text is None:
        return limits.STREAM_READ_RECORDS
    if not text.isdecimal() or not 1 <= int(text[:9]) <= limits.STREAM_READ_RECORDS:
        raise InvalidInput(
            f"limit: must be from 1 to {limits.STREAM_READ_RECORDS}, got {text!r:.80}"
        )
    return int(text[:9])


def encode_records(chunk: Chunk, pauses: Pauses | None = None) -> bytes:
    """Encode the records of a chunk as JSON: text as it is, other bytes as base64.

    Records are encoded one by one: a single call for all would not let other threads run. With
    `pauses`, many records are encoded in short steps while other threads write.
    """
    rows = []
    if pauses is not None:
        pauses.start()
    for record in chunk.records:
        row = {
            "offset": format_offset(record.offset, chunk.incarnation_number),
            "ts_ms": record.ts_ms,
            **_payload(record.payload),
        }
        rows.append(json.dumps(row).encode())
        if pauses is not None:
            pauses.pause()
    return b"[" + b", ".join(rows) + b"]"


def _payload(payload: bytes) -> dict[str, str]:
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}

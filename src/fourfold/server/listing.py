"""What a Fourfold server tells beside the protocol: streams as rows, and records one by one.

Records come with `format=records`: each with its offset and its time, where the protocol joins them
to one body. `limit` is how many at most. Tools use it that show streams record by record.
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
from fourfold.models.streams.stream import sought as asked_for
from fourfold.models.streams.validation import show_offset


def row(info: StreamInfo) -> dict[str, Any]:
    """A stream in the list."""
    return {
        "name": info.name,
        "content_type": info.content_type,
        "created_at_ms": info.created_at_ms,
        "ttl_seconds": info.ttl_seconds,
        "expires_at_ms": info.expires_at_ms,
        "first_offset": show_offset(info.first_offset, info.incarnation_number),
        "next_offset": show_offset(info.next_offset, info.incarnation_number),
        "size_bytes": info.size_bytes,
        "closed": info.closed,
    }


def by_record(given: Mapping[str, str]) -> bool:
    """Whether a read asks for records one by one."""
    shape = given.get("format")
    if shape not in {None, "records"}:
        raise InvalidInput(f"format is records, not {shape!r:.80}")
    return shape is not None


def sought(given: Mapping[str, str]) -> RecordFilter | None:
    """What a read by key asks for: `key`, or a `field` of JSON messages and its `value` as JSON."""
    key, field, value = given.get("key"), given.get("field"), given.get("value")
    if (field is None) != (value is None):
        raise InvalidInput("a read by a field needs field and value")
    if field is None or value is None:
        return asked_for(key)
    try:
        return asked_for(key, (field, decode(value.encode())))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"value is JSON: {error}", hint='Text is written with quotes, as in "Ada".'
        ) from None


def most(given: Mapping[str, str]) -> int:
    """How many records a read asks for at most."""
    text = given.get("limit")
    if text is None:
        return limits.STREAM_READ_RECORDS
    if not text.isdecimal() or not 1 <= int(text[:9]) <= limits.STREAM_READ_RECORDS:
        raise InvalidInput(f"limit is a number from 1 to {limits.STREAM_READ_RECORDS}")
    return int(text[:9])


def records(chunk: Chunk, pauses: Pauses | None = None) -> bytes:
    """Encode the records of a chunk as JSON: text as it is, other bytes as base64. One by one: a
    single call for all of them would not let other threads run. With `pauses`, many records are
    encoded in short steps while others write.
    """
    rows = []
    if pauses is not None:
        pauses.start()
    for record in chunk.records:
        row = {
            "offset": show_offset(record.offset, chunk.incarnation_number),
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

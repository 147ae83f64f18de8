"""Keys of JSON messages by a field; pure functions.

A field is a path such as `customer` or `address.city`. Its key is the JSON of its value, so 1 and
"1" are different keys. A message without the field, or with an object or an array there, has no
key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.json_messages import decode
from fourfold.models.streams.records import KeyStep, Record

FIELD_STEP_RECORDS: Final = 250
FIELD_STEP_BYTES: Final = 1 * limits.MIB
"""Records, and their bytes, between two checks of the limits of a read by field."""

_FIELD_MAX = 200


def check_field(field: str) -> str:
    """Return the path of a field; raise InvalidInput if it is not valid."""
    parts = field.split(".") if isinstance(field, str) else [""]
    if not all(parts) or len(field) > _FIELD_MAX:
        raise InvalidInput(
            f"{field!r:.80} is not a valid field", hint="Use a path such as `address.city`."
        )
    return field


def key_of_value(value: Any) -> bytes | None:
    """Return the key of a value; None if it cannot be one."""
    if isinstance(value, dict | list):
        return None
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def key_of(payload: bytes, field: str) -> bytes | None:
    """Return the key of a message, or None."""
    try:
        found = decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for part in field.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return key_of_value(found)


def search(rows: Iterable[tuple[Any, ...]], field: str, key: bytes) -> Iterator[KeyStep]:
    """Yield the rows whose field has a key, and progress between them.

    A row has an offset, a payload, a time and headers.
    """
    examined = size = 0
    for row in rows:
        examined += 1
        size += len(row[1])
        if key_of(row[1], field) == key:
            yield KeyStep(row[0] + 1, Record._make(row), examined, size)
        elif examined >= FIELD_STEP_RECORDS or size >= FIELD_STEP_BYTES:
            yield KeyStep(row[0] + 1, None, examined, size)
        else:
            continue
        examined = size = 0

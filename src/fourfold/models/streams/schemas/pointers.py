"""JSON pointers (RFC 6901) into messages. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.validation import check_key

STREAM_POINTER_CHARS: Final = 1_024
"""Length of the JSON pointer to a routing key."""

_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def check(pointer: str) -> str:
    """Return a valid pointer to a part of a message, or raise InvalidInput."""
    if (
        not pointer.startswith("/")
        or _ESCAPE.search(pointer)
        or len(pointer) > STREAM_POINTER_CHARS
    ):
        raise InvalidInput(
            f"invalid JSON pointer {pointer!r:.80}",
            hint="Use a pointer to a part of a message, such as '/customer/id'.",
        )
    return pointer


def text_at(message: bytes, pointer: str) -> bytes | None:
    """Return the text or number at a pointer as a routing key, or None if there is neither.

    Raises:
        InvalidInput: it is too long for a key.
    """
    value = _value_at(message.strip(), pointer)
    if value is None or value[:1] not in b'"-0123456789':
        return None
    if value[:1] != b'"':
        return check_key(value)
    text = msgspec.json.decode(value, type=str)
    return check_key(text) if text else None


def _value_at(value: bytes, pointer: str) -> bytes | None:
    """Return the value at a pointer; only the path to it is decoded."""
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if value[:1] == b"{":
            inside = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            if name not in inside:
                return None
            value = bytes(inside[name])
        elif value[:1] == b"[" and _INDEX.fullmatch(name):
            items = msgspec.json.decode(value, type=list[msgspec.Raw])
            if int(name) >= len(items):
                return None
            value = bytes(items[int(name)])
        else:
            return None
    return value

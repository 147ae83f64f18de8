"""JSON pointers (RFC 6901) into messages. Pure."""

from __future__ import annotations

import re

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.validation import check_key

_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def check(pointer: str) -> str:
    """A pointer at something within a message."""
    if (
        not pointer.startswith("/")
        or _ESCAPE.search(pointer)
        or len(pointer) > limits.STREAM_POINTER_CHARS
    ):
        raise InvalidInput(
            f"{pointer!r:.80} does not point at a part of a message",
            hint="A JSON pointer, as in '/customer/id'.",
        )
    return pointer


def text_at(message: bytes, pointer: str) -> bytes | None:
    """The text, or the number as text, at a place in a message, as a routing key; None when there
    is neither. InvalidInput when it is too long for a key.
    """
    found = _value_at(message.strip(), pointer)
    if found is None or found[:1] not in b'"-0123456789':
        return None
    if found[:1] != b'"':
        return check_key(found)
    text = msgspec.json.decode(found, type=str)
    return check_key(text) if text else None


def _value_at(found: bytes, pointer: str) -> bytes | None:
    """Only what leads to the place is decoded."""
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if found[:1] == b"{":
            inside = msgspec.json.decode(found, type=dict[str, msgspec.Raw])
            if name not in inside:
                return None
            found = bytes(inside[name])
        elif found[:1] == b"[" and _INDEX.fullmatch(name):
            items = msgspec.json.decode(found, type=list[msgspec.Raw])
            if int(name) >= len(items):
                return None
            found = bytes(items[int(name)])
        else:
            return None
    return found

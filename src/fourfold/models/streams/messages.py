"""What a body is made of: messages in a JSON stream, bytes in any other. Pure.

A message is kept as the bytes that came: numbers keep their digits, objects their order, text its
escapes. The body is checked to be JSON without being built and written again.
"""

from __future__ import annotations

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.names import JSON, plain_type

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(msgspec.Raw)
_SPACE = b" \t\r\n"


def split(body: bytes, content_type: str, *, empty_list: bool = False) -> list[bytes]:
    """The records of a body. A JSON array is one level of messages; `empty_list` allows it to be
    empty.
    """
    if content_type != JSON and plain_type(content_type) != JSON:
        return [body] if body else []
    text = body.strip(_SPACE)
    try:
        # The decoder checks the grammar of what it leaves raw, but not that text is UTF-8.
        if not text.isascii():
            text.decode()
        if text[:1] == b"[":
            found = [bytes(raw) for raw in _LIST.decode(text)]
        else:
            _ONE.decode(text)
            found = [bytes(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not found and not empty_list:
        raise InvalidInput(
            "an empty JSON array has no message to append",
            hint="Append a message; [[]] is one that is an empty array.",
        )
    return found


def join(records: list[bytes], content_type: str) -> bytes:
    """Records as one body again: a JSON array, or the bytes one after the other."""
    if plain_type(content_type) == JSON:
        return b"[" + b",".join(records) + b"]"
    return b"".join(records)

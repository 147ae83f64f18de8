"""What a body is made of: messages in a JSON stream, bytes in any other. Pure.

A message is kept as the bytes that came: numbers keep their digits, objects their order, text its
escapes. The body is checked to be JSON without being built and written again.

Where things are in the bytes of a JSON message, without building what they stand for. Pure.

Everything here takes for granted that the bytes are JSON, and goes over them once and without
recursion. So what is not touched stays as it came, down to its blanks and to names that are there
twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.validation import JSON, plain_type

_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(msgspec.Raw)
_SPACE = b" \t\r\n"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in a string; `lone` is half of a surrogate pair without the other half."""


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
        try:
            found = _split(text)
        except msgspec.DecodeError:
            if not has_lone_surrogate(text):
                raise
            found = _slices(text, _split(readable(text)))
    except RecursionError:
        raise InvalidInput("the body is nested too deeply", hint="Nest messages less.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not found and not empty_list:
        raise InvalidInput(
            "an empty JSON array has no message to append",
            hint="Append a message; [[]] is one that is an empty array.",
        )
    return found


def _split(text: bytes) -> list[bytes]:
    if text[:1] == b"[":
        return [bytes(raw) for raw in _LIST.decode(text)]
    _ONE.decode(text)
    return [bytes(text)]


def has_lone_surrogate(text: bytes) -> bool:
    """Return True if JSON escapes half of a surrogate pair alone, which RFC 8259 allows."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return False
    return any(found["lone"] for found in _ESCAPE.finditer(text))


def readable(text: bytes) -> bytes:
    """Return JSON of the same length for tools that need UTF-8: lone surrogates become U+FFFD."""
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found["lone"] else found[0], text)


def _slices(text: bytes, messages: list[bytes]) -> list[bytes]:
    """The messages of a text as they came, by their lengths in a text of the same length."""
    if text[:1] != b"[":
        return [bytes(text)]
    found, at = [], 1
    for message in messages:
        while text[at] in b" \t\r\n,":
            at += 1
        found.append(bytes(text[at : at + len(message)]))
        at += len(message)
    return found


def decode(message: bytes) -> Any:
    """Decode a message that is stored; a lone surrogate is one in the text of the value, too.

    Raises:
        msgspec.DecodeError: a number in it is too large for a value.
    """
    try:
        return msgspec.json.decode(message)
    except msgspec.DecodeError:
        if not has_lone_surrogate(message):
            raise
        return json.loads(message)


def join(records: list[bytes], content_type: str) -> bytes:
    """Records as one body again: a JSON array, or the bytes one after the other."""
    if plain_type(content_type) == JSON:
        return b"[" + b",".join(records) + b"]"
    return b"".join(records)


# The repetitions never give back what they took (*+), so that no text makes them try again.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# In JSON a colon outside of a string stands behind a name, and nowhere else.
_STRING_OR_NAME = re.compile(_STRING.pattern + rb"(?P<colon>[ \t\r\n]*+:[ \t\r\n]*+)?", re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + rb"|[\[{]|[\]}]", re.DOTALL)
_SCALAR = re.compile(rb"[^,\]} \t\r\n]++")
_OPENING = b"[{"
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKET = bytes(set(range(256)) - _STEPS.keys())


def deeper_than(levels: int, record: bytes) -> bool:
    """Whether objects and arrays are nested more than so many levels deep."""
    if record.count(b"[") + record.count(b"{") <= levels:
        return False
    brackets = _STRING.sub(b"", record).translate(None, delete=_NO_BRACKET)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > levels


def replace_values(record: bytes, wanted: Callable[[bytes], bool], by: bytes) -> bytes:
    """The message with another value under every name that is `wanted`, which is asked with the
    name in its quotes, as it is written. null stays null; everything around the values stays too.
    """
    pieces = []
    kept = at = 0
    while found := _STRING_OR_NAME.search(record, at):
        at = found.end()
        if found["colon"] is None or not wanted(record[found.start() : found.start("colon")]):
            continue
        end = _value_end(record, at)
        if record[at:end] != b"null":
            pieces += [record[kept:at], by]
            kept = end
        at = end
    return b"".join([*pieces, record[kept:]])


def _value_end(record: bytes, start: int) -> int:
    """Where the value ends that begins at `start`."""
    if record[start] in _OPENING:
        depth = 0
        for found in _STRING_OR_BRACKET.finditer(record, start):
            depth += _STEPS.get(record[found.start()], 0)
            if depth == 0:
                return found.end()
    pattern = _STRING if record[start : start + 1] == b'"' else _SCALAR
    value = pattern.match(record, start)
    return value.end() if value else len(record)

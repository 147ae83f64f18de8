"""JSON messages as bytes: split and join bodies, edit values in place. Pure.

The body of a JSON stream contains messages, that of any other stream is one record. A message is
stored as received: numbers keep their digits, objects their order, text its escapes. Bodies are
validated without decoding and encoding them again.

The editing functions expect valid JSON and scan it once, without recursion. Everything that they do
not replace stays as received, including blanks and duplicate names.
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
"""An escape in a string; `lone` is a lone surrogate."""


def split(body: bytes, content_type: str, *, empty_list: bool = False) -> list[bytes]:
    """Split a body into records; the elements of a JSON array are separate messages.

    `empty_list` allows an empty array.
    """
    if content_type != JSON and plain_type(content_type) != JSON:
        return [body] if body else []
    text = body.strip(_SPACE)
    try:
        # The decoder checks the grammar of raw values, but not that text is UTF-8.
        if not text.isascii():
            text.decode()
        try:
            messages = _split(text)
        except msgspec.DecodeError:
            if not has_lone_surrogate(text):
                raise
            messages = _slices(text, _split(readable(text)))
    except RecursionError:
        raise InvalidInput(
            "body is nested too deeply", hint="Send messages with fewer levels."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"body is not JSON: {error}") from None
    if not messages and not empty_list:
        raise InvalidInput(
            "body must contain a message, got an empty JSON array",
            hint="Append a message; [[]] appends one that is an empty array.",
        )
    return messages


def _split(text: bytes) -> list[bytes]:
    if text[:1] == b"[":
        return [bytes(raw) for raw in _LIST.decode(text)]
    _ONE.decode(text)
    return [bytes(text)]


def has_lone_surrogate(text: bytes) -> bool:
    """Return True if JSON escapes a lone surrogate, which RFC 8259 allows."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return False
    return any(match["lone"] for match in _ESCAPE.finditer(text))


def readable(text: bytes) -> bytes:
    """Return JSON of the same length for tools that need UTF-8: lone surrogates become U+FFFD."""
    return _ESCAPE.sub(lambda match: b"\\ufffd" if match["lone"] else match[0], text)


def _slices(text: bytes, messages: list[bytes]) -> list[bytes]:
    """Cut the messages of a text by their lengths in a text of the same length."""
    if text[:1] != b"[":
        return [bytes(text)]
    parts, at = [], 1
    for message in messages:
        while text[at] in b" \t\r\n,":
            at += 1
        parts.append(bytes(text[at : at + len(message)]))
        at += len(message)
    return parts


def decode(message: bytes) -> Any:
    """Decode a stored message; lone surrogates stay in the decoded text.

    Raises:
        msgspec.DecodeError: a number is too large to decode.
    """
    try:
        return msgspec.json.decode(message)
    except msgspec.DecodeError:
        if not has_lone_surrogate(message):
            raise
        return json.loads(message)


def join(records: list[bytes], content_type: str) -> bytes:
    """Join records into one body: a JSON array, or the concatenated bytes."""
    if plain_type(content_type) == JSON:
        return b"[" + b",".join(records) + b"]"
    return b"".join(records)


# Possessive quantifiers (*+) prevent backtracking.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# In JSON, a colon outside of a string only follows a name.
_STRING_OR_NAME = re.compile(_STRING.pattern + rb"(?P<colon>[ \t\r\n]*+:[ \t\r\n]*+)?", re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING.pattern + rb"|[\[{]|[\]}]", re.DOTALL)
_SCALAR = re.compile(rb"[^,\]} \t\r\n]++")
_OPENING = b"[{"
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKET = bytes(set(range(256)) - _STEPS.keys())


def deeper_than(levels: int, record: bytes) -> bool:
    """Return True if objects and arrays are nested more than `levels` deep."""
    if record.count(b"[") + record.count(b"{") <= levels:
        return False
    brackets = _STRING.sub(b"", record).translate(None, delete=_NO_BRACKET)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > levels


def replace_values(record: bytes, matches: Callable[[bytes], bool], by: bytes) -> bytes:
    """Return the message with the value of every name that `matches` replaced.

    `matches` is called with the quoted name as it is written. null stays null, and all other bytes
    stay unchanged.
    """
    parts = []
    copied = at = 0
    while match := _STRING_OR_NAME.search(record, at):
        at = match.end()
        if match["colon"] is None or not matches(record[match.start() : match.start("colon")]):
            continue
        end = _value_end(record, at)
        if record[at:end] != b"null":
            parts += [record[copied:at], by]
            copied = end
        at = end
    return b"".join([*parts, record[copied:]])


def _value_end(record: bytes, start: int) -> int:
    """Return the end of the value that starts at `start`."""
    if record[start] in _OPENING:
        depth = 0
        for match in _STRING_OR_BRACKET.finditer(record, start):
            depth += _STEPS.get(record[match.start()], 0)
            if depth == 0:
                return match.end()
    pattern = _STRING if record[start : start + 1] == b'"' else _SCALAR
    value = pattern.match(record, start)
    return value.end() if value else len(record)

"""Where things are in the bytes of a JSON message, without building what they stand for. Pure.

Everything here takes for granted that the bytes are JSON, and goes over them once and without
recursion. So what is not touched stays as it came, down to its blanks and to names that are there
twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate

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

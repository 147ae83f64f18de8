"""Keys of index entries: JSON scalars as bytes that sort as the values do.

    null < false < true < numbers < strings

A key consists of one part for each path of its index, so keys of several paths sort by the first
path, then by the second. Every part ends by itself: no part is the beginning of another one.

    nothing              00, where another path of the index has a value
    null, false, true    01, 02, 03
    number               04, the greatest double at or below it, and what is left
    string               05, its UTF-8 with 00 as 00 ff, and 00 01

Numbers are exact: 1 and 1.0 have one key, and two integers beyond 2**53 have two. Of a string that
is longer than `STRING_BYTES_MAX` the key has that many bytes and ends with 00 02, so strings that
begin alike may share a key. What an index finds by such a key is compared with the documents.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from fourfold.limits import DOCUMENT_INTEGER_BITS_MAX

STRING_BYTES_MAX: Final = 512
"""Bytes of a string that a key contains."""

MISSING: Final = b"\x00"
"""Part of a path at which a document has no scalar, after the first path of an index."""
_NULL, _FALSE, _TRUE, _NUMBER, _STRING = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
_END = b"\x00\x01"
_CUT = b"\x00\x02"
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_LOWEST: Final = -(1 << (DOCUMENT_INTEGER_BITS_MAX + 1))
"""Below every integer of a document."""
_EXACT_INTEGER: Final = 2**53
_double = struct.Struct(">d")
_bits = struct.Struct(">Q")


def encode_part(value: Any, bytes_max: int = STRING_BYTES_MAX) -> bytes | None:
    """Return the part of a scalar; None for an object or an array, which have no key."""
    kind = type(value)
    if kind is str:
        return _encode_string(value, bytes_max)
    if kind is int or kind is float:
        return _encode_number(value)
    if value is None:
        return _NULL
    if kind is bool:
        return _TRUE if value else _FALSE
    return None


def is_cut(part: bytes) -> bool:
    """Return True if other values may have the same part."""
    return part[:1] == _STRING and part[-2:] == _CUT


def encode_prefix(prefix: str) -> bytes:
    """Return the bytes with which the parts of all strings with a prefix begin."""
    return _STRING + _escape(prefix.encode()[:STRING_BYTES_MAX])


def after_all(prefix: bytes) -> bytes:
    """Return the least bytes that sort after everything that begins with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def type_range(value: Any) -> tuple[bytes, bytes]:
    """Return the bounds of the parts that are compared with `value`: those of its type."""
    if type(value) is str:
        return _STRING, after_all(_STRING)
    if type(value) in (int, float):
        return _NUMBER, after_all(_NUMBER)
    return (_FALSE, _NUMBER) if type(value) is bool else (_NULL, _FALSE)


def decode_key(key: bytes) -> list[Any]:
    """Return the values of a key, one for each path; a long string is cut.

    A missing value is None, like null.
    """
    values: list[Any] = []
    value: Any
    at = 0
    while at < len(key):
        tag = key[at : at + 1]
        at += 1
        if tag == _NUMBER:
            value, at = _decode_number(key, at)
        elif tag == _STRING:
            value, at = _decode_string(key, at)
        else:
            value = None if tag in (_NULL, MISSING) else tag == _TRUE
        values.append(value)
    return values


def has_missing(key: bytes) -> bool:
    """Return True if a path of the key has no value."""
    at = 0
    while at < len(key):
        tag = key[at : at + 1]
        if tag == MISSING:
            return True
        at += 1
        if tag == _NUMBER:
            _, at = _decode_number(key, at)
        elif tag == _STRING:
            _, at = _decode_string(key, at)
    return False


def _escape(text: bytes) -> bytes:
    return text.replace(b"\x00", b"\x00\xff") if b"\x00" in text else text


def _encode_string(value: str, bytes_max: int) -> bytes:
    text = value.encode()
    if len(text) > bytes_max:
        return _STRING + _escape(text[:bytes_max]) + _CUT
    return _STRING + _escape(text) + _END


def _decode_string(key: bytes, at: int) -> tuple[str, int]:
    end = at
    while True:
        end = key.index(b"\x00", end)
        if key[end + 1] != 0xFF:
            text = key[at:end].replace(b"\x00\xff", b"\x00")
            # The cut may have divided a character.
            return text.decode(errors="ignore"), end + 2
        end += 2


def _encode_number(value: float) -> bytes:
    rest = 0
    if type(value) is int:
        value, rest = _floor(value)
    # Minus zero is zero.
    (bits,) = _bits.unpack(_double.pack(value + 0.0))
    sortable = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    if not rest:
        return _NUMBER + _bits.pack(sortable) + b"\x00"
    size = (rest.bit_length() + 7) // 8
    return _NUMBER + _bits.pack(sortable) + struct.pack(">H", size + 256) + rest.to_bytes(size)


def _floor(value: int) -> tuple[float, int]:
    """Return the greatest double at or below an integer, and the difference."""
    if -_EXACT_INTEGER <= value <= _EXACT_INTEGER:
        return float(value), 0
    try:
        double = float(value)
    except OverflowError:
        return (math.inf, value) if value > 0 else (-math.inf, value - _LOWEST)
    if int(double) > value:
        double = math.nextafter(double, -math.inf)
        if math.isinf(double):
            return double, value - _LOWEST
    return double, value - int(double)


def _decode_number(key: bytes, at: int) -> tuple[int | float, int]:
    (sortable,) = _bits.unpack_from(key, at)
    bits = sortable & ~_SIGN if sortable & _SIGN else sortable ^ _ALL
    (double,) = _double.unpack(_bits.pack(bits))
    at += 8
    rest = 0
    if key[at]:
        size = int.from_bytes(key[at : at + 2]) - 256
        rest = int.from_bytes(key[at + 2 : at + 2 + size])
        at += 1 + size
    at += 1
    if math.isinf(double):
        return (rest if double > 0 else rest + _LOWEST), at
    if rest or (double.is_integer() and abs(double) <= _EXACT_INTEGER):
        return int(double) + rest, at
    return double, at

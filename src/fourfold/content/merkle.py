"""Merkle references: a hash of a value that is built from the hashes of its parts.

A value and a reference to it hash alike, so a part can be replaced by its reference without
changing the hash of the whole. The algorithm is that of the npm package `merkle-reference` 2.x; H
is SHA-256.

    digest(value) = H( H("merkle-structure:" + tag) || payload )

    value             tag                       payload
    None              null                      no bytes
    bool              boolean/byte              01 or 00
    int               integer/leb128            signed LEB128
    float, whole      integer/leb128            as the int that it equals
    float, other      float/double-precision    8 bytes, little endian
    str               string/utf-8              UTF-8
    bytes             bytes/raw                 the bytes
    list, tuple       list/item/ref-tree        fold of the digests of the items
    dict, str keys    map/k+v/ref-tree          fold of H(digest(key) || digest(value)),
                                                keys in the order of their UTF-8 bytes
    Reference         none: it holds the digest of the value that it refers to

    fold of nothing is H of no bytes, fold of one is that one; otherwise neighbours are hashed in
    pairs, an odd last one moves up as it is, and the new row is folded again.

The text form is `b` and the base32 of `07 12 20` and the digest: always `ba4jc...`. The wire form
is `{"/": "baedre..."}`, whose text has `01` in front of the same bytes. Fourfold stores the text
form.

A str that spells a reference is hashed as a str, and a dict in wire form as a dict: parse it first
where a reference is meant.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from fourfold import limits
from fourfold.content.canonical import Refusal
from fourfold.errors import ContentError

MERKLE_KEYS_REMEMBERED_MAX: Final = 4_096
"""Keys of objects whose digests are cached: documents repeat a few keys."""
MERKLE_KEY_CHARS_MAX: Final = 64
"""Longest key whose digest is cached."""

_DIGEST_BYTES: Final = 32
_TEXT_HEADER: Final = bytes.fromhex("071220")
_WIRE_HEADER: Final = bytes.fromhex("01071220")
_HINT = 'A reference is written `ba4jc...`, `baedre...` or {"/": "baedre..."}.'


def _tag(name: str) -> bytes:
    return sha256(f"merkle-structure:{name}".encode()).digest()


_NULL = sha256(_tag("null")).digest()
_TRUE = sha256(_tag("boolean/byte") + b"\x01").digest()
_FALSE = sha256(_tag("boolean/byte") + b"\x00").digest()
_INTEGER = _tag("integer/leb128")
_FLOAT = _tag("float/double-precision")
_STRING = _tag("string/utf-8")
_BYTES = _tag("bytes/raw")
_LIST = _tag("list/item/ref-tree")
_MAP = _tag("map/k+v/ref-tree")


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """The digest of a value, standing for the value."""

    digest: bytes

    def __post_init__(self) -> None:
        if type(self.digest) is not bytes or len(self.digest) != _DIGEST_BYTES:
            raise ContentError("a merkle reference must have 32 bytes", hint=_HINT)

    def __str__(self) -> str:
        return _base32(_TEXT_HEADER + self.digest)

    def wire(self) -> dict[str, str]:
        """Return the reference as other implementations exchange it in JSON."""
        return {"/": _base32(_WIRE_HEADER + self.digest)}

    @classmethod
    def parse(cls, source: object) -> Reference:
        """Return the reference in its text form or wire form."""
        text = source
        if isinstance(source, dict) and source.keys() == {"/"}:
            text = source["/"]
        if isinstance(text, str):
            data = _unbase32(text)
            for header in (_TEXT_HEADER, _WIRE_HEADER):
                if data.startswith(header) and len(data) == len(header) + _DIGEST_BYTES:
                    return cls(data[len(header) :])
        raise ContentError(f"not a merkle reference: {repr(source)[:100]}", hint=_HINT)


def refer(value: object) -> Reference:
    """Return the reference to `value`; a reference refers to itself."""
    return Reference(digest(value))


def digest(value: object) -> bytes:
    """Return the 32 bytes that identify `value`."""
    try:
        return _digest(value, 0)
    except Refusal as refusal:
        raise refusal.error("cannot hash") from None
    except RecursionError:
        raise ContentError(
            "cannot hash: the value is nested deeper than the stack of this call can follow"
        ) from None


def digest_of_map(parts: dict[str, bytes]) -> bytes:
    """Return the digest of a dict from the digests of its values."""
    leaves = [sha256(_key(key) + parts[key]).digest() for key in _sorted_keys(parts)]
    return sha256(_MAP + _fold(leaves)).digest()


def _digest(value: Any, depth: int) -> bytes:
    kind = type(value)
    if kind is str:
        return _string(value)
    if kind is Reference:
        digest: bytes = value.digest
        return digest
    if kind is list or kind is tuple:
        _check_depth(depth)
        leaves = []
        for index, item in enumerate(value):
            try:
                leaves.append(_digest(item, depth + 1))
            except Refusal as refusal:
                raise refusal.within(index) from None
        return sha256(_LIST + _fold(leaves)).digest()
    if kind is dict:
        _check_depth(depth)
        leaves = []
        for key in _sorted_keys(value):
            try:
                pair = _key(key) + _digest(value[key], depth + 1)
            except Refusal as refusal:
                raise refusal.within(key) from None
            leaves.append(sha256(pair).digest())
        return sha256(_MAP + _fold(leaves)).digest()
    return _leaf(value, kind)


def _leaf(value: Any, kind: type) -> bytes:
    if value is None:
        return _NULL
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is int:
        return sha256(_INTEGER + _leb128(value)).digest()
    if kind is float:
        if not math.isfinite(value):
            raise Refusal(f"{value!r} is not a finite float")
        if value.is_integer():
            return sha256(_INTEGER + _leb128(int(value))).digest()
        return sha256(_FLOAT + struct.pack("<d", value)).digest()
    if kind is bytes:
        return sha256(_BYTES + value).digest()
    raise Refusal(f"{kind.__name__} has no merkle reference")


def _string(text: str) -> bytes:
    try:
        return sha256(_STRING + text.encode()).digest()
    except UnicodeEncodeError as error:
        raise Refusal(f"lone surrogate at character {error.start} of a str") from None


@lru_cache(maxsize=MERKLE_KEYS_REMEMBERED_MAX)
def _short_key(text: str) -> bytes:
    return _string(text)


def _key(text: str) -> bytes:
    """Return the digest of a key. Documents repeat a few keys, so short ones are cached."""
    return _short_key(text) if len(text) <= MERKLE_KEY_CHARS_MAX else _string(text)


def _sorted_keys(value: Mapping[Any, object]) -> list[str]:
    for key in value:
        if type(key) is not str:
            raise Refusal(f"the key {repr(key)[:60]} is not exactly a str")
    # Code point order is the order of the UTF-8 bytes.
    return sorted(value)


def _check_depth(depth: int) -> None:
    if depth >= limits.CONTENT_DEPTH_MAX:
        raise Refusal(
            f"nested deeper than {limits.CONTENT_DEPTH_MAX}, or the value contains itself"
        )


def _leb128(number: int) -> bytes:
    # One sign bit more than the magnitude needs, in groups of seven, lowest first.
    groups = (number if number >= 0 else ~number).bit_length() // 7 + 1
    out = bytearray((number >> (7 * at)) & 0x7F | 0x80 for at in range(groups))
    out[-1] &= 0x7F
    return bytes(out)


def _fold(layer: list[bytes]) -> bytes:
    if not layer:
        return sha256().digest()
    while len(layer) > 1:
        above = [sha256(layer[at] + layer[at + 1]).digest() for at in range(0, len(layer) - 1, 2)]
        if len(layer) % 2:
            above.append(layer[-1])
        layer = above
    return layer[0]


_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]
_TEXT_BYTES = len(_TEXT_HEADER) + _DIGEST_BYTES
_SHIFTS = range(8 * _TEXT_BYTES - 10, -1, -10)
_TEXT_FORM = re.compile(r"b[a-z2-7]{56}")
_DIGITS = str.maketrans(_LETTERS, "0123456789abcdefghijklmnopqrstuv")


def _base32(data: bytes) -> str:
    if len(data) == _TEXT_BYTES:
        # The text form comes with every fact. It is 28 pairs of letters, of ten bits each.
        number = int.from_bytes(data, "big")
        return "b" + "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
    return "b" + base64.b32encode(data).decode().rstrip("=").lower()


def _unbase32(text: str) -> bytes:
    """Return the bytes of base32 `text`, or no bytes if it is not their canonical spelling."""
    if _TEXT_FORM.fullmatch(text):
        # 56 letters of five bits are exactly the bytes of the text form.
        return int(text[1:].translate(_DIGITS), 32).to_bytes(_TEXT_BYTES, "big")
    body = text[1:].upper()
    try:
        data = base64.b32decode(body + "=" * (-len(body) % 8))
    except (binascii.Error, ValueError):
        return b""
    return data if _base32(data) == text else b""

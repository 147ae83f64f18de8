"""Fingerprints and bloom filters of keys; pure functions.

A fingerprint is a 64-bit keyed hash: without the secret of an index, an attacker cannot produce
collisions. A filter is the split-block bloom filter of Parquet, which has no false negatives.
"""

from __future__ import annotations

import hashlib
import struct

_MASK = (1 << 64) - 1
_P1 = 11400714785074694791
_P2 = 14029467366897019727
_P3 = 1609587929392839161
_P4 = 9650029242287828579
_P5 = 2870177450012600261
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_BLOCK = 32
SECRET_BYTES = 16


def fingerprint(secret: bytes, key: bytes) -> int:
    """Return the fingerprint of a key in an index, as a signed 64-bit number."""
    hashed = hashlib.blake2b(key, digest_size=8, key=secret).digest()
    return int.from_bytes(hashed, "little", signed=True)


def may_have(bitset: bytes, value: bytes) -> bool:
    """Return True if a filter may contain a value, passed as the bytes that Parquet stores."""
    hashed = xxhash64(value)
    blocks = len(bitset) // _BLOCK
    at = ((hashed >> 32) * blocks >> 32) * _BLOCK
    words = struct.unpack_from("<8I", bitset, at)
    low = hashed & 0xFFFFFFFF
    return all(
        word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(words, _SALTS, strict=True)
    )


def bitset_of(stored: bytes) -> bytes:
    """Return the bits of a stored filter: a short header, then a power of two of bytes."""
    return stored[-(1 << (len(stored).bit_length() - 1)) :]


def xxhash64(data: bytes) -> int:
    """Return the hash used by Parquet's bloom filters: XXH64 with the seed 0."""
    length, at = len(data), 0
    if length >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at <= length - 32:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        a, b, c, d = lanes
        found = (
            _rotate_left(a, 1) + _rotate_left(b, 7) + _rotate_left(c, 12) + _rotate_left(d, 18)
        ) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = _P5
    found = (found + length) & _MASK
    while at <= length - 8:
        (word,) = struct.unpack_from("<Q", data, at)
        found = (_rotate_left(found ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= length - 4:
        (word,) = struct.unpack_from("<I", data, at)
        found = (_rotate_left(found ^ word * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _rotate_left(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotate_left((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK

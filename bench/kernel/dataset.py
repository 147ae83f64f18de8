"""The rows that both sides store: one seeded sequence of keys and payloads, in one file.

The file is four 64-bit integers (rows, bytes of a payload, timestamp, keys), the key of every row,
and the payloads one after another. Every payload is distinct, so that a row stored twice or under
another key shows up in the checksum.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

KEYS = 1_000
PAYLOAD_BYTES = 200
TS = 1_700_000_000_000
SEED = 20_260_101

_HEADER = struct.Struct("=4q")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Keys (1 to `KEYS`) and payloads, in the order in which they are to be stored."""

    keys: list[int]
    payloads: list[bytes]

    def fingerprint(self) -> int:
        return fingerprint(zip(self.keys, self.payloads, strict=True))


def fingerprint(rows: Iterable[tuple[int, bytes]]) -> int:
    """A sum over the rows that does not depend on their order: concurrent callers have none."""
    total = 0
    for key, payload in rows:
        digest = blake2b(payload, digest_size=16, key=key.to_bytes(8, "little")).digest()
        total += int.from_bytes(digest, "little")
    return total % (1 << 128)


def write(path: Path, count: int, *, one_key: bool) -> None:
    """`count` rows of random keys, or all of key 1."""
    chance = random.Random(SEED)
    payloads = chance.randbytes(count * PAYLOAD_BYTES)
    keys = array("q", [1] * count if one_key else chance.choices(range(1, KEYS + 1), k=count))
    with path.open("wb") as file:
        file.write(_HEADER.pack(count, PAYLOAD_BYTES, TS, KEYS))
        file.write(keys.tobytes())
        file.write(payloads)


def load(path: Path, count: int) -> Dataset:
    """The first `count` rows."""
    keys = array("q")
    with path.open("rb") as file:
        total, size, _, _ = _HEADER.unpack(file.read(_HEADER.size))
        if count > total:
            raise ValueError(f"{path} has {total} rows, not {count}")
        keys.frombytes(file.read(count * keys.itemsize))
        file.seek(_HEADER.size + total * keys.itemsize)
        block = file.read(count * size)
    payloads = [block[at : at + size] for at in range(0, len(block), size)]
    return Dataset(keys.tolist(), payloads)

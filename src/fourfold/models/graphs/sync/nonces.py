"""Nonces of rows: the place of a row in the log of its node, encrypted under the node's name.

A nonce is the same whenever it is computed, so a row that was signed, lost by a restore and signed
again has the same id. Its node can read the place back, and recognizes a row of its own that
arrives, also if the row had no content id yet. The name of a node never leaves it, so peers learn
nothing of how much it writes.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from fourfold import limits
from fourfold.errors import MissingDependency

_KEY = b"fourfold/nonce/1\0"
_PADDING = bytes(4)


class Nonces:
    """The nonces of the rows of one node."""

    def __init__(self, node: str) -> None:
        cipher = _cipher(hashlib.sha256(_KEY + node.encode()).digest()[:16])
        self._encrypt = cipher.encryptor()
        self._decrypt = cipher.decryptor()

    def encode(self, seq: int, position: int) -> bytes:
        """Return the nonce of the row at a position of a seq."""
        block = seq.to_bytes(8, "big") + position.to_bytes(4, "big") + _PADDING
        return bytes(self._encrypt.update(block))

    def find_place(self, nonce: bytes) -> tuple[int, int] | None:
        """Return seq and position of a row of this node, or None for another node's nonce."""
        block = self._decrypt.update(nonce)
        seq = int.from_bytes(block[:8], "big")
        if block[12:] != _PADDING or seq > limits.INTEGER_MAX:
            return None
        return seq, int.from_bytes(block[8:12], "big")


@lru_cache(maxsize=256)
def nonces_of(node: str) -> Nonces:
    """Return the nonces of a node."""
    return Nonces(node)


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import (  # noqa: PLC0415 - an extra
            Cipher,
            algorithms,
            modes,
        )
    except ImportError:
        raise MissingDependency(
            "rows are shared with the package `cryptography`, which is not installed",
            hint="pip install 'fourfold[sync]'",
        ) from None
    # One block, and no block twice: a place has one row.
    return Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305

"""Content ids: `sha256:` and the 64 lowercase hexadecimal digits of the SHA-256 of some bytes.

An id names bytes and nothing else. Equal bytes have one id everywhere, and an id has one spelling.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from fourfold.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX: Final = "sha256:"

_ID = re.compile(r"sha256:[0-9a-f]{64}")
_HINT = "A content id is `sha256:` and 64 lowercase hexadecimal digits."


def content_id(data: bytes | bytearray | memoryview) -> str:
    """Return the id of these bytes."""
    return PREFIX + hashlib.sha256(data).hexdigest()


EMPTY_ID: Final = content_id(b"")


def is_content_id(value: object) -> bool:
    """Return True if a value is the text of a content id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def parse_content_id(value: object) -> str:
    """Return the 64 hexadecimal digits of an id; raise ContentError for other text."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value[len(PREFIX) :]
    shown = repr(value)
    raise ContentError(
        f"not a content id: {shown if len(shown) <= 100 else shown[:97] + '...'}", hint=_HINT
    )


class Hasher:
    """The id and the size of bytes that arrive in pieces."""

    __slots__ = ("_hash", "size")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Add bytes to the digest and to the size."""
        self._hash.update(piece)
        self.size += memoryview(piece).nbytes

    @property
    def id(self) -> str:
        """The id of everything seen so far; more may follow."""
        return PREFIX + self._hash.hexdigest()


def content_id_of_stream(pieces: Iterable[bytes | bytearray | memoryview]) -> str:
    """Return the id of the joined chunks; holds one of them at a time."""
    hasher = Hasher()
    for piece in pieces:
        hasher.update(piece)
    return hasher.id

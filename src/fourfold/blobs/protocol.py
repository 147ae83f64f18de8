"""What a blob store promises: bytes that are named by their content.

Every backend keeps the same promises, and one contract suite, `fourfold.testing.blob_contract`,
checks them:

- The id of a blob is the SHA-256 of its bytes, so equal bytes are stored once and a blob never
  changes.
- `put` and `put_stream` return when the blob is as durable as the backend can make it. A call that
  raises leaves no blob behind.
- What `get` returns has been hashed and is what the id names; if the stored bytes are not, it
  raises CorruptData.
- An absent blob raises NotFound; a malformed id raises ContentError.

What all blob stores check alike: arguments before anything is written, bytes after reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fourfold import limits
from fourfold.content import EMPTY_ID, Hasher, content_id
from fourfold.errors import CorruptData, InvalidInput, NotFound

Data: TypeAlias = bytes | bytearray | memoryview


class Readable(Protocol):
    """A binary file, a socket's file, an HTTP body: whatever has `read(size)`."""

    def read(self, size: int, /) -> bytes: ...


Source: TypeAlias = Iterable[Data] | Readable
"""A blob that arrives in pieces."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many blobs there are, and how many bytes they have together."""

    count: int
    total_bytes: int


class BlobStore(Protocol):
    """Bytes by content. Safe to share between threads."""

    max_bytes: int
    """A larger blob is refused; the limit of the smallest backend, unless set otherwise."""

    def put(self, data: Data) -> str:
        """Store the bytes, unless they are there already; their id."""
        ...

    def put_stream(self, source: Source) -> str:
        """Store what a stream gives, in bounded memory where the backend can; its id.

        An error of the stream passes unchanged, and nothing was stored.
        """
        ...

    def get(self, blob_id: str) -> bytes:
        """The bytes, verified."""
        ...

    def chunks(self, blob_id: str, chunk_bytes: int = limits.BLOB_CHUNK_BYTES) -> Iterator[bytes]:
        """The bytes in pieces, which are verified as a whole.

        The last piece comes only after the hash of all of them was right; otherwise CorruptData is
        raised in its place. So whoever has all pieces has the blob that was asked for.
        """
        ...

    def get_range(self, blob_id: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`: fewer at the end of the blob, none beyond it.

        A part has no hash of its own, so this is the one way to read that verifies nothing.
        """
        ...

    def has(self, blob_id: str) -> bool:
        """Whether the blob is there; its bytes are not looked at."""
        ...

    def size(self, blob_id: str) -> int:
        """How many bytes are stored under this id."""
        ...

    def ids(self) -> Iterator[str]:
        """Every id, sorted.

        Lazy: a blob that comes or goes meanwhile may or may not show; all others show once.
        """
        ...

    def delete(self, blob_id: str) -> bool:
        """Remove the blob; whether there was one. Nothing checks that nobody refers to it."""
        ...

    def usage(self) -> Usage:
        """Count all blobs. It looks at every one of them: for reports, not for every request."""
        ...

    def sweep(self, older_than_s: float = limits.BLOB_SWEEP_AGE_S) -> int:
        """Remove what writers that died left behind and that is older than this; how many files."""
        ...


def check_data(data: Data, max_bytes: int) -> bytes | memoryview:
    """The data as flat bytes, not copied."""
    flat = _flat(data, "the blob")
    if len(flat) > max_bytes:
        raise _too_large(max_bytes)
    return data if isinstance(data, bytes) else flat


def pieces_of(source: Source, hasher: Hasher, max_bytes: int) -> Iterator[memoryview]:
    """The pieces of a stream, hashed on their way; refused as soon as they are too many."""
    for piece in _read_all(source):
        flat = _flat(piece, "a piece of the stream")
        hasher.update(flat)
        if hasher.size > max_bytes:
            raise _too_large(max_bytes)
        yield flat


def check_age(older_than_s: float) -> None:
    if not (math.isfinite(older_than_s) and older_than_s >= 0):
        raise InvalidInput(f"older_than_s is {older_than_s!r}, not a number of seconds")


def is_leftover(blob_id: str, size: int) -> bool:
    """Whether this is the trace of a write that a crash cut short: no bytes under another's name.

    Such a file counts as absent everywhere, and the next `put` of the blob replaces it.
    """
    return size == 0 and blob_id != EMPTY_ID


def verified(blob_id: str, data: bytes, place: str) -> bytes:
    if content_id(data) != blob_id:
        raise corrupt(blob_id, place)
    return data


def verified_chunks(blob_id: str, pieces: Iterable[bytes], place: str) -> Iterator[bytes]:
    """The pieces; the last one only once all of them have the right hash."""
    hasher = Hasher()
    held: bytes | None = None
    for piece in pieces:
        hasher.update(piece)
        if held is not None:
            yield held
        held = piece
    if hasher.id != blob_id:
        raise corrupt(blob_id, place)
    if held is not None:
        yield held


def corrupt(blob_id: str, place: str) -> CorruptData:
    return CorruptData(
        f"{place} does not hold the bytes that {blob_id} names",
        hint="Put the same bytes again after deleting the blob, or restore a backup.",
    )


def not_found(blob_id: str, place: str) -> NotFound:
    return NotFound(
        f"{place} has no blob {blob_id}", hint="It was never stored there, or was deleted."
    )


def _read_all(source: Source) -> Iterator[Data]:
    # A file is also an iterable, of lines, which may be of any length: `read` comes first.
    read = getattr(source, "read", None)
    if callable(read):
        while True:
            piece = read(limits.BLOB_CHUNK_BYTES)
            # Text, and the None of a file that does not block, are refused also when empty.
            yield piece
            if not piece:
                return
    if isinstance(source, (bytes, bytearray, memoryview, str)) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"the stream is {type(source).__name__}, not a binary file or an iterable of bytes",
            hint="Use put(data) for bytes that are at hand.",
        )
    yield from source


def _flat(data: Data, what: str) -> memoryview:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(
            f"{what} is {type(data).__name__}, not bytes", hint="Encode text first: text.encode()."
        )
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        raise InvalidInput(f"{what} is a memoryview that is not contiguous") from error


def _too_large(max_bytes: int) -> InvalidInput:
    return InvalidInput(
        f"the blob has more than {max_bytes} bytes",
        hint="Split it, or store it as an object of its own.",
    )

"""The protocol of blob stores: bytes that are named by their content.

Every backend gives the same guarantees, which one contract suite, `fourfold.testing.blob_contract`,
checks:

- The id of a blob is the SHA-256 of its bytes, so equal bytes are stored once and a blob never
  changes.
- `put` and `put_stream` return when the blob is as durable as the backend can make it. A call that
  raises stores no blob.
- `get` verifies the hash of the bytes, and raises CorruptData if it does not match the id.
- A missing blob raises NotFound; a malformed id raises ContentError.
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
    """A binary file, or any object with `read(size)`."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


Source: TypeAlias = Iterable[Data] | Readable
"""A blob in pieces."""


@dataclass(frozen=True, slots=True)
class BlobUsage:
    """Number and total size of the blobs."""

    count: int
    total_bytes: int

    @classmethod
    def of(cls, sizes: Iterable[int]) -> BlobUsage:
        """Count blobs of these sizes."""
        count = total = 0
        for size in sizes:
            count += 1
            total += size
        return cls(count, total)


class BlobStore(Protocol):
    """A store of content-addressed bytes. Thread-safe."""

    max_bytes: int
    """Maximum size of a blob; by default the limit of the smallest backend."""

    def put(self, data: Data) -> str:
        """Store the bytes unless they exist; return their id."""
        ...

    def put_stream(self, source: Source) -> str:
        """Store the bytes of a stream, in bounded memory if possible; return their id.

        An error of the stream passes unchanged, and nothing is stored.
        """
        ...

    def get(self, blob_id: str) -> bytes:
        """Return the bytes after verifying their hash."""
        ...

    def chunks(self, blob_id: str, chunk_bytes: int = limits.BLOB_CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in pieces, verified as a whole.

        The last piece is yielded only if the hash of all of them is right; otherwise CorruptData is
        raised. So a caller that received all pieces has the right blob.
        """
        ...

    def get_range(self, blob_id: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the blob.

        A range has no hash, so this is the only read without verification.
        """
        ...

    def has(self, blob_id: str) -> bool:
        """Return True if the blob exists, without reading its bytes."""
        ...

    def size(self, blob_id: str) -> int:
        """Return the stored size of the blob."""
        ...

    def ids(self) -> Iterator[str]:
        """Yield every id, sorted.

        Lazy: a blob stored or deleted meanwhile may or may not be included; every other one is
        included once.
        """
        ...

    def delete(self, blob_id: str) -> bool:
        """Delete the blob, even if it is referenced; return False if it did not exist."""
        ...

    def usage(self) -> BlobUsage:
        """Count all blobs. Slow: it visits every one of them."""
        ...

    def sweep(self, older_than_s: float = limits.BLOB_SWEEP_AGE_S) -> int:
        """Delete temporary files of dead writers older than this; return their number."""
        ...


def check_data(data: Data, max_bytes: int) -> bytes | memoryview:
    """Return the data as flat bytes, without a copy."""
    flat = _flat(data, "blob")
    if len(flat) > max_bytes:
        raise _too_large(max_bytes)
    return data if isinstance(data, bytes) else flat


def pieces_of(source: Source, hasher: Hasher, max_bytes: int) -> Iterator[memoryview]:
    """Yield and hash the pieces of a stream; raise InvalidInput if they exceed `max_bytes`."""
    for piece in _read_all(source):
        flat = _flat(piece, "piece of the stream")
        hasher.update(flat)
        if hasher.size > max_bytes:
            raise _too_large(max_bytes)
        yield flat


def check_age(older_than_s: float) -> None:
    """Raise InvalidInput unless the age is a number of seconds."""
    if not (math.isfinite(older_than_s) and older_than_s >= 0):
        raise InvalidInput(f"older_than_s must be a number of seconds, got {older_than_s!r}")


def is_leftover(blob_id: str, size: int) -> bool:
    """Return True for an empty file of a non-empty blob, left by a crash during a write.

    Such a file counts as absent, and the next `put` of the blob replaces it.
    """
    return size == 0 and blob_id != EMPTY_ID


def verified(blob_id: str, data: bytes, place: str) -> bytes:
    """Return the data; raise CorruptData if its hash does not match the id."""
    if content_id(data) != blob_id:
        raise corrupt(blob_id, place)
    return data


def verified_chunks(blob_id: str, pieces: Iterable[bytes], place: str) -> Iterator[bytes]:
    """Yield the pieces; the last one only if the hash of all of them is right."""
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
    """Return the error for a blob whose bytes do not match its id."""
    return CorruptData(
        f"{place}: the content does not match the id {blob_id}",
        hint="Delete the blob and put the same bytes again, or restore a backup.",
    )


def not_found(blob_id: str, place: str) -> NotFound:
    """Return the error for a missing blob."""
    return NotFound(
        f"{place}: blob {blob_id} does not exist",
        hint="Check the id: the blob was never stored, or was deleted.",
    )


def _read_all(source: Source) -> Iterator[Data]:
    # A file is also an iterable of lines of any length, so `read` comes first.
    read = getattr(source, "read", None)
    if callable(read):
        while True:
            piece = read(limits.BLOB_CHUNK_BYTES)
            # Also when empty: text, and None of a non-blocking file, are rejected.
            yield piece
            if not piece:
                return
    if isinstance(source, (bytes, bytearray, memoryview, str)) or not isinstance(source, Iterable):
        raise InvalidInput(
            f"stream must be a binary file or an iterable of bytes, got {type(source).__name__}",
            hint="Use put(data) for bytes in memory.",
        )
    yield from source


def _flat(data: Data, what: str) -> memoryview:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(
            f"{what} must be bytes, got {type(data).__name__}",
            hint="Encode text first: text.encode().",
        )
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        raise InvalidInput(f"{what} must be a contiguous memoryview") from error


def _too_large(max_bytes: int) -> InvalidInput:
    return InvalidInput(
        f"blob has more than {max_bytes} bytes",
        hint="Split it, or store it as an object.",
    )

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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fourfold import limits

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

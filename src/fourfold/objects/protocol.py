"""The protocol of object stores: bytes under keys, with conditional writes.

Every backend gives the same guarantees, which one contract suite,
`fourfold.testing.object_contract`, checks:

- A reader sees a whole object or none, never a part of one, and never a mix of two.
- `put(if_absent=True)` has one winner. `put(if_version=...)` replaces exactly the version that was
  read.
- A write that returned is as durable as the backend.
- Keys are plain strings in UTF-8 byte order; a prefix is a plain string prefix, not a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from fourfold.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from types import TracebackType


Data: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Metadata of one version of an object.

    `version` is opaque: only compare it for equality, and pass it as `if_version`.
    """

    key: str
    size: int
    version: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Object:
    """The bytes and the metadata of one version of an object."""

    data: bytes
    info: ObjectInfo


class ObjectStore(Protocol):
    """A store of bytes under keys. Thread-safe; close it, or use it as a context manager."""

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object.

        Raises:
            AlreadyExists: With `if_absent`, if the object exists.
            PreconditionFailed: With `if_version`, if that is not the current version, or the object
                does not exist.
        """
        ...

    def get(self, key: str) -> Object:
        """Return the object; raise NotFound if it does not exist."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of the object, or None if it does not exist."""
        ...

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is after `start_after`, in order.

        Lazy: an object written or deleted meanwhile may or may not be included; every other one is
        included exactly once.
        """
        ...

    def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects in as few requests as possible; missing ones are not an error."""
        ...

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from chunks; if the iterable raises, nothing is written."""
        ...

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one version in chunks. The first step raises NotFound."""
        ...

    def file_path(self, key: str) -> str:
        """Return the path of an object as other programs see it, relative to the root."""
        ...

    def close(self) -> None:
        """Close the store; every later call raises Closed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Handle:
    """Base of stores: open or closed state, and use as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}{' closed' if self._closed else ''}>"

    def file_path(self, key: str) -> str:
        """Return the path of an object as other programs see it, relative to the root."""
        return key

    def close(self) -> None:
        """Close the store; every later call raises Closed. Idempotent."""
        self._closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(
                f"object store {self._name}: the store is closed", hint="Open the store again."
            )

"""What an object store promises: bytes under keys, elsewhere, with conditional writes.

Every backend keeps the same promises, and one contract suite, `fourfold.testing.object_contract`,
checks them:

- A reader sees a whole object or none, never a part of one, and never a mix of two.
- `put(if_absent=True)` has one winner. `put(if_version=...)` replaces exactly the version that was
  read.
- A write that returned is durable to the degree that the backend is.
- Keys are plain strings in UTF-8 byte order; a prefix is a plain string prefix, not a folder.

The open or closed state that every store has, and its use as a context manager.
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
    """One object as it was at one moment.

    `version` is opaque: compare it for equality and hand it back as `if_version`, nothing else.
    """

    key: str
    size: int
    version: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Object:
    """The bytes of one version of an object, and what is known about that version."""

    data: bytes
    info: ObjectInfo


class ObjectStore(Protocol):
    """Bytes under keys. Safe to share between threads; close it, or use it as a context manager."""

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object whole.

        With `if_absent`, raise AlreadyExists when the key is taken. With `if_version`, raise
        PreconditionFailed unless the current version is that one, also when the object is gone.
        """
        ...

    def get(self, key: str) -> Object:
        """The whole object; NotFound when there is none."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`: fewer at the end of the object, none beyond it."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """What is known about the object, without its bytes; None when there is none."""
        ...

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """The objects whose key starts with `prefix` and is above `start_after`, in key order.

        Lazy: what is written or deleted meanwhile may or may not show; all else shows exactly once.
        """
        ...

    def delete(self, key: str) -> bool:
        """Remove the object; whether there was one."""
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove objects, in as few requests as the backend needs; absent ones are no error."""
        ...

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from a stream; when the stream raises, nothing was written."""
        ...

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """The bytes of one version, `chunk_bytes` at a time; NotFound comes at the first step."""
        ...

    def close(self) -> None:
        """Release what the store holds; every later call raises Closed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Handle:
    """Raises Closed from every call after `close()`; closing twice is no error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}{' closed' if self._closed else ''}>"

    def close(self) -> None:
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
            raise Closed(f"object store {self._name} is closed", hint="Open the store again.")

"""Request accounting: every call on a store is reported as (stream_hash, artifact, op, count, bytes).

The ops are those of an object store's bill: get (also ranges and streamed reads), put (also uploads), head, list,
delete. A call that fails counts too. Bytes are those that the caller sent or received, whether or not the call
succeeded in the end; head, list and delete move none. A listing counts one request for every 1,000 keys begun.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fourfold import limits
from fourfold.objects.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fourfold.objects.protocol import Data, Object, ObjectInfo, ObjectStore


class Recorder(Protocol):
    """Takes note of requests; it is called in the thread that made the request."""

    def __call__(
        self, stream_hash: str, artifact: str, op: str, count: int, size: int, /
    ) -> None: ...


@dataclass(frozen=True, slots=True, order=True)
class RequestCount:
    """The sum of the requests of one kind: a row of `objectstore_request_counts`."""

    stream_hash: str
    artifact: str
    op: str
    count: int
    bytes: int


class RequestCounter:
    """A recorder that adds up in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str, str], tuple[int, int]] = {}

    def __call__(self, stream_hash: str, artifact: str, op: str, count: int, size: int, /) -> None:
        with self._lock:
            old_count, old_size = self._sums.get((stream_hash, artifact, op), (0, 0))
            self._sums[stream_hash, artifact, op] = (old_count + count, old_size + size)

    def snapshot(self, *, reset: bool = False) -> tuple[RequestCount, ...]:
        """The sums, in order; with `reset`, what is returned is never returned again."""
        with self._lock:
            rows = tuple(sorted(RequestCount(*kind, *sums) for kind, sums in self._sums.items()))
            if reset:
                self._sums.clear()
        return rows


class AccountingStore(Handle):
    """An ObjectStore that reports every call on another one, then does what that one does.

    `classify` says for a key, or for the prefix of a listing, which (stream_hash, artifact) it belongs to.
    """

    def __init__(
        self, inner: ObjectStore, record: Recorder, classify: Callable[[str], tuple[str, str]]
    ) -> None:
        super().__init__(f"accounting of {inner!r}")
        self._inner = inner
        self._record = record
        self._classify = classify

    def _note(self, key: str, op: str, size: int = 0, count: int = 1) -> None:
        stream_hash, artifact = self._classify(key)
        self._record(stream_hash, artifact, op, count, size)

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        try:
            return self._inner.put(key, data, if_absent=if_absent, if_version=if_version)
        finally:
            self._note(key, "put", memoryview(data).nbytes)

    def get(self, key: str) -> Object:
        size = 0
        try:
            found = self._inner.get(key)
            size = len(found.data)
            return found
        finally:
            self._note(key, "get", size)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        size = 0
        try:
            data = self._inner.get_range(key, start, length)
            size = len(data)
            return data
        finally:
            self._note(key, "get", size)

    def head(self, key: str) -> ObjectInfo | None:
        try:
            return self._inner.head(key)
        finally:
            self._note(key, "head")

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._listed(prefix, self._inner.list(prefix, start_after=start_after))

    def _listed(self, prefix: str, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        seen = 0
        try:
            for info in found:
                seen += 1
                yield info
        finally:
            pages = max(1, -(-seen // limits.OBJECT_LIST_PAGE))
            self._note(prefix, "list", count=pages)

    def delete(self, key: str) -> bool:
        try:
            return self._inner.delete(key)
        finally:
            self._note(key, "delete")

    def delete_many(self, keys: Iterable[str]) -> None:
        asked = list(keys)
        try:
            self._inner.delete_many(asked)
        finally:
            for key in asked:
                self._note(key, "delete")

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        size = 0

        def counted() -> Iterator[Data]:
            nonlocal size
            for chunk in chunks:
                size += memoryview(chunk).nbytes
                yield chunk

        try:
            return self._inner.upload(key, counted(), if_absent=if_absent)
        finally:
            self._note(key, "put", size)

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        return self._received(key, self._inner.read(key, chunk_bytes))

    def _received(self, key: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        try:
            for chunk in chunks:
                size += len(chunk)
                yield chunk
        finally:
            self._note(key, "get", size)

    def close(self) -> None:
        super().close()
        self._inner.close()

"""Every call on a store is reported as (stream_hash, artifact, op, count, bytes).

The ops are those of an object store's bill: get (also ranges and streamed reads), put (also
uploads), head, list, delete. A call that fails counts too, unless its arguments were refused
before any request. Bytes are those that the caller sent or received, whether or not the call
succeeded in the end; head, list and delete move none. A listing counts one request for every 1,000
keys begun, and it, like a streamed read, is noted when it ends or is abandoned.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fourfold import limits
from fourfold.errors import InvalidInput, Refused
from fourfold.objects.protocol import Handle
from fourfold.objects.validation import check_data, checked_chunks

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

    `classify` says for a key, or for the prefix of a listing, which (stream_hash, artifact) it
    belongs to.
    """

    def __init__(
        self, inner: ObjectStore, record: Recorder, classify: Callable[[str], tuple[str, str]]
    ) -> None:
        super().__init__(f"accounting of {inner!r}")
        self._inner = inner
        self._record = record
        self._classify = classify

    @contextmanager
    def _request(self, key: str, op: str) -> Iterator[_Sizes]:
        """Note one request, failed or not; a call that was refused before it became one is none."""
        sizes = _Sizes()
        try:
            yield sizes
        except (InvalidInput, Refused):
            raise
        except BaseException:
            self._note(key, op, sizes)
            raise
        else:
            self._note(key, op, sizes)

    def _note(self, key: str, op: str, sizes: _Sizes) -> None:
        stream_hash, artifact = self._classify(key)
        self._record(stream_hash, artifact, op, sizes.count, sizes.bytes)

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        with self._request(key, "put") as sizes:
            sizes.bytes = len(check_data(data))
            return self._inner.put(key, data, if_absent=if_absent, if_version=if_version)

    def get(self, key: str) -> Object:
        with self._request(key, "get") as sizes:
            found = self._inner.get(key)
            sizes.bytes = len(found.data)
            return found

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._request(key, "get") as sizes:
            data = self._inner.get_range(key, start, length)
            sizes.bytes = len(data)
            return data

    def head(self, key: str) -> ObjectInfo | None:
        with self._request(key, "head"):
            return self._inner.head(key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._listed(prefix, self._inner.list(prefix, start_after=start_after))

    def _listed(self, prefix: str, found: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        with self._request(prefix, "list") as sizes:
            for seen, info in enumerate(found):
                sizes.count = 1 + seen // limits.OBJECT_LIST_PAGE
                yield info

    def delete(self, key: str) -> bool:
        with self._request(key, "delete"):
            return self._inner.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        asked = list(keys)
        with ExitStack() as stack:
            for key in asked:
                stack.enter_context(self._request(key, "delete"))
            self._inner.delete_many(asked)

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        with self._request(key, "put") as sizes:
            return self._inner.upload(
                key, _sent(checked_chunks(chunks), sizes), if_absent=if_absent
            )

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        return self._received(key, self._inner.read(key, chunk_bytes))

    def _received(self, key: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        with self._request(key, "get") as sizes:
            for chunk in chunks:
                sizes.bytes += len(chunk)
                yield chunk

    def close(self) -> None:
        super().close()
        self._inner.close()


@dataclass(slots=True)
class _Sizes:
    """What one call has moved so far."""

    count: int = 1
    bytes: int = 0


def _sent(chunks: Iterator[memoryview], sizes: _Sizes) -> Iterator[memoryview]:
    for chunk in chunks:
        sizes.bytes += len(chunk)
        yield chunk

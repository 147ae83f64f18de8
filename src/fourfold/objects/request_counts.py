"""Request counts: calls are recorded as (stream_hash, artifact, op, count, bytes).

The ops are those that an object store bills: get (also ranges and streamed reads), put (also
uploads), head, list, delete. A failed call counts too, unless its arguments were rejected before
any request. Bytes are those that the caller sent or received, even if the call failed in the end;
head, list and delete transfer none. A listing counts one request per 1,000 keys started. Listings
and streamed reads are recorded when they end or are abandoned.
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


class RequestRecorder(Protocol):
    """Records requests; called in the thread that made the request."""

    def __call__(
        self, stream_hash: str, artifact: str, op: str, count: int, size: int, /
    ) -> None: ...


@dataclass(frozen=True, slots=True, order=True)
class RequestCount:
    """Total of the requests of one kind: a row of `objectstore_request_counts`."""

    stream_hash: str
    artifact: str
    op: str
    count: int
    bytes: int


class RequestCounter:
    """A recorder that keeps totals in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str, str], tuple[int, int]] = {}

    def __call__(self, stream_hash: str, artifact: str, op: str, count: int, size: int, /) -> None:
        with self._lock:
            old_count, old_size = self._sums.get((stream_hash, artifact, op), (0, 0))
            self._sums[stream_hash, artifact, op] = (old_count + count, old_size + size)

    def snapshot(self, *, reset: bool = False) -> tuple[RequestCount, ...]:
        """Return the totals, sorted; with `reset`, set them to zero."""
        with self._lock:
            rows = tuple(sorted(RequestCount(*kind, *sums) for kind, sums in self._sums.items()))
            if reset:
                self._sums.clear()
        return rows


class AccountingStore(Handle):
    """An ObjectStore that records every call to another one.

    `classify` maps a key, or the prefix of a listing, to its (stream_hash, artifact).
    """

    def __init__(
        self,
        inner: ObjectStore,
        record: RequestRecorder,
        classify: Callable[[str], tuple[str, str]],
    ) -> None:
        super().__init__(f"accounting of {inner!r}")
        self._inner = inner
        self._record = record
        self._classify = classify

    def file_path(self, key: str) -> str:
        """Return the path of an object as other programs see it."""
        return self._inner.file_path(key)

    @contextmanager
    def _request(self, key: str, op: str) -> Iterator[_Sizes]:
        """Record one request, even if it fails, unless it was rejected before it was sent."""
        sizes = _Sizes()
        try:
            yield sizes
        except (InvalidInput, Refused):
            raise
        except BaseException:
            self._record_request(key, op, sizes)
            raise
        else:
            self._record_request(key, op, sizes)

    def _record_request(self, key: str, op: str, sizes: _Sizes) -> None:
        stream_hash, artifact = self._classify(key)
        self._record(stream_hash, artifact, op, sizes.count, sizes.bytes)

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object."""
        with self._request(key, "put") as sizes:
            sizes.bytes = len(check_data(data))
            return self._inner.put(key, data, if_absent=if_absent, if_version=if_version)

    def get(self, key: str) -> Object:
        """Return the object; raise NotFound if it does not exist."""
        with self._request(key, "get") as sizes:
            stored = self._inner.get(key)
            sizes.bytes = len(stored.data)
            return stored

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        with self._request(key, "get") as sizes:
            data = self._inner.get_range(key, start, length)
            sizes.bytes = len(data)
            return data

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of the object, or None if it does not exist."""
        with self._request(key, "head"):
            return self._inner.head(key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is after `start_after`, in order."""
        return self._count_listing(prefix, self._inner.list(prefix, start_after=start_after))

    def _count_listing(self, prefix: str, infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        with self._request(prefix, "list") as sizes:
            for seen, info in enumerate(infos):
                sizes.count = 1 + seen // limits.OBJECT_LIST_PAGE
                yield info

    def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        with self._request(key, "delete"):
            return self._inner.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are not an error."""
        all_keys = list(keys)
        with ExitStack() as stack:
            for key in all_keys:
                stack.enter_context(self._request(key, "delete"))
            self._inner.delete_many(all_keys)

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from chunks; if the iterable raises, nothing is written."""
        with self._request(key, "put") as sizes:
            return self._inner.upload(
                key, _count_sent(checked_chunks(chunks), sizes), if_absent=if_absent
            )

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one version in chunks. The first step raises NotFound."""
        return self._count_received(key, self._inner.read(key, chunk_bytes))

    def _count_received(self, key: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        with self._request(key, "get") as sizes:
            for chunk in chunks:
                sizes.bytes += len(chunk)
                yield chunk

    def close(self) -> None:
        """Close the store; every later call raises Closed."""
        super().close()
        self._inner.close()


@dataclass(slots=True)
class _Sizes:
    """Requests and bytes of one call so far."""

    count: int = 1
    bytes: int = 0


def _count_sent(chunks: Iterator[memoryview], sizes: _Sizes) -> Iterator[memoryview]:
    for chunk in chunks:
        sizes.bytes += len(chunk)
        yield chunk

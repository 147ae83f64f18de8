"""Objects in the memory of this process, for tests and `:memory:` stores.

Thread-safe. Versions come from one counter, so no version is used twice in one store.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import AlreadyExists, NotFound, PreconditionFailed
from fourfold.objects.protocol import Handle, Object, ObjectInfo
from fourfold.objects.validation import (
    check_chunk_bytes,
    check_conditions,
    check_data,
    check_key,
    check_prefix,
    check_range,
    checked_chunks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fourfold.objects.protocol import Data


class MemoryStore(Handle):
    """An ObjectStore in a dict."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        # Code points and UTF-8 bytes sort alike, so the keys are sorted as strings.
        self._keys: list[str] = []
        self._versions = count(1)

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object."""
        self._check_open()
        check_key(key)
        check_conditions(if_absent=if_absent, if_version=if_version)
        copy = bytes(check_data(data))
        with self._lock:
            current = self._objects.get(key)
            if if_absent and current is not None:
                raise AlreadyExists(f"object {key!r} already exists")
            if if_version is not None and (current is None or current.info.version != if_version):
                raise PreconditionFailed(
                    f"object {key!r} is not at version {if_version!r}"
                    + (": it does not exist" if current is None else "")
                )
            info = ObjectInfo(key, len(copy), f"m{next(self._versions)}", datetime.now(UTC))
            self._objects[key] = Object(copy, info)
            if current is None:
                insort(self._keys, key)
            return info

    def get(self, key: str) -> Object:
        """Return the object; raise NotFound if it does not exist."""
        self._check_open()
        check_key(key)
        with self._lock:
            stored = self._objects.get(key)
        if stored is None:
            raise NotFound(f"object {key!r} does not exist")
        return stored

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        start, length = check_range(start, length)
        return self.get(key).data[start : start + length]

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of the object, or None if it does not exist."""
        self._check_open()
        check_key(key)
        with self._lock:
            stored = self._objects.get(key)
        return None if stored is None else stored.info

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is after `start_after`, in order."""
        self._check_open()
        check_prefix(prefix)
        if start_after is not None:
            check_prefix(start_after, "start_after")
        return self._walk(prefix, start_after)

    def _walk(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        while True:
            with self._lock:
                at = bisect_left(self._keys, prefix)
                if start_after is not None:
                    at = max(at, bisect_right(self._keys, start_after))
                page = [
                    self._objects[key].info
                    for key in self._keys[at : at + limits.OBJECT_LIST_PAGE]
                    if key.startswith(prefix)
                ]
            yield from page
            if len(page) < limits.OBJECT_LIST_PAGE:
                return
            start_after = page[-1].key

    def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        self._check_open()
        check_key(key)
        with self._lock:
            return self._remove(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are not an error."""
        self._check_open()
        checked = [check_key(key) for key in keys]
        with self._lock:
            for key in checked:
                self._remove(key)

    def _remove(self, key: str) -> bool:
        if self._objects.pop(key, None) is None:
            return False
        del self._keys[bisect_left(self._keys, key)]
        return True

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from chunks; if the iterable raises, nothing is written."""
        self._check_open()
        check_key(key)
        pieces = checked_chunks(chunks)
        if if_absent and self.head(key) is not None:
            raise AlreadyExists(f"object {key!r} already exists")
        return self.put(key, b"".join(pieces), if_absent=if_absent)

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one version in chunks. The first step raises NotFound."""
        self._check_open()
        check_key(key)
        return self._pieces(key, check_chunk_bytes(chunk_bytes))

    def _pieces(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        data = self.get(key).data
        for at in range(0, len(data), chunk_bytes):
            yield data[at : at + chunk_bytes]

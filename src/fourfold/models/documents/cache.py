"""Cache of the newest state of entities, decoded, in bounded memory.

It holds committed states only. A commit withdraws its entities before the file has them, and
publishes them after that and before the caller continues. So a writer reads its own writes, and no
reader that saw a new state in the file sees an older one here. A reader may add what it found on
disk, but only if nothing was published since it looked: otherwise it might put back an older state.
The documents in here are private: they are never handed out, and never changed in place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from fourfold.cache import LruCache
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.indexes.declaration import Index
from fourfold.models.documents.records import Document, Op

Key = tuple[str, str]
"""Branch and entity."""


class CacheEntry(Struct, frozen=True, gc=False):
    """An entity's newest state, and how far it is from the last whole document in the log.

    No cycle leads through it, so the garbage collector need not visit the entries of a large cache.
    """

    seq: int
    op: Op
    document: Document | None
    base_bytes: int
    patches: int
    patch_bytes: int
    bytes_max: int
    """An upper bound of the document's size."""
    text: str | None = None
    """The document as it was set, until it is first decoded; `document` is None then."""

    def opened(self) -> Document | None:
        """Return the document; None for a deleted entity."""
        return self.document if self.text is None else decode(self.text)

    def copied(self) -> Document | None:
        """Return a copy of the document that the caller may change; None for a deleted entity."""
        if self.text is not None:
            document: Document = decode(self.text)
            return document
        return None if self.document is None else decode(trusted(self.document))

    @property
    def weight(self) -> int:
        """Approximate size in memory, in bytes."""
        return self.base_bytes + self.patch_bytes + 200


class LogEnd(NamedTuple):
    """End of the log when a transaction begins."""

    newest: int
    """The newest seq of the space."""
    moment: str | None
    """Time of the newest commit."""


class Tip(NamedTuple):
    """End of the log of a branch after a commit."""

    mark: int
    """Total changes of the connection at that time."""
    branch: str
    standing: LogEnd
    indexes: tuple[Index, ...] = ()
    """Declared indexes of the space."""


class DocumentCache:
    """Least recently used first out."""

    def __init__(self, bytes_max: int) -> None:
        self._entries: LruCache[Key, CacheEntry] = LruCache(bytes_max, lambda entry: entry.weight)
        self.tip: Tip | None = None
        self._published = 0
        self._withdrawn: set[Key] = set()
        self._lock = threading.Lock()

    def get(self, key: Key) -> CacheEntry | None:
        """Return the cached state of an entity, or None."""
        with self._lock:
            return self._entries.get(key)

    def get_all(self, keys: Sequence[Key]) -> dict[Key, CacheEntry] | None:
        """Return the states of all keys at one point in time; None if one is not cached."""
        with self._lock:
            entries = {key: entry for key in keys if (entry := self._entries.get(key)) is not None}
            return entries if len(entries) == len(set(keys)) else None

    @property
    def published(self) -> int:
        """A mark to take before looking at the disk, and to hand back to `offer`."""
        return self._published

    def withdraw(self, keys: Iterable[Key]) -> None:
        """New states of these are on their way; until they are published, the disk is asked."""
        with self._lock:
            for key in keys:
                self._withdrawn.add(key)
                self._entries.pop(key)

    def publish(self, entries: dict[Key, CacheEntry], tip: Tip) -> None:
        """Cache the newest states and the end of the log.

        Only one transaction commits at a time, so whatever else was withdrawn is in the file by
        now, or never will be.
        """
        with self._lock:
            self._published += 1
            self.tip = tip
            self._withdrawn.clear()
            for key, entry in entries.items():
                self._entries.put(key, entry)

    def offer(self, key: Key, entry: CacheEntry, published: int) -> None:
        """Cache a state read from disk, unless something was published since the mark was taken."""
        with self._lock:
            is_cached = key in self._entries or key in self._withdrawn
            if published == self._published and not is_cached:
                self._entries.put(key, entry)

    def clear(self) -> None:
        """Remove all entries, also those that a reader is about to add."""
        with self._lock:
            self._published += 1
            self.tip = None
            self._entries.clear()

"""Bounded cache in memory with LRU eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A mapping of limited weight that evicts its least recently used entries.

    Not thread-safe: the caller holds a lock.

    Args:
        max_weight: Maximum total weight of the values.
        weigh: Returns the weight of a value; without it, each weighs 1.
    """

    __slots__ = ("_entries", "_max_weight", "_weigh", "_weight")

    def __init__(self, max_weight: int, weigh: Callable[[V], int] | None = None) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._max_weight = max_weight
        self._weigh = weigh
        self._weight = 0

    @property
    def weight(self) -> int:
        """Total weight of the values."""
        return len(self._entries) if self._weigh is None else self._weight

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Return True if the key is cached, without marking it as used."""
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return a value and mark it as used, or return None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> list[K]:
        """Add or replace a value, and return the keys that this evicted.

        A value heavier than the whole cache is evicted at once.
        """
        entries, weigh = self._entries, self._weigh
        if weigh is None:
            entries[key] = value
            entries.move_to_end(key)
            weight = len(entries)
        else:
            before = entries.pop(key, None)
            entries[key] = value
            weight = self._weight + weigh(value) - (0 if before is None else weigh(before))
            self._weight = weight
        evicted: list[K] = []
        if weight <= self._max_weight:
            return evicted
        while self.weight > self._max_weight:
            oldest = next(iter(self._entries))
            self.pop(oldest)
            evicted.append(oldest)
        return evicted

    def pop(self, key: K) -> V | None:
        """Remove and return a value, or return None."""
        value = self._entries.pop(key, None)
        if value is not None and self._weigh is not None:
            self._weight -= self._weigh(value)
        return value

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._weight = 0

"""Watches that wait for commits of this process, indexed by what they wait for.

A commit wakes the watches of the entities that it changed, and those of its whole branch. The
others neither wake nor query the log, however many there are. What they need to know is how far the
log has come without concerning them: their position moves on with it, so that a collection of old
history does not overtake a watch that is merely idle.

Every commit must be notified with its seq. Where one is missing (an import, a restored log), that
shows as a gap, and every watch looks for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Key = tuple[str, str | None]
"""A branch, and an entity or None for all of them."""


class Waiter:
    """A watch that waits. Used under the lock of its `Waiters`."""

    __slots__ = ("clear_seq", "wake", "woken")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.woken = True
        self.clear_seq = 0
        """No commit up to here concerns it, of those since its last look."""


class Waiters:
    """The waiting watches of one space."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq: int | None = None
        """The newest seq that was notified, while none is missing."""
        self._waiting: dict[Key, set[Waiter]] = {}

    @contextmanager
    def waiting(self, keys: Iterable[Key], wake: Callable[[], None]) -> Iterator[Waiter]:
        """Register `wake` under the keys while the block lasts."""
        waiter, listed = Waiter(wake), tuple(keys)
        with self._lock:
            for key in listed:
                self._waiting.setdefault(key, set()).add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                for key in listed:
                    self._waiting[key].discard(waiter)
                    if not self._waiting[key]:
                        del self._waiting[key]

    def begin_look(self, waiter: Waiter) -> int:
        """Wake it for what comes from now on. Returns the seq up to which it need not look."""
        with self._lock:
            clear = waiter.clear_seq if waiter.woken else self._seq
            waiter.woken = False
            return clear or 0

    def notify(self, seq: int, branch: str, entities: Iterable[str]) -> None:
        """Wake the watches that a commit concerns."""
        with self._lock:
            before, self._seq = self._seq, seq
            if not self._waiting:
                return
            if before is None or seq != before + 1:
                woken, clear = self._everyone(), before
            else:
                woken, clear = self._concerned(branch, entities), before
            called = self._woken(woken, clear or 0)
        for wake in called:
            wake()

    def notify_all(self) -> None:
        """Wake every watch: something was committed, and what is not known here."""
        with self._lock:
            before, self._seq = self._seq, None
            called = self._woken(self._everyone(), before or 0)
        for wake in called:
            wake()

    def _concerned(self, branch: str, entities: Iterable[str]) -> set[Waiter]:
        found = set(self._waiting.get((branch, None), ()))
        for entity in entities:
            found |= self._waiting.get((branch, entity), set())
        return found

    def _everyone(self) -> set[Waiter]:
        return set().union(*self._waiting.values())

    @staticmethod
    def _woken(waiters: Iterable[Waiter], clear: int) -> list[Callable[[], None]]:
        called = [waiter for waiter in waiters if not waiter.woken]
        for waiter in called:
            waiter.woken, waiter.clear_seq = True, clear
        return [waiter.wake for waiter in called]

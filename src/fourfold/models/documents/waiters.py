"""Watches that wait for commits of this process, indexed by what they wait for.

A commit wakes the watches of the entities that it changed, and those of its whole branch; the
others neither wake nor query the log, however many there are. The position of an idle watch still
advances past commits that do not concern it, so that garbage collection does not overtake it.

Every commit must be notified with its seq. A gap (an import, a restored log) wakes every watch.
A listener is called for each commit instead, and reads the log for many watches at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

Key = tuple[str, str | None]
"""A branch, and an entity or None for all of them."""


class CommitListener(Protocol):
    """Is called after each commit, on the thread of the writer."""

    def on_commit(self, seq: int, branch: str, entities: tuple[str, ...]) -> None:
        """Handle a commit that changed these entities of a branch."""

    def on_reset(self) -> None:
        """Handle the deletion of a branch, or any other change of the log than a commit."""


class WatchWaiter:
    """A registered watch. Guarded by the lock of its `Waiters`."""

    __slots__ = ("clear_seq", "wake", "woken")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.woken = True
        self.clear_seq = 0
        """No commit since its last poll and up to this seq concerns it."""


class Waiters:
    """The waiting watches of one space."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq: int | None = None
        """The newest notified seq, or None after a gap."""
        self._waiting: dict[Key, set[WatchWaiter]] = {}
        self._listeners: tuple[CommitListener, ...] = ()

    def add(self, listener: CommitListener) -> None:
        """Call a listener after each commit, until `remove`."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove(self, listener: CommitListener) -> None:
        """Call a listener no more."""
        with self._lock:
            self._listeners = tuple(item for item in self._listeners if item is not listener)

    @contextmanager
    def waiting(self, keys: Iterable[Key], wake: Callable[[], None]) -> Iterator[WatchWaiter]:
        """Register `wake` under the keys while the block lasts."""
        waiter, listed = WatchWaiter(wake), tuple(keys)
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

    def start_poll(self, waiter: WatchWaiter) -> int:
        """Arm the waiter for later commits; return the seq up to which none concerns it."""
        with self._lock:
            clear = waiter.clear_seq if waiter.woken else self._seq
            waiter.woken = False
            return clear or 0

    def notify(self, seq: int, branch: str, entities: Iterable[str]) -> None:
        """Wake the watches that a commit concerns."""
        if self._listeners:
            entities = tuple(entities)
            for listener in self._listeners:
                listener.on_commit(seq, branch, entities)
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
        """Wake every watch, after commits whose content is unknown here."""
        for listener in self._listeners:
            listener.on_reset()
        with self._lock:
            before, self._seq = self._seq, None
            called = self._woken(self._everyone(), before or 0)
        for wake in called:
            wake()

    def _concerned(self, branch: str, entities: Iterable[str]) -> set[WatchWaiter]:
        waiters = set(self._waiting.get((branch, None), ()))
        for entity in entities:
            waiters |= self._waiting.get((branch, entity), set())
        return waiters

    def _everyone(self) -> set[WatchWaiter]:
        return set().union(*self._waiting.values())

    @staticmethod
    def _woken(waiters: Iterable[WatchWaiter], clear: int) -> list[Callable[[], None]]:
        called = [waiter for waiter in waiters if not waiter.woken]
        for waiter in called:
            waiter.woken, waiter.clear_seq = True, clear
        return [waiter.wake for waiter in called]

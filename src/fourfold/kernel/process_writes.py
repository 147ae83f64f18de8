"""Write transactions of all databases of the process, as a thread of background work sees them.

Python runs one thread at a time, so long work delays the commits of every database, not only those
of the one that it reads. Transactions of the calling thread do not count: it cannot delay itself.
Threads that share background work do not count for each other either, or each would give way to the
next one although no client writes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol


class CountedWriter(Protocol):
    """A writer, by what its transactions tell about its thread."""

    def cpu_seconds(self) -> float | None:
        """Return the processor time of the thread of the latest transaction; None if unknown."""


class _ThreadCount(threading.local):
    """Number of transactions that a thread has committed."""

    committed = 0


class ProcessWrites:
    """Counts the write transactions of a process."""

    def __init__(self) -> None:
        self._committed = 0
        self._committed_shared = 0
        """Those of threads that share background work."""
        self._sharing: set[int] = set()
        """Threads that share background work."""
        self._thread = _ThreadCount()
        self._running: dict[CountedWriter, int] = {}
        """Writers in a transaction, and their threads."""
        self._latest: tuple[int, CountedWriter] | None = None

    def begin(self, writer: CountedWriter, thread: int) -> None:
        """Record that this thread, whose identifier is `thread`, has begun a transaction."""
        self._running[writer] = thread
        self._latest = thread, writer

    def commit(self, writer: CountedWriter) -> None:
        """Record that this thread has committed the transaction of a writer."""
        self._committed += 1
        self._thread.committed += 1
        if self._sharing and threading.get_ident() in self._sharing:
            self._committed_shared += 1
        self._running.pop(writer, None)

    def rollback(self, writer: CountedWriter) -> None:
        """Record that the transaction of a writer is over without a commit."""
        self._running.pop(writer, None)

    def count(self) -> int:
        """Return the number of transactions that were committed."""
        return self._committed

    def is_writing(self) -> bool:
        """Return True while any thread is in a transaction."""
        return bool(self._running)

    def cpu_seconds(self) -> float | None:
        """Return the processor time of the thread that wrote last; None if it is unknown."""
        latest = self._latest
        return None if latest is None else latest[1].cpu_seconds()

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Take this thread for one of those that share background work, during a block."""
        thread = threading.get_ident()
        if thread in self._sharing:
            yield
            return
        self._sharing.add(thread)
        try:
            yield
        finally:
            self._sharing.discard(thread)

    def count_others(self) -> int:
        """Return the number of transactions that other threads have committed."""
        if threading.get_ident() in self._sharing:
            return self._committed - self._committed_shared
        return self._committed - self._thread.committed

    def is_other_writing(self) -> bool:
        """Return True while another thread is in a transaction."""
        return any(map(self._is_other, tuple(self._running.values())))

    def _is_other(self, thread: int) -> bool:
        own = threading.get_ident()
        return thread != own and not (thread in self._sharing and own in self._sharing)

    def in_transaction(self) -> bool:
        """Return True inside a transaction of this thread."""
        return threading.get_ident() in tuple(self._running.values())

    def other_cpu_seconds(self) -> float | None:
        """Return the processor time of the thread that wrote last; None if it is this one."""
        latest = self._latest
        if latest is None or not self._is_other(latest[0]):
            return None
        return latest[1].cpu_seconds()

    def forget(self) -> None:
        """Forget the transactions of the parent process, whose threads a forked child lacks."""
        self._running.clear()
        self._sharing.clear()
        self._latest = None


PROCESS_WRITES: Final = ProcessWrites()
os.register_at_fork(after_in_child=PROCESS_WRITES.forget)

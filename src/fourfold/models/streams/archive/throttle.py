"""Throttling of the archive, so that it does not slow down appends.

In the background its work is divided into short pieces. One piece runs at a time, followed by a
pause in proportion to it while clients write. The threads that do this work have a low priority.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

from fourfold import limits
from fourfold.kernel import Database, Transaction
from fourfold.kernel.pauses import Pauses

ARCHIVE_JOIN_WAIT_S: Final = 0.05
"""Wait for another writer's group commit before the background commits by itself; longer
than a checkpoint, which those writers wait for too.
"""

T = TypeVar("T")


class Throttle:
    """Runs short pieces of work with pauses.

    `written` returns the number of writes, `writing` returns True if a write is imminent, and
    `writer_cpu` the processor time of the thread that writes. While something is `pressing`, on
    which writers wait, no piece starts for a while.
    """

    def __init__(
        self,
        written: Callable[[], int],
        pauses: float = limits.BACKGROUND_PAUSES,
        *,
        writing: Callable[[], bool] = lambda: False,
        writer_cpu: Callable[[], float | None] = lambda: None,
        pressing: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._pauses = Pauses(written, writing, writer_cpu, ratio=pauses, clock=clock, sleep=sleep)
        self._pressing = pressing
        self._clock = clock
        self._sleep = sleep
        self._lane = threading.Lock()
        self._others_write = False
        """True if there was a write during the last pause."""

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Run one piece when it is its turn; pieces do not nest."""
        with self._lane:
            began = self._clock()
            while self._pressing() and self._clock() - began < limits.BACKGROUND_PAUSE_MAX_S:
                self._sleep(limits.BACKGROUND_LOOK_S)
            began = self._clock()
            try:
                yield
            finally:
                self._rest(self._clock() - began)

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over items; fetching each is a piece.

        Work on an item is followed by a pause, too, but blocks no other piece: an object store may
        be slow.
        """
        waiting = iter(items)
        while True:
            with self.piece():
                found = tuple(islice(waiting, 1))
            if not found:
                return
            began = self._clock()
            yield found[0]
            self._rest(self._clock() - began)

    def through(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over items; fetching each and the work on it is one piece."""
        waiting = iter(items)
        while True:
            with self.piece():
                for item in waiting:
                    yield item
                    break
                else:
                    return

    def transact(
        self,
        database: Database,
        work: Callable[[Transaction], T],
        *,
        deadline_s: float | None = None,
    ) -> T:
        """Run a transaction.

        While clients write, one of them runs it in its group commit: a thread with low priority
        would hold the writer for longer than the work takes, and sync the log once more.
        """
        wait_s = ARCHIVE_JOIN_WAIT_S if self._others_write else 0.0
        return database.transact(work, deadline_s=deadline_s, join_wait_s=wait_s)

    def _rest(self, took: float) -> None:
        self._others_write = self._pauses.pause_after(took)


class _NoThrottle(Throttle):
    """Unthrottled work, for a caller that waits for it."""

    def __init__(self) -> None:
        super().__init__(int, 0.0)

    @contextmanager
    def piece(self) -> Iterator[None]:
        yield


NO_THROTTLE = _NoThrottle()

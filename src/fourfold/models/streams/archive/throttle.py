"""Making room: the archive works beside appends, and must not take their time.

In the background its work is cut into short pieces. One piece is under way at a time, and behind
each comes a pause in proportion to it, while others write. Threads that do such work come last
when the processor is given away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from fourfold import limits
from fourfold.kernel import Database, Transaction
from fourfold.kernel.pauses import Pauses

T = TypeVar("T")


class Throttle:
    """Short pieces of work with pauses behind them. `written` tells how often anybody wrote, and
    `writing` whether somebody is about to. While something is `pressing`, for which writers have to
    wait, no piece begins, for a while.
    """

    def __init__(
        self,
        written: Callable[[], int],
        pauses: float = limits.BACKGROUND_PAUSES,
        *,
        writing: Callable[[], bool] = lambda: False,
        pressing: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._pauses = Pauses(written, writing, ratio=pauses, clock=clock, sleep=sleep)
        self._pressing = pressing
        self._clock = clock
        self._sleep = sleep
        self._lane = threading.Lock()
        self._others_write = False
        """Whether anybody did during the last pause."""

    @contextmanager
    def piece(self) -> Iterator[None]:
        """One piece, once it is its turn. There are no pieces within a piece."""
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
        """To get each of these is a piece. What is done with it has a pause too, but keeps no
        piece waiting: an object store may take its time.
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
        """To get each of these, and whatever is done with it, is a piece."""
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
        """A transaction. While others write, one of them takes it along: a thread that comes last
        would keep the turn for longer than the work takes, and sync the log once more.
        """
        patience = limits.ARCHIVE_PATIENCE_S if self._others_write else 0.0
        return database.transact(work, deadline_s=deadline_s, patience_s=patience)

    def _rest(self, took: float) -> None:
        self._others_write = self._pauses.pause_after(took)


class _NoThrottle(Throttle):
    """Work that somebody waits for: as fast as it goes, side by side."""

    def __init__(self) -> None:
        super().__init__(int, 0.0)

    @contextmanager
    def piece(self) -> Iterator[None]:
        yield


NO_THROTTLE = _NoThrottle()

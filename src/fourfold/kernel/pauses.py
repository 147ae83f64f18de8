"""Pauses of background work while other threads write to any database of the process.

Python runs one thread at a time. Work that never waits delays every step of a commit until the
interpreter switches threads, five milliseconds each time, so commits queue up. Such work therefore
pauses after short steps while other threads write:

    step, 2 ms ──> pause, four times as long ──> step ──> ...   others write
    step, 20 ms ──> check, 1 ms ──> step ──> ...                nothing is written

Others write if they have committed since the last pause began. The step alone would not tell: the
work that it does may be what keeps them from committing.

A pause is repeated a few times while the thread that writes has no idle time in it: that thread has
requests waiting, and each step would add to their delay.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeVar

from fourfold import limits
from fourfold.kernel.process_writes import PROCESS_WRITES

T = TypeVar("T")
BACKGROUND_STEP_S: Final = 0.002
BACKGROUND_FREE_S: Final = 0.02
"""Background work without a pause: while others write, and while they do not."""
BACKGROUND_STEP_MAX_S: Final = 10.0
"""A longer step is not counted: its thread did something else in between."""
BACKGROUND_MEMORY_S: Final = 0.25
"""Time after the begin of a pause in which a commit means that others write."""
BACKGROUND_SATURATED: Final = 0.9
"""Share of a pause from which on the thread that writes had no idle time."""
BACKGROUND_PAUSES_REPEATED: Final = 3
"""Times that a pause is repeated at most while the thread that writes has no idle time."""
BACKGROUND_NICE: Final = 10
"""Priority of background threads."""
PACED_BLOCK_S: Final = 0.001
"""A shorter block is not followed by a pause."""
PACED_STEP_SHARE: Final = 0.5
"""Part of the pause of a step that follows it at once; the rest follows the block."""


class Pauses:
    """Pauses between the steps of long work, tracked for each thread.

    Args:
        written: Returns the number of transactions so far.
        writing: Returns True during a transaction.
        writer_cpu: Returns the processor time of the thread that writes, or None if it is unknown.
        in_transaction: Returns True while this thread is in a transaction, which must not wait.
    """

    def __init__(
        self,
        written: Callable[[], int],
        writing: Callable[[], bool] = lambda: False,
        writer_cpu: Callable[[], float | None] = lambda: None,
        *,
        in_transaction: Callable[[], bool] = lambda: False,
        ratio: float = limits.BACKGROUND_PAUSES,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._written = written
        self._writing = writing
        self._writer_cpu = writer_cpu
        self._in_transaction = in_transaction
        self._ratio = ratio
        self._clock = clock
        self._sleep = sleep
        self._steps = _Steps()

    @classmethod
    def for_process(cls, *, ratio: float = limits.BACKGROUND_PAUSES) -> Self:
        """Return pauses while other threads write to any database of the process."""
        writes = PROCESS_WRITES
        return cls(
            writes.count_others,
            writes.is_other_writing,
            writes.other_cpu_seconds,
            in_transaction=writes.in_transaction,
            ratio=ratio,
        )

    def start(self) -> None:
        """Start the first step of this thread."""
        self._steps.began = self._clock()

    def pause(self) -> None:
        """Pause if this thread's step was long enough. Cheap to call in a loop."""
        steps = self._steps
        now = self._clock()
        took = now - steps.began
        if took < steps.length_s:
            return
        if took < BACKGROUND_STEP_MAX_S:
            contended = self.pause_after(took)
            steps.length_s = BACKGROUND_STEP_S if contended else BACKGROUND_FREE_S
            now = self._clock()
        # A longer step means that this thread did something else in between.
        steps.began = now

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items, and pause between them; the caller's work on an item belongs to its step."""
        self.start()
        for item in items:
            yield item
            self.pause()

    def pause_after(self, took: float) -> bool:
        """Pause in proportion to a step of `took` seconds, while other threads write.

        Return True if they did.
        """
        steps, now = self._steps, self._clock()
        since = steps.written if now - steps.paused_at < BACKGROUND_MEMORY_S else None
        steps.written, steps.paused_at = self._written(), now
        naps = self._naps(took, since=since)
        try:
            while True:
                self._sleep(next(naps))
        except StopIteration as end:
            return bool(end.value)

    async def pause_after_async(
        self, took: float, *, passed_s: float = 0.0, since: int | None = None
    ) -> None:
        """Pause like `pause_after`, without blocking the event loop.

        Args:
            took: Duration of the step in seconds.
            passed_s: Part of the pause that has passed already.
            since: Number of transactions from which on others write; that of now by default.
        """
        for nap in self._naps(took, passed_s, since):
            await asyncio.sleep(nap)

    def _naps(
        self, took: float, passed_s: float = 0.0, since: int | None = None
    ) -> Generator[float, None, bool]:
        """Yield the parts of a pause in seconds; return True if other threads wrote meanwhile."""
        length = min(took * self._ratio - passed_s, limits.BACKGROUND_PAUSE_MAX_S)
        if length <= 0 or self._in_transaction():
            return False
        before = self._written() if since is None else since
        began, cpu = self._clock(), self._writer_cpu()
        rest = length
        while rest > 0 and self._written() == before:
            look = min(rest, limits.BACKGROUND_LOOK_S)
            yield look
            rest -= look
            # A commit may take longer than this.
            if not self._writing() and self._written() == before:
                return False
        if rest > 0:
            yield rest
        left = limits.BACKGROUND_PAUSE_MAX_S - length
        for _ in range(BACKGROUND_PAUSES_REPEATED):
            now, used = self._clock(), self._writer_cpu()
            if cpu is None or used is None or used - cpu < BACKGROUND_SATURATED * (now - began):
                break
            began, cpu = now, used
            nap = min(length, left)
            if nap <= 0:
                break
            left -= nap
            yield nap
        return True


class PacedBlock:
    """Pauses of one block of work: between its steps, and after it.

    A block does not check for writers while nothing is written, so it costs nothing then. It may
    hold a read transaction open, under which the log grows: part of each pause follows the block.

    Args:
        pauses_max_s: Maximum sum of the pauses between steps.
    """

    def __init__(
        self,
        pauses: Pauses,
        written: Callable[[], int],
        writing: Callable[[], bool],
        pauses_max_s: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pauses = pauses
        self._written = written
        self._writing = writing
        self._left_s = pauses_max_s
        self._clock = clock
        self._count = written()
        self._owed_s = 0.0
        """Duration of earlier steps whose pause follows the block."""
        self._began = clock()

    def end_step(self) -> None:
        """Pause if the step was long enough and other threads write. Cheap to call in a loop."""
        now = self._clock()
        took = now - self._began
        if took < BACKGROUND_STEP_S or self._left_s <= 0:
            return
        if self._written() == self._count and not self._writing():
            return
        if self._pauses.pause_after(took * PACED_STEP_SHARE):
            self._owed_s += took * (1 - PACED_STEP_SHARE)
        else:
            self._count = self._written()
        self._began = self._clock()
        self._left_s -= self._began - now

    def end(self) -> None:
        """Pause for the rest of the block, if other threads wrote during it."""
        took = self._clock() - self._began + self._owed_s
        if took >= PACED_BLOCK_S and self._written() != self._count:
            self._pauses.pause_after(took)


class _Steps(threading.local):
    """Start and maximum length of the current step of a thread, and its last pause."""

    def __init__(self) -> None:
        self.began = 0.0
        self.length_s = BACKGROUND_STEP_S
        self.paused_at = float("-inf")
        self.written = 0
        """Number of transactions when the last pause began."""


@contextmanager
def pausing_in_calls() -> Iterator[None]:
    """Pause in calls of functions during a block, if this process writes databases.

    For code that cannot pause by itself, such as the import of a large package. The thread of an
    event loop does not pause.
    """
    writes = PROCESS_WRITES
    if not writes.count_others() or runs_event_loop() or sys.getprofile() is not None:
        yield
        return
    pauses = Pauses.for_process()
    pauses.start()
    sys.setprofile(lambda *_: pauses.pause())
    try:
        yield
    finally:
        sys.setprofile(None)


def runs_event_loop() -> bool:
    """Return True if the calling thread runs an event loop, which must not wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def lower_thread_priority() -> None:
    """Lower the priority of this thread and of those that it starts. Only effective on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Only a privileged process may raise its priority again.
        niceness = max(os.getpriority(os.PRIO_PROCESS, thread), BACKGROUND_NICE)
        os.setpriority(os.PRIO_PROCESS, thread, niceness)

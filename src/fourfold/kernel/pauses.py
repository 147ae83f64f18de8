"""Pauses of background work while other threads write to the same database.

Python runs one thread at a time. Work that never waits delays every step of a commit until the
interpreter switches threads, five milliseconds each time, so commits queue up. Such work therefore
pauses after short steps while other threads write:

    step, 2 ms ──> pause, four times as long ──> step ──> ...   others write
    step, 20 ms ──> check, 1 ms ──> step ──> ...                nothing is written
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from fourfold import limits

BACKGROUND_STEP_S: Final = 0.002
BACKGROUND_FREE_S: Final = 0.02
"""Background work without a pause: while others write, and while they do not."""
BACKGROUND_STEP_MAX_S: Final = 10.0
"""A longer step is not counted: its thread did something else in between."""
BACKGROUND_NICE: Final = 10
"""Priority of background threads."""


class Pauses:
    """Pauses between the steps of long work, tracked for each thread.

    Args:
        written: Returns the number of transactions so far.
        writing: Returns True during a transaction.
    """

    def __init__(
        self,
        written: Callable[[], int],
        writing: Callable[[], bool] = lambda: False,
        *,
        ratio: float = limits.BACKGROUND_PAUSES,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._written = written
        self._writing = writing
        self._ratio = ratio
        self._clock = clock
        self._sleep = sleep
        self._steps = _Steps()

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

    def pause_after(self, took: float) -> bool:
        """Pause in proportion to a step of `took` seconds, while other threads write.

        Return True if they did.
        """
        until = self._clock() + min(took * self._ratio, limits.BACKGROUND_PAUSE_MAX_S)
        before = self._written()
        contended = False
        while (remaining := until - self._clock()) > 0:
            self._sleep(min(remaining, limits.BACKGROUND_LOOK_S))
            # A commit may take longer than this sleep.
            contended = self._writing() or self._written() != before
            if not contended:
                break
        return contended


class _Steps(threading.local):
    """Start and maximum length of the current step of a thread."""

    def __init__(self) -> None:
        self.began = 0.0
        self.length_s = BACKGROUND_STEP_S


def lower_thread_priority() -> None:
    """Lower the priority of this thread and of those that it starts. Only effective on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Only a privileged process may raise its priority again.
        niceness = max(os.getpriority(os.PRIO_PROCESS, thread), BACKGROUND_NICE)
        os.setpriority(os.PRIO_PROCESS, thread, niceness)

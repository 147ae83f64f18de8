"""Worker threads for requests without a bound on their cost: lists, differences, merges, blobs.

The event loop serves every other request meanwhile. Threads, waiting requests and time are bounded:
a request that finds the queue full is refused at once (429), and one that passes its deadline gets
503. A thread cannot be interrupted, so it is counted until its work has really ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from fourfold import limits
from fourfold.errors import DeadlineExceeded, Overloaded

T = TypeVar("T")
WORKERS: Final = 8
WAITING_MAX: Final = 256
DEADLINE_S: Final = 30.0
"""Threads, requests that may wait for one, and the deadline of a request from its arrival."""


class Workers:
    """A bounded pool of threads with a deadline for each call."""

    def __init__(
        self,
        threads: int = WORKERS,
        *,
        waiting_max: int = WAITING_MAX,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fourfold-worker")
        self._counting = threading.Lock()
        self._places = threading.Semaphore(threads + waiting_max)
        self._deadline_s = deadline_s
        self.count = 0
        """Calls that run or wait."""

    async def run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that only reads, in a thread, and return its result.

        Raises:
            Overloaded: too many calls are waiting; the function was not called.
            DeadlineExceeded: the result did not arrive in time.
        """
        work = self._start(partial(function, *arguments, **options))
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request took longer than {self._deadline_s:g} seconds",
                hint="Request less at a time: a smaller page, or fewer entities.",
            ) from None

    async def write(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that writes, in a thread, and return its result.

        It has the deadline of its transaction only: after another one it would be unknown whether
        it wrote.

        Raises:
            Overloaded: too many calls are waiting; the function was not called.
        """
        return await asyncio.wrap_future(self._start(partial(function, *arguments, **options)))

    def _start(self, function: Callable[[], T]) -> Future[T]:
        if not self._places.acquire(blocking=False):
            raise Overloaded(
                "too many requests are waiting for a worker", retry_after=limits.RETRY_AFTER_S
            )
        with self._counting:
            self.count += 1
        try:
            work = self._executor.submit(function)
        except BaseException:
            self._release()
            raise
        work.add_done_callback(self._release)
        return work

    def _release(self, _work: Future[Any] | None = None) -> None:
        with self._counting:
            self.count -= 1
        self._places.release()

"""Worker threads for requests without a bound on their cost: lists, differences, merges, blobs.

The event loop serves every other request meanwhile. Threads, waiting requests and time are bounded:
a request that finds the queue full is refused at once (429), and one that passes its deadline gets
503. A thread cannot be interrupted, so it is counted until its work has really ended.

Python runs one thread at a time, so a worker that computes delays the event loop. While databases
of the process are written, the response to expensive work is therefore held back until its worker
has used no more than a fifth of the time: a client that sends one request after the other leaves
the interpreter to the writers in between. Work that pauses by itself has done that already.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, TypeVar

from fourfold import limits
from fourfold.errors import DeadlineExceeded, Overloaded
from fourfold.kernel import commit_traces
from fourfold.kernel.pauses import Pauses
from fourfold.kernel.process_writes import PROCESS_WRITES

T = TypeVar("T")
WORKERS: Final = 8
WAITING_MAX: Final = 256
DEADLINE_S: Final = 30.0
"""Threads, requests that may wait for one, and the deadline of a request from its arrival."""
CHEAP_S: Final = 0.001
"""Processor time of work whose response is never held back."""


class Workers:
    """A bounded pool of threads with a deadline for each call.

    Args:
        written: Returns the number of transactions that the process has committed.
        pauses: Pauses of the event loop while the process writes.
    """

    def __init__(
        self,
        threads: int = WORKERS,
        *,
        waiting_max: int = WAITING_MAX,
        deadline_s: float = DEADLINE_S,
        written: Callable[[], int] = PROCESS_WRITES.count,
        pauses: Pauses | None = None,
    ) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fourfold-worker")
        self._counting = threading.Lock()
        self._places = threading.Semaphore(threads + waiting_max)
        self._deadline_s = deadline_s
        self._written = written
        self._pauses = pauses or Pauses(
            written, PROCESS_WRITES.is_writing, PROCESS_WRITES.cpu_seconds
        )
        self.count = 0
        """Calls that run or wait."""

    async def run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that only reads, in a thread, and return its result.

        Raises:
            Overloaded: too many calls are waiting; the function was not called.
            DeadlineExceeded: the result did not arrive in time.
        """
        call = _Call(partial(function, *arguments, **options))
        written = self._written()
        work = self._start(call)
        try:
            async with asyncio.timeout(self._deadline_s):
                result = await asyncio.wrap_future(work)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request took longer than {self._deadline_s:g} seconds",
                hint="Request less at a time: a smaller page, or fewer entities.",
            ) from None
        await self._rest(call, written)
        return result

    async def write(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that writes, in a thread, and return its result.

        It has the deadline of its transaction only: after another one it would be unknown whether
        it wrote.

        Raises:
            Overloaded: too many calls are waiting; the function was not called.
        """
        call = _Call(partial(function, *arguments, **options))
        written = self._written()
        result = await asyncio.wrap_future(self._start(call))
        await self._rest(call, written)
        return result

    async def _rest(self, call: _Call[Any], written: int) -> None:
        """Wait while the process writes, in proportion to the processor time of a call."""
        if call.cpu_s > CHEAP_S and self._written() != written:
            await self._pauses.pause_after_async(call.cpu_s, passed_s=call.idle_s, since=written)

    def _start(self, function: Callable[[], T]) -> Future[T]:
        if not self._places.acquire(blocking=False):
            raise Overloaded(
                "too many requests are waiting for a worker", retry_after=limits.RETRY_AFTER_S
            )
        with self._counting:
            self.count += 1
        try:
            work = self._executor.submit(commit_traces.in_context(function))
        except BaseException:
            self._release()
            raise
        work.add_done_callback(self._release)
        return work

    def _release(self, _work: Future[Any] | None = None) -> None:
        with self._counting:
            self.count -= 1
        self._places.release()


class _Call(Generic[T]):
    """A call in a worker, and the processor time that it took."""

    __slots__ = ("_function", "cpu_s", "idle_s")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.cpu_s = 0.0
        self.idle_s = 0.0
        """Time in which its thread did not compute: it waited, or paused."""

    def __call__(self) -> T:
        began, used = time.perf_counter(), time.thread_time()
        try:
            return self._function()
        finally:
            self.cpu_s = time.thread_time() - used
            self.idle_s = max(0.0, time.perf_counter() - began - self.cpu_s)

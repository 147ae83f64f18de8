"""A request to the writer: a function to run inside a shared transaction, and the one who waits for
its result.

    queued ──> running ──> settled          `settle` is called exactly once, by whoever leads the
    group
       └────> withdrawn                     the caller gave up (deadline, cancellation) before it
       ran

A thread waits on a latch; a coroutine on a future of its event loop. Both can be *poked*: told that
the turn is free and that they should see to the queue themselves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

from fourfold.kernel.transaction import Transaction

Work = Callable[[Transaction], Any]


class Request:
    """What both kinds of caller share."""

    __slots__ = ("blamed", "deadline", "error", "hooks", "result", "settled", "size", "work")

    def __init__(self, work: Work, size: int, deadline: float) -> None:
        self.work = work
        self.size = size
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        self.hooks: list[Callable[[], None]] | None = None
        self.settled = False
        self.blamed = False
        """Its failure undid everybody's work; it does not get a second run."""

    def reset(self) -> None:
        """Forget a run that was undone; the work is going to run again."""
        self.result = None
        self.error = None
        self.hooks = None


class ThreadRequest(Request):
    """A thread that sleeps until its request is settled, or until it is asked to lead."""

    __slots__ = ("_latch",)

    def __init__(self, work: Work, size: int, deadline: float) -> None:
        super().__init__(work, size, deadline)
        self._latch = threading.Lock()
        self._latch.acquire()

    def wait(self, timeout: float) -> bool:
        return self._latch.acquire(timeout=timeout)

    def wake(self) -> None:
        try:
            self._latch.release()
        except RuntimeError:
            # It was awake already; it will look at `settled` before it sleeps again.
            return


class LoopRequest(Request):
    """A coroutine that awaits a future of `loop`."""

    __slots__ = ("future", "loop")

    def __init__(
        self, work: Work, size: int, deadline: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(work, size, deadline)
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def resolve(self) -> None:
        """On the loop's own thread: hand over the outcome."""
        future = self.future
        if future.cancelled():
            return
        if isinstance(self.error, StopIteration):
            # A future cannot carry this one: it would end whoever awaits it without a word.
            error = RuntimeError(f"the work raised {self.error!r}")
            error.__cause__ = self.error
            future.set_exception(error)
        elif self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)


def settle(requests: Iterable[Request], here: asyncio.AbstractEventLoop | None) -> None:
    """Give every caller its result or its error. `here` is the loop whose thread this is, if
    any.
    """
    elsewhere: dict[asyncio.AbstractEventLoop, list[LoopRequest]] = {}
    for request in requests:
        request.settled = True
        if isinstance(request, ThreadRequest):
            request.wake()
        elif isinstance(request, LoopRequest):
            if request.loop is here:
                request.resolve()
            else:
                elsewhere.setdefault(request.loop, []).append(request)
    for loop, theirs in elsewhere.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, theirs)
        except RuntimeError:
            # The loop is closed: nobody is left to hear the outcome, and it is durable all the
            # same.
            continue


def _resolve_all(requests: list[LoopRequest]) -> None:
    for request in requests:
        request.resolve()

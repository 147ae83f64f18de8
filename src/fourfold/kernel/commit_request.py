"""A request to the writer: a function to run inside a shared transaction, and the one who waits for
its result.

    queued ──> running ──> settled          `settle` is called exactly once, by whoever leads the
    group
       └────> withdrawn                     the caller gave up (deadline, cancellation) before it
       ran

A thread waits on a latch; a coroutine on a future of its event loop. Both can be *poked*: told that
the turn is free and that they should see to the queue themselves.

What coroutines ask for begins as an Entry in the Inbox of their loop, which costs next to nothing.
Nearly all of it is committed from there when the loop comes round; a Request is made of an entry
only when it has to wait for somebody else's turn, or when something in its group went wrong.

Threads for commits that are too slow for an event loop; shared by all databases of the process.

A forked child does not inherit running threads, only the belief in them, so it starts its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fourfold.kernel.transaction import Transaction
from fourfold.limits import COMMIT_THREADS

Work = Callable[[Transaction], Any]
Entry = tuple[Work, int, float, "asyncio.Future[Any]"]
"""The work, its size, its deadline, and who waits for it."""


class Request:
    """What both kinds of caller share.

    Outcomes begin as values of the class, so that making a request, which happens once for every
    write, stores only what the caller gave.
    """

    result: Any = None
    error: BaseException | None = None
    hooks: list[Callable[[], None]] | None = None
    settled = False
    patient = False
    """Whoever asked can wait for now: it is not told when the turn is free."""
    blamed = False
    """Its failure undid everybody's work; it does not get a second run."""

    def __init__(self, work: Work, size: int, deadline: float) -> None:
        self.work = work
        self.size = size
        self.deadline = deadline

    def reset(self) -> None:
        """Forget a run that was undone; the work is going to run again."""
        self.result = None
        self.error = None
        self.hooks = None


class ThreadRequest(Request):
    """A thread that sleeps until its request is settled, or until it is asked to lead."""

    follower: ThreadRequest | None = None
    """Whom this thread wakes when it has its outcome; see Waking."""
    gone = False
    """Its thread was interrupted, and does not wait for the outcome any more."""

    def __init__(self, work: Work, size: int, deadline: float) -> None:
        super().__init__(work, size, deadline)
        self.thread = threading.get_ident()
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


class PatientRequest(ThreadRequest):
    """A thread that can wait, and lets somebody else's commit take its request along."""

    patient = True
    """Until it has waited for long enough: from then on it leads like any other."""


class LoopRequest(Request):
    """A coroutine that awaits a future of `loop`."""

    def __init__(self, entry: Entry, loop: asyncio.AbstractEventLoop) -> None:
        work, size, deadline, self.future = entry
        super().__init__(work, size, deadline)
        self.loop = loop

    def resolve(self) -> None:
        """On the loop's own thread: hand over the outcome, unless nobody waits for it any more."""
        error = self.error
        try:
            if error is None:
                self.future.set_result(self.result)
            elif isinstance(error, StopIteration):
                # A future cannot carry this one: it would end whoever awaits it without a word.
                told = RuntimeError(f"the work raised {error!r}")
                told.__cause__ = error
                self.future.set_exception(told)
            else:
                self.future.set_exception(error)
        except asyncio.InvalidStateError:
            # Its caller was cancelled while the commit was under way.
            return


class Inbox:
    """What coroutines of one loop asked for since it last came round.

    Only the loop's own thread adds to it, and appending to a list cannot be interrupted; whoever
    takes entries out holds the lock of the queue.
    """

    __slots__ = ("entries", "loop", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.entries: list[Entry] = []
        self.size = 0

    def take(self) -> list[Entry]:
        count = len(self.entries)
        taken = self.entries[:count]
        del self.entries[:count]
        return taken


class WakeUps:
    """How the threads of a group learn of their outcomes: each wakes the next.

    If the leader woke them all, they would stand in line for the interpreter while they could
    sleep, and each of them would be switched to and fro. So it wakes one, who wakes another before
    it goes its way, and so on: one runs, and one is about to. Nobody leads a new group meanwhile;
    most of those who are woken have their next request ready by the time the last one wakes.
    """

    def __init__(self) -> None:
        self._last: ThreadRequest | None = None

    @property
    def under_way(self) -> bool:
        return self._last is not None

    def line_up(self, requests: Sequence[Request]) -> ThreadRequest | None:
        """Let each sleeping thread be woken by the one before it; whom to wake first. The leader,
        who is awake, wakes that one itself when it goes its way.

        It comes before anybody may see that its request is settled: a thread that looks up by
        itself passes the word on as well.
        """
        here = threading.get_ident()
        awake: ThreadRequest | None = None
        asleep: list[ThreadRequest] = []
        for request in requests:
            if type(request) is ThreadRequest and not request.gone:
                if request.thread == here:
                    awake = request
                else:
                    asleep.append(request)
        if not asleep:
            return None
        last = awake
        for request in asleep:
            if last is not None:
                last.follower = request
            last = request
        self._last = last
        return asleep[0] if awake is None else None

    def pass_on(self, request: ThreadRequest) -> bool:
        """The thread of `request` goes its way. Whether it was the last one: then somebody must see
        to the queue.
        """
        request.gone = True
        follower = request.follower
        if follower is not None:
            request.follower = None
            follower.wake()
        elif self._last is request:
            self._last = None
            return True
        return False

    def give_up(self) -> None:
        """Somebody waited in vain: a thread that was interrupted told nobody."""
        self._last = None


def settle(
    requests: Sequence[Request], here: asyncio.AbstractEventLoop | None, waking: WakeUps
) -> None:
    """Give every caller its result or its error. `here` is the loop whose thread this is, if
    any.
    """
    first = waking.line_up(requests)
    elsewhere: dict[asyncio.AbstractEventLoop, list[LoopRequest]] = {}
    for request in requests:
        request.settled = True
        if type(request) is LoopRequest:
            if request.loop is here:
                # Nearly every request ends here, so the common case is written out.
                if request.error is None and not request.future.done():
                    request.future.set_result(request.result)
                else:
                    request.resolve()
            else:
                elsewhere.setdefault(request.loop, []).append(request)
        elif type(request) is PatientRequest:
            # It comes last when the processor is given away: nobody waits for it to wake another.
            request.wake()
    if first is not None:
        first.wake()
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


_threads: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def commit_threads() -> ThreadPoolExecutor:
    global _threads  # noqa: PLW0603
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="fourfold-commit")
        return _threads


def _after_fork_in_child() -> None:
    global _threads, _lock  # noqa: PLW0603
    _threads = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)

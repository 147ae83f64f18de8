"""Requests to the writer: a function to run in a shared transaction, and the caller that waits.

    queued ──> running ──> completed        `complete` is called exactly once, by the group's leader
       └────> withdrawn                     deadline or cancellation before the request ran

A thread waits on a latch, a coroutine on a future of its event loop. Both can be woken early, when
the writer is free, to commit the queue themselves. Callers that want the same function to run on
many items share a request, and each gets its own outcome by a callback.

Commits that are too slow for an event loop run on threads shared by all databases of the process. A
forked child does not inherit running threads, so it starts its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from fourfold.errors import FourfoldError, Refused
from fourfold.kernel.commit_traces import Commits
from fourfold.kernel.transaction import Transaction

COMMIT_THREADS: Final = 8

Work = Callable[[Transaction], Any]
BatchWork = Callable[[Transaction, list[Any]], Sequence[Any]]
"""Work on several items; it returns the outcome of each, in their order."""
OnOutcome = Callable[[Any], None]
"""Called with the outcome of an item, on the thread of its loop. It must not raise."""


class CommitRequest(msgspec.Struct, eq=False):
    """Base of the requests of threads and of coroutines.

    A Struct, since every write creates one, and this takes less than half the time of `__init__`.
    """

    work: Work
    size: int
    deadline: float
    result: Any = None
    error: BaseException | None = None
    hooks: list[Callable[[], None]] | None = None
    low_priority: bool = False
    """Low priority: not woken when the writer becomes free."""
    blamed: bool = False
    """Its failure rolled back the whole group; it does not run again."""
    count: int = 1
    """Number of callers that wait for it."""
    loop: asyncio.AbstractEventLoop | None = None
    """Event loop on whose thread the outcome is delivered; None for any thread."""
    commits: tuple[Commits, ...] = ()
    """Where callers whose requests are traced collect their commits."""

    def reset(self) -> None:
        """Discard the outcome of a run that was rolled back."""
        self.result = None
        self.error = None
        self.hooks = None

    def resolve(self) -> None:
        """Deliver the outcome. Runs on the thread of `loop`, if there is one."""
        raise NotImplementedError


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class ThreadRequest(CommitRequest, eq=False):
    """A thread that waits until its request is completed, or until it has to lead."""

    completed: bool = False
    next_waiter: ThreadRequest | None = None
    """The thread that this one wakes when it returns; see WakeUps."""
    gone: bool = False
    """Its thread has returned or was interrupted, and no longer waits."""
    thread: int = msgspec.field(default_factory=threading.get_ident)
    _latch: threading.Lock = msgspec.field(default_factory=_locked)

    def wait(self, timeout: float) -> bool:
        """Wait to be woken; return False on timeout."""
        return self._latch.acquire(timeout=timeout)

    def wake(self) -> None:
        """Wake the thread; do nothing if it is awake."""
        try:
            self._latch.release()
        except RuntimeError:
            # It checks `completed` before it waits again.
            return

    def resolve(self) -> None:
        """Mark the request completed; its thread is woken by the chain."""
        self.completed = True


class LowPriorityRequest(ThreadRequest, eq=False):
    """A thread that prefers to join another thread's commit."""

    low_priority: bool = True
    """False once its wait ends: from then on it leads like any other request."""

    def resolve(self) -> None:
        """Wake the thread, which may have a low priority and so is not part of the chain."""
        self.completed = True
        self.wake()


class LoopRequest(CommitRequest, eq=False, kw_only=True):
    """Base of the requests that were made on the thread of `loop`, and are answered there."""

    loop: asyncio.AbstractEventLoop


class FutureRequest(LoopRequest, eq=False, kw_only=True):
    """A coroutine that awaits a future of its loop."""

    future: asyncio.Future[Any]

    def resolve(self) -> None:
        """Set the future's outcome unless it was cancelled. Runs on the loop's thread."""
        future, error = self.future, self.error
        if error is None:
            try:
                future.set_result(self.result)
            except asyncio.InvalidStateError:
                # It was cancelled.
                return
        else:
            _fail(future, error)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Set the error of a future unless it was cancelled."""
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future cannot carry StopIteration: it would silently end the awaiting coroutine.
        wrapped = RuntimeError(f"the work raised {error!r}")
        wrapped.__cause__ = error
        error = wrapped
    future.set_exception(error)


Entry = tuple[Work, int, float, "asyncio.Future[Any]"]
"""Work of a coroutine, its size, its deadline, and the future that the coroutine awaits."""


class FutureBatch(LoopRequest, eq=False, kw_only=True):
    """Coroutines of one loop, each with its own work and future, as one request.

    Nearly all of them succeed, and then a coroutine costs a tuple and a result. If the work of one
    fails, the batch is split, and a request for each coroutine runs instead.

    While it is queued, the thread of its loop may add entries.
    """

    entries: list[Entry] = []
    hooked: list[tuple[asyncio.Future[Any], list[Callable[[], None]]]] = []
    """Hooks of entries to call after the commit."""
    failed: list[tuple[asyncio.Future[Any], Exception]] = []
    """Errors of entries that wrote nothing, and of these hooks."""
    parts: list[FutureRequest] | None = None
    """The requests that it was split into."""

    @classmethod
    def begin(cls, entry: Entry, loop: asyncio.AbstractEventLoop) -> FutureBatch:
        """Return a request with one entry. Each entry has its own deadline."""
        return cls(_no_work, entry[1], float("inf"), loop=loop, entries=[entry])

    def seal(self) -> None:
        """Count the entries, when no more are added."""
        self.count = len(self.entries)
        self.size = sum([size for _, size, _, _ in self.entries])

    def reset(self) -> None:
        """Discard the outcome of a run that was rolled back."""
        self.result = self.error = None
        self.hooked, self.failed = [], []

    def split(self) -> list[FutureRequest]:
        """Return a request for each coroutine; their outcomes are those of the batch then."""
        self.parts = [self._part(entry) for entry in self.entries]
        return self.parts

    def remove_late(self, now: float) -> list[FutureRequest]:
        """Remove the entries with a deadline before `now` from a sealed batch; return them."""
        late = [self._part(entry) for entry in self.entries if entry[2] < now]
        self.entries = [entry for entry in self.entries if entry[2] >= now]
        self.seal()
        return late

    def _part(self, entry: Entry) -> FutureRequest:
        work, size, deadline, future = entry
        return FutureRequest(work, size, deadline, loop=self.loop, future=future)

    def resolve(self) -> None:
        """Set the outcomes of the futures that were not cancelled. Runs on the loop's thread."""
        error = self.error
        if error is not None:
            for _, _, _, future in self.entries:
                if not future.done():
                    future.set_exception(
                        error.copy() if isinstance(error, FourfoldError) else error
                    )
        elif self.parts is not None:
            for part in self.parts:
                part.resolve()
        else:
            for future, its_error in self.failed:
                _fail(future, its_error)
            for (_, _, _, future), result in zip(self.entries, self.result, strict=True):
                if not future.done():
                    future.set_result(result)


class BatchRequest(LoopRequest, eq=False, kw_only=True):
    """Items that one function writes together, each with a callback for its outcome.

    While it is queued, the thread of its loop may add items.
    """

    run: BatchWork
    items: list[Any] = []
    callbacks: list[OnOutcome] = []
    count: int = 0

    @classmethod
    def begin(
        cls, run: BatchWork, deadline: float, loop: asyncio.AbstractEventLoop
    ) -> BatchRequest:
        """Return a request without items."""
        batch = cls(_no_work, 0, deadline, loop=loop, run=run)
        batch.work = batch._run_items
        return batch

    def add(self, item: object, on_outcome: OnOutcome, size: int) -> None:
        """Add an item of another caller."""
        self.items.append(item)
        self.callbacks.append(on_outcome)
        self.count += 1
        self.size += size

    def _run_items(self, txn: Transaction) -> Sequence[Any]:
        return self.run(txn, self.items)

    def resolve(self) -> None:
        """Call every callback with its outcome, or with the error. Runs on the loop's thread."""
        # With a reference to its own method it would stay until the next garbage collection.
        self.work = _no_work
        error = self.error
        if error is None:
            for on_outcome, outcome in zip(self.callbacks, self.result, strict=True):
                on_outcome(outcome)
            return
        if not isinstance(error, FourfoldError):
            context = {"message": "Exception in the work of a transaction", "exception": error}
            self.loop.call_exception_handler(context)
            error = Refused(f"the work raised {error!r}")
        for on_outcome in self.callbacks:
            on_outcome(error.copy())


def _no_work(txn: Transaction) -> None:
    """Do nothing: the work of a batch is set when it exists."""


class WakeUps:
    """Chained wake-ups of the threads of a group: each wakes the next.

    If the leader woke all of them, they would contend for the interpreter lock. So it wakes one,
    which wakes another before it returns, and so on: one runs, and one is about to. No thread leads
    a new group meanwhile; most woken threads have their next request ready by the time the last one
    wakes.
    """

    def __init__(self) -> None:
        self._last: ThreadRequest | None = None

    @property
    def in_progress(self) -> bool:
        """True until the last thread of the chain has returned."""
        return self._last is not None

    def chain(self, requests: Sequence[CommitRequest]) -> ThreadRequest | None:
        """Link the waiting threads so that each wakes the next; return the first one to wake.

        Return None if there is none, or if the leader is in the group: it wakes the first one when
        it returns. Call this before any request is marked completed, because a thread that wakes by
        itself also wakes the next.
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
                last.next_waiter = request
            last = request
        self._last = last
        return asleep[0] if awake is None else None

    def wake_next(self, request: ThreadRequest) -> bool:
        """Wake the thread after `request`, whose own thread returns.

        Return True if it was the last one: the caller then wakes a leader for the queue.
        """
        request.gone = True
        next_waiter = request.next_waiter
        if next_waiter is not None:
            request.next_waiter = None
            next_waiter.wake()
        elif self._last is request:
            self._last = None
            return True
        return False

    def reset(self) -> None:
        """Break the chain, since a thread of it was interrupted and did not wake the next."""
        self._last = None


def complete(
    requests: Sequence[CommitRequest], here: asyncio.AbstractEventLoop | None, wake_ups: WakeUps
) -> None:
    """Deliver its result or error to every caller. `here` is the loop of this thread, if any."""
    first = wake_ups.chain(requests)
    elsewhere: dict[asyncio.AbstractEventLoop, list[CommitRequest]] = {}
    for request in requests:
        loop = request.loop
        if loop is here or loop is None:
            request.resolve()
        else:
            elsewhere.setdefault(loop, []).append(request)
    if first is not None:
        first.wake()
    for other, loop_requests in elsewhere.items():
        try:
            other.call_soon_threadsafe(_resolve_all, loop_requests)
        except RuntimeError:
            # The loop is closed: its callers are gone, and the commit is durable all the same.
            continue


def _resolve_all(requests: list[CommitRequest]) -> None:
    for request in requests:
        request.resolve()


_threads: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def commit_threads() -> ThreadPoolExecutor:
    """Return the threads for commits that are too slow for an event loop."""
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

"""Notifications of commits within one process, and the followers that wait for them.

Threads wait, functions are called, and coroutines are woken. Each of them then reads the log, so an
early or repeated notification does no harm. A listener registered under a name is not notified of
other names. A notification may carry a payload per name, which can save its listeners the read.

Coroutines are woken in slices, so that a stream with ten thousand readers does not block its event
loop:

    notify ──> fan-out of each event loop ──> a slice of listeners ──> [ one iteration ] ──> ...

A slice is followed by a pause in proportion to its time while others commit, so that these keep
most of the event loop. Others commit for a while after each notification that arrives during a
fan-out: a slice is shorter than a commit, so most slices see none. A pause in which the event loop
had no idle time is repeated a few times: requests wait, and each slice adds to their delay (uvloop
also sends what a slice wrote after it, where its time is not counted). Names take turns, so a name
with few listeners does not wait for one with many. A notification that arrives during the fan-out
of its name is delivered in the next round: each listener receives everything in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from fourfold.kernel.transaction import Transaction

NOTIFY_SLICE_LISTENERS: Final = 6
"""Coroutines that a commit wakes in one iteration of their event loop; the others follow in
the next ones, so that requests are served in between.
"""
NOTIFY_PAUSES: Final = 6.0
"""Pause after a slice while others commit, as a multiple of the time that the slice took."""

NOTIFY_BUSY_S: Final = 0.05
"""Time after a notification during which others are taken to commit."""

NOTIFY_PAUSE_MIN_S: Final = 0.001
"""Shortest pause: uvloop rounds a delay to milliseconds, and calls at once if none is left. The
pause of shorter slices follows a later one.
"""

NOTIFY_SATURATED: Final = 0.9
"""Share of a pause from which on the event loop had no idle time."""

NOTIFY_PAUSES_REPEATED: Final = 8
"""Times that a pause is repeated at most while the event loop has no idle time."""

NOTIFY_PENDING_MAX: Final = 32
"""Payloads buffered until delivery; on overflow they collapse into one None."""
Callback = Callable[[object], None]
"""Called with the payload of a notification; None if it has none."""


class Notifier:
    """Notifies threads, functions and coroutines of commits."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._count = 0
        self._all = _Listeners()
        self._named: dict[str, _Listeners] = {}
        self._fan_outs: dict[asyncio.AbstractEventLoop, _FanOut] = {}

    @property
    def count(self) -> int:
        """Number of notifications so far. Read it before the log, and pass it to `wait`."""
        return self._count

    def has_listeners(self, name: str | None = None) -> bool:
        """Return True if `name`, or without one any name, has listeners."""
        return bool(self._named) if name is None else name in self._named

    def notify(
        self, names: Iterable[str] | None = None, payloads: Mapping[str, object] | None = None
    ) -> None:
        """Notify the listeners of `names` and those without a name; by default all listeners.

        `payloads` maps a name to the payload that its listeners receive.
        """
        self._signal(names, payloads)
        self._wake()

    def notify_on_commit(
        self,
        txn: Transaction,
        names: Iterable[str] | None = None,
        payloads: Mapping[str, object] | None = None,
    ) -> None:
        """Notify when `txn` is committed.

        Coroutines are woken after the commit is acknowledged, so that writers do not wait for
        readers.
        """
        txn.after_commit(partial(self._signal, names, payloads))
        txn.after_acknowledge(self._wake)

    def _signal(self, names: Iterable[str] | None, payloads: Mapping[str, object] | None) -> None:
        """Call the functions, wake the threads, and queue the coroutines for `_wake`."""
        with self._change:
            self._count += 1
            self._change.notify_all()
            calls: list[tuple[Callback, object]] = []
            self._all.notify(None, calls)
            if self._named:
                for name in self._named if names is None else names:
                    listeners = self._named.get(name)
                    if listeners is not None:
                        listeners.notify(None if payloads is None else payloads.get(name), calls)
        for function, payload in calls:
            function(payload)

    def _wake(self) -> None:
        if self._fan_outs:
            with self._change:
                fan_outs = list(self._fan_outs.values())
            for fan_out in fan_outs:
                fan_out.start()

    def wait(self, count: int, timeout: float) -> None:
        """Block until `self.count` differs from `count`, or for `timeout` seconds."""
        with self._change:
            self._change.wait_for(lambda: self._count != count, timeout)

    @contextmanager
    def call(self, function: Callback, name: str | None = None) -> Iterator[None]:
        """Call `function` for each notification during the block, on the notifying thread."""
        with self._listening(name) as listeners:
            with self._change:
                listeners.functions.add(function)
            try:
                yield
            finally:
                with self._change:
                    listeners.functions.discard(function)

    @contextmanager
    def listen(self, name: str | None = None) -> Iterator[Listener]:
        """Register a coroutine's listener for the duration of the block."""
        loop = asyncio.get_running_loop()
        listener = Listener(loop)
        with self._listening(name) as listeners:
            with self._change:
                fan_out = self._fan_outs.get(loop)
                if fan_out is None:
                    fan_out = _FanOut(loop, self._change, lambda: self._count)
                    self._fan_outs[loop] = fan_out
                fan_out.listeners += 1
                group = listeners.groups.get(fan_out)
                if group is None:
                    group = listeners.groups[fan_out] = _ListenerGroup()
                group.listeners[listener] = None
            try:
                yield listener
            finally:
                with self._change:
                    del group.listeners[listener]
                    if not group.listeners:
                        del listeners.groups[fan_out]
                    fan_out.listeners -= 1
                    if not fan_out.listeners:
                        del self._fan_outs[loop]

    @contextmanager
    def _listening(self, name: str | None) -> Iterator[_Listeners]:
        """Yield the listeners of `name`; they are removed with their last user."""
        if name is None:
            yield self._all
            return
        with self._change:
            listeners = self._named.setdefault(name, _Listeners())
            listeners.users += 1
        try:
            yield listeners
        finally:
            with self._change:
                listeners.users -= 1
                if not listeners.users:
                    del self._named[name]


class _Listeners:
    """Functions and coroutines that listen under one name. Protected by the notifier's lock."""

    def __init__(self) -> None:
        self.users = 0
        self.functions: set[Callback] = set()
        self.groups: dict[_FanOut, _ListenerGroup] = {}

    def notify(self, payload: object, calls: list[tuple[Callback, object]]) -> None:
        """Add the functions to `calls`, and the coroutines to the fan-outs of their loops."""
        calls += [(function, payload) for function in self.functions]
        for fan_out, group in self.groups.items():
            fan_out.add(group, payload)


class _ListenerGroup:
    """The coroutines of one event loop that listen under one name."""

    def __init__(self) -> None:
        self.listeners: dict[Listener, None] = {}
        self.queued = False
        self.pending: list[object] = []
        """Payloads to deliver in the next round."""
        self.remaining: list[Listener] = []
        """Listeners still to be notified in this round."""
        self.payloads: list[object] = []
        """Payloads of this round."""


class _FanOut:
    """Notifies the coroutines of one event loop, a slice in each iteration."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lock: threading.Condition, count: Callable[[], int]
    ) -> None:
        self.listeners = 0
        self._loop = loop
        self._thread = threading.get_ident()
        self._lock = lock
        self._count = count
        """Returns the number of notifications so far."""
        self._seen = 0
        """That number when it was last checked."""
        self._busy_until = 0.0
        self._slice_began = 0.0
        self._owed_s = 0.0
        """Pause of earlier slices that was too short for a timer."""
        self._repeated = 0
        """Times that the current pause was repeated."""
        self._queue: deque[_ListenerGroup] = deque()
        self._started = False

    def add(self, group: _ListenerGroup, payload: object) -> None:
        """Queue a payload for a group. The caller holds the lock, and calls `start` after it."""
        _buffer(group.pending, payload)
        if not group.queued:
            group.queued = True
            self._queue.append(group)

    def start(self) -> None:
        """Deliver queued payloads, from any thread: at once on the thread of the loop, unless a
        delivery is in progress.
        """
        with self._lock:
            if self._started or not self._queue:
                return
            self._started = True
            # Its own notification does not count as one of others.
            self._seen = self._count()
        # A closed loop has no coroutines left to wake.
        with suppress(RuntimeError):
            if threading.get_ident() == self._thread:
                self._deliver()
            else:
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Notify one slice, and continue after it has run."""
        budget = NOTIFY_SLICE_LISTENERS
        # The loop runs in this order: the start, the coroutines of the slice, the pause.
        self._loop.call_soon(self._start_slice)
        while budget > 0:
            with self._lock:
                if not self._queue:
                    self._started = False
                    return
                group = self._queue.popleft()
                if not group.remaining:
                    group.remaining = list(reversed(group.listeners))
                    group.payloads, group.pending = group.pending, []
            budget -= self._notify(group, budget)
            with self._lock:
                if group.remaining or group.pending:
                    self._queue.append(group)
                else:
                    group.queued = False
        self._loop.call_soon(self._pause)

    def _start_slice(self) -> None:
        self._slice_began = time.perf_counter()

    def _pause(self) -> None:
        """Notify the next slice: at once, or after a pause while others commit."""
        now, count = time.perf_counter(), self._count()
        if count != self._seen:
            self._seen = count
            self._busy_until = now + NOTIFY_BUSY_S
        if now >= self._busy_until:
            self._owed_s = 0.0
            self._deliver()
            return
        self._owed_s += (now - self._slice_began) * NOTIFY_PAUSES
        if self._owed_s < NOTIFY_PAUSE_MIN_S:
            self._deliver()
            return
        pause_s, self._owed_s = self._owed_s, 0.0
        self._repeated = 0
        self._loop.call_later(pause_s, self._end_pause, pause_s, now, time.thread_time())

    def _end_pause(self, pause_s: float, began: float, cpu: float) -> None:
        """Notify the next slice, or pause again if the event loop was busy since `began`."""
        now, used = time.perf_counter(), time.thread_time()
        busy = used - cpu >= NOTIFY_SATURATED * (now - began)
        if busy and self._repeated < NOTIFY_PAUSES_REPEATED:
            self._repeated += 1
            self._loop.call_later(pause_s, self._end_pause, pause_s, now, used)
        else:
            self._deliver()

    def _notify(self, group: _ListenerGroup, limit: int) -> int:
        """Notify up to `limit` registered listeners of a group; return how many were examined."""
        listeners, remaining, payloads = group.listeners, group.remaining, group.payloads
        slice_ = remaining[-limit:]
        del remaining[-limit:]
        for listener in reversed(slice_):
            if listener in listeners:
                listener.deliver(payloads)
        return len(slice_)


def _buffer(payloads: list[object], payload: object) -> None:
    """Append a payload, or replace all by None when there are too many."""
    if len(payloads) >= NOTIFY_PENDING_MAX:
        payloads.clear()
        payload = None
    payloads.append(payload)


class Listener:
    """Receives notifications for one coroutine, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._notified = False
        self._waiter: asyncio.Future[bool] | None = None
        self._payloads: list[object] = []

    def notify(self) -> None:
        """Wake its coroutine, from any thread."""
        if threading.get_ident() == self._thread:
            # The loop runs on this very thread, and need not be woken.
            self.deliver((None,))
            return
        # A closed loop has no coroutines left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.deliver, (None,))

    def deliver(self, payloads: Iterable[object]) -> None:
        """Wake its coroutine with the payload of each notification. Runs on the loop's thread."""
        for payload in payloads:
            _buffer(self._payloads, payload)
        self._notified = True
        if self._waiter is not None:
            _set_result(self._waiter, result=True)

    def drain(self) -> list[object]:
        """Remove and return the payloads received, with None for a notification without one.

        Call it before reading the log, not after it.
        """
        self._notified = False
        payloads, self._payloads = self._payloads, []
        return payloads

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification since the last `drain`; return False on timeout."""
        if self._notified:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        timer = self._loop.call_later(seconds, partial(_set_result, waiter, result=False))
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None


def _set_result(waiter: asyncio.Future[bool], *, result: bool) -> None:
    if not waiter.done():
        waiter.set_result(result)


T = TypeVar("T")


class Follower(ABC, Generic[T]):
    """An iterator over a log that waits for new entries.

    A subclass only implements `next`, `next_async` and `close`.
    """

    _timeout: float | None = None
    """Seconds without a new entry after which an iteration ends."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """Return the next entry, or None on timeout or when the follower is closed."""

    @abstractmethod
    async def next_async(self, timeout: float | None = None) -> T | None:  # noqa: ASYNC109
        """Return the next entry, or None on timeout or when the follower is closed."""

    @abstractmethod
    def close(self) -> None:
        """Close the follower; calls that wait return None."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        entry = self.next(self._timeout)
        if entry is None:
            raise StopIteration
        return entry

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        entry = await self.next_async(self._timeout)
        if entry is None:
            raise StopAsyncIteration
        return entry

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

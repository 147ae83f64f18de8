"""A bell that rings when something was committed in this process.

Threads wait for it, functions are called, and coroutines are woken. Each of them reads the log
then, so a ring that comes too early or twice does no harm. A listener under a name does not hear
what is rung for other names; a ring may say what was committed under a name, which can spare its
listeners the read.

Coroutines are woken in slices, so that a stream with ten thousand readers does not stop its event
loop:

    ring ──> fan-out of each event loop ──> a slice of listeners ──> [ one iteration ] ──> ...

Names take turns, so a name with few listeners does not wait for one with many. What is rung for a
name during its fan-out is delivered in its next one: each listener hears everything in order.

What everybody shares who follows a log: iteration, for threads and for coroutines, and an end.

A subclass says what comes next; that is all it must say.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from fourfold import limits
from fourfold.kernel.transaction import Transaction

_PENDING_MAX = 8
"""What is remembered until it is delivered or read; beyond that, only that it rang."""
Callback = Callable[[object], None]
"""Is called with what was said with a ring; None when nothing was."""


class Notifier:
    """Rings when something was committed."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._rings = 0
        self._all = _Listeners()
        self._named: dict[str, _Listeners] = {}
        self._fan_outs: dict[asyncio.AbstractEventLoop, _FanOut] = {}

    @property
    def rings(self) -> int:
        """A mark to take before looking at the log, and to hand to `wait`."""
        return self._rings

    def is_heard(self, name: str | None = None) -> bool:
        """Return True if there are listeners under that name; without one, under any."""
        return bool(self._named) if name is None else name in self._named

    def ring(
        self, names: Iterable[str] | None = None, said: Mapping[str, object] | None = None
    ) -> None:
        """Notify all listeners; with names, those under one of them and those of everything.

        What is `said` of a name goes to the listeners under it.
        """
        self._notify(names, said)
        self._wake()

    def ring_on_commit(
        self,
        txn: Transaction,
        names: Iterable[str] | None = None,
        said: Mapping[str, object] | None = None,
    ) -> None:
        """Ring when `txn` is committed: coroutines are woken after it has been acknowledged, so
        that writers do not wait for readers.
        """
        txn.after_commit(partial(self._notify, names, said))
        txn.after_acknowledge(self._wake)

    def _notify(self, names: Iterable[str] | None, said: Mapping[str, object] | None) -> None:
        """Call functions, let threads go on, and note for whom `_wake` is."""
        with self._change:
            self._rings += 1
            self._change.notify_all()
            called: list[tuple[Callback, object]] = []
            self._all.notify(None, called)
            if self._named:
                for name in self._named if names is None else names:
                    listeners = self._named.get(name)
                    if listeners is not None:
                        listeners.notify(None if said is None else said.get(name), called)
        for listener, saying in called:
            listener(saying)

    def _wake(self) -> None:
        if self._fan_outs:
            with self._change:
                fan_outs = list(self._fan_outs.values())
            for fan_out in fan_outs:
                fan_out.start()

    def wait(self, rings: int, timeout: float) -> None:
        """Until it rings, or has rung since the mark, or the time is over."""
        with self._change:
            self._change.wait_for(lambda: self._rings != rings, timeout)

    @contextmanager
    def calling(self, listener: Callback, name: str | None = None) -> Iterator[None]:
        """Call a function for each ring while the block lasts, in the thread that rings."""
        with self._listening(name) as listeners:
            with self._change:
                listeners.functions.add(listener)
            try:
                yield
            finally:
                with self._change:
                    listeners.functions.discard(listener)

    @contextmanager
    def heard(self, name: str | None = None) -> Iterator[Listener]:
        """Let a coroutine hear the bell while the block lasts."""
        loop = asyncio.get_running_loop()
        ear = Listener(loop)
        with self._listening(name) as listeners:
            with self._change:
                fan_out = self._fan_outs.get(loop)
                if fan_out is None:
                    fan_out = self._fan_outs[loop] = _FanOut(loop, self._change)
                fan_out.ears += 1
                crowd = listeners.crowds.get(fan_out)
                if crowd is None:
                    crowd = listeners.crowds[fan_out] = _ListenerGroup()
                crowd.ears[ear] = None
            try:
                yield ear
            finally:
                with self._change:
                    del crowd.ears[ear]
                    if not crowd.ears:
                        del listeners.crowds[fan_out]
                    fan_out.ears -= 1
                    if not fan_out.ears:
                        del self._fan_outs[loop]

    @contextmanager
    def _listening(self, name: str | None) -> Iterator[_Listeners]:
        """Keep the listeners under a name while there are any."""
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
    """Functions and coroutines that listen under one name. The bell's lock protects it."""

    def __init__(self) -> None:
        self.users = 0
        self.functions: set[Callback] = set()
        self.crowds: dict[_FanOut, _ListenerGroup] = {}

    def notify(self, saying: object, called: list[tuple[Callback, object]]) -> None:
        """Add the functions to `called`, and the coroutines to the fan-outs of their loops."""
        called += [(function, saying) for function in self.functions]
        for fan_out, crowd in self.crowds.items():
            fan_out.add(crowd, saying)


class _ListenerGroup:
    """The coroutines of one event loop that listen under one name."""

    def __init__(self) -> None:
        self.ears: dict[Listener, None] = {}
        self.queued = False
        self.pending: list[object] = []
        """What was said and is to be delivered in the next round."""
        self.left: list[Listener] = []
        """Who is still to be notified in this round."""
        self.said: list[object] = []
        """What was said for this round."""


class _FanOut:
    """Notifies the coroutines of one event loop, a slice in each iteration."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Condition) -> None:
        self.ears = 0
        self._loop = loop
        self._thread = threading.get_ident()
        self._lock = lock
        self._queue: deque[_ListenerGroup] = deque()
        self._started = False

    def add(self, crowd: _ListenerGroup, saying: object) -> None:
        """Note what a crowd is to hear. The caller holds the lock, and calls `start` after it."""
        _remember(crowd.pending, saying)
        if not crowd.queued:
            crowd.queued = True
            self._queue.append(crowd)

    def start(self) -> None:
        """Deliver what was noted, from any thread: at once on the thread of the loop, if nothing is
        under way.
        """
        with self._lock:
            if self._started or not self._queue:
                return
            self._started = True
        # A closed loop has no coroutines left to wake.
        with suppress(RuntimeError):
            if threading.get_ident() == self._thread:
                self._deliver()
            else:
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Notify one slice, and go on in the next iteration of the loop."""
        room = limits.NOTIFY_SLICE_LISTENERS
        while room > 0:
            with self._lock:
                if not self._queue:
                    self._started = False
                    return
                crowd = self._queue.popleft()
                if not crowd.left:
                    crowd.left = list(reversed(crowd.ears))
                    crowd.said, crowd.pending = crowd.pending, []
            room -= self._notify(crowd, room)
            with self._lock:
                if crowd.left or crowd.pending:
                    self._queue.append(crowd)
                else:
                    crowd.queued = False
        self._loop.call_soon(self._deliver)

    def _notify(self, crowd: _ListenerGroup, most: int) -> int:
        """Notify listeners of a crowd that have not left; return how many it looked at."""
        ears, left, said = crowd.ears, crowd.left, crowd.said
        slice_ = left[-most:]
        del left[-most:]
        for ear in reversed(slice_):
            if ear in ears:
                ear.hear(said)
        return len(slice_)


def _remember(sayings: list[object], saying: object) -> None:
    """Add what was said, or only that it rang when there is too much."""
    if len(sayings) >= _PENDING_MAX:
        sayings.clear()
        saying = None
    sayings.append(saying)


class Listener:
    """Hears a bell for a coroutine, in any thread that rings it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()
        self._said: list[object] = []

    def ring(self) -> None:
        """Wake its coroutine, from any thread."""
        if threading.get_ident() == self._thread:
            # The loop runs on this very thread, and need not be woken.
            self.hear((None,))
            return
        # A closed loop has no coroutines left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.hear, (None,))

    def hear(self, said: Iterable[object]) -> None:
        """Wake its coroutine, from a callback of its loop, with what was said in each ring."""
        for saying in said:
            _remember(self._said, saying)
        self._rung.set()

    def forget(self) -> list[object]:
        """Forget what was heard, and tell it: for each ring what was said, None for nothing. To be
        done before a look at the log, not after it.
        """
        self._rung.clear()
        said, self._said = self._said, []
        return said

    async def wait(self, seconds: float) -> bool:
        """Until it rings, or has rung since `forget`; False when the time is over first."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        return True


T = TypeVar("T")


class Follower(ABC, Generic[T]):
    """An iterator over what a log brings, which waits for more."""

    _timeout: float | None = None
    """Seconds without anything new after which an iteration ends."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """What comes next; None when nothing came in time, or nothing will come any more."""

    @abstractmethod
    async def next_async(self, timeout: float | None = None) -> T | None:  # noqa: ASYNC109
        """The same for coroutines."""

    @abstractmethod
    def close(self) -> None:
        """End it: whoever waits gets nothing more."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        found = self.next(self._timeout)
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        found = await self.next_async(self._timeout)
        if found is None:
            raise StopAsyncIteration
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

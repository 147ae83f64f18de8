"""A bell that rings when something was committed in this process.

Threads wait for it; coroutines are called back. It carries nothing: whoever hears it looks at the
log, so a ring that comes too early or twice does no harm. Whoever waits for one thing among many
listens under its name, and does not hear what is rung for others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


class Bell:
    """Rings when something was committed."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._rings = 0
        self._listeners: set[Callable[[], None]] = set()
        self._named: dict[str, set[Callable[[], None]]] = {}

    @property
    def rings(self) -> int:
        """A mark to take before looking at the log, and to hand to `wait`."""
        return self._rings

    def ring(self, names: Iterable[str] | None = None) -> None:
        """For everybody; with names, for those who listen to one of them, or to everything."""
        with self._change:
            self._rings += 1
            self._change.notify_all()
            listeners = list(self._listeners)
            if self._named:
                for name in self._named if names is None else names:
                    listeners += self._named.get(name, ())
        for listener in listeners:
            listener()

    def wait(self, rings: int, timeout: float) -> None:
        """Until it rings, or has rung since the mark, or the time is over."""
        with self._change:
            self._change.wait_for(lambda: self._rings != rings, timeout)

    @contextmanager
    def calling(self, listener: Callable[[], None], name: str | None = None) -> Iterator[None]:
        with self._change:
            listeners = self._listeners if name is None else self._named.setdefault(name, set())
            listeners.add(listener)
        try:
            yield
        finally:
            with self._change:
                listeners.discard(listener)
                if name is not None and not listeners:
                    self._named.pop(name, None)

    @contextmanager
    def heard(self, name: str | None = None) -> Iterator[Ear]:
        """For a coroutine: what hears the bell while the block lasts."""
        ear = Ear(asyncio.get_running_loop())
        with self.calling(ear.ring, name):
            yield ear


class Ear:
    """Hears a bell for a coroutine, whichever thread rings it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        if threading.get_ident() == self._thread:
            # The loop runs on this very thread, and need not be woken.
            self._rung.set()
            return
        # A loop that was closed has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def forget(self) -> None:
        """Forget what was heard; to be done before a look at the log, not after it."""
        self._rung.clear()

    async def wait(self, seconds: float) -> bool:
        """Until it rings, or has rung since `forget`; False when the time is over first."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        return True

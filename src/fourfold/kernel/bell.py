"""A bell that rings when something was committed in this process.

Threads wait for it; coroutines are called back. Whoever hears it looks at the log, so a ring that
comes too early or twice does no harm. Whoever waits for one thing among many listens under its
name, and does not hear what is rung for others; to them a ring may say what was committed, which
can spare them the look.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

_SAYINGS_MAX = 8
"""What an ear remembers until somebody asks it; beyond that it only knows that it rang."""
Listener = Callable[[object], None]
"""Is told what was said with a ring; None when nothing was."""


class Bell:
    """Rings when something was committed."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._rings = 0
        self._listeners: set[Listener] = set()
        self._named: dict[str, set[Listener]] = {}

    @property
    def rings(self) -> int:
        """A mark to take before looking at the log, and to hand to `wait`."""
        return self._rings

    def is_heard(self, name: str | None = None) -> bool:
        """Whether anybody listens under that name; without one, under any."""
        return bool(self._named) if name is None else name in self._named

    def ring(
        self, names: Iterable[str] | None = None, said: Mapping[str, object] | None = None
    ) -> None:
        """For everybody; with names, for those who listen to one of them, or to everything. What is
        `said` of a name is told to those who listen under it.
        """
        with self._change:
            self._rings += 1
            self._change.notify_all()
            called: list[tuple[Listener, object]] = [(each, None) for each in self._listeners]
            if self._named:
                for name in self._named if names is None else names:
                    saying = None if said is None else said.get(name)
                    called += [(each, saying) for each in self._named.get(name, ())]
        for listener, saying in called:
            listener(saying)

    def wait(self, rings: int, timeout: float) -> None:
        """Until it rings, or has rung since the mark, or the time is over."""
        with self._change:
            self._change.wait_for(lambda: self._rings != rings, timeout)

    @contextmanager
    def calling(self, listener: Listener, name: str | None = None) -> Iterator[None]:
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
        self._said: list[object] = []

    def ring(self, said: object = None) -> None:
        if threading.get_ident() == self._thread:
            # The loop runs on this very thread, and need not be woken.
            self._hear(said)
            return
        # A loop that was closed has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, said)

    def _hear(self, said: object) -> None:
        if len(self._said) >= _SAYINGS_MAX:
            self._said, said = [], None
        self._said.append(said)
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

"""Waiters of touch streams, and which of them a change wakes.

The coroutines of one event loop that wait on one stream form a group. When the stream is notified,
one scan of the journal serves the whole group: it returns the touched marks, and the waiters of
these marks are woken. The others sleep on, so an append costs one scan, however many wait. If the
scan cannot tell what changed, all waiters are woken and check by themselves.

    notification ──> journal scan ──> marks ──> waiters that sleep on them

A journal reports everything it reads to every group, whichever call made it read; a waiter that is
awake then checks again before it sleeps. So no change is lost between a check and the sleep after
it.

`Wait` holds the state of one wait: its keys, cursor and deadline.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Listener, Notifier
from fourfold.models.streams import validation
from fourfold.models.streams.touch import keys as waited_keys
from fourfold.models.streams.touch.keys import Mark, TouchCursor, parse_cursor
from fourfold.models.streams.touch.records import Key, WaitResult

ReadJournal = Callable[[str], bool]
"""Reads the journal of a stream up to its end; False if that did not cover everything."""


class Waiter:
    """One waiting coroutine. Only its event loop uses it."""

    def __init__(self, group: _LoopGroup) -> None:
        self._group = group
        self._listener = Listener(group.loop)
        self._marks: frozenset[Mark] = frozenset()
        """Marks that wake it while it sleeps."""
        self._notified = False
        self._clear = 0

    def wake(self) -> int:
        """Mark as awake, so that every notification counts until the next sleep.

        Returns the offset below which nothing touched it since it fell asleep; 0 if unknown.
        """
        self._listener.drain()
        self._notified = False
        if self._marks:
            self._clear = self._group.clear
            self._group.wake(self)
            self._marks = frozenset()
        clear, self._clear = self._clear, 0
        return clear

    async def sleep(self, marks: Collection[Mark], seconds: float) -> None:
        """Sleep until one of the marks is touched, all are woken, or the time is up.

        Returns at once if it was notified since `wake`.
        """
        if self._notified:
            return
        self._marks = frozenset(marks)
        self._group.sleep(self, self._marks)
        await self._listener.wait(seconds)

    def notify(self, clear: int) -> None:
        """Wake it; while it slept, nothing below the offset `clear` touched it."""
        self._notified = True
        if self._marks:
            self._marks, self._clear = frozenset(), clear
        self._listener.notify()


class _LoopGroup:
    """The waiters of one event loop on one stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.waiters: Final[set[Waiter]] = set()
        self.clear = 0
        """Offset below which nothing touched the sleeping waiters."""
        self.scan_scheduled = False
        self._asleep: dict[Mark, set[Waiter]] = {}
        self._marks: dict[Waiter, frozenset[Mark]] = {}

    def sleep(self, waiter: Waiter, marks: frozenset[Mark]) -> None:
        self._marks[waiter] = marks
        for mark in marks:
            self._asleep.setdefault(mark, set()).add(waiter)

    def wake(self, waiter: Waiter) -> None:
        for mark in self._marks.pop(waiter, ()):
            sleeping = self._asleep[mark]
            sleeping.discard(waiter)
            if not sleeping:
                del self._asleep[mark]

    def notify(self, marks: Collection[Mark] | None, reached: int) -> None:
        """Wake the waiters of touched marks up to an offset; None means that all may be."""
        if marks is None:
            woken = set(self.waiters)
        else:
            # Waiters that are awake check again anyway.
            woken = {waiter for waiter in self.waiters if waiter not in self._marks}
            for mark in marks:
                woken |= self._asleep.get(mark, set())
        for waiter in woken:
            self.wake(waiter)
            waiter.notify(self.clear)
        self.clear = reached

    def notify_all(self) -> None:
        for waiter in tuple(self.waiters):
            self.wake(waiter)
            waiter.notify(self.clear)


class _StreamGroups:
    """The groups of one stream, by event loop."""

    def __init__(self) -> None:
        self.groups: dict[asyncio.AbstractEventLoop, _LoopGroup] = {}
        self.stamp = object()
        """Replaced by each notification."""
        self.subscription: AbstractContextManager[None] | None = None


class WaiterRegistry:
    """The waiters of all streams of one store."""

    def __init__(self, notifier: Notifier, read_journal: ReadJournal) -> None:
        self._notifier = notifier
        self._read_journal = read_journal
        self._streams: dict[str, _StreamGroups] = {}
        self._change = threading.Lock()

    def stamp(self, name: str) -> object | None:
        """Return a stamp that changes with each notification; None if there are no waiters."""
        stream = self._streams.get(name)
        return None if stream is None else stream.stamp

    @contextmanager
    def register(self, name: str) -> Iterator[Waiter]:
        """Register a waiter of the running coroutine for the duration of the block."""
        loop = asyncio.get_running_loop()
        with self._change:
            stream = self._streams.setdefault(name, _StreamGroups())
            group = stream.groups.setdefault(loop, _LoopGroup(loop))
            waiter = Waiter(group)
            group.waiters.add(waiter)
            if stream.subscription is None:

                def notify(_notice: object) -> None:
                    self._schedule_scans(name, stream)

                stream.subscription = self._notifier.call(notify, name)
                stream.subscription.__enter__()
        try:
            yield waiter
        finally:
            with self._change:
                group.wake(waiter)
                group.waiters.discard(waiter)
                if not group.waiters:
                    stream.groups.pop(loop, None)
                if not stream.groups:
                    self._streams.pop(name, None)
                    stream.subscription.__exit__(None, None, None)

    def notify(self, name: str, marks: Collection[Mark] | None, reached: int) -> None:
        """Report the touched marks that a journal read, to each group on its own loop.

        The caller holds the lock of the journal, so that groups receive the reports in order.
        """
        for group in self._groups(name):
            with suppress(RuntimeError):  # a closed loop has no waiters
                group.loop.call_soon_threadsafe(group.notify, marks, reached)

    def wake_all(self) -> None:
        """Wake all waiters, so that they check by themselves."""
        with self._change:
            groups = [
                group for stream in self._streams.values() for group in stream.groups.values()
            ]
        for group in groups:
            with suppress(RuntimeError):
                group.loop.call_soon_threadsafe(group.notify_all)

    def _groups(self, name: str) -> tuple[_LoopGroup, ...]:
        with self._change:
            stream = self._streams.get(name)
            return () if stream is None else tuple(stream.groups.values())

    def _schedule_scans(self, name: str, stream: _StreamGroups) -> None:
        with self._change:
            # First: a check that runs now must see that the stamp has changed.
            stream.stamp = object()
            groups = [group for group in stream.groups.values() if not group.scan_scheduled]
            for group in groups:
                group.scan_scheduled = True
        for group in groups:
            with suppress(RuntimeError):
                group.loop.call_soon_threadsafe(self._scan, name, group)

    def _scan(self, name: str, group: _LoopGroup) -> None:
        """Read the journal for the sleeping waiters of a group, on its loop."""
        # First: the scan may miss a notification that arrives from now on.
        group.scan_scheduled = False
        if not self._read_journal(name):
            group.notify_all()


class WaitCheck(NamedTuple):
    """The result of checking a stream for a wait."""

    keys: tuple[int, ...]
    stale: bool
    cursor: TouchCursor
    """Offset up to which everything was checked."""
    end: int
    """End of the stream at that time."""
    sid: int
    marks: tuple[tuple[Mark, ...], ...]


class Wait:
    """The state of one wait, which continues where the last check ended."""

    def __init__(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> None:
        self.name = validation.check_name(name)
        self.keys = waited_keys.check(keys)
        self.template_ids = waited_keys.template_ids(self.keys)
        self.at = None if cursor is None else parse_cursor(cursor)
        """Cursor of the wait; None is the end of the stream at the first check."""
        if not isinstance(timeout_s, int | float) or math.isnan(timeout_s) or timeout_s < 0:
            raise InvalidInput(f"timeout_s must be a number from 0, got {timeout_s!r:.80}")
        self._until = time.monotonic() + timeout_s
        self._first_end: int | None = None
        self.last: WaitCheck | None = None

    def result_after(self, check: WaitCheck, *, stopping: bool = False) -> WaitResult | None:
        """Return the result after a check, or None if the wait continues.

        A wait that times out has checked everything that was there when it began.
        """
        self.last, self.at = check, check.cursor
        if self._first_end is None:
            self._first_end = check.end
        over = self._left_s() <= 0 and check.cursor.offset >= self._first_end
        if not (check.keys or check.stale or over or stopping):
            return None
        touched = bool(check.keys) or check.stale
        return WaitResult(touched, check.stale, str(check.cursor), check.keys)

    def untouched_below(self, offset: int) -> None:
        """Advance the cursor: nothing below `offset` touched the keys."""
        if self.last is not None and self.at is not None and offset > self.at.offset:
            self.at = self.at._replace(offset=offset)
            self.last = self.last._replace(cursor=self.at)

    @property
    def pause_s(self) -> float:
        """Seconds to sleep until the next check, unless notified."""
        if self.last is not None and self.last.cursor.offset < self.last.end:
            return 0.0
        return max(0.0, min(self._left_s(), limits.WATCH_HEARTBEAT_S))

    def _left_s(self) -> float:
        return self._until - time.monotonic()

"""Who waits at which stream, and whom a change wakes.

The coroutines that wait at one stream on one event loop share a room. When the stream rings, one
look is taken for all of them: the journal reads on, tells which marks were touched, and those who
wait for one of these are woken. The others sleep on, so an append costs one look, however many
wait. Where a look cannot tell, everybody is woken and looks by themselves.

    ring ──> scout reads the journal on ──> marks ──> those who sleep by them

A journal tells every room whatever it reads, whoever made it read; and whoever is awake then does
not lie down before it has looked again. So nothing falls between a look and the sleep behind it.

One who waits: for which keys, from where on, for how long, and what became of it.
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
from fourfold.models.streams.touch.keys import Cursor, Mark, read_cursor
from fourfold.models.streams.touch.records import Key, Touched

Scout = Callable[[str], bool]
"""Reads the journal of a stream on; False when that does not tell everything."""


class Waiter:
    """The place of one who waits. Only its loop uses it."""

    def __init__(self, room: _WaiterRoom) -> None:
        self._room = room
        self._listener = Listener(room.loop)
        self._marks: frozenset[Mark] = frozenset()
        """By what it is woken while it sleeps."""
        self._notified = False
        self._clear = 0

    def rise(self) -> int:
        """Awake from now on: every ring is heard. The offset below which nothing has touched it
        since it lay down; 0 when that is not known.
        """
        self._listener.drain()
        self._notified = False
        if self._marks:
            self._clear = self._room.clear
            self._room.wake(self)
            self._marks = frozenset()
        clear, self._clear = self._clear, 0
        return clear

    async def sleep(self, marks: Collection[Mark], seconds: float) -> None:
        """Until something touches one of the marks, everybody is woken, or the time is over; not at
        all when it rang since it rose.
        """
        if self._notified:
            return
        self._marks = frozenset(marks)
        self._room.lie_down(self, self._marks)
        await self._listener.wait(seconds)

    def notify(self, clear: int) -> None:
        """Wake it; it was not touched below an offset if it slept."""
        self._notified = True
        if self._marks:
            self._marks, self._clear = frozenset(), clear
        self._listener.notify()


class _WaiterRoom:
    """Those on one loop who wait at one stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.seats: Final[set[Waiter]] = set()
        self.clear = 0
        """Below this offset nothing touched those who sleep."""
        self.scouting = False
        self._asleep: dict[Mark, set[Waiter]] = {}
        self._marks: dict[Waiter, frozenset[Mark]] = {}

    def lie_down(self, seat: Waiter, marks: frozenset[Mark]) -> None:
        self._marks[seat] = marks
        for mark in marks:
            self._asleep.setdefault(mark, set()).add(seat)

    def wake(self, seat: Waiter) -> None:
        for mark in self._marks.pop(seat, ()):
            sleeping = self._asleep[mark]
            sleeping.discard(seat)
            if not sleeping:
                del self._asleep[mark]

    def told(self, marks: Collection[Mark] | None, reached: int) -> None:
        """A journal has read on up to an offset, and this is what was touched; None is everything,
        or nobody knows what.
        """
        if marks is None:
            woken = set(self.seats)
        else:
            # Whoever is awake looks anyway.
            woken = {seat for seat in self.seats if seat not in self._marks}
            for mark in marks:
                woken |= self._asleep.get(mark, set())
        for seat in woken:
            self.wake(seat)
            seat.notify(self.clear)
        self.clear = reached

    def notify_all(self) -> None:
        for seat in tuple(self.seats):
            self.wake(seat)
            seat.notify(self.clear)


class _WaiterGroup:
    """The rooms of one stream."""

    def __init__(self) -> None:
        self.rooms: dict[asyncio.AbstractEventLoop, _WaiterRoom] = {}
        self.stamp = object()
        """Another one after each ring."""
        self.calling: AbstractContextManager[None] | None = None


class WaiterRegistry:
    """Those who wait at streams."""

    def __init__(self, notifier: Notifier, scout: Scout) -> None:
        self._notifier = notifier
        self._scout = scout
        self._listening: dict[str, _WaiterGroup] = {}
        self._change = threading.Lock()

    def stamp(self, name: str) -> object | None:
        """A mark to take before a look: while it is the same, the stream has not rung. None when
        nobody waits.
        """
        found = self._listening.get(name)
        return None if found is None else found.stamp

    @contextmanager
    def seated(self, name: str) -> Iterator[Waiter]:
        """A seat for a coroutine while the block lasts."""
        loop = asyncio.get_running_loop()
        with self._change:
            listening = self._listening.setdefault(name, _WaiterGroup())
            room = listening.rooms.setdefault(loop, _WaiterRoom(loop))
            seat = Waiter(room)
            room.seats.add(seat)
            if listening.calling is None:

                def notify(_payload: object) -> None:
                    self._notify(name, listening)

                listening.calling = self._notifier.call(notify, name)
                listening.calling.__enter__()
        try:
            yield seat
        finally:
            with self._change:
                room.wake(seat)
                room.seats.discard(seat)
                if not room.seats:
                    listening.rooms.pop(loop, None)
                if not listening.rooms:
                    self._listening.pop(name, None)
                    listening.calling.__exit__(None, None, None)

    def tell(self, name: str, marks: Collection[Mark] | None, reached: int) -> None:
        """What a journal has read. Whoever calls it holds the journal, so that rooms hear all of it
        in order, each on its own loop.
        """
        for room in self._rooms(name):
            with suppress(RuntimeError):  # a loop that was closed has nobody left to wake
                room.loop.call_soon_threadsafe(room.told, marks, reached)

    def wake_all(self) -> None:
        """Everybody looks by themselves."""
        with self._change:
            rooms = [room for each in self._listening.values() for room in each.rooms.values()]
        for room in rooms:
            with suppress(RuntimeError):
                room.loop.call_soon_threadsafe(room.notify_all)

    def _rooms(self, name: str) -> tuple[_WaiterRoom, ...]:
        with self._change:
            found = self._listening.get(name)
            return () if found is None else tuple(found.rooms.values())

    def _notify(self, name: str, listening: _WaiterGroup) -> None:
        with self._change:
            # First: whoever looks now must find that it has rung.
            listening.stamp = object()
            rooms = [room for room in listening.rooms.values() if not room.scouting]
            for room in rooms:
                room.scouting = True
        for room in rooms:
            with suppress(RuntimeError):
                room.loop.call_soon_threadsafe(self._send, name, room)

    def _send(self, name: str, room: _WaiterRoom) -> None:
        """On the loop of a room: look for those who sleep there."""
        # First: what rings from now on may not be in what the scout sees.
        room.scouting = False
        if not self._scout(name):
            room.notify_all()


class WaitCheck(NamedTuple):
    """What a look at a stream has shown."""

    keys: tuple[int, ...]
    stale: bool
    cursor: Cursor
    """Up to where it has seen everything."""
    end: int
    """Where the stream ended."""
    sid: int
    marks: tuple[tuple[Mark, ...], ...]


class Wait:
    """One wait. It goes on from where the last look ended."""

    def __init__(
        self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float
    ) -> None:
        self.name = validation.check_name(name)
        self.keys = waited_keys.check(keys)
        self.template_ids = waited_keys.template_ids(self.keys)
        self.at = None if cursor is None else read_cursor(cursor)
        """None is the end of the stream, wherever that is when it is first looked at."""
        if not isinstance(timeout_s, int | float) or math.isnan(timeout_s) or timeout_s < 0:
            raise InvalidInput(f"a wait takes a number of seconds from 0 on, not {timeout_s!r:.80}")
        self._until = time.monotonic() + timeout_s
        self._first_end: int | None = None
        self.last: WaitCheck | None = None

    def after(self, looked: WaitCheck, *, stopping: bool = False) -> Touched | None:
        """What to answer after a look; None when the wait goes on. Also a wait whose time is over
        has seen all that was there when it began.
        """
        self.last, self.at = looked, looked.cursor
        if self._first_end is None:
            self._first_end = looked.end
        over = self._left_s() <= 0 and looked.cursor.offset >= self._first_end
        if not (looked.keys or looked.stale or over or stopping):
            return None
        touched = bool(looked.keys) or looked.stale
        return Touched(touched, looked.stale, str(looked.cursor), looked.keys)

    def untouched_below(self, offset: int) -> None:
        """Nothing below an offset has touched it: it need not be looked at again."""
        if self.last is not None and self.at is not None and offset > self.at.offset:
            self.at = self.at._replace(offset=offset)
            self.last = self.last._replace(cursor=self.at)

    @property
    def pause_s(self) -> float:
        """How long there is nothing to do until somebody rings."""
        if self.last is not None and self.last.cursor.offset < self.last.end:
            return 0.0
        return max(0.0, min(self._left_s(), limits.WATCH_HEARTBEAT_S))

    def _left_s(self) -> float:
        return self._until - time.monotonic()

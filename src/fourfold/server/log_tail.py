"""The newest entries of a log, read once for all the feeds that follow it.

    commit ──> response to the writer ──> one read of the log ──> feeds, one in each iteration

A feed is a position. It reads the log itself until it has caught up, and from then on takes what
comes after its position from the tail. When the tail no longer contains that, because the feed was
slow, the feed reads the log again. So there is no queue for each feed, and no moment of handing
over at which an entry could be lost or repeated.

Entries have keys, and a feed follows some of them. A commit without a key that is followed is not
even read. After several commits a feed is woken once, and takes all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Generic, NamedTuple, TypeVar

from fourfold import limits
from fourfold.errors import Busy, FourfoldError
from fourfold.kernel import Listener

TAIL_ENTRIES_MAX: Final = 1_024
TAIL_BYTES_MAX: Final = 4 * limits.MIB
"""Entries in memory, and their bytes."""

E = TypeVar("E")


class TailEntry(NamedTuple, Generic[E]):
    """An entry of a log."""

    position: int
    keys: frozenset[Hashable]
    value: E
    size: int


class TailPage(NamedTuple, Generic[E]):
    """The next entries of a log."""

    entries: list[TailEntry[E]]
    position: int
    """Position up to which the log was read."""
    more: bool = False
    """True if the log may have further entries."""


ReadTail = Callable[[int | None], Awaitable[TailPage[E]]]
"""Reads the entries after a position; for None it returns the newest position only."""


class TailFollower(Generic[E]):
    """A feed that follows some keys of a log."""

    __slots__ = ("keys", "listener", "resets")

    def __init__(self, keys: frozenset[Hashable], resets: int) -> None:
        self.keys = keys
        self.listener = Listener(asyncio.get_running_loop())
        self.resets = resets


class LogTail(Generic[E]):
    """The newest entries of one log. Its methods run on one event loop, unless they say else."""

    def __init__(
        self,
        read: ReadTail[E],
        position: int,
        *,
        entries_max: int = TAIL_ENTRIES_MAX,
        bytes_max: int = TAIL_BYTES_MAX,
    ) -> None:
        self.position = position
        """Position up to which the log was read."""
        self._read = read
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._start = position
        """Followed entries after this position are in memory."""
        self._entries: deque[TailEntry[E]] = deque()
        self._bytes = 0
        self._followers: dict[Hashable, dict[TailFollower[E], None]] = {}
        self._newest: dict[Hashable, int] = {}
        """For each followed key the newest position that may have an entry with it."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._task: asyncio.Task[None] | None = None
        self._stale = False
        self._resetting = False
        self._wakes_all = False
        self._resets = 0

    @contextmanager
    def follow(self, keys: Iterable[Hashable]) -> Iterator[TailFollower[E]]:
        """Follow some keys for the duration of the block.

        The follower reads the log up to its end once, after this call, and then calls `after`.
        """
        follower: TailFollower[E] = TailFollower(frozenset(keys), self._resets)
        for key in follower.keys:
            self._followers.setdefault(key, {})[follower] = None
            self._newest.setdefault(key, self.position)
        try:
            yield follower
        finally:
            for key in follower.keys:
                del self._followers[key][follower]
                if not self._followers[key]:
                    del self._followers[key], self._newest[key]

    def is_followed(self) -> bool:
        """Return True if there is a follower."""
        return bool(self._followers)

    def after(self, follower: TailFollower[E], position: int) -> list[TailEntry[E]] | None:
        """Return the entries of a follower after a position, up to `self.position`.

        None means that the follower must read the log, because the tail begins later.
        """
        if follower.resets != self._resets:
            follower.resets = self._resets
            return None
        if position < self._start and any(self._newest[key] > position for key in follower.keys):
            return None
        entries = []
        for entry in reversed(self._entries):
            if entry.position <= position:
                break
            if not follower.keys.isdisjoint(entry.keys):
                entries.append(entry)
        entries.reverse()
        return entries

    def notify(self, position: int | None = None, keys: Iterable[Hashable] | None = None) -> None:
        """Read the log after a commit, from any thread.

        Args:
            position: Position of the commit, if it is the only one.
            keys: Its keys, if they are known. Otherwise every follower is woken.
        """
        self._call(self._notified, position, None if keys is None else frozenset(keys))

    def reset(self) -> None:
        """Let every follower read the log itself, from any thread: its past has changed."""
        self._call(self._reset)

    def wake_all(self) -> None:
        """Wake every follower at once."""
        for followers in tuple(self._followers.values()):
            for follower in tuple(followers):
                follower.listener.notify()

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if threading.get_ident() == self._thread:
            # Not at once: the writer gets its response first.
            self._loop.call_soon(function, *arguments)
            return
        # A closed loop has no followers left.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _notified(self, position: int | None, keys: frozenset[Hashable] | None) -> None:
        if keys is None:
            self._wakes_all = True
        elif (
            self._task is None
            and position == self.position + 1
            and self._followers.keys().isdisjoint(keys)
        ):
            self.position = position
            return
        self._start_reading()

    def _reset(self) -> None:
        self._resetting = True
        self._start_reading()

    def _start_reading(self) -> None:
        self._stale = True
        if self._task is None:
            self._task = self._loop.create_task(self._advance())

    async def _advance(self) -> None:
        """Read what is new and wake its followers, until there is nothing new."""
        try:
            while self._stale:
                self._stale = False
                await self._wake(await self._next_followers())
        finally:
            self._task = None

    async def _next_followers(self) -> set[TailFollower[E]]:
        """Read the next entries, and return the followers that they concern."""
        resetting, self._resetting = self._resetting, False
        wakes_all, self._wakes_all = self._wakes_all, False
        try:
            page = await self._read(None if resetting else self.position)
        except Busy:
            self._stale, self._resetting, self._wakes_all = True, resetting, wakes_all
            await asyncio.sleep(limits.RETRY_AFTER_S)
            return set()
        except FourfoldError:
            # The followers read the log themselves: each reports the error to its client.
            self._resetting = True
            self._stale |= not resetting
            self._resets += resetting
            return self._everyone() if resetting else set()
        if resetting:
            self._resets += 1
            self._entries.clear()
            self._bytes = 0
            self._start = self.position = max(self.position, page.position)
            return self._everyone()
        self._stale |= page.more
        concerned = self._extend(page)
        return self._everyone() if wakes_all else concerned

    def _extend(self, page: TailPage[E]) -> set[TailFollower[E]]:
        concerned: set[TailFollower[E]] = set()
        for entry in page.entries:
            followed = self._followers.keys() & entry.keys
            if not followed:
                continue
            for key in followed:
                self._newest[key] = entry.position
                concerned.update(self._followers[key])
            self._entries.append(entry)
            self._bytes += entry.size
        self.position = max(self.position, page.position)
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            dropped = self._entries.popleft()
            self._bytes -= dropped.size
            self._start = dropped.position
        return concerned

    def _everyone(self) -> set[TailFollower[E]]:
        return set().union(*self._followers.values())

    async def _wake(self, followers: set[TailFollower[E]]) -> None:
        """Wake followers, one in each iteration of the loop, so that a request waits for one."""
        for follower in followers:
            await asyncio.sleep(0)
            follower.listener.notify()

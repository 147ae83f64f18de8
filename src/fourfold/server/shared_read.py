"""Expensive reads whose result several requests share for a bounded time.

A read that took long is repeated rarely: reading costs at most a tenth of the time. Once its result
is older than that, a request gets a new one if reading is fast. Otherwise the request gets the old
result, and one read starts in the background; a result that is too old is not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
FAST_S: Final = 0.1
"""Duration of a read for which a request waits."""
SHARE: Final = 10
"""A result is sent again for this many times the duration of its read."""
AGE_MAX_S: Final = 60.0
"""Maximum age of a result that is sent while another one is read."""
KEYS_MAX: Final = 8
"""Keys whose results are kept; others are read again."""


class SharedResult(NamedTuple, Generic[T]):
    """The result of a read, and its age."""

    value: T
    age_ms: int


class SharedRead(Generic[T]):
    """A read that is shared by the requests of one event loop."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        fast_s: float = FAST_S,
        age_max_s: float = AGE_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._fast_s = fast_s
        self._age_max_s = age_max_s
        self._clock = clock
        self._result: tuple[T, float, float] | None = None
        """The newest value, when its read began, and how long it took."""
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> SharedResult[T]:
        """Return a result, reading it if necessary."""
        if self._result is not None:
            value, start, duration = self._result
            age = self._clock() - start
            if age <= duration * (1 + SHARE):
                return SharedResult(value, int(1_000 * age))
            if duration > self._fast_s and age <= self._age_max_s:
                self._start()
                return SharedResult(value, int(1_000 * age))
        # Other requests may wait for the same read, so it outlives this one.
        return SharedResult(await asyncio.shield(self._start()), 0)

    def _start(self) -> asyncio.Task[T]:
        if self._task is None:
            self._task = asyncio.ensure_future(self._refresh())
            self._task.add_done_callback(self._finish)
        return self._task

    async def _refresh(self) -> T:
        start = self._clock()
        value = await self._read()
        self._result = (value, start, self._clock() - start)
        return value

    def _finish(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            # A request that waits for it gets the error; the next one reads again.
            task.exception()


class SharedReads(Generic[K, T]):
    """Reads by key, such as a time in the past, each shared by the requests of one event loop."""

    def __init__(self, read: Callable[[K], Awaitable[T]]) -> None:
        self._read = read
        self._reads: OrderedDict[K, SharedRead[T]] = OrderedDict()

    async def get(self, key: K) -> SharedResult[T]:
        """Return a result for a key, reading it if necessary."""
        shared = self._reads.pop(key, None) or SharedRead(partial(self._read, key))
        self._reads[key] = shared
        if len(self._reads) > KEYS_MAX:
            self._reads.popitem(last=False)
        return await shared.get()

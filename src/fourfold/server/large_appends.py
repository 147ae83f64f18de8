"""Turns of large appends, so that small ones do not wait for many of them.

One transaction with a thousand messages takes as long as a hundred small appends, and clients that
send such batches over several connections would fill the event loop with them. While small appends
arrive too, large ones are written one after the other, with a pause in proportion between them:

    large ──> pause ──> large ──> pause ──> ...      small appends are written in the pauses

Without small appends nothing waits, and large appends share commits as usual. The appends of one
connection stay in order: those after one that waits for its turn wait too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fourfold import limits
from fourfold.errors import Overloaded
from fourfold.kernel import Database
from fourfold.kernel.pauses import Pauses

LARGE_APPEND_PAUSES: Final = 2.0
"""Pause between two large appends while small ones arrive, as a multiple of the first's time."""

T = TypeVar("T")


class LargeAppends:
    """The turns of the large appends of one server."""

    def __init__(
        self,
        pauses: Pauses,
        *,
        bytes_max: int = limits.QUEUE_BYTES_MAX,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.small_count = 0
        """Number of small appends so far; counted by the connections."""
        self._pauses = pauses
        self._bytes_max = bytes_max
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting_bytes = 0
        self._seen_count = 0
        self._took = 0.0
        self._ended = float("-inf")

    @classmethod
    def of(cls, database: Database) -> LargeAppends:
        """Return the turns of the large appends to a database."""
        pauses = Pauses(
            lambda: database.transactions,
            database.is_writing,
            database.writer_cpu_seconds,
            ratio=LARGE_APPEND_PAUSES,
        )
        return cls(pauses)

    def must_wait(self, size: int) -> bool:
        """Return True if an append of `size` bytes has to wait for its turn."""
        if size <= limits.HTTP_LOOP_BYTES:
            self.small_count += 1
            return False
        others = self.small_count != self._seen_count
        self._seen_count = self.small_count
        return others or self._waiting_bytes > 0

    async def run(self, size: int, append: Callable[[], Awaitable[T]]) -> T:
        """Call `append` when it is its turn.

        Raises:
            Overloaded: too many bytes are waiting; it was not called.
        """
        if self._waiting_bytes + size > self._bytes_max:
            raise Overloaded(
                f"{self._waiting_bytes} bytes of large appends are waiting",
                retry_after=limits.RETRY_AFTER_S,
            )
        self._waiting_bytes += size
        try:
            async with self._turn:
                if self._clock() - self._ended < limits.BACKGROUND_PAUSE_MAX_S:
                    await self._pauses.pause_after_async(self._took)
                began = self._clock()
                try:
                    return await append()
                finally:
                    self._ended = self._clock()
                    self._took = self._ended - began
        finally:
            self._waiting_bytes -= size

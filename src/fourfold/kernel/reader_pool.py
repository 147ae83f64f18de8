"""A bounded pool of read-only connections.

Read transactions never use the writer's connection, which would show them uncommitted rows. When
all connections are in use, the next reader waits, and then gets a retryable error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fourfold.errors import Busy, Closed
from fourfold.kernel.driver import Connection, DriverError, translate
from fourfold.kernel.pauses import Pauses
from fourfold.kernel.profiles import Profile, map_again, unmap
from fourfold.kernel.transaction import SQL, BackgroundReadTransaction, ReadTransaction
from fourfold.limits import DEADLINE_CHECK_STEPS

READER_WAIT_S: Final = 5.0
"""Maximum wait for a pooled connection."""


class _PooledReader:
    """A pooled connection and the deadline of its current user."""

    __slots__ = ("connection", "deadline")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.deadline = float("inf")
        connection.set_progress_handler(self._is_overdue, DEADLINE_CHECK_STEPS)

    def _is_overdue(self) -> bool:
        return time.monotonic() > self.deadline


class ReaderPool:
    """Up to `size` read-only connections, opened on demand."""

    def __init__(
        self, connect: Callable[[], Connection], subject: str, size: int, profile: Profile
    ) -> None:
        self._connect = connect
        self._subject = subject
        self._size = size
        self._profile = profile
        self._idle: list[_PooledReader] = []
        self._open = 0
        self._closed = False
        self._change = threading.Condition()

    @property
    def open_readers(self) -> int:
        """Number of open connections."""
        return self._open

    @property
    def in_use(self) -> int:
        """Number of connections in a read transaction."""
        return self._open - len(self._idle)

    @contextmanager
    def snapshot(
        self, deadline: float, pauses: Pauses | None = None, *, unmapped: bool = False
    ) -> Iterator[ReadTransaction]:
        """Open a read transaction for the duration of the block; with `pauses`, for long work.

        Args:
            unmapped: True to read through the cache, not a memory map; `pauses` implies it.
        """
        unmapped = unmapped or pauses is not None
        reader = self._acquire(deadline)
        reader.deadline = deadline
        snapshot = (
            ReadTransaction(reader.connection, self._subject)
            if pauses is None
            else BackgroundReadTransaction(reader.connection, self._subject, pauses)
        )
        try:
            try:
                if unmapped:
                    unmap(reader.connection, self._profile)
                reader.connection.execute(SQL.begin_read)
                reader.connection.execute(SQL.fix_snapshot).fetchall()
            except DriverError as error:
                raise translate(error, self._subject) from error
            yield snapshot
        finally:
            snapshot._end()  # noqa: SLF001
            self._release(reader, unmapped=unmapped)

    def close(self) -> None:
        """Close idle connections now, and the others when they are released."""
        with self._change:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._change.notify_all()
        for reader in idle:
            reader.connection.close()

    def _acquire(self, deadline: float) -> _PooledReader:
        with self._change:
            until = min(time.monotonic() + READER_WAIT_S, deadline)
            while True:
                if self._closed:
                    raise Closed(f"{self._subject}: the database is closed")
                if self._idle:
                    return self._idle.pop()
                if self._open < self._size:
                    self._open += 1
                    break
                remaining = until - time.monotonic()
                if remaining <= 0 or not self._change.wait(remaining):
                    raise Busy(
                        f"{self._subject}: all {self._size} readers are in use",
                        hint="End long-running reads, or raise `kernel.readers_max`.",
                        retry_after=1.0,
                    )
        try:
            return _PooledReader(self._connect())
        except BaseException:
            with self._change:
                self._open -= 1
                self._change.notify()
            raise

    def _release(self, reader: _PooledReader, *, unmapped: bool) -> None:
        reader.deadline = float("inf")
        healthy = True
        try:
            if reader.connection.in_transaction:
                reader.connection.execute(SQL.rollback)
            if unmapped:
                map_again(reader.connection, self._profile)
        except DriverError:
            # A connection that cannot end its transaction is replaced.
            healthy = False
        with self._change:
            keep = healthy and not self._closed
            if keep:
                self._idle.append(reader)
            else:
                self._open -= 1
            self._change.notify()
        if not keep:
            reader.connection.close()

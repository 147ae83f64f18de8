"""A bounded pool of read-only connections.

Snapshots never use the writer's connection: it would show them rows that are not committed yet. A
pool that is used up makes the next reader wait, and then raises an error that can be retried; it
never grows without bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fourfold.errors import Busy, Closed
from fourfold.kernel.driver import Connection, DriverError, translate
from fourfold.kernel.pauses import Pauses
from fourfold.kernel.transaction import SQL, BackgroundReadTransaction, ReadTransaction
from fourfold.limits import DEADLINE_CHECK_STEPS, READER_WAIT_S


class _Reader:
    """One pooled connection and the deadline of whoever uses it now."""

    __slots__ = ("connection", "deadline")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.deadline = float("inf")
        connection.set_progress_handler(self._overdue, DEADLINE_CHECK_STEPS)

    def _overdue(self) -> bool:
        return time.monotonic() > self.deadline


class ReaderPool:
    """Up to `size` read-only connections, opened when they are first needed."""

    def __init__(self, connect: Callable[[], Connection], subject: str, size: int) -> None:
        self._connect = connect
        self._subject = subject
        self._size = size
        self._idle: list[_Reader] = []
        self._open = 0
        self._closed = False
        self._change = threading.Condition()

    @property
    def open_readers(self) -> int:
        return self._open

    @property
    def in_use(self) -> int:
        return self._open - len(self._idle)

    @contextmanager
    def snapshot(self, deadline: float, pauses: Pauses | None = None) -> Iterator[ReadTransaction]:
        """A consistent state, fixed now, for the length of the `with` block."""
        reader = self._take(deadline)
        reader.deadline = deadline
        snapshot = (
            ReadTransaction(reader.connection, self._subject)
            if pauses is None
            else BackgroundReadTransaction(reader.connection, self._subject, pauses)
        )
        try:
            try:
                reader.connection.execute(SQL.begin_read)
                reader.connection.execute(SQL.fix_snapshot).fetchall()
            except DriverError as error:
                raise translate(error, self._subject) from error
            yield snapshot
        finally:
            snapshot._end()  # noqa: SLF001
            self._give_back(reader)

    def close(self) -> None:
        """Close idle connections now and busy ones when they come back."""
        with self._change:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._change.notify_all()
        for reader in idle:
            reader.connection.close()

    def _take(self, deadline: float) -> _Reader:
        with self._change:
            give_up = min(time.monotonic() + READER_WAIT_S, deadline)
            while True:
                if self._closed:
                    raise Closed(f"{self._subject}: the database is closed")
                if self._idle:
                    return self._idle.pop()
                if self._open < self._size:
                    self._open += 1
                    break
                left = give_up - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    raise Busy(
                        f"{self._subject}: all {self._size} readers are in use",
                        hint="Finish long reads, or raise `kernel.readers_max`.",
                        retry_after=1.0,
                    )
        try:
            return _Reader(self._connect())
        except BaseException:
            with self._change:
                self._open -= 1
                self._change.notify()
            raise

    def _give_back(self, reader: _Reader) -> None:
        reader.deadline = float("inf")
        healthy = True
        try:
            if reader.connection.in_transaction:
                reader.connection.execute(SQL.rollback)
        except DriverError:
            # A connection that cannot even end its read is replaced by a fresh one.
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

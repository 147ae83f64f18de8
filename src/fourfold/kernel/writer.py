"""The writing connection of a database, and whose turn it is to use it.

Exactly one thread holds the turn at any time. `begin`, `commit` and `rollback` may only be called
by that thread. A commit that fails while it reaches the disk leaves an outcome that nobody can
know, so from then on the writer refuses to work: after an error from fsync the operating system may
have dropped the pages, and going on would acknowledge what is not there.

Room in the write-ahead log: zeros written ahead of the commits that will need the place.

A sync of a file that has grown also writes where the file now ends and which blocks are its own,
and costs nearly twice what a sync of bytes written over others costs. So a log that grows is made
longer in steps, and the commits between two steps write over zeros. SQLite reads a log up to the
first frame that is not whole, and zeros are never one: a log with room reads as the same log.

Room is only made by whoever holds SQLite's lock for writing, and only beyond the end of the file,
so no frame can be where the zeros go. Where it cannot be made, nothing is lost but time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fourfold import limits
from fourfold.errors import (
    CommitUncertain,
    DeadlineExceeded,
    DiskFull,
    FourfoldError,
    LockTimeout,
    Refused,
    StorageError,
)
from fourfold.kernel import failpoints
from fourfold.kernel.driver import Connection, DriverError, LogFile, log_file, translate
from fourfold.kernel.metrics import Metrics
from fourfold.kernel.transaction import SQL, Transaction
from fourfold.limits import DEADLINE_CHECK_STEPS

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_WRITE_BYTES = 65_536
"""The largest page: SQLite's file layer refuses to write 128 KiB at once."""


class LogRoom:
    """Keeps the log of one database longer than its frames."""

    def __init__(self, log: Path, page_size: int, vfs: str | None) -> None:
        self._log = log
        self._vfs = vfs
        self._frame = page_size + _FRAME_HEADER_BYTES
        self._pages = 0
        self._enough = self._frames(limits.LOG_ROOM_FIRST_BYTES)
        """The number of pages in the log from which on more room is wanted."""
        self.wanted = False

    def grew(self, pages: int) -> None:
        """After a commit that left `pages` in the log."""
        # A log that begins anew may have been cut.
        if pages > self._enough or pages < self._pages:
            self.wanted = True
        self._pages = pages

    def make(self) -> None:
        """Write zeros behind the log. The caller holds the lock for writing."""
        self.wanted = False
        used = _LOG_HEADER_BYTES + self._pages * self._frame
        try:
            with log_file(self._log, self._vfs) as file:
                end = file.xFileSize()
                if used < limits.LOG_ROOM_FIRST_BYTES or end < used:
                    # A short log, or one that somebody else has cut since.
                    self._enough = self._frames(limits.LOG_ROOM_FIRST_BYTES)
                    return
                step = min(used, limits.LOG_ROOM_STEP_BYTES)
                if end - used < step // 2:
                    self._extend(file, end, step)
                    end += step
                self._enough = self._frames(end - step // 4)
        except DriverError:
            # The log is as good without room. What ails the disk is told to the next commit, if it
            # concerns that too.
            self._enough = self._pages + self._frames(limits.CHECKPOINT_BYTES)

    @staticmethod
    def _extend(file: LogFile, end: int, step: int) -> None:
        try:
            for at in range(end, end + step, _WRITE_BYTES):
                file.xWrite(bytes(min(_WRITE_BYTES, end + step - at)), at)
        except DriverError:
            # On a full disk the zeros must not keep the place from the frames.
            file.xTruncate(end)
            raise

    def _frames(self, size: int) -> int:
        return (size - _LOG_HEADER_BYTES) // self._frame


_log = logging.getLogger("fourfold.kernel")


class Writer:
    """Begins and ends transactions on one connection."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        metrics: Metrics,
        *,
        slow_ms: float,
        on_wal_pages: Callable[[int], None],
        room: LogRoom | None = None,
    ) -> None:
        self.connection = connection
        self.subject = subject
        self.metrics = metrics
        self.lock = threading.Lock()
        self.owner = 0
        """The thread that holds the turn inside a transaction, so that a nested call can be
        recognised.
        """
        self.transaction: Transaction | None = None
        self.acknowledged: list[Callable[[], None]] = []
        """Hooks to call once the callers of the last commit have their results."""
        self.deadline = float("inf")
        self.failure: FourfoldError | None = None
        self.commit_seconds = 0.0
        """A running average of what COMMIT costs: the disk's own speed."""
        self._slow_s = slow_ms / 1000
        self._began = 0.0
        self._on_wal_pages = on_wal_pages
        self._room = room
        connection.set_wal_hook(self._after_wal_commit)
        connection.set_progress_handler(self._overdue, DEADLINE_CHECK_STEPS)

    def check_not_in_transaction(self) -> None:
        """A thread that waits for the turn it holds itself would wait for ever."""
        if self.owner == threading.get_ident():
            raise Refused(
                f"{self.subject}: this thread is in the middle of a transaction",
                hint="Leave the `with db.write()` block, or the work, first.",
            )

    def running(self) -> Transaction:
        """The transaction that this thread is in the middle of."""
        if self.transaction is None:
            raise Refused(
                f"{self.subject}: a hook cannot write: it runs in the turn of the commit before it",
                hint="Hand the write to another thread, or do it after the call has returned.",
            )
        return self.transaction

    def run_hooks(self, hooks: Sequence[Callable[[], None]]) -> None:
        """What callers asked for after their commit, while this thread still holds the turn."""
        self.owner = threading.get_ident()
        try:
            for hook in hooks:
                hook()
        finally:
            self.owner = 0

    def run_acknowledged(self) -> None:
        """Call what was asked for after the acknowledgement, while this thread holds the turn."""
        hooks = tuple(self.acknowledged)
        self.acknowledged.clear()
        for hook in hooks:
            try:
                self.run_hooks((hook,))
            except Exception:  # noqa: BLE001  (its caller has a result already)
                _log.exception("%s: a hook failed after its commit was acknowledged", self.subject)

    def begin(self, deadline: float) -> Transaction:
        """BEGIN IMMEDIATE; DeadlineExceeded when `deadline` (monotonic) has passed."""
        if self.failure is not None:
            raise self.failure.copy()
        self._began = time.monotonic()
        if self._began > deadline:
            raise DeadlineExceeded(f"{self.subject}: the deadline passed before the write began")
        self.deadline = deadline
        if failpoints.armed:
            failpoints.hit("kernel.begin.before")
        try:
            if self.connection.in_transaction:
                # What an interrupt left when it cut a rollback short.
                self.connection.execute(SQL.rollback)
            self.connection.execute(SQL.begin)
        except DriverError as error:
            translated = translate(error, self.subject)
            if isinstance(translated, LockTimeout):
                self.metrics.busy()
            raise translated from error
        if self._room is not None and self._room.wanted:
            self._room.make()
        self.owner = threading.get_ident()
        self.transaction = Transaction(self.connection, self.subject, self.acknowledged)
        if failpoints.armed:
            failpoints.hit("kernel.begin.after")
        return self.transaction

    def commit(self) -> None:
        """COMMIT. When this returns, the transaction is as durable as the profile promises."""
        self.deadline = float("inf")
        if failpoints.armed:
            failpoints.hit("kernel.commit.before")
        started = time.monotonic()
        try:
            self.connection.execute(SQL.commit)
        except DriverError as error:
            raise self._commit_failed(error) from error
        now = time.monotonic()
        self.commit_seconds += 0.1 * (now - started - self.commit_seconds)
        self._finish()
        if failpoints.armed:
            failpoints.hit("kernel.commit.after")
        self._account(now - self._began)

    def rollback(self) -> None:
        """Undo whatever is left of the transaction; never raises for one that is gone already."""
        self.deadline = float("inf")
        try:
            if failpoints.armed:
                failpoints.hit("kernel.rollback.before")
            if self.connection.in_transaction:
                self.connection.execute(SQL.rollback)
                self.metrics.rolled_back += 1
        except DriverError as error:
            self.failure = translate(error, self.subject)
            raise self.failure from error
        finally:
            self._finish()

    def _finish(self) -> None:
        self.owner = 0
        if self.transaction is not None:
            self.transaction._end()  # noqa: SLF001
            self.transaction = None

    def _commit_failed(self, error: Exception) -> FourfoldError:
        translated = translate(error, self.subject)  # type: ignore[arg-type]
        certain = isinstance(translated, DiskFull | LockTimeout) or not isinstance(
            translated, StorageError
        )
        self.rollback()
        if certain:
            return translated
        self.failure = CommitUncertain(
            f"{self.subject}: the commit failed while reaching the disk: {translated.message}"
        )
        return self.failure

    def _account(self, seconds: float) -> None:
        self.metrics.committed(seconds)
        if seconds > self._slow_s:
            self.metrics.slow(seconds)
            _log.warning("%s: slow transaction: %.0f ms", self.subject, seconds * 1000)

    def _overdue(self) -> bool:
        return time.monotonic() > self.deadline

    def _after_wal_commit(self, _connection: Connection, _name: str, pages: int) -> int:
        self.metrics.wal_pages = pages
        if self._room is not None:
            self._room.grew(pages)
        self._on_wal_pages(pages)
        return 0

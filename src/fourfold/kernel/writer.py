"""The writing connection of a database, and the lock that protects it.

One thread at a time holds the lock, and only this thread may call `begin`, `commit` and `rollback`.
If a commit fails while it is written to disk, its outcome is unknown, so the writer rejects all
further work: after a failed fsync the operating system may have dropped the pages, and continuing
could acknowledge lost data.

Preallocation of the write-ahead log: a sync of a file that has grown also writes metadata, and
costs nearly twice as much as a sync of overwritten bytes. So a growing log is extended by zeros in
steps, and the commits between two steps overwrite them. SQLite reads a log up to the first invalid
frame, and zeros are never a valid one, so the log reads the same.

Zeros are only written while holding SQLite's write lock, and only after the end of the file, so
they never overwrite a frame. If preallocation fails, only speed is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

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
from fourfold.kernel.process_writes import PROCESS_WRITES
from fourfold.kernel.transaction import SQL, Transaction
from fourfold.limits import DEADLINE_CHECK_STEPS

LOG_PREALLOCATE_MIN_BYTES: Final = 64 * limits.KIB
LOG_PREALLOCATE_STEP_BYTES: Final = 1 * limits.MIB
"""A WAL that is synced at every commit is extended ahead: it doubles from the first size on,
by at most the second, because the next commit syncs the zeros too.
"""

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_WRITE_BYTES = 65_536
"""The largest page size: the file layer of SQLite cannot write 128 KiB at once."""


class LogPreallocator:
    """Extends the write-ahead log of a database beyond its frames."""

    def __init__(self, log: Path, page_size: int, vfs: str | None) -> None:
        self._log = log
        self._vfs = vfs
        self._frame = page_size + _FRAME_HEADER_BYTES
        self._pages = 0
        self._threshold = self._frames(LOG_PREALLOCATE_MIN_BYTES)
        """Number of pages in the log from which more space is needed."""
        self.needed = False

    def update(self, pages: int) -> None:
        """Record the number of pages in the log after a commit."""
        # A log that restarted may have been truncated.
        if pages > self._threshold or pages < self._pages:
            self.needed = True
        self._pages = pages

    def extend(self) -> None:
        """Write zeros after the frames of the log. The caller holds SQLite's write lock."""
        self.needed = False
        used = _LOG_HEADER_BYTES + self._pages * self._frame
        try:
            with log_file(self._log, self._vfs) as file:
                end = file.xFileSize()
                if used < LOG_PREALLOCATE_MIN_BYTES or end < used:
                    # A short log, or one that another connection has truncated.
                    self._threshold = self._frames(LOG_PREALLOCATE_MIN_BYTES)
                    return
                step = min(used, LOG_PREALLOCATE_STEP_BYTES)
                if end - used < step // 2:
                    self._extend(file, end, step)
                    end += step
                self._threshold = self._frames(end - step // 4)
        except DriverError:
            # Ignore: the next commit will surface a real disk error.
            self._threshold = self._pages + self._frames(limits.CHECKPOINT_BYTES)

    @staticmethod
    def _extend(file: LogFile, end: int, step: int) -> None:
        try:
            for at in range(end, end + step, _WRITE_BYTES):
                file.xWrite(bytes(min(_WRITE_BYTES, end + step - at)), at)
        except DriverError:
            # On a full disk the zeros must not take space from the frames.
            file.xTruncate(end)
            raise

    def _frames(self, size: int) -> int:
        return (size - _LOG_HEADER_BYTES) // self._frame


_log = logging.getLogger("fourfold.kernel")


def _cpu_clock(thread: int) -> int | None:
    """Return the clock of the processor time of a running thread, if the platform has one."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    return time.pthread_getcpuclockid(thread)


class Writer:
    """Begins, commits and rolls back transactions on one connection."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        metrics: Metrics,
        *,
        slow_ms: float,
        on_wal_pages: Callable[[int], None],
        preallocator: LogPreallocator | None = None,
    ) -> None:
        self.connection = connection
        self.subject = subject
        self.metrics = metrics
        self.lock = threading.Lock()
        self.owner = 0
        """Id of the thread in a transaction or a hook, to detect nested calls; otherwise 0."""
        self._thread = 0
        self._thread_clock: int | None = None
        """Id of the thread of the latest transaction, and the clock of its processor time."""
        self.transaction: Transaction | None = None
        self.acknowledged: list[Callable[[], None]] = []
        """Hooks to call after the callers of the last commit have their results."""
        self.deadline = float("inf")
        self.failure: FourfoldError | None = None
        self.commit_seconds = 0.0
        """Moving average of the duration of COMMIT."""
        self.latest_s = (0.0, 0.0)
        """Duration of the latest transaction, and of its COMMIT."""
        self._slow_s = slow_ms / 1000
        self._began = 0.0
        self._on_wal_pages = on_wal_pages
        self._preallocator = preallocator
        connection.set_wal_hook(self._after_wal_commit)
        connection.set_progress_handler(self._is_overdue, DEADLINE_CHECK_STEPS)

    def check_not_in_transaction(self) -> None:
        """Raise Refused if this thread holds the lock, since it would wait forever."""
        if self.owner == threading.get_ident():
            raise Refused(
                f"{self.subject}: cannot wait for the writer inside a transaction of this thread",
                hint="Leave the `with db.write()` block or the work first.",
            )

    def running(self) -> Transaction:
        """Return the open transaction; raise Refused inside a hook."""
        if self.transaction is None:
            raise Refused(
                f"{self.subject}: cannot write in a hook of a commit",
                hint="Write in another thread, or after the call has returned.",
            )
        return self.transaction

    def cpu_seconds(self) -> float | None:
        """Return the processor time of the thread of the latest transaction; None if unknown."""
        try:
            return None if self._thread_clock is None else time.clock_gettime(self._thread_clock)
        except OSError:
            # The thread has ended.
            return None

    def run_hooks(self, hooks: Sequence[Callable[[], None]]) -> None:
        """Run hooks after a commit, while this thread still holds the lock."""
        self.owner = threading.get_ident()
        try:
            for hook in hooks:
                hook()
        finally:
            self.owner = 0

    def run_acknowledged(self) -> None:
        """Run the hooks after the acknowledgement, while this thread holds the lock."""
        hooks = tuple(self.acknowledged)
        self.acknowledged.clear()
        for hook in hooks:
            try:
                self.run_hooks((hook,))
            except Exception:  # noqa: BLE001  (its caller already has the result)
                _log.exception("%s: a hook failed after its commit was acknowledged", self.subject)

    def begin(self, deadline: float) -> Transaction:
        """Begin a transaction; raise DeadlineExceeded if `deadline` (monotonic) has passed."""
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
                # Left over if an interrupt stopped a rollback.
                self.connection.execute(SQL.rollback)
            self.connection.execute(SQL.begin)
        except DriverError as error:
            translated = translate(error, self.subject)
            if isinstance(translated, LockTimeout):
                self.metrics.record_busy()
            raise translated from error
        if self._preallocator is not None and self._preallocator.needed:
            self._preallocator.extend()
        self.owner = thread = threading.get_ident()
        if thread != self._thread:
            self._thread, self._thread_clock = thread, _cpu_clock(thread)
        self.transaction = Transaction(self.connection, self.subject, self.acknowledged)
        PROCESS_WRITES.begin(self, thread)
        if failpoints.armed:
            failpoints.hit("kernel.begin.after")
        return self.transaction

    def commit(self) -> None:
        """Commit the transaction, with the durability of the profile."""
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
        PROCESS_WRITES.commit(self)
        self._finish()
        if failpoints.armed:
            failpoints.hit("kernel.commit.after")
        seconds, commit_s = self.latest_s = (now - self._began, now - started)
        self.metrics.record_commit(seconds, commit_s)
        if seconds > self._slow_s:
            self._record_slow(seconds)

    def rollback(self) -> None:
        """Roll back the transaction, if there is still one."""
        self.deadline = float("inf")
        try:
            if failpoints.armed:
                failpoints.hit("kernel.rollback.before")
            if self.connection.in_transaction:
                self.connection.execute(SQL.rollback)
                self.metrics.rolled_back += 1
        except DriverError as error:
            self.failure = translate(error, self.subject)
            self._log_failure(self.failure)
            raise self.failure from error
        finally:
            self._finish()
            PROCESS_WRITES.rollback(self)

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
            self._log_failure(translated)
            return translated
        self.failure = CommitUncertain(
            f"{self.subject}: the commit failed while it was written to disk: {translated.message}"
        )
        self._log_failure(self.failure)
        return self.failure

    def _log_failure(self, error: FourfoldError) -> None:
        fields = {"database": self.subject, "kind": error.kind}
        _log.error("failed transaction: %s", error.message, extra={"fields": fields})

    def _record_slow(self, seconds: float) -> None:
        self.metrics.record_slow(seconds)
        milliseconds = seconds * 1000
        fields = {"database": self.subject, "ms": round(milliseconds)}
        _log.warning(
            *("%s: slow transaction: %.0f ms", self.subject, milliseconds),
            extra={"fields": fields},
        )

    def _is_overdue(self) -> bool:
        return time.monotonic() > self.deadline

    def _after_wal_commit(self, _connection: Connection, _name: str, pages: int) -> int:
        self.metrics.wal_pages = pages
        if self._preallocator is not None:
            self._preallocator.update(pages)
        self._on_wal_pages(pages)
        return 0

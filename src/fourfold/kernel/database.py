"""A database: one SQLite file with one writer and many readers.

    with Database.open(path, profile=profiles.STREAMS, migrations=..., sequences=...) as db:
        db.transact(work)                 shares a commit with concurrent callers
        await db.transact_async(work)     for coroutines
        with db.write() as txn: ...       an exclusive transaction
        with db.read() as snapshot: ...   one consistent state

Guarantees: a call that returned is committed, and as durable as its profile states. A call that
raised wrote nothing, except CommitUncertain. Numbers of a sequence are dense and never assigned
twice.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar, cast

from fourfold import limits
from fourfold.errors import (
    Busy,
    Closed,
    InvalidInput,
    LockTimeout,
    ReadOnly,
    Refused,
    StorageError,
)
from fourfold.kernel import (
    backup,
    checkpointer,
    files,
    maintenance,
    migration_backups,
    profiles,
)
from fourfold.kernel.commit_request import BatchWork, OnOutcome
from fourfold.kernel.driver import Connection
from fourfold.kernel.files import DatabasePlan
from fourfold.kernel.group_commit import GroupCommit, GroupLimits
from fourfold.kernel.health import Health, Thresholds
from fourfold.kernel.lock import WriterLock
from fourfold.kernel.metrics import Metrics, MetricsReading
from fourfold.kernel.migrations import Migration, check_order
from fourfold.kernel.pauses import PacedBlock, Pauses, runs_event_loop
from fourfold.kernel.process_writes import PROCESS_WRITES
from fourfold.kernel.profiles import PLAIN, Profile
from fourfold.kernel.reader_pool import ReaderPool
from fourfold.kernel.sequences import Sequence as Counter
from fourfold.kernel.sequences import current
from fourfold.kernel.transaction import SQL, ReadTransaction, Transaction
from fourfold.kernel.writer import LogPreallocator, Writer

CHECKPOINT_PASSES: Final = 3
CHECKPOINT_REST_PAGES: Final = 64
"""Passes of a checkpoint beside the writers, until at most this many pages are left."""
CHECKPOINT_GROWTH: Final = 4
"""While an old read transaction holds a checkpoint back, the next one is made after the log has
grown by this part of its size.
"""
CHECKPOINT_WAIT_S: Final = 1.0
"""Maximum time that a checkpoint in the background waits for a transaction: the checkpoints of all
databases of the process are made by one thread.
"""
CHECKPOINT_TRUNCATE_BYTES: Final = 1 * limits.MIB
"""Size of the WAL that starts the next checkpoint while its file is truncated step by step."""
PACED_PAUSES_MAX_S: Final = 0.5
PACED_PAUSES_MAX_SHARE: Final = 0.25
"""Maximum sum of the pauses between the steps of a block, and as a share of the deadline."""
BACKGROUND_LOG_BYTES: Final = 64 * limits.MIB
BACKGROUND_LOG_WAIT_S: Final = 1.0
"""A longer WAL is checkpointed between two background reads; a process that cannot do that
waits at most this long for the writer.
"""

T = TypeVar("T")
Work: TypeAlias = Callable[[Transaction], T]
"""Work of a transaction: it may run more than once, and must act only through its transaction."""


@dataclass(frozen=True, slots=True)
class Options:
    """Tuning options; they do not change any guarantee."""

    readers_max: int = limits.READERS_MAX
    transaction_deadline_s: float = limits.TRANSACTION_DEADLINE_S
    slow_transaction_ms: float = limits.SLOW_TRANSACTION_MS
    checkpoint_bytes: int = limits.CHECKPOINT_BYTES
    group: GroupLimits = field(default_factory=GroupLimits)
    thresholds: Thresholds = field(default_factory=Thresholds)


def _skip_pause() -> None:
    """Continue with the next step at once."""


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []


class Database:
    """A database file. Create it with `Database.open`, and close it or use a `with` block."""

    def __init__(self, plan: DatabasePlan, options: Options, *, writable: bool) -> None:
        self.path = plan.path
        self.writable = writable
        self._plan = plan
        self._options = options
        self._deadline_s = options.transaction_deadline_s
        self._metrics = Metrics()
        self.pauses = Pauses.for_process()
        self._closed = False
        self._durable: dict[str, int] = {}
        self._durable_lock = threading.Lock()
        self._integrity_errors = 0
        self._backed_up: str | None = None
        self._has_migration_backups = False
        self._checkpoint_pending = False
        self._checkpoint_running = threading.Lock()
        self._checkpoint_pages = self._checkpoint_at = self._truncate_pages = 0
        self._log_limited = False
        """True if the next restart of the log may truncate its file."""
        self._lock: WriterLock | None = None
        self._writer: Writer | None = None
        self._group: GroupCommit | None = None
        if writable:
            self._start_writer()
        self._readers = ReaderPool(
            lambda: files.connect_reader(plan), plan.subject, options.readers_max, plan.profile
        )
        if not writable:
            self._check_readable()
        _open_databases.add(self)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        profile: Profile = PLAIN,
        migrations: Sequence[Migration] = (),
        sequences: Sequence[Counter] = (),
        mode: str = "rw",
        options: Options | None = None,
        vfs: str | None = None,
        migration_backups: str | Path | None = None,
    ) -> Database:
        """Open a database file, and create it if necessary.

        A file that contains data is backed up before pending migrations run on it.

        Args:
            mode: `rw` for reading and writing, `r` for reading only.
            migration_backups: Folder for backups before migrations; `backups/migrations` beside the
                file by default.
        """
        if mode not in {"r", "rw"}:
            raise InvalidInput(f"{path}: mode must be 'r' or 'rw', got {mode!r}")
        # SQLite follows links, and the lock and the log must belong to the resolved file.
        backups = None if migration_backups is None else Path(migration_backups).absolute()
        plan = DatabasePlan(
            Path(path).resolve(), profile, check_order(migrations), tuple(sequences), vfs, backups
        )
        return cls(plan, options or Options(), writable=mode == "rw")

    def _start_writer(self) -> None:
        self._lock, connection = files.open_for_writing(
            self._plan, migration_backups.back_up_before_migrations
        )
        migration_backups.drop_expired(self._plan)
        self._has_migration_backups = migration_backups.folder_of(self._plan).is_dir()
        page_size = int(cast("int", connection.pragma("page_size")))
        self._checkpoint_pages = max(1, self._options.checkpoint_bytes // page_size)
        self._checkpoint_at = self._checkpoint_pages
        self._truncate_pages = min(
            max(1, CHECKPOINT_TRUNCATE_BYTES // page_size), self._checkpoint_pages
        )
        self._writer = Writer(
            connection,
            self._plan.subject,
            self._metrics,
            slow_ms=self._options.slow_transaction_ms,
            on_wal_pages=self._on_wal_pages,
            preallocator=self._preallocator(page_size),
        )
        self._group = GroupCommit(self._writer, self._options.group)

    def _preallocator(self, page_size: int) -> LogPreallocator | None:
        """Return a preallocator only if the log is synced at every commit."""
        if self._plan.profile.synchronous != "FULL":
            return None
        return LogPreallocator(maintenance.log_path(self.path), page_size, self._plan.vfs)

    def _check_readable(self) -> None:
        files.check_exists(self.path)
        try:
            connection = files.connect_reader(self._plan)
            try:
                files.check_for_reading(connection, self._plan)
            finally:
                connection.close()
        except BaseException:
            self._readers.close()
            raise

    # Reading

    @contextmanager
    def read(self, *, deadline_s: float | None = None) -> Iterator[ReadTransaction]:
        """Open a read transaction: one committed state, fixed at the start of the block."""
        with self._readers.snapshot(self._until(deadline_s)) as snapshot:
            yield snapshot

    def read_current(
        self, *, deadline_s: float | None = None
    ) -> AbstractContextManager[ReadTransaction]:
        """Open a read transaction; inside a transaction of this thread, read what that wrote."""
        if self.in_transaction():
            return self.write()
        return self.read(deadline_s=deadline_s)

    @contextmanager
    def read_in_background(self) -> Iterator[ReadTransaction]:
        """Open a read transaction for long work, which pauses while other threads write.

        It has no deadline, and no memory map of the file. A long log is checkpointed first, so that
        a sequence of such reads does not let it grow without bound.
        """
        self._checkpoint_long_log()
        self.pauses.start()
        with self._readers.snapshot(float("inf"), self.pauses) as snapshot:
            yield snapshot

    @contextmanager
    def read_step(self) -> Iterator[ReadTransaction]:
        """Open a read transaction for a short step of long work; pause after it if others write.

        Nothing pauses while the transaction is open, so between two steps the checkpointer can
        restart the log. The step has no deadline, and no memory map of the file.
        """
        if not self.writable:
            self._checkpoint_long_log()
        with self._readers.snapshot(float("inf"), unmapped=True) as snapshot:
            yield snapshot
        if not PROCESS_WRITES.in_transaction():
            self.pauses.pause()

    @contextmanager
    def paced(self) -> Iterator[Callable[[], None]]:
        """Pause after a block, in proportion to its time, while others write.

        For pages of a long list and slices of long work: a thread with one after the other would
        delay every step of a commit. A block that may be long calls the function that it receives
        between its steps, and pauses there too. Nothing pauses inside a transaction, or on the
        thread of an event loop.
        """
        if PROCESS_WRITES.in_transaction() or runs_event_loop():
            yield _skip_pause
            return
        pauses_max_s = min(PACED_PAUSES_MAX_S, PACED_PAUSES_MAX_SHARE * self._deadline_s)
        block = PacedBlock(
            self.pauses,
            PROCESS_WRITES.count_others,
            PROCESS_WRITES.is_other_writing,
            pauses_max_s,
        )
        yield block.end_step
        block.end()

    # Writing

    def transact(
        self,
        work: Work[T],
        *,
        size: int = 0,
        deadline_s: float | None = None,
        join_wait_s: float = 0.0,
    ) -> T:
        """Run `work(txn)` in a transaction shared with concurrent callers; return its result.

        `work` may run more than once, and must have no effects except through `txn`.

        Args:
            size: Approximate number of bytes written; it counts against the bounds of the queue.
            join_wait_s: Time to wait for a commit of another caller before committing alone.
        """
        until = self._until(deadline_s)
        if join_wait_s > 0.0:
            return cast("T", self._committer.submit_low_priority(work, size, until, join_wait_s))
        return cast("T", self._committer.submit(work, size, until))

    def transact_async(
        self, work: Work[T], *, size: int = 0, deadline_s: float | None = None
    ) -> Awaitable[T]:
        """Run `work(txn)` in a transaction shared with concurrent callers; await its result."""
        group = self._group
        if self._closed or group is None:
            self._check_open()
            group = self._committer
        allowed = self._deadline_s if deadline_s is None else deadline_s
        return group.submit_async(work, size, time.monotonic() + allowed)

    def transact_batched(
        self,
        run: BatchWork,
        item: object,
        on_outcome: OnOutcome,
        loop: asyncio.AbstractEventLoop,
        size: int = 0,
    ) -> None:
        """Write `item` in a shared transaction, in one call of `run` with items of other callers.

        `run(txn, items)` returns the outcome of each item; like the work of `transact`, it may run
        more than once. Call this on the thread of `loop`.

        Args:
            on_outcome: Called on that thread with the outcome after the commit, or with the error.
        """
        group = self._group
        if group is None or self._closed:
            self._check_open()
            group = self._committer
        group.submit_item(run, item, on_outcome, size, self._deadline_s, loop)

    def write(self, *, deadline_s: float | None = None) -> AbstractContextManager[Transaction]:
        """Open an exclusive transaction, or a savepoint inside one of this thread."""
        return self._committer.transaction(self._until(deadline_s))

    def identity(self) -> str:
        """Return the id of the database, which backup and restore preserve."""
        with self.read() as snapshot:
            return str(snapshot.value(SQL.meta_get, ("database_id",)))

    # Sequences and durability

    def sequence(self, counter: Counter) -> int:
        """Return the newest committed number of `counter`."""
        with self.read() as snapshot:
            return current(counter, snapshot, self._plan.subject)

    def durable(self, counter: Counter) -> int:
        """Return the newest number of `counter` that survives a power failure.

        Does not access the disk.
        """
        if self._plan.profile.synchronous == "FULL":
            return self.sequence(counter)
        return self._durable.get(counter.name, 0)

    def make_durable(self) -> dict[str, int]:
        """Sync every committed transaction to disk; return the durable number of each sequence."""
        if self._plan.profile.synchronous == "OFF":
            # Without syncs a checkpoint may lose pages that are no longer in the log.
            raise Refused(
                f"{self._plan.subject}: cannot make commits durable with synchronous=OFF",
                hint="Open it with synchronous=NORMAL or FULL.",
            )
        with self._durable_lock:
            with self.read() as snapshot:
                numbers = {
                    counter.name: current(counter, snapshot, self._plan.subject)
                    for counter in self._plan.sequences
                }
            maintenance.sync_log(self.path)
            self._durable = numbers
            return dict(numbers)

    # Maintenance

    def checkpoint(self, mode: str = "PASSIVE") -> maintenance.Checkpoint:
        """Checkpoint the write-ahead log; `mode` is PASSIVE, FULL, RESTART or TRUNCATE."""
        committer, until = self._committer, self._until(None)
        if self._writer is not None:
            self._writer.check_not_in_transaction()
        # One checkpoint at a time: SQLite rejects a second one as busy.
        if not self._checkpoint_running.acquire(timeout=max(until - time.monotonic(), 0.0)):
            raise LockTimeout(
                f"{self._plan.subject}: timed out while another checkpoint was running"
            )
        try:
            with committer.exclusive(until):
                self._unlimit_log()
                result = maintenance.checkpoint(self._connection, mode, self._plan.subject)
                return self._after_checkpoint(result)
        finally:
            self._checkpoint_running.release()

    def vacuum(self) -> None:
        """Rebuild the file without free pages; raise Refused while a read transaction is open."""
        with self._committer.exclusive(self._until(None)):
            maintenance.vacuum(self._connection, self._readers.in_use, self._plan.subject)

    def analyze(self) -> None:
        """Refresh the statistics that the query planner uses."""
        with self._committer.exclusive(self._until(None)):
            maintenance.analyze(self._connection, self._plan.subject)

    def integrity_check(self) -> list[str]:
        """Return the problems that PRAGMA integrity_check finds; `health` includes the result."""
        self._check_open()
        connection = files.connect_reader(self._plan)
        try:
            profiles.unmap(connection, self._plan.profile)
            problems = maintenance.integrity_problems(connection, self._plan.subject)
        finally:
            connection.close()
        self._integrity_errors = len(problems)
        return problems

    def backup(
        self, destination: str | Path, progress: backup.Progress | None = None
    ) -> backup.Sidecar:
        """Back up one consistent state to `destination` while writers continue."""
        self._check_open()
        connection = files.connect_reader(self._plan)
        try:
            sidecar = backup.create(
                connection, Path(destination).absolute(), self._plan.sequences, progress
            )
        finally:
            connection.close()
        self._backed_up = sidecar.created_at
        if self.writable:
            # The backup is valid even if this cannot be stored: the disk may be full or failing.
            with suppress(StorageError, Busy):
                self.transact(
                    lambda txn: txn.execute(SQL.meta_set, ("last_backup_ts", sidecar.created_at))
                )
        return sidecar

    def drop_migration_backups(self) -> int:
        """Delete the backups made before migrations of this file; return their number.

        Models call this when they delete or purge data, which these copies still contain.
        """
        if not self._has_migration_backups:
            return 0
        self._has_migration_backups = False
        return migration_backups.drop(self._plan)

    # Observation

    def health(self) -> Health:
        """Return the state of the database with the measured values."""
        return maintenance.health(
            self.path,
            metrics=self._metrics,
            failure=self._writer.failure if self._writer else None,
            integrity_errors=self._integrity_errors,
            thresholds=self._options.thresholds,
        )

    def metrics(self) -> MetricsReading:
        """Return counters and sizes; they never contain row data."""
        with self.read() as snapshot:
            sequences = {
                counter.name: current(counter, snapshot, self._plan.subject)
                for counter in self._plan.sequences
            }
            vacuumed = snapshot.value(SQL.meta_get, ("last_vacuum_ts",))
            backed_up = self._backed_up or snapshot.value(SQL.meta_get, ("last_backup_ts",))
        full = self._plan.profile.synchronous == "FULL"
        return replace(
            self.counters(),
            last_vacuum_ts=vacuumed,
            last_backup_ts=backed_up,
            sequences=sequences,
            durable=dict(sequences) if full else dict(self._durable),
        )

    def counters(self) -> MetricsReading:
        """Return the metrics without those that are read from the database.

        A database that is closed or fails has them too; a closed one has counters only.
        """
        group = self._group
        reading = maintenance.reading(
            self.path,
            self._metrics,
            open_connections=int(self._writer is not None),
            open_readers=self._readers.open_readers,
            queued=(group.queued_requests, group.queued_bytes) if group else (0, 0),
        )
        return reading.without_gauges() if self._closed else reading

    @property
    def profile_name(self) -> str:
        """Name of the profile, which is stored in the database."""
        return self._plan.profile.name

    @property
    def transactions(self) -> int:
        """Number of transactions committed since the database was opened."""
        return self._metrics.transactions

    def is_writing(self) -> bool:
        """Return True while a transaction holds the writer."""
        return self._writer is not None and self._writer.lock.locked()

    def writer_cpu_seconds(self) -> float | None:
        """Return the processor time of the thread that wrote last; None if it is unknown."""
        return None if self._writer is None else self._writer.cpu_seconds()

    def in_transaction(self) -> bool:
        """Return True inside a write transaction of the calling thread."""
        writer = self._writer
        return (
            writer is not None
            and writer.owner == threading.get_ident()
            and writer.transaction is not None
        )

    def is_checkpointing(self) -> bool:
        """Return True during a checkpoint, which may block writers at its end."""
        return self._checkpoint_running.locked()

    def slow_transactions(self) -> list[tuple[str, float]]:
        """Return the time and the duration in milliseconds of the latest slow transactions."""
        return list(self._metrics.slow_log)

    # Lifecycle

    def is_closed(self) -> bool:
        """Return True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Complete queued requests, checkpoint the log and close the file. Idempotent."""
        if self._closed:
            return
        if self._writer is not None:
            self._writer.check_not_in_transaction()
        self._closed = True
        _open_databases.discard(self)
        if self._group is not None:
            self._group.close()
        self._readers.close()
        if self._writer is not None:
            # The checkpointer's connection closes first: the last one to close deletes the log by
            # name, and after the lock is released that name may belong to a restored database.
            with self._checkpoint_running, self._writer.lock:
                maintenance.close_writer(self._writer.connection)
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "rw" if self.writable else "r"
        return f"<Database {self.path} {state}>"

    def checkpoint_in_background(self) -> None:
        """Checkpoint the log. Called by the checkpointer's thread."""
        with self._checkpoint_running:
            self._checkpoint_now()

    def _checkpoint_long_log(self) -> None:
        """Checkpoint a long log before the calling thread reads.

        A read-only process can only wait for the writer to do it.
        """
        if self._writer is not None and self._writer.owner == threading.get_ident():
            return
        if self.writable:
            pages = BACKGROUND_LOG_BYTES // self._plan.profile.page_size
            if self._metrics.wal_pages > pages:
                self.checkpoint_in_background()
            return
        until = time.monotonic() + BACKGROUND_LOG_WAIT_S
        generation = maintenance.log_generation(self.path, BACKGROUND_LOG_BYTES)
        while generation is not None and time.monotonic() < until:
            time.sleep(limits.BACKGROUND_LOOK_S * 10)
            if maintenance.log_generation(self.path, 0) != generation:
                return

    def _checkpoint_now(self) -> None:
        group = self._group
        if self._closed or group is None:
            return
        try:
            if self._log_limited:
                with group.exclusive(time.monotonic() + CHECKPOINT_WAIT_S):
                    self._unlimit_log()
            connection = files.connect_writer(self._plan)
            try:
                is_held_back = not self._checkpoint_most(connection)
            finally:
                connection.close()
            if not is_held_back:
                with group.exclusive(time.monotonic() + CHECKPOINT_WAIT_S):
                    result = self._after_checkpoint(
                        maintenance.checkpoint(self._connection, "PASSIVE", self._plan.subject)
                    )
                if not result.busy:
                    self._metrics.checkpoints += 1
        except Closed:
            # `close` checkpoints the log itself.
            return
        except LockTimeout:
            # The transaction for which it waited requests the next one when it commits.
            self._checkpoint_at = self._checkpoint_pages
            return
        finally:
            self._checkpoint_pending = False
        # Commits since the checkpoint requested none while this one was pending.
        self._on_wal_pages(self._metrics.wal_pages)

    def _checkpoint_most(self, connection: Connection) -> bool:
        """Checkpoint repeatedly while writers continue, so that little remains to block them.

        Returns False if an old read transaction holds the checkpoint back. Each attempt costs time
        in proportion to the log, so the next one is made when the log has grown in proportion.
        """
        for _ in range(CHECKPOINT_PASSES):
            result = maintenance.checkpoint(connection, "PASSIVE", self._plan.subject)
            if result.log_pages - result.done_pages >= CHECKPOINT_REST_PAGES:
                growth = max(self._checkpoint_pages, result.log_pages // CHECKPOINT_GROWTH)
                self._checkpoint_at = result.log_pages + growth
                return False
            if self._metrics.wal_pages - result.done_pages < CHECKPOINT_REST_PAGES:
                break
        return True

    def _after_checkpoint(self, result: maintenance.Checkpoint) -> maintenance.Checkpoint:
        """Record a checkpoint that was made while this thread holds the writer's lock."""
        if result.log_pages >= 0:
            self._metrics.wal_pages = result.log_pages - result.done_pages
        if not result.busy:
            self._log_limited = maintenance.limit_log(self._connection, self.path)
            self._checkpoint_at = (
                self._truncate_pages if self._log_limited else self._checkpoint_pages
            )
        return result

    def _unlimit_log(self) -> None:
        if self._log_limited:
            maintenance.unlimit_log(self._connection)
            self._log_limited = False

    def _on_wal_pages(self, pages: int) -> None:
        if pages >= self._checkpoint_at and not self._checkpoint_pending:
            self._checkpoint_pending = True
            # If it fails, or a reader stops it half-way, wait for the same growth again.
            self._checkpoint_at = pages + self._checkpoint_pages
            checkpointer.request(self)

    def _until(self, deadline_s: float | None) -> float:
        if self._closed:
            self._check_open()
        allowed = self._deadline_s if deadline_s is None else deadline_s
        return time.monotonic() + allowed

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._plan.subject}: the database is closed")

    @property
    def _committer(self) -> GroupCommit:
        if self._group is None:
            raise ReadOnly(f"{self._plan.subject}: the database is open read-only")
        return self._group

    @property
    def _connection(self) -> Connection:
        assert self._writer is not None
        return self._writer.connection

    def _abandon(self) -> None:
        """Mark as closed in a forked child. The connections belong to the parent, so they must
        neither be used nor closed here.
        """
        _inherited.append((self._writer, self._readers, self._group))
        self._closed = True


def _after_fork_in_child() -> None:
    for database in list(_open_databases):
        database._abandon()  # noqa: SLF001
    _open_databases.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

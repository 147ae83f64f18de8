"""A database: one SQLite file with one writer, many readers, and a log that only grows.

    with Database.open(path, profile=profiles.STREAMS, migrations=..., sequences=...) as db:
        db.transact(work)                 shares a commit with whoever else is writing
        await db.transact_async(work)     the same from a coroutine
        with db.write() as txn: ...       a transaction of its own
        with db.read() as snapshot: ...   one consistent state

What it promises: a call that returned is committed, and as durable as its profile says; a call that
raised wrote nothing (unless the error is CommitUncertain, which says so);
numbers of a sequence are dense and never handed out twice.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar, cast

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
from fourfold.kernel import backup, checkpointer, files, maintenance, migration_backups
from fourfold.kernel.driver import Connection
from fourfold.kernel.files import Plan
from fourfold.kernel.group_commit import GroupCommit, GroupLimits
from fourfold.kernel.health import Health, Thresholds
from fourfold.kernel.lock import WriterLock
from fourfold.kernel.metrics import Metrics, MetricsReading
from fourfold.kernel.migrations import Migration, in_order
from fourfold.kernel.pauses import Pauses
from fourfold.kernel.profiles import PLAIN, Profile
from fourfold.kernel.reader_pool import ReaderPool
from fourfold.kernel.sequences import Sequence as Counter
from fourfold.kernel.sequences import current
from fourfold.kernel.transaction import SQL, ReadTransaction, Transaction
from fourfold.kernel.writer import LogRoom, Writer

T = TypeVar("T")
Work: TypeAlias = Callable[[Transaction], T]
"""What a transaction does: it may run more than once, and acts only through its transaction."""


@dataclass(frozen=True, slots=True)
class Options:
    """What may be tuned without changing what is promised."""

    readers_max: int = limits.READERS_MAX
    transaction_deadline_s: float = limits.TRANSACTION_DEADLINE_S
    slow_transaction_ms: float = limits.SLOW_TRANSACTION_MS
    checkpoint_bytes: int = limits.CHECKPOINT_BYTES
    group: GroupLimits = field(default_factory=GroupLimits)
    thresholds: Thresholds = field(default_factory=Thresholds)


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []


class Database:
    """Use `Database.open`; close it, or use it in a `with` block."""

    def __init__(self, plan: Plan, options: Options, *, writable: bool) -> None:
        self.path = plan.path
        self.writable = writable
        self._plan = plan
        self._options = options
        self._deadline_s = options.transaction_deadline_s
        self._metrics = Metrics()
        self.pauses = Pauses(lambda: self.transactions, self.is_writing)
        self._closed = False
        self._durable: dict[str, int] = {}
        self._durable_lock = threading.Lock()
        self._integrity_errors = 0
        self._backed_up: str | None = None
        self._has_migration_backups = False
        self._checkpoint_pending = False
        self._checkpoint_running = threading.Lock()
        self._checkpoint_pages = self._checkpoint_at = 0
        self._lock: WriterLock | None = None
        self._writer: Writer | None = None
        self._group: GroupCommit | None = None
        if writable:
            self._start_writer()
        self._readers = ReaderPool(
            lambda: files.connect_reader(plan), plan.subject, options.readers_max
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
        """Open `path` for reading and writing (`rw`, creating it if need be) or for reading only
        (`r`).

        A file that holds data is backed up before pending migrations run on it: below the folder
        `migration_backups`, or below `backups/migrations` beside the file.
        """
        if mode not in {"r", "rw"}:
            raise InvalidInput(f"{path}: mode {mode!r} is not 'r' or 'rw'")
        # SQLite follows links, and the lock and the log must be those of the file it finds.
        backups = None if migration_backups is None else Path(migration_backups).absolute()
        plan = Plan(
            Path(path).resolve(), profile, in_order(migrations), tuple(sequences), vfs, backups
        )
        return cls(plan, options or Options(), writable=mode == "rw")

    def _start_writer(self) -> None:
        self._lock, connection = files.open_for_writing(
            self._plan, migration_backups.take_before_migrations
        )
        migration_backups.drop_expired(self._plan)
        self._has_migration_backups = migration_backups.folder_of(self._plan).is_dir()
        page_size = int(cast("int", connection.pragma("page_size")))
        self._checkpoint_pages = max(1, self._options.checkpoint_bytes // page_size)
        self._checkpoint_at = self._checkpoint_pages
        self._writer = Writer(
            connection,
            self._plan.subject,
            self._metrics,
            slow_ms=self._options.slow_transaction_ms,
            on_wal_pages=self._wal_grew,
            room=self._room(page_size),
        )
        self._group = GroupCommit(self._writer, self._options.group)

    def _room(self, page_size: int) -> LogRoom | None:
        """Only a log that is synced at every commit gains by room ahead."""
        if self._plan.profile.synchronous != "FULL":
            return None
        return LogRoom(maintenance.log_path(self.path), page_size, self._plan.vfs)

    def _check_readable(self) -> None:
        files.must_exist(self.path)
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
        """One committed state, fixed at the start of the `with` block."""
        with self._readers.snapshot(self._until(deadline_s)) as snapshot:
            yield snapshot

    @contextmanager
    def read_in_background(self) -> Iterator[ReadTransaction]:
        """One committed state for long work: reads pause while others write, and no deadline ends
        them.

        Work that takes several of these one after the other does not let the log grow without end:
        a long one is folded back before the next state is fixed.
        """
        self._fold_long_log()
        self.pauses.start()
        with self._readers.snapshot(float("inf"), self.pauses) as snapshot:
            yield snapshot

    # Writing

    def transact(
        self,
        work: Work[T],
        *,
        size: int = 0,
        deadline_s: float | None = None,
        patience_s: float = 0.0,
    ) -> T:
        """Run `work(txn)` in a transaction shared with concurrent callers; its result, once
        committed.

        `work` may run more than once and must have no effect but through `txn`. `size` is about how
        many bytes it writes: it counts against the bounds of the queue. Who has `patience_s` lets
        the next commit of somebody else take `work` along, and commits when none came in that time.
        """
        until = self._until(deadline_s)
        if patience_s > 0.0:
            return cast("T", self._committer.submit_patiently(work, size, until, patience_s))
        return cast("T", self._committer.submit(work, size, until))

    def transact_async(
        self, work: Work[T], *, size: int = 0, deadline_s: float | None = None
    ) -> Awaitable[T]:
        """The same for coroutines: `await db.transact_async(work)`."""
        group = self._group
        if group is None or self._closed:
            self._refuse_if_closed()
            group = self._committer
        allowed = self._deadline_s if deadline_s is None else deadline_s
        return group.submit_async(work, size, time.monotonic() + allowed)

    def write(self, *, deadline_s: float | None = None) -> AbstractContextManager[Transaction]:
        """A transaction of its own; inside another one of this thread, a savepoint of that."""
        return self._committer.transaction(self._until(deadline_s))

    def identity(self) -> str:
        """The name that this database got when it was made; backup and restore keep it."""
        with self.read() as snapshot:
            return str(snapshot.value(SQL.meta_get, ("database_id",)))

    # Sequences and durability

    def sequence(self, counter: Counter) -> int:
        """The newest committed number of `counter`."""
        with self.read() as snapshot:
            return current(counter, snapshot, self._plan.subject)

    def durable(self, counter: Counter) -> int:
        """The newest number that survives a power cut, without touching the disk: what may leave
        this machine now.
        """
        if self._plan.profile.synchronous == "FULL":
            return self.sequence(counter)
        return self._durable.get(counter.name, 0)

    def make_durable(self) -> dict[str, int]:
        """Bring every committed transaction safely to disk; the durable number of every
        sequence.
        """
        if self._plan.profile.synchronous == "OFF":
            # Without syncs a checkpoint may lose pages that are not in the log any more.
            raise Refused(
                f"{self._plan.subject}: is open with synchronous=OFF, so nothing in it is durable",
                hint="Open it with synchronous=NORMAL or FULL.",
            )
        with self._durable_lock:
            with self.read() as snapshot:
                reached = {
                    counter.name: current(counter, snapshot, self._plan.subject)
                    for counter in self._plan.sequences
                }
            maintenance.sync_log(self.path)
            self._durable = reached
            return dict(reached)

    # Maintenance

    def checkpoint(self, mode: str = "PASSIVE") -> maintenance.Checkpoint:
        """Fold the write-ahead log back into the file: PASSIVE, FULL, RESTART or TRUNCATE."""
        committer, until = self._committer, self._until(None)
        if self._writer is not None:
            self._writer.check_not_in_transaction()
        # One checkpoint at a time: SQLite answers a second one that it is busy.
        if not self._checkpoint_running.acquire(timeout=max(until - time.monotonic(), 0.0)):
            raise LockTimeout(f"{self._plan.subject}: another checkpoint ran for too long")
        try:
            with committer.exclusive(until):
                done = maintenance.checkpoint(self._connection, mode, self._plan.subject)
                return self._count(done)
        finally:
            self._checkpoint_running.release()

    def vacuum(self) -> None:
        """Rewrite the file without holes. Refused while a snapshot is open."""
        with self._committer.exclusive(self._until(None)):
            maintenance.vacuum(self._connection, self._readers.in_use, self._plan.subject)

    def analyze(self) -> None:
        """Refresh the statistics that the query planner uses."""
        with self._committer.exclusive(self._until(None)):
            maintenance.analyze(self._connection, self._plan.subject)

    def integrity_check(self) -> list[str]:
        """What SQLite finds wrong with the file; empty when all is well. Health remembers the
        answer.
        """
        self._refuse_if_closed()
        connection = files.connect_reader(self._plan)
        try:
            problems = maintenance.integrity_problems(connection, self._plan.subject)
        finally:
            connection.close()
        self._integrity_errors = len(problems)
        return problems

    def backup(
        self, destination: str | Path, progress: backup.Progress | None = None
    ) -> backup.Sidecar:
        """Copy one consistent state to `destination` while writers go on; verified, with a
        sidecar.
        """
        self._refuse_if_closed()
        connection = files.connect_reader(self._plan)
        try:
            sidecar = backup.take(
                connection, Path(destination).absolute(), self._plan.sequences, progress
            )
        finally:
            connection.close()
        self._backed_up = sidecar.created_at
        if self.writable:
            # The backup is whole whether or not this note fits on the disk that it may be taken
            # from because that is full or failing.
            with suppress(StorageError, Busy):
                self.transact(
                    lambda txn: txn.execute(SQL.meta_set, ("last_backup_ts", sidecar.created_at))
                )
        return sidecar

    def drop_migration_backups(self) -> int:
        """Remove the backups taken before migrations of this file; returns how many there were.

        Models call it when they delete or purge something, which these copies still hold.
        """
        if not self._has_migration_backups:
            return 0
        self._has_migration_backups = False
        return migration_backups.drop(self._plan)

    # Observation

    def health(self) -> Health:
        """The state of the database with the numbers behind it."""
        return maintenance.health(
            self.path,
            metrics=self._metrics,
            failure=self._writer.failure if self._writer else None,
            integrity_errors=self._integrity_errors,
            thresholds=self._options.thresholds,
        )

    def metrics(self) -> MetricsReading:
        """Counters and sizes, never row data."""
        with self.read() as snapshot:
            sequences = {
                counter.name: current(counter, snapshot, self._plan.subject)
                for counter in self._plan.sequences
            }
            vacuumed = snapshot.value(SQL.meta_get, ("last_vacuum_ts",))
            backed_up = self._backed_up or snapshot.value(SQL.meta_get, ("last_backup_ts",))
        full = self._plan.profile.synchronous == "FULL"
        return maintenance.reading(
            self.path,
            self._metrics,
            open_connections=int(self._writer is not None),
            open_readers=self._readers.open_readers,
            last_vacuum_ts=vacuumed,
            last_backup_ts=backed_up,
            sequences=sequences,
            durable=dict(sequences) if full else dict(self._durable),
            queued=(self._group.queued_requests, self._group.queued_bytes)
            if self._group
            else (0, 0),
        )

    @property
    def transactions(self) -> int:
        """How many were committed since this was opened: the same number twice means that nobody
        wrote between.
        """
        return self._metrics.transactions

    def is_writing(self) -> bool:
        """Whether somebody has the writer's turn now."""
        return self._writer is not None and self._writer.lock.locked()

    def in_transaction(self) -> bool:
        """Return True inside a write transaction of the calling thread."""
        return self._writer is not None and self._writer.owner == threading.get_ident()

    def is_checkpointing(self) -> bool:
        """Whether the log is being folded back now, for the end of which writers have to wait."""
        return self._checkpoint_running.locked()

    def slow_transactions(self) -> list[tuple[str, float]]:
        """The newest transactions that were slower than the threshold: when, and how many
        milliseconds.
        """
        return list(self._metrics.slow_log)

    # Lifecycle

    def is_closed(self) -> bool:
        """Return True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Finish what is queued, fold the log back, and let go of the file. Closing twice is
        fine.
        """
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
            # The checkpointer's connection goes first: the last one to close removes the log by
            # name, and once the lock is free that name may belong to a restored database.
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
        """Called by the checkpointer's thread."""
        with self._checkpoint_running:
            self._checkpoint_now()

    def _fold_long_log(self) -> None:
        """Fold a long log back while the calling thread reads nothing. Another process can only
        give the writer time to do that.
        """
        if self.in_transaction():
            return
        if self.writable:
            pages = limits.BACKGROUND_LOG_BYTES // self._plan.profile.page_size
            if self._metrics.wal_pages > pages:
                self.checkpoint_in_background()
            return
        until = time.monotonic() + limits.BACKGROUND_LOG_WAIT_S
        begun = maintenance.log_generation(self.path, limits.BACKGROUND_LOG_BYTES)
        while begun is not None and time.monotonic() < until:
            time.sleep(limits.BACKGROUND_LOOK_S * 10)
            if maintenance.log_generation(self.path, 0) != begun:
                return

    def _checkpoint_now(self) -> None:
        group = self._group
        if self._closed or group is None:
            return
        try:
            connection = files.connect_writer(self._plan)
            try:
                self._fold_most(connection)
            finally:
                connection.close()
            with group.exclusive(self._until(None)):
                done = self._count(
                    maintenance.checkpoint(self._connection, "PASSIVE", self._plan.subject)
                )
            if not done.busy:
                self._metrics.checkpoints += 1
                self._checkpoint_at = self._checkpoint_pages
        except Closed:
            # Closing folds the log back itself.
            return
        finally:
            self._checkpoint_pending = False

    def _fold_most(self, connection: Connection) -> None:
        """While writers go on: again, as long as they were quick, so that the rest is small for
        which they have to wait.
        """
        for _ in range(limits.CHECKPOINT_PASSES):
            done = maintenance.checkpoint(connection, "PASSIVE", self._plan.subject)
            rest = self._metrics.wal_pages - done.done_pages
            if done.busy or rest < limits.CHECKPOINT_REST_PAGES:
                return

    def _count(self, done: maintenance.Checkpoint) -> maintenance.Checkpoint:
        if done.log_pages >= 0:
            self._metrics.wal_pages = done.log_pages - done.done_pages
        return done

    def _wal_grew(self, pages: int) -> None:
        if pages >= self._checkpoint_at and not self._checkpoint_pending:
            self._checkpoint_pending = True
            # If it fails, or a reader stops it half-way, the next waits for as much growth again.
            self._checkpoint_at = pages + self._checkpoint_pages
            checkpointer.request(self)

    def _until(self, deadline_s: float | None) -> float:
        if self._closed:
            self._refuse_if_closed()
        allowed = self._deadline_s if deadline_s is None else deadline_s
        return time.monotonic() + allowed

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed(f"{self._plan.subject}: the database is closed")

    @property
    def _committer(self) -> GroupCommit:
        if self._group is None:
            raise ReadOnly(f"{self._plan.subject}: is open for reading only")
        return self._group

    @property
    def _connection(self) -> Connection:
        assert self._writer is not None
        return self._writer.connection

    def _abandon(self) -> None:
        """In a forked child: the parent goes on with the file, so nothing of it may be used or
        closed here.
        """
        _inherited.append((self._writer, self._readers, self._group))
        self._closed = True


def _after_fork_in_child() -> None:
    for database in list(_open_databases):
        database._abandon()  # noqa: SLF001
    _open_databases.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

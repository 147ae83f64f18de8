"""The archive of a store's streams: finds due streams, seals and publishes them.

    archive = Archive(streams, objects, folder)
    archive.round()              seal and publish what is due
    archive.publish_all()        everything, now
    with archive.running(): ...  in the background

A few streams are processed in parallel. A failing stream is retried with a backoff, and delays no
other. A stream that another node publishes is not retried.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive import manifest, temporary_files
from fourfold.archive.build_process import BuildProcess
from fourfold.archive.cache import DiskCache
from fourfold.archive.child_process import ChildStopped
from fourfold.archive.parquet import arrow
from fourfold.archive.segment_reader import StoredSegments, open_segments
from fourfold.arguments import check_arguments, check_callable
from fourfold.errors import (
    Busy,
    FourfoldError,
    MissingDependency,
    PublisherFenced,
    Refused,
    StorageError,
)
from fourfold.kernel import Database, Transaction
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.kernel.process_writes import PROCESS_WRITES
from fourfold.models.streams.archive import sealer, sweep
from fourfold.models.streams.archive.cold_reader import ColdReader
from fourfold.models.streams.archive.maintenance import (
    MaintenanceResult,
    MaintenanceTurn,
    SegmentMaintenance,
)
from fourfold.models.streams.archive.publisher import LocalSegmentLost, Publisher
from fourfold.models.streams.archive.records import (
    CACHE,
    LOCAL,
    SQL,
    ArchiveRound,
    Policy,
    PublishResult,
    PublishStatus,
    RetiredSegment,
    UnpublishedStream,
    UnpublishedStreams,
)
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle
from fourfold.objects import AccountingStore, ObjectStore, RequestCounter
from fourfold.retry import Backoffs, Retries

ARCHIVE_TURN_SEGMENTS: Final = 4
"""Segments of one stream that a round writes, so that every stream gets its turn."""
ARCHIVE_EVERY_S: Final = 0.25
"""Interval at which the background looks for streams to seal."""
ARCHIVE_CHECKPOINT_S: Final = 60.0
"""Interval of checkpoints of the log while the background seals."""
TURN_WAIT_S: Final = 0.25
"""Interval at which a thread that waits for its turn looks whether it must stop."""
ARCHIVE_UPKEEP_S: Final = 60.0
"""Interval at which the background looks for segments to index or compact."""


class _Turn(NamedTuple):
    sealed: int
    published: list[PublishResult]


@check_arguments()
class Archive:
    """Seals and publishes the streams of one database, which this process writes."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        folder: Path,
        *,
        clock: Callable[[], int],
        policy: Policy | None = None,
        retries: Retries | None = None,
        cache: DiskCache | None = None,
        before_collect: Callable[[], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.folder = folder
        self._database = database
        self._clock = clock
        self._counter = RequestCounter()
        self._objects = AccountingStore(objects, self._counter, manifest.classify)
        self._local = folder / LOCAL
        self._retries = retries or Retries()
        self._cache = cache or DiskCache(folder / CACHE, self.policy.cache_bytes)
        self._segments = open_segments(self._objects, self._cache, self._retries)
        self._backoffs = Backoffs(limits.ARCHIVE_BACKOFF_S, limits.ARCHIVE_BACKOFF_MAX_S)
        self._locks = tuple(threading.Lock() for _ in range(limits.ARCHIVE_LOCKS))
        self._round = threading.Lock()
        self._turns = threading.Lock()
        """Held by the thread that maintains published segments."""
        self._trimmed = False
        self._checkpointed = time.monotonic()
        self._publisher = Publisher(
            database,
            self._objects,
            self._local,
            self._cache,
            name=self._open(),
            clock=clock,
            retries=self._retries,
            trim_rows=self.policy.trim_rows,
        )
        self.upkeep = SegmentMaintenance(
            database,
            self._publisher,
            self._segments,
            self._cache,
            folder,
            policy=self.policy,
            clock=clock,
            lock=self._lock,
            publish=self._publish_one,
        )
        """Indexes and compacts published segments."""
        self._before_collect = before_collect
        """Called before objects are deleted, to remove other references to them."""

    def __repr__(self) -> str:
        return f"<Archive of {self._database.path}>"

    @property
    def cold(self) -> ColdReader:
        """Reader of published records."""
        return ColdReader(lambda: self._segments, self._local)

    @property
    def segments(self) -> StoredSegments:
        """Reader of the segments."""
        return self._segments

    @property
    def objects(self) -> ObjectStore:
        """The object store."""
        return self._objects

    @property
    def failures(self) -> dict[str, FourfoldError]:
        """Errors of streams that are currently not published, by name."""
        return self._backoffs.errors

    # Opening

    def _open(self) -> str:
        """Clean up after a crash; return the name under which this node publishes."""

        def work(txn: Transaction) -> str:
            txn.execute(SQL.put_state, (uuid.uuid4().hex,))
            txn.execute(SQL.unclaim_all)
            for key, stream, size in txn.all(SQL.all_pending):
                # No process is uploading it any more.
                sweep.give_up(txn, key, stream, size, self._clock())
            return str(txn.value(SQL.state))

        name = self._database.transact(work)
        for path in sorted(self._local.rglob("*")) if self._local.is_dir() else ():
            if path.is_file():
                self._clear(path)
        return name

    def _clear(self, path: Path) -> None:
        if path.name.endswith(".partial"):
            temporary_files.sweep(path)
            return
        segment = str(path.relative_to(self._local)).removesuffix(".parquet")
        with self._database.read() as snapshot:
            row = snapshot.one(SQL.local_segment, (segment,))
        if row is None:
            path.unlink(missing_ok=True)
        elif row[0] is not None:
            self._cache.adopt(segment, path)

    # Rounds

    def round(self, *, everything: bool = False, pace: Throttle = NO_THROTTLE) -> ArchiveRound:
        """Seal and publish what is due; with `everything`, all streams."""
        self._check_not_in_transaction()
        with self._round, PROCESS_WRITES.sharing():
            done = ArchiveRound()
            self._notice()
            due = self._due(everything=everything)
            done.waiting = len(self._backoffs)
            if due:
                with ThreadPoolExecutor(
                    self.policy.concurrency, thread_name_prefix="fourfold-archive"
                ) as pool:
                    turns = [
                        (name, pool.submit(self._process, name, everything, pace)) for name in due
                    ]
                    for name, turn in turns:
                        self._gather(done, name, turn.result)
            self._keep_counts(pace)
            self._checkpoint()
            return done

    def publish_all(
        self,
        progress: Callable[[ArchiveRound], None] | None = None,
        *,
        background: bool = False,
    ) -> ArchiveRound:
        """Seal and publish everything.

        The result contains failures, including streams that another node publishes.

        Args:
            background: Give way to writers of this process, as the background does.
        """
        check_callable(progress, "progress")
        pace = self._background_pace() if background else NO_THROTTLE
        total = ArchiveRound()
        self._backoffs.retain(self._backoffs.blocked)
        while True:
            done = self.round(everything=True, pace=pace)
            total.sealed += done.sealed
            total.published += done.published
            total.failures |= done.failures
            total.waiting = done.waiting
            if progress is not None:
                progress(done)
            if done.idle or (done.failures and not done.sealed and not done.published):
                total.failures |= self._fenced()
                return total

    @contextmanager
    def running(self, every_s: float = ARCHIVE_EVERY_S) -> Iterator[Archive]:
        """Run rounds in the background during the `with` block, then a last one."""
        stop = threading.Event()

        pace = self._background_pace()
        with suppress(MissingDependency):
            # Loading pyarrow takes a while and blocks everything else, so do it first. The first
            # array made of values loads more than the import itself.
            pa, _ = arrow()
            pa.array([0])

        def run() -> None:
            lower_thread_priority()
            while not stop.wait(every_s):
                try:
                    while not stop.is_set() and not self.round(pace=pace).idle:
                        pass
                except Exception as error:  # noqa: BLE001 - the next round may succeed
                    # `failures` reports it under the empty name until the next round.
                    failure = error if isinstance(error, FourfoldError) else None
                    failure = failure or StorageError(f"publishing failed: {error!r}")
                    self._backoffs.fail("", failure, pause_s=0.0)

        threads = [threading.Thread(target=run, name="fourfold-archive", daemon=True)]
        if self.policy.index or self.policy.compact or self.policy.companions:
            name = "fourfold-upkeep"
            threads.append(
                threading.Thread(target=self._maintain, args=(stop, pace), name=name, daemon=True)
            )
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _background_pace(self) -> Throttle:
        return Throttle(
            PROCESS_WRITES.count_others,
            writing=PROCESS_WRITES.is_other_writing,
            writer_cpu=PROCESS_WRITES.other_cpu_seconds,
            pressing=self._database.is_checkpointing,
        )

    def _maintain(self, stop: threading.Event, pace: Throttle) -> None:
        """Index, compact and build companions periodically; a process builds their files."""
        lower_thread_priority()
        while not stop.wait(ARCHIVE_UPKEEP_S):
            try:
                with self.turn(stop.is_set, pace=pace) as turn:
                    if self.policy.compact:
                        self._back_off_failed(self.upkeep.compact(turn))
                    if self.policy.index:
                        self._back_off_failed(self.upkeep.index(everything=False, turn=turn))
                    if self.policy.companions:
                        self._back_off_failed(self.upkeep.build_companions(turn))
            except ChildStopped:
                return
            except Exception as error:  # noqa: BLE001 - the next time may succeed
                failure = error if isinstance(error, FourfoldError) else None
                failure = failure or StorageError(f"archive maintenance failed: {error!r}")
                self._backoffs.fail("", failure, pause_s=0.0)

    @contextmanager
    def turn(
        self,
        stop: Callable[[], bool],
        advance: Callable[[str, int, int], None] | None = None,
        *,
        pace: Throttle = NO_THROTTLE,
    ) -> Iterator[MaintenanceTurn]:
        """Maintain published segments during the `with` block, with a process that builds files.

        One thread at a time has a turn; others wait.

        Raises:
            ChildStopped: `stop` returned True.
        """
        while not self._turns.acquire(timeout=TURN_WAIT_S):
            if stop():
                raise ChildStopped
        try:
            with PROCESS_WRITES.sharing(), BuildProcess(self._segments, stop) as process:
                turn = MaintenanceTurn(process, pace, stop)
                yield turn if advance is None else turn._replace(advance=advance)
        finally:
            self._turns.release()

    def _back_off_failed(self, kept: MaintenanceResult) -> None:
        for name, error in kept.failures.items():
            self._back_off(name, error)

    def index(self, *, everything: bool = True) -> MaintenanceResult:
        """Index published segments, and merge runs."""
        self._check_not_in_transaction()
        return self.upkeep.index(everything=everything)

    def compact(self) -> MaintenanceResult:
        """Compact small segments into larger ones."""
        self._check_not_in_transaction()
        return self.upkeep.compact()

    def build_companions(self) -> MaintenanceResult:
        """Build the search companions of published segments."""
        self._check_not_in_transaction()
        return self.upkeep.build_companions()

    def settle(self, name: str, *, until: int | None = None) -> None:
        """Publish a stream now, before its writer gets a response.

        Concurrent callers share the work.

        Args:
            until: Publish the records before this offset at least; everything by default.
        """
        self._check_not_in_transaction()
        idle = 0
        while True:
            if self._is_settled(name, until):
                return
            if name in (blocked := self._backoffs.blocked):
                raise blocked[name]
            with self._lock(name):
                if self._is_settled(name, until):
                    return
                self._note(name)
            try:
                turn = self._process(name, True)
            except PublisherFenced as error:
                self._back_off(name, error)
                raise
            idle = 0 if turn.sealed or turn.published else idle + 1
            if idle > limits.ARCHIVE_RETRIES_MAX:
                raise Busy(f"the stream {name!r} cannot be published now", retry_after=1.0)

    def _is_settled(self, name: str, until: int | None) -> bool:
        with self._database.read() as snapshot:
            if until is None:
                return not snapshot.value(SQL.unsettled, (name,))
            return not snapshot.value(SQL.unpublished_until, (name, until))

    # One stream

    def _process(self, name: str, everything: bool, pace: Throttle = NO_THROTTLE) -> _Turn:
        """Seal a stream if it is due, and publish its sealed segments."""
        with PROCESS_WRITES.sharing():
            return self._process_shared(name, everything, pace)

    def _process_shared(self, name: str, everything: bool, pace: Throttle) -> _Turn:
        with self._database.read() as snapshot:
            source = snapshot.value(SQL.fork_source, (name,))
        if source is not None:
            # A fork needs the records that it shares.
            self._note(source)
            self._process_shared(source, True, pace)
        with self._lock(name):
            sealed = self._seal(name, everything=everything, pace=pace)
            with self._database.read() as snapshot:
                if snapshot.value(SQL.fork_source, (name,)) is not None:
                    return _Turn(sealed, [])
            published: list[PublishResult] = []
            try:
                self._publish(name, published, pace)
            except LocalSegmentLost:
                # Its records are in the log. Seal them again in this turn: ending here would look
                # as if there were nothing left to do.
                sealer.unseal(self._database, name)
                sealed += self._seal(name, everything=everything, pace=pace)
                self._publish_resealed(name, published, pace)
            return _Turn(sealed, published)

    def _seal(self, name: str, *, everything: bool, pace: Throttle) -> int:
        sealed = 0
        while sealed < ARCHIVE_TURN_SEGMENTS and self._is_due(name, everything=everything):
            done = sealer.seal(
                self._database,
                name,
                policy=self.policy,
                folder=self._local,
                now_ms=self._clock(),
                pace=pace,
            )
            if done is None:
                break
            sealed += 1
        return sealed

    def _is_due(self, name: str, *, everything: bool) -> bool:
        with self._database.read() as snapshot:
            row = snapshot.one(SQL.pending, (name,))
        if row is None:
            return False
        rows, size, cut = row
        if everything:
            return bool(rows)
        old = rows > 0 and cut <= self._clock() - 1000 * self.policy.seal_age_s
        return size >= self.policy.seal_bytes or rows >= self.policy.seal_rows or bool(old)

    def _publish_resealed(self, name: str, published: list[PublishResult], pace: Throttle) -> None:
        """Publish what was just sealed; a file that is lost so soon would be lost again."""
        try:
            self._publish(name, published, pace)
        except LocalSegmentLost as error:
            raise StorageError(f"the stream {name!r} cannot be published: {error}") from error

    def _publish_one(self, name: str, pace: Throttle) -> None:
        """Publish changes of a stream's manifest."""
        with self._lock(name):
            try:
                self._publish(name, [], pace)
            except LocalSegmentLost:
                # The next round seals it again.
                return

    def _publish(
        self, name: str, published: list[PublishResult], pace: Throttle = NO_THROTTLE
    ) -> None:
        """Add the results to `published`, also if it ends with an error."""
        while len(published) < ARCHIVE_TURN_SEGMENTS:
            with self._database.read() as snapshot:
                if not snapshot.value(SQL.unpublished, (name,)):
                    return
            done = self._publisher.publish(name, pace)
            if done is None:
                return
            self._trimmed = self._trimmed or bool(done.segments)
            published.append(done)

    def _lock(self, name: str) -> threading.Lock:
        return self._locks[hash(name) % len(self._locks)]

    # Which streams

    def _notice(self) -> None:
        """Create manifest rows for new streams."""
        while True:
            if self._database.transact(_notice) < limits.ARCHIVE_STREAMS_PER_ROUND:
                return

    def _note(self, name: str) -> None:
        """Create the manifest row of a stream now, before the next scan for new ones."""
        self._database.transact(lambda txn: txn.execute(SQL.note_stream, (name,)))

    def _due(self, *, everything: bool) -> list[str]:
        """Return the names of due streams, except those in backoff."""
        self._backoffs.succeed("")
        waiting = self._backoffs.waiting()
        # Request more rows, so that streams in backoff do not displace others.
        limit = limits.ARCHIVE_STREAMS_PER_ROUND + len(waiting)
        policy = self.policy
        size, rows = (1, 1) if everything else (policy.seal_bytes, policy.seal_rows)
        oldest = self._clock() - (0 if everything else int(1000 * policy.seal_age_s))
        with self._database.read() as snapshot:
            asked: Sequence[tuple[str, tuple[Any, ...]]] = (
                (SQL.pending_uploads, ("", limit)),
                (SQL.due_manifests, ("", limit)),
                (SQL.due_by_bytes, (size, limit)),
                (SQL.due_by_rows, (rows, limit)),
                (SQL.due_by_age, (oldest, limit)),
            )
            found = [row[0] for sql, params in asked for row in snapshot.all(sql, params)]
        return [name for name in dict.fromkeys(found) if name not in waiting]

    def _gather(self, done: ArchiveRound, name: str, result: Callable[[], _Turn]) -> None:
        try:
            turn = result()
        except FourfoldError as error:
            self._back_off(name, error)
            done.failures[name] = error
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this stream alone
            failure = StorageError(f"the stream {name!r} cannot be published: {error!r}")
            self._back_off(name, failure)
            done.failures[name] = failure
            return
        self._backoffs.succeed(name)
        done.sealed += turn.sealed
        done.published += turn.published

    def _fenced(self) -> dict[str, FourfoldError]:
        """Return streams with unpublished records that another node publishes."""
        with self._database.read() as snapshot:
            return {
                name: error
                for name, error in self._backoffs.blocked.items()
                if snapshot.value(SQL.unsettled, (name,))
            }

    def _back_off(self, name: str, error: FourfoldError) -> None:
        self._backoffs.fail(name, error, block=isinstance(error, PublisherFenced))

    def expire_backoffs(self) -> None:
        """Retry failed streams without waiting, except those of other nodes."""
        self._backoffs.expire()

    # Upkeep

    def collect(
        self, *, dry_run: bool = False, grace_s: float | None = None
    ) -> list[RetiredSegment]:
        """Delete retired objects after their grace period; with `dry_run`, only return them."""
        self._check_not_in_transaction()
        if self._before_collect is not None and not dry_run:
            self._before_collect()
        grace = self.policy.grace_s if grace_s is None else grace_s
        before = self._clock() - int(1000 * grace)
        with self._round, self.upkeep.naming:
            collected = sweep.collect(
                self._database, self._objects, self._cache, before, dry_run=dry_run
            )
            if not dry_run:
                for entry in collected:
                    # The file of a segment whose stream was deleted before its manifest was put.
                    path = self._local / f"{sweep.segment_of(entry.key)}.parquet"
                    path.unlink(missing_ok=True)
            return collected

    def _check_not_in_transaction(self) -> None:
        """Raise Refused inside a transaction of this thread.

        Objects that it describes would be uploaded although it may be rolled back, and the threads
        that seal would wait for its end.
        """
        if self._database.in_transaction():
            raise Refused(
                "archive: cannot publish or maintain segments inside a transaction",
                hint="Leave the transaction first.",
            )

    def standing(self) -> PublishStatus:
        """Return the publish status of all streams."""
        with self._database.read(deadline_s=float("inf")) as snapshot:
            return PublishStatus._make(snapshot.one(SQL.status) or (0, 0, 0, 0, 0))

    def find_unpublished(self, limit: int, *, examined: int) -> UnpublishedStreams:
        """Return the streams that have most on this disk only, of the first `examined` by name."""
        with self._database.read() as snapshot:
            rows = snapshot.all(SQL.largest_unpublished, (examined, limit))
            has_more = bool(snapshot.value(SQL.has_more_streams, (examined,)))
        largest = tuple(UnpublishedStream(*row[:3]) for row in rows)
        streams, records, size = rows[0][3:] if rows else (0, 0, 0)
        return UnpublishedStreams(largest, streams, records, size, not has_more)

    def _keep_counts(self, pace: Throttle) -> None:
        counts = self._counter.snapshot(reset=True)
        if counts:
            now = self._clock()
            rows = [(*_fields(count), now) for count in counts]
            pace.transact(self._database, lambda txn: txn.execute_many(SQL.count_request, rows))

    def _checkpoint(self) -> None:
        """Truncate the write-ahead log from time to time, after records were trimmed."""
        now = time.monotonic()
        if not self._trimmed or now - self._checkpointed < ARCHIVE_CHECKPOINT_S:
            return
        self._checkpointed = now
        try:
            self._trimmed = self._database.checkpoint("TRUNCATE").busy
        except Busy:
            # A long reader; try again next time.
            self._trimmed = True


def _notice(txn: Transaction) -> int:
    _, seen = txn.one(SQL.state) or ("", 0)
    rows = txn.all(SQL.new_streams, (seen, limits.ARCHIVE_STREAMS_PER_ROUND))
    if rows:
        txn.execute_many(SQL.note_stream, [(name,) for _, name in rows])
        txn.execute(SQL.noticed, (rows[-1][0],))
    return len(rows)


def _fields(count: Any) -> tuple[Any, ...]:
    return (count.stream_hash, count.artifact, count.op, count.count, count.bytes)

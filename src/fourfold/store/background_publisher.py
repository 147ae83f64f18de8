"""Continuous publishing of the spaces, the sessions and the graphs of a store.

New data is in the object store a few seconds later, with a restore point each time.

    with Continuous(store).running() as backup:
        ...                       # backup.state() is the progress
    backup.left                   # what could not be published, and why

A few databases are published in parallel. A failing database is retried with a backoff, and delays
no other. A database of another node is not retried. A database that another process writes is not
published from here: it is reported and retried; that process may publish it. A database whose files
have not changed is not opened, so other processes may write it; a changed one is locked while it is
published.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.archive.child_process import ChildStopped
from fourfold.archive.table_layout import TABLES
from fourfold.errors import FourfoldError, PublisherFenced, StorageError, WriterLocked
from fourfold.kernel.pauses import Pauses, lower_thread_priority
from fourfold.models.model import model_of_database
from fourfold.retry import Backoffs
from fourfold.store import database_files, publish, retention, table_maintenance
from fourfold.store.publish import STREAMS, PublishReport, has_streams

if TYPE_CHECKING:
    from pathlib import Path

    from fourfold.store.store import Store

PUBLISH_BUSY_S: Final = 15.0
"""Pause before a database that another process writes is tried again."""
PUBLISH_COLLECT_S: Final = 3_600.0
"""Interval at which the background drops old restore points and deletes unused objects."""

COMPACT_EVERY_S: Final = 60.0
"""Interval at which the background compacts archive tables."""

_STABLE_NS = 1_000_000_000
"""A file that changed less than a second ago may change again with the same timestamp."""
_FileState = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class PublisherState:
    """State of background publishing."""

    databases: int = 0
    """Number of databases in the store."""
    publications: int = 0
    objects: int = 0
    bytes: int = 0
    points: int = 0
    merges: int = 0
    deleted: int = 0
    """Number of unreferenced objects deleted."""
    last_point: str | None = None
    last_round_ms: int | None = None
    """Time at which all due databases were last checked; newer data may not be published."""
    failures: int = 0
    """Number of databases that currently cannot be published."""


class Continuous:
    """Publishes the databases of one store in the background.

    The store is open for writing in this process. Streams are published by `store.archive`; restore
    points include their positions, too.
    """

    def __init__(self, store: Store, *, streams: bool | None = None) -> None:
        publish.refuse_reader(store)
        self._store = store
        self._streams: Callable[[], bool] = (
            partial(has_streams, store) if streams is None else lambda: streams
        )
        self._backoffs = Backoffs(limits.ARCHIVE_BACKOFF_S, limits.ARCHIVE_BACKOFF_MAX_S)
        self._file_states: dict[str, _FileState] = {}
        self._state = PublisherState()
        self._collected = time.monotonic()
        self.left: dict[str, FourfoldError] = {}
        """Databases and streams not published at the end, and why."""

    @property
    def failures(self) -> dict[str, FourfoldError]:
        """Errors of databases that are currently not published, by name."""
        return self._backoffs.errors

    def state(self) -> PublisherState:
        """State of the publisher, with its present failures."""
        self._state.failures = len(self._backoffs)
        return self._state

    # Rounds

    def round(
        self,
        *,
        everything: bool = False,
        streams: bool = False,
        stop: Callable[[], bool] | None = None,
    ) -> PublishReport:
        """Publish new data of every due database.

        With `everything`, also of databases in backoff, except those of other nodes. With
        `streams`, also publish all streams. With `stop` it gives way to writers, and raises
        ChildStopped soon after this returns True.
        """
        store = self._store
        names = list(database_files.names(store.root))
        states = {name: self._file_state(name) for name in names}
        due = [name for name in names if self._is_due(name, states[name], everything=everything)]
        with store.publishing:
            report = publish.publish_some(
                store, due, streams=streams, moved=not streams and self._streams(), stop=stop
            )
        for name in due:
            self._record(name, report.failures.get(name))
        new = {database.name for database in report.published}
        for name in due:
            # Skip a database next time only if it was checked and had nothing new.
            if name not in new and name not in report.failures:
                self._remember_files(name, states[name])
        self._count(report, len(names))
        self._record(STREAMS, report.failures.get(STREAMS))
        self._backoffs.retain([*names, "", STREAMS, TABLES])
        return report

    def _is_due(self, name: str, state: _FileState, *, everything: bool) -> bool:
        if name in self._backoffs:
            return name not in (self._backoffs.blocked if everything else self._backoffs.waiting())
        return self._file_states.get(name) != state

    def _remember_files(self, name: str, before: _FileState) -> None:
        """Remember the state of the files, if nothing was changing them."""
        if before == self._file_state(name) and all(
            time.time_ns() - changed > _STABLE_NS for changed, _ in before
        ):
            self._file_states[name] = before
        else:
            self._file_states.pop(name, None)

    def _file_state(self, name: str) -> _FileState:
        """Return the modification times and sizes of the files of a database; an empty WAL is
        ignored.
        """
        path = model_of_database(name).location.path(self._store.root, name)
        files = [_times(path), _times(path.with_name(path.name + "-wal"))]
        return tuple(times for times in files if times is not None and times[1])

    def _record(self, name: str, error: FourfoldError | None) -> None:
        if error is None:
            self._backoffs.succeed(name)
            return
        self._backoffs.fail(
            name,
            error,
            pause_s=PUBLISH_BUSY_S if isinstance(error, WriterLocked) else None,
            block=isinstance(error, PublisherFenced),
        )

    def _count(self, report: PublishReport, databases: int) -> None:
        state = self._state
        state.databases = databases
        state.publications += len(report.published)
        state.objects += sum(database.objects for database in report.published)
        state.bytes += sum(database.bytes for database in report.published)
        state.merges += len(report.merged)
        state.last_round_ms = publish.now_ms()
        if report.point is not None:
            state.points += 1
            state.last_point = report.point.id

    # The background

    @contextmanager
    def running(self, every_s: float | None = None) -> Iterator[Continuous]:
        """Run rounds in the background during the `with` block, then a last one for everything.

        `left` contains what could not be published.
        """
        every = self._store.settings.archive.publish_s if every_s is None else every_s
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(every):
                try:
                    self._try(partial(self.round, stop=stop.is_set))
                except ChildStopped:
                    return
                self._maintain()

        threads = [threading.Thread(target=run, name="fourfold-publishing", daemon=True)]
        if self._store.settings.archive.compact == "on":
            name = "fourfold-compaction"
            thread = threading.Thread(target=self._compact, args=(stop,), name=name, daemon=True)
            threads.append(thread)
        if every:
            for thread in threads:
                thread.start()
        try:
            yield self
        finally:
            stop.set()
            if every:
                for thread in threads:
                    thread.join()
                self._try(self._last_round)
                self.left = {**self.failures, **self.left}

    def _last_round(self) -> None:
        """Publish everything; streams that cannot be published are recorded in `left`."""
        report = self.round(everything=True, streams=self._streams())
        self.left = {
            name: error for name, error in report.failures.items() if name.startswith(f"{STREAMS}/")
        }

    def _try(self, work: Callable[[], object]) -> None:
        self._backoffs.succeed("")
        try:
            work()
        except ChildStopped:
            raise
        except Exception as error:  # noqa: BLE001 - the next round may succeed
            # `failures` reports it under the empty name until the next round.
            failure = error if isinstance(error, FourfoldError) else None
            reported = failure or StorageError(f"publishing failed: {error!r}")
            self._backoffs.fail("", reported, pause_s=0.0)

    def _maintain(self) -> None:
        """Remove old restore points and unreferenced objects, once in a while."""
        if time.monotonic() - self._collected < PUBLISH_COLLECT_S:
            return
        self._collected = time.monotonic()
        self._try(self.collect)

    def _compact(self, stop: threading.Event) -> None:
        """Compact archive tables periodically, without delaying the rounds."""
        lower_thread_priority()
        while not stop.wait(COMPACT_EVERY_S):
            self.compact_tables(stop)

    def compact_tables(self, stop: threading.Event | None = None) -> None:
        """Compact archive tables with many files, one at a time, until `stop` is set."""
        store, pauses = self._store, Pauses.for_process()

        def pause() -> None:
            if stop is not None and stop.is_set():
                raise _Stopped
            pauses.pause()

        try:
            pauses.start()
            while table_maintenance.compact_one(store, pause) is not None:
                self._state.merges += 1
            self._record(TABLES, None)
        except _Stopped:
            return
        except FourfoldError as error:
            self._record(TABLES, error)
        except Exception as error:  # noqa: BLE001 - the next time may succeed
            self._record(TABLES, StorageError(f"compaction failed: {error!r}"))

    def collect(self) -> None:
        """Remove restore points beyond the retention, and delete unreferenced objects."""
        done = retention.collect(self._store, seldom=True)
        self._state.deleted += len(done.deleted)
        for name, error in done.failures.items():
            if not isinstance(error, WriterLocked):
                self._record(name, error)
        if self._streams() and STREAMS not in self._backoffs:
            self._state.deleted += len(self._store.archive.collect())


class _Stopped(Exception):
    """The background thread stops; a running compaction is abandoned."""


def _times(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size

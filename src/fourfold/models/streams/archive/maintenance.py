"""Maintenance of published segments: indexing and compaction.

Files are built in the calling thread or, in the background, in a process of their own. Every
object is recorded before it is uploaded, and referred to by a row in the transaction after it; so
objects left by a crash are known, and retired when the archive is opened again. Streams are
processed one after the other, and a failing one does not stop the others.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fourfold.archive import manifest
from fourfold.archive.build_process import DirectBuilder, FileBuilder
from fourfold.archive.cache import DiskCache
from fourfold.archive.segment_reader import StoredSegments
from fourfold.errors import FourfoldError, InvalidInput, NotFound
from fourfold.kernel import Database, Transaction, failpoints
from fourfold.models.streams.archive import compaction
from fourfold.models.streams.archive.compaction import CompactedSegment
from fourfold.models.streams.archive.indexes import builder, catalog, fields, key_gaps
from fourfold.models.streams.archive.indexes.builder import BuiltRun
from fourfold.models.streams.archive.publisher import Publisher
from fourfold.models.streams.archive.records import SQL, Policy
from fourfold.models.streams.archive.sweep import give_up, segment_of
from fourfold.models.streams.archive.throttle import NO_THROTTLE, Throttle
from fourfold.models.streams.search.companions import builder as companions

Stop = Callable[[], bool]
Advance = Callable[[str, int, int], None]
"""Called with the name of a stream, and how many of all steps are done."""
Lock = Callable[[str], AbstractContextManager[object]]
MADE = "made"
"""Folder of files in progress, below that of the archive."""


def _never() -> bool:
    return False


def _ignore(_stream: str, _done: int, _total: int) -> None:
    """Do nothing; the default of `advance`."""


class MaintenanceTurn(NamedTuple):
    """Conditions of maintenance: a builder of files, pauses of other work, and when to stop."""

    builder: FileBuilder
    pace: Throttle = NO_THROTTLE
    stop: Stop = _never
    advance: Advance = _ignore


@dataclass(slots=True)
class MaintenanceResult:
    """Result of indexing or compacting all streams."""

    runs: int = 0
    """New runs, including merged ones."""
    segments: int = 0
    """Segments that were indexed or compacted."""
    compacted: int = 0
    """Number of segments after compaction."""
    companions: int = 0
    """New companions of segments."""
    streams: set[str] = field(default_factory=set)
    failures: dict[str, FourfoldError] = field(default_factory=dict)


class SegmentMaintenance:
    """Indexes and compacts the published segments of one database."""

    def __init__(
        self,
        database: Database,
        publisher: Publisher,
        segments: StoredSegments,
        cache: DiskCache,
        folder: Path,
        *,
        policy: Policy,
        clock: Callable[[], int],
        lock: Lock,
        publish: Callable[[str, Throttle], None],
    ) -> None:
        self._database = database
        self._publisher = publisher
        self._segments = segments
        self._cache = cache
        self._folder = folder / MADE
        self._local = folder / "local"
        self._policy = policy
        self._clock = clock
        self._lock = lock
        self._publish = publish
        self._direct = MaintenanceTurn(DirectBuilder(segments))
        self.naming = threading.Lock()
        """Held from an upload until a row refers to its object, and while objects are deleted."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def publish(self, stream: str, pace: Throttle = NO_THROTTLE) -> None:
        """Publish a changed manifest of a stream."""
        self._publish(stream, pace)

    # Indexes

    def index(
        self, *, everything: bool = True, turn: MaintenanceTurn | None = None
    ) -> MaintenanceResult:
        """Index segments without a run, and merge runs.

        Without `everything`, only streams with enough segments for a whole run.
        """
        turn = turn or self._direct
        done = MaintenanceResult()
        policy = self._policy
        for gap in key_gaps.gaps(self._database):
            self._alone(
                done,
                gap.stream,
                lambda: key_gaps.fill(self._database, self._segments, self._local, gap, turn.stop),  # noqa: B023
            )
        with self._database.read() as snapshot:
            found = dict(builder.streams_to_index(snapshot, policy, everything=everything))
        for number, (stream, incarnation) in enumerate(found.items()):
            if not turn.stop():
                turn.advance(stream, number, len(found))
                self._alone(
                    done,
                    stream,
                    lambda: self._index(done, stream, incarnation, everything, turn),  # noqa: B023
                )
        return done

    def _index(
        self,
        done: MaintenanceResult,
        stream: str,
        incarnation: str,
        everything: bool,
        turn: MaintenanceTurn,
    ) -> None:
        policy = self._policy
        with self._database.read() as snapshot:
            tasks = builder.tasks(
                snapshot, stream, incarnation, policy, self._local, everything=everything
            )
        for task in tasks:
            built = turn.builder.run(builder.build, task, self._folder)
            if self.adopt_run(built, turn.pace):
                done.segments += len(task.segments)
                done.runs += built.run is not None
                done.streams.add(stream)
        self.merge(done, stream, incarnation, turn)
        self.publish(stream, turn.pace)

    def merge(
        self,
        done: MaintenanceResult,
        stream: str,
        incarnation: str,
        turn: MaintenanceTurn | None = None,
    ) -> None:
        """Merge runs of a stream until no merge is due."""
        turn = turn or self._direct
        while True:
            with self._database.read() as snapshot:
                task = builder.next_merge(snapshot, stream, incarnation, self._policy)
            if task is None:
                return
            built = turn.builder.run(builder.build, task, self._folder)
            if not self.adopt_run(built, turn.pace):
                return
            done.runs += 1
            done.streams.add(stream)

    def adopt_run(self, built: BuiltRun, pace: Throttle = NO_THROTTLE) -> bool:
        """Upload a run and register it for the next manifest; return False if it is outdated."""
        now = self._clock()

        def take_in(txn: Transaction) -> bool:
            return builder.take_in(txn, built, now)

        if built.run is None or built.path is None or not built.run.entries:
            if built.path is not None:
                built.path.unlink(missing_ok=True)
            return pace.transact(self._database, take_in)
        row = built.task.row(built.run)
        stream = built.task.stream
        return self._adopt(
            row.object_key, row.run_id, stream, built.path, row.digest, take_in, pace
        )

    def declare(self, stream: str, name: str) -> None:
        """Index a field of the JSON messages of a stream, including existing messages."""
        fields.check_field(name)

        def work(txn: Transaction) -> None:
            found = txn.one(SQL.published_row, (stream,))
            if found is None:
                raise NotFound(f"there is no stream {stream!r}")
            if not found[3].startswith("application/json"):
                raise InvalidInput(
                    f"the stream {stream!r} must hold JSON to index a field, got {found[3]}"
                )
            catalog.declare(txn, stream, name, self._clock())

        self._database.transact(work)

    # Companions

    def build_companions(self, turn: MaintenanceTurn | None = None) -> MaintenanceResult:
        """Build the search companions of segments that have none of the current plan."""
        turn = turn or self._direct
        done = MaintenanceResult()
        with self._database.read() as snapshot:
            found = list(companions.streams_with_plans(snapshot))
        for number, (stream, incarnation) in enumerate(found):
            if not turn.stop():
                turn.advance(stream, number, len(found))
                self._alone(
                    done,
                    stream,
                    lambda: self._build_companions(done, stream, incarnation, turn),  # noqa: B023
                )
        return done

    def _build_companions(
        self, done: MaintenanceResult, stream: str, incarnation: str, turn: MaintenanceTurn
    ) -> None:
        while not turn.stop():
            with self._database.read() as snapshot:
                tasks = companions.tasks(snapshot, stream, incarnation, self._local)
            adopted = 0
            for task in tasks:
                if turn.stop():
                    break
                built = turn.builder.run(companions.build, task, self._folder)
                adopted += self.adopt_companion(built, turn.pace)
            done.segments += adopted
            done.companions += adopted
            if adopted:
                done.streams.add(stream)
                self.publish(stream, turn.pace)
            else:
                # Nothing is due, or what was planned has changed meanwhile.
                return

    def adopt_companion(self, built: companions.BundleFile, pace: Throttle = NO_THROTTLE) -> bool:
        """Upload a companion and register it for the next manifest; return False if outdated."""
        now = self._clock()
        return self._adopt(
            built.object_key,
            segment_of(built.object_key),
            built.task.stream,
            built.path,
            built.digest,
            lambda txn: companions.take_in(txn, built, now),
            pace,
        )

    # Segments

    def compact(self, turn: MaintenanceTurn | None = None) -> MaintenanceResult:
        """Compact small segments into larger ones."""
        turn = turn or self._direct
        done = MaintenanceResult()
        with self._database.read(deadline_s=float("inf")) as snapshot:
            found = list(compaction.due(snapshot, self._policy))
        for number, group in enumerate(found):
            if not turn.stop():
                turn.advance(group.stream, number, len(found))

                def work(group: compaction.SegmentGroup = group) -> None:
                    made = turn.builder.run(compaction.build, group, self._folder, self._local)
                    if self.adopt_segment(made, turn.pace):
                        done.segments += len(group.segments)
                        done.compacted += 1
                        done.streams.add(group.stream)
                    self.publish(group.stream, turn.pace)

                self._alone(done, group.stream, work)
        return done

    def adopt_segment(self, made: CompactedSegment, pace: Throttle = NO_THROTTLE) -> bool:
        """Upload a compacted segment and register it for the next manifest; False if outdated."""
        key = manifest.key_of(made.segment_id)
        return self._adopt(
            key,
            made.segment_id,
            made.group.stream,
            made.path,
            made.sealed.digest,
            lambda txn: compaction.take_in(txn, made),
            pace,
        )

    # Objects

    def _adopt(  # noqa: PLR0917 - an object, and what names it
        self,
        key: str,
        held_as: str,
        stream: str,
        path: Path,
        digest: str,
        take_in: Callable[[Transaction], bool],
        pace: Throttle,
    ) -> bool:
        size = path.stat().st_size

        def named(txn: Transaction) -> bool:
            taken = take_in(txn)
            if taken:
                txn.execute(SQL.object_is_named, (key,))
                txn.execute(SQL.forget_object, (key,))
            else:
                given_up(txn)
            return taken

        def given_up(txn: Transaction) -> None:
            give_up(txn, key, stream, size, self._clock())

        with self.naming:
            expected = (key, stream, size)
            pace.transact(self._database, lambda txn: txn.execute(SQL.expect_object, expected))
            if failpoints.armed:
                failpoints.hit("archive.object.expected")
            try:
                self._publisher.put_file(key, path, size, digest, pace)
                if failpoints.armed:
                    failpoints.hit("archive.object.uploaded")
                with self._lock(stream):
                    taken = pace.transact(self._database, named)
            except FourfoldError:
                self._database.transact(given_up)
                raise
            if failpoints.armed:
                failpoints.hit("archive.object.named")
        if taken:
            self._cache.adopt(held_as, path)
        else:
            path.unlink(missing_ok=True)
        return taken

    def _alone(self, done: MaintenanceResult, stream: str, work: Callable[[], None]) -> None:
        try:
            work()
        except FourfoldError as error:
            done.failures[stream] = error

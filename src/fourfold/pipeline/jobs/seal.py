"""`seal`: all streams of a node that are due, sealed into segments in one job.

    workers     read the log and write the files of segments, with the function that the node calls
                by itself: each file whole, on disk, and spoken of by nothing
    driver      takes them in through the node's writer, many in one transaction

It goes in waves, so that memory is bounded and a killed run has done what it has done: sealing
changes nothing that a reader sees, and each segment is taken in exactly if its stream still stands
where the worker saw it. Files of a run that was killed are cleared by the next one. The node must
not run: the job is the writer of the store meanwhile.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.records import SealedSegment
from fourfold.errors import FourfoldError, StorageError
from fourfold.kernel import Database, ReadTransaction, Transaction
from fourfold.models.streams import MIGRATIONS, PROFILE
from fourfold.models.streams.archive import sealer
from fourfold.models.streams.archive.archiver import LOCAL, Archive
from fourfold.models.streams.archive.records import SQL, Policy
from fourfold.models.streams.archive.sealer import Sealable
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, counted
from fourfold.pipeline.tables import arrow
from fourfold.store import open_store
from fourfold.store.layout import streams_path

_COLUMNS: Final = (
    "place bigint, start_offset bigint, end_offset bigint, rows bigint, payload_bytes bigint, "
    "last_ts_ms bigint, groups bigint, size_bytes bigint, digest string, problem string"
)


class Due(NamedTuple):
    """A stream with something to seal."""

    name: str
    pending_rows: int
    found: Sealable


@dataclass(slots=True)
class SealReport:
    """What became of the waves."""

    streams: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Seal(Job):
    """Seal what is due."""

    name = "seal"
    summary = "Seal the streams that are due into segments, all of them in one job."
    explanation = (
        "Spark's workers write the files, and the store's own writer takes them in, so the store "
        "must not be served meanwhile. What is sealed is published by `fourfold publish`, or by "
        "the node when it is up again."
    )
    options = (Option("everything", "Seal what is not due yet, too.", kind="flag", default=False),)

    def plan(self, context: Context) -> Plan:
        due: list[Due] = []
        if streams_path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                told = store.settings.archive
                policy = Policy(told.seal_bytes, told.seal_rows, told.seal_age_s)
                with store.streams.database.read() as snapshot:
                    due = _due(snapshot, policy, store.streams.clock(), context, after=0, most=-1)
        records = sum(each.pending_rows for each in due)
        return Plan(
            output="segments of the store",
            # Where each stream stands is in the store itself.
            ranges=(Range("streams", 0, records),),
            facts={
                "streams": len(due),
                "records": records,
                "bytes": sum(each.found.pending_bytes for each in due),
            },
            empty=not due,
        )

    def run(self, context: Context, plan: Plan) -> SealReport:
        done = SealReport()
        with open_store(context.root) as store:
            archive, database = store.archive, store.streams.database
            after = 0
            while True:
                now = store.streams.clock()
                with database.read() as snapshot:
                    wave = _due(
                        snapshot,
                        archive.policy,
                        now,
                        context,
                        after=after,
                        most=limits.SEAL_WAVE_STREAMS,
                    )
                if not wave:
                    return done
                built = _built(context, archive, wave)
                _take_in(database, archive, wave, built, now, done)
                after = wave[-1].found.sid
                done.streams += len(wave)
                context.advance("sealing", done.streams, plan.facts["streams"])

    def commit(self, context: Context, plan: Plan, result: SealReport) -> Report:
        """It is all in already. What failed is told: one stream never keeps the others waiting."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"the stream {name!r} cannot be sealed: {problem}")
            context.skip(name, problem)
        return Report(
            rows_in=result.records,
            rows_out=result.segments,
            facts={
                "streams": result.streams,
                "segments": result.segments,
                "records": result.records,
                "bytes": result.bytes,
            },
            sentence=f"{counted(result.records, 'record')} of {counted(result.streams, 'stream')} "
            f"in {counted(result.segments, 'new segment')}",
        )


def _due(
    snapshot: ReadTransaction,
    policy: Policy,
    now_ms: int,
    context: Context,
    *,
    after: int,
    most: int,
) -> list[Due]:
    """Streams that are due, in the order of their keys; those that another run looked at are behind
    `after`.
    """
    size, rows, oldest = policy.seal_bytes, policy.seal_rows, now_ms - 1000 * policy.seal_age_s
    if context.options["everything"]:
        size, rows, oldest = 1, 1, now_ms
    found = snapshot.all(SQL.sealable_many, (size, rows, int(oldest), after, most))
    return [Due(row[0], row[1], Sealable._make(row[2:])) for row in found]


# In Spark's workers


class SealTask:
    """What a worker does with the numbers of the tasks that it is given."""

    def __init__(
        self, path: Path, folder: Path, policy: Policy, tasks: Sequence[Sequence[tuple[int, Due]]]
    ) -> None:
        self._path = path
        self._folder = folder
        self._policy = policy
        self._tasks = tasks

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = list(self._task(self._tasks[number]))
                sync_file_system(self._folder)
                if rows:
                    yield arrow().RecordBatch.from_pylist(rows, schema=_schema())

    def _task(self, task: Sequence[tuple[int, Due]]) -> Iterator[dict[str, Any]]:
        opened = Database.open(self._path, profile=PROFILE, migrations=MIGRATIONS, mode="r")
        with opened as database, database.read(deadline_s=float("inf")) as snapshot:
            for place, due in task:
                try:
                    for sealed in self._segments(snapshot, due):
                        yield {"place": place, **sealed._asdict()}
                except (FourfoldError, OSError, ValueError) as error:
                    # Whatever it is, it is of this stream alone.
                    yield {"place": place, "problem": str(error)}

    def _segments(self, snapshot: ReadTransaction, due: Due) -> Iterator[SealedSegment]:
        """One segment, and as many more as there is enough for."""
        found, rows = due.found, due.pending_rows
        policy = self._policy
        while True:
            built = sealer.build(
                snapshot,
                due.name,
                found,
                policy=policy,
                folder=self._folder,
                durable=False,
            )
            if built is None:
                return
            sealed, _ = built
            yield sealed
            rows -= sealed.rows
            found = _behind(found, sealed)
            enough = found.pending_bytes >= policy.seal_bytes or rows >= policy.seal_rows
            if not enough:
                return


def sync_file_system(folder: Path) -> None:
    """Bring all that was written there to disk: once for a thousand small files, each of which
    would otherwise wait for the disk on its own.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise StorageError(f"{folder}: cannot be brought to disk: {os.strerror(number)}")
    finally:
        os.close(opened)


def _behind(found: Sealable, sealed: SealedSegment) -> Sealable:
    """What there is left once a segment is taken in."""
    return found._replace(
        sealed_through=sealed.end_offset,
        start=sealed.end_offset + 1,
        pending_bytes=found.pending_bytes - sealed.payload_bytes,
    )


def _schema() -> Any:
    pa = arrow()
    types = {"bigint": pa.int64(), "string": pa.string()}
    pairs = [each.split() for each in _COLUMNS.split(", ")]
    return pa.schema([pa.field(name, types[kind]) for name, kind in pairs])


# On the driver


def _built(context: Context, archive: Archive, wave: Sequence[Due]) -> list[tuple[int, Any]]:
    """The segments of a wave, by the place of their stream in it; or what went wrong there."""
    tasks = _tasks(wave)
    path = streams_path(context.root)
    worker = SealTask(path, archive.folder / LOCAL, archive.policy, tasks)

    def build(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(build, _COLUMNS).collect()
    names = SealedSegment._fields
    found: list[tuple[int, Any]] = [
        (
            row["place"],
            SealedSegment(*(row[name] for name in names))
            if row["problem"] is None
            else row["problem"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (each[0], getattr(each[1], "start_offset", 0)))


def _tasks(wave: Sequence[Due]) -> list[list[tuple[int, Due]]]:
    """The streams of a wave in tasks of about the same work."""
    costs = [each.found.pending_bytes + limits.SEAL_STREAM_COST_BYTES for each in wave]
    most = max(sum(costs) // limits.SEAL_WAVE_TASKS, limits.SEAL_TASK_BYTES_MIN)
    tasks: list[list[tuple[int, Due]]] = [[]]
    size = 0
    for place, (due, cost) in enumerate(zip(wave, costs, strict=True)):
        if tasks[-1] and size + cost > most:
            tasks.append([])
            size = 0
        tasks[-1].append((place, due))
        size += cost
    return tasks


def _take_in(  # noqa: PLR0917 - these are what it works with
    database: Database,
    archive: Archive,
    wave: Sequence[Due],
    built: Sequence[tuple[int, Any]],
    now_ms: int,
    done: SealReport,
) -> None:
    """The segments of a wave, some hundred in one transaction."""
    ready: list[tuple[Due, Sealable, SealedSegment]] = []
    behind: dict[int, Sealable] = {}
    for place, what in built:
        due = wave[place]
        if not isinstance(what, SealedSegment):
            done.failures.append((due.name, what))
            continue
        found = behind.get(place, due.found)
        ready.append((due, found, what))
        behind[place] = _behind(found, what)
    for at in range(0, len(ready), limits.SEAL_COMMIT_SEGMENTS):
        some = ready[at : at + limits.SEAL_COMMIT_SEGMENTS]

        def work(txn: Transaction, some: Any = some) -> list[bool]:
            return [
                sealer.commit(txn, due.name, found, sealed, now_ms) for due, found, sealed in some
            ]

        taken = database.transact(work, deadline_s=limits.ARCHIVE_RECORD_DEADLINE_S)
        for (due, found, sealed), known in zip(some, taken, strict=True):
            if known:
                done.segments += 1
                done.records += sealed.rows
                done.bytes += sealed.payload_bytes
            else:
                path = archive.folder / LOCAL / sealer.local_path(due.name, found, sealed)
                path.unlink(missing_ok=True)


job = Seal()

"""The job `seal`: seal all due streams of a node.

    workers     read the log and write the segment files, with the function that the node uses:
                each complete, synced, and unreferenced
    driver      adopts them through the node's writer, many in one transaction

It works in waves, so that memory is bounded and a killed run keeps its finished waves: sealing
changes nothing that a reader sees, and a segment is adopted only if its stream is unchanged since
the worker read it. Files of a killed run are removed by the next one. The node must not run: the
job is the writer of the store meanwhile.
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
from fourfold.models.streams.archive.archiver import Archive
from fourfold.models.streams.archive.records import LOCAL, SQL, Policy
from fourfold.models.streams.archive.sealer import Sealable
from fourfold.models.streams.model import MODEL
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, pluralize
from fourfold.pipeline.task_groups import pack
from fourfold.query.tables import arrow
from fourfold.store import open_store

SEAL_WAVE_STREAMS: Final = 20_000
"""Streams in one wave of the job `seal`; their segments are in memory until it is committed."""
SEAL_WAVE_TASKS: Final = 64
SEAL_TASK_BYTES_MIN: Final = 64 * limits.MIB
SEAL_STREAM_COST_BYTES: Final = 128 * limits.KIB
"""Cost of creating a file, as the number of bytes that could be written in that time."""
SEAL_COMMIT_SEGMENTS: Final = 500
"""Segments that one transaction adopts."""

_COLUMNS: Final = (
    "place bigint, start_offset bigint, end_offset bigint, rows bigint, payload_bytes bigint, "
    "last_ts_ms bigint, groups bigint, size_bytes bigint, digest string, problem string"
)


class DueStream(NamedTuple):
    """A stream with records to seal."""

    name: str
    pending_rows: int
    sealable: Sealable


@dataclass(slots=True)
class SealReport:
    """The outcome of the waves."""

    streams: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Seal(Job):
    """Seal the due streams."""

    name = "seal"
    summary = "Seal all due streams into segments."
    explanation = (
        "Spark's workers write the files, and the store's own writer adopts them, so no server may "
        "run meanwhile. Sealed segments are published by `fourfold publish`, or by the node when "
        "it runs again."
    )
    options = (
        Option("everything", "Also seal streams that are not due yet.", kind="flag", default=False),
    )

    def plan(self, context: Context) -> Plan:
        """List the due streams."""
        due: list[DueStream] = []
        if MODEL.location.path(context.root).exists():
            with open_store(context.root, mode="r") as store:
                archive = store.settings.archive
                policy = Policy(archive.seal_bytes, archive.seal_rows, archive.seal_age_s)
                with store.streams.database.read() as snapshot:
                    due = _list_due(
                        snapshot, policy, store.streams.clock(), context, after=0, limit=-1
                    )
        records = sum(stream.pending_rows for stream in due)
        return Plan(
            output="segments of the store",
            # The position of each stream is in the store itself.
            ranges=(Range("streams", 0, records),),
            facts={
                "streams": len(due),
                "records": records,
                "bytes": sum(stream.sealable.pending_bytes for stream in due),
            },
            empty=not due,
        )

    def run(self, context: Context, plan: Plan) -> SealReport:
        """Seal the due streams in waves."""
        report = SealReport()
        with open_store(context.root) as store:
            archive, database = store.archive, store.streams.database
            after = 0
            while True:
                now = store.streams.clock()
                with database.read() as snapshot:
                    wave = _list_due(
                        snapshot,
                        archive.policy,
                        now,
                        context,
                        after=after,
                        limit=SEAL_WAVE_STREAMS,
                    )
                if not wave:
                    return report
                built = _build_segments(context, archive, wave)
                _adopt(database, archive, wave, built, now, report)
                after = wave[-1].sealable.sid
                report.streams += len(wave)
                context.advance("sealing", report.streams, plan.facts["streams"])

    def commit(self, context: Context, plan: Plan, result: SealReport) -> Report:
        """Report the result; failed streams do not affect the others."""
        del plan
        for name, problem in result.failures:
            if not context.skip_bad:
                raise StorageError(f"stream {name!r}: cannot seal: {problem}")
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
            sentence=f"{pluralize(result.records, 'record')} of "
            f"{pluralize(result.streams, 'stream')} in "
            f"{pluralize(result.segments, 'new segment')}",
        )


def _list_due(
    snapshot: ReadTransaction,
    policy: Policy,
    now_ms: int,
    context: Context,
    *,
    after: int,
    limit: int,
) -> list[DueStream]:
    """Return up to `limit` due streams with keys after `after`, in the order of their keys."""
    size, rows, oldest = policy.seal_bytes, policy.seal_rows, now_ms - 1000 * policy.seal_age_s
    if context.options["everything"]:
        size, rows, oldest = 1, 1, now_ms
    streams = snapshot.all(SQL.sealable_many, (size, rows, int(oldest), after, limit))
    return [DueStream(row[0], row[1], Sealable._make(row[2:])) for row in streams]


# In Spark's workers


class SealTask:
    """Worker function: seals the streams of the tasks whose numbers it receives."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        policy: Policy,
        tasks: Sequence[Sequence[tuple[int, DueStream]]],
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

    def _task(self, task: Sequence[tuple[int, DueStream]]) -> Iterator[dict[str, Any]]:
        opened = Database.open(self._path, profile=PROFILE, migrations=MIGRATIONS, mode="r")
        with opened as database, database.read(deadline_s=float("inf")) as snapshot:
            for place, due in task:
                try:
                    for sealed in self._segments(snapshot, due):
                        yield {"place": place, **sealed._asdict()}
                except (FourfoldError, OSError, ValueError) as error:
                    # The error only concerns this stream.
                    yield {"place": place, "problem": str(error)}

    def _segments(self, snapshot: ReadTransaction, due: DueStream) -> Iterator[SealedSegment]:
        """Yield one segment, and more while enough records are pending."""
        sealable, rows = due.sealable, due.pending_rows
        policy = self._policy
        while True:
            built = sealer.build(
                snapshot,
                due.name,
                sealable,
                policy=policy,
                folder=self._folder,
                durable=False,
            )
            if built is None:
                return
            sealed, _ = built
            yield sealed
            rows -= sealed.rows
            sealable = _remaining(sealable, sealed)
            enough = sealable.pending_bytes >= policy.seal_bytes or rows >= policy.seal_rows
            if not enough:
                return


def sync_file_system(folder: Path) -> None:
    """Sync all files of the file system: once for a thousand small files, each of which would
    otherwise wait for the disk.
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
            raise StorageError(f"{folder}: cannot sync:  {os.strerror(number)}")
    finally:
        os.close(opened)


def _remaining(sealable: Sealable, sealed: SealedSegment) -> Sealable:
    """Return what is left to seal after a segment."""
    return sealable._replace(
        sealed_through=sealed.end_offset,
        start=sealed.end_offset + 1,
        pending_bytes=sealable.pending_bytes - sealed.payload_bytes,
    )


def _schema() -> Any:
    pa = arrow()
    types = {"bigint": pa.int64(), "string": pa.string()}
    pairs = [column.split() for column in _COLUMNS.split(", ")]
    return pa.schema([pa.field(name, types[kind]) for name, kind in pairs])


# On the driver


def _build_segments(
    context: Context, archive: Archive, wave: Sequence[DueStream]
) -> list[tuple[int, Any]]:
    """Return the segments of a wave, or the problem, by the index of their stream."""
    tasks = _group_streams(wave)
    path = MODEL.location.path(context.root)
    worker = SealTask(path, archive.folder / LOCAL, archive.policy, tasks)

    def build(batches: Iterable[Any]) -> Iterator[Any]:
        return worker(batches)

    numbers = context.spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(build, _COLUMNS).collect()
    names = SealedSegment._fields
    built: list[tuple[int, Any]] = [
        (
            row["place"],
            SealedSegment(*(row[name] for name in names))
            if row["problem"] is None
            else row["problem"],
        )
        for row in rows
    ]
    return sorted(built, key=lambda item: (item[0], getattr(item[1], "start_offset", 0)))


def _group_streams(wave: Sequence[DueStream]) -> list[list[tuple[int, DueStream]]]:
    """Group the streams of a wave into tasks of about equal work."""
    costs = [stream.sealable.pending_bytes + SEAL_STREAM_COST_BYTES for stream in wave]
    limit = max(sum(costs) // SEAL_WAVE_TASKS, SEAL_TASK_BYTES_MIN)
    return list(pack(zip(costs, enumerate(wave), strict=True), limit))


def _adopt(  # noqa: PLR0917
    database: Database,
    archive: Archive,
    wave: Sequence[DueStream],
    built: Sequence[tuple[int, Any]],
    now_ms: int,
    report: SealReport,
) -> None:
    """Adopt the segments of a wave, several hundred in one transaction."""
    ready: list[tuple[DueStream, Sealable, SealedSegment]] = []
    remaining: dict[int, Sealable] = {}
    for place, outcome in built:
        due = wave[place]
        if not isinstance(outcome, SealedSegment):
            report.failures.append((due.name, outcome))
            continue
        sealable = remaining.get(place, due.sealable)
        ready.append((due, sealable, outcome))
        remaining[place] = _remaining(sealable, outcome)
    for at in range(0, len(ready), SEAL_COMMIT_SEGMENTS):
        group = ready[at : at + SEAL_COMMIT_SEGMENTS]

        def work(txn: Transaction, group: Any = group) -> list[bool]:
            return [
                sealer.commit(txn, due.name, sealable, sealed, now_ms)
                for due, sealable, sealed in group
            ]

        adopted = database.transact(work, deadline_s=limits.ARCHIVE_RECORD_DEADLINE_S)
        for (due, sealable, sealed), is_adopted in zip(group, adopted, strict=True):
            if is_adopted:
                report.segments += 1
                report.records += sealed.rows
                report.bytes += sealed.payload_bytes
            else:
                path = archive.folder / LOCAL / sealer.local_path(due.name, sealable, sealed)
                path.unlink(missing_ok=True)


job = Seal()

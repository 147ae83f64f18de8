"""Jobs of the server: those that read as child processes, those that write in this process.

    POST ──> queued ──> running ──> succeeded | failed
                           └──> cancelled (DELETE) | interrupted (the server stopped)

A child process only reads the store, so it runs beside the server. It prints its progress as lines
of JSON; if the server dies, the next line ends it. What writes to the store runs in this process,
which has the databases open for writing. A job is recorded when it is created, starts and ends; its
progress is in memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.child_process import ChildStopped
from fourfold.errors import FourfoldError, Overloaded, Refused
from fourfold.kernel import Notifier
from fourfold.kernel.idempotency import IdempotentRequest
from fourfold.models.documents import Space
from fourfold.models.documents.snapshots import maintain
from fourfold.models.model import model
from fourfold.server import load
from fourfold.server.archive_jobs import ArchiveJob
from fourfold.server.errors import redact_paths, without_paths
from fourfold.server.job_store import JobStore, now_ms
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.uploads import upload_path, uploads_folder
from fourfold.store import Store
from fourfold.store.job_progress import STARTED_BY, StageLog, StepRate
from fourfold.store.pipeline_runs import started_by_job
from fourfold.wire.store import (
    BackupJob,
    BuildCompanionsJob,
    BuildIndexJob,
    CompactJob,
    GcJob,
    JobError,
    JobInfo,
    JobProgress,
    LoadJob,
    MaterializeJob,
    NewJob,
    PublishJob,
    SnapshotsJob,
    StatsJob,
    VerifyJob,
)

_log = logging.getLogger("fourfold.server")
JOBS_RUNNING: Final = 2
JOBS_WAITING: Final = 64
"""Jobs that run at once, and that run or wait."""
_COLLECTED: Final = ("streams", "graphs", "sessions")
"""Models of which a job of the kind `gc` collects the garbage, besides documents."""
JOB_CANCEL_S: Final = 10.0
"""Maximum wait for the end of a cancelled job; its process is killed after half of it."""
OPEN_SPACE_S: Final = 30.0
"""Maximum wait until a space is open."""
PUBLISH_SLICE_DATABASES: Final = 256
"""Databases that a job publishes together, with one restore point."""
_PROBLEMS_MAX: Final = 100
_MAINTENANCE: Final = {
    CompactJob: ArchiveJob.compact,
    BuildIndexJob: ArchiveJob.index,
    BuildCompanionsJob: ArchiveJob.build_companions,
}
_RUN_FIELDS: Final[tuple[str, ...]] = ("run", "outcome", "rows_in", "rows_out", "resumed")
_NAME_TIME: Final = "%Y-%m-%dt%H-%M-%Sz"


def tables_folder(root: Path) -> Path:
    """Return the folder for tables that jobs write: next to the store."""
    return root.with_name(f"{root.name}-tables")


class _Cancelled(Exception):
    """The job was cancelled, or the server stops."""


class JobOutcome(NamedTuple):
    """Outcome of a job."""

    result: dict[str, Any] | None
    error: JobError | None = None


class _RunningJob:
    """A job that is queued or runs in its thread."""

    def __init__(self, job: JobInfo, body: NewJob, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.body = body
        self.loop = loop
        self.cancelled = threading.Event()
        self.ended = threading.Event()
        self.child: subprocess.Popen[bytes] | None = None
        self.rate = StepRate()
        self.stages = StageLog()
        self.lock = threading.Lock()
        """Held while a child starts, so that none starts after a cancellation."""


class Jobs:
    """The jobs of one server."""

    def __init__(self, store: Store, spaces: OpenSpaces, backups: Path) -> None:
        self._store = store
        self._spaces = spaces
        self._backups = backups
        self._records = JobStore(store.root)
        self._running: dict[str, _RunningJob] = {}
        self._lock = threading.Lock()
        self._places = threading.Semaphore(JOBS_RUNNING)
        self._stopping = False
        self.notifier = Notifier()
        """Notifies of progress, with the id of the job as the name."""
        self._records.interrupt_unfinished()

    def start(
        self, body: NewJob, request: IdempotentRequest | None, loop: asyncio.AbstractEventLoop
    ) -> JobInfo:
        """Record a job and start it, or return the job that the same request created before."""
        with self._lock:
            if self._stopping:
                raise Overloaded("the server is stopping", retry_after=limits.RETRY_AFTER_S)
            if len(self._running) >= JOBS_WAITING:
                raise Overloaded("too many jobs are waiting", retry_after=limits.RETRY_AFTER_S)
        kind = body.__struct_config__.tag
        assert isinstance(kind, str)
        options = {
            name: value
            for name, value in msgspec.to_builtins(body).items()
            if name != body.__struct_config__.tag_field
        }
        if isinstance(body, BackupJob):
            options.setdefault("name", datetime.now(UTC).strftime(_NAME_TIME))
            if request is None and (self._backups / options["name"]).exists():
                raise Refused(
                    f"the backup {options['name']!r} already exists", hint="Choose another name."
                )
        if isinstance(body, LoadJob) and request is None:
            upload_path(uploads_folder(self._store.root), body.upload)
        job, replayed = self._records.add(kind, options, request)
        if replayed:
            return self.get(job.id)
        running = _RunningJob(job, body, loop)
        with self._lock:
            self._running[job.id] = running
        name = f"fourfold-job-{job.id}"
        threading.Thread(target=self._run, args=(running,), name=name, daemon=True).start()
        return job

    def get(self, job_id: str) -> JobInfo:
        """Return a job, with its current progress.

        Raises:
            NotFound: there is no such job.
        """
        with self._lock:
            running = self._running.get(job_id)
        return self._records.get(job_id) if running is None else running.job

    def list_jobs(
        self, before: int | None, status: str | None, kind: str | None, limit: int
    ) -> list[JobInfo]:
        """Return jobs before a number, newest first."""
        # Before the records: the end of a job that is no longer among these is recorded.
        with self._lock:
            running = {job_id: entry.job for job_id, entry in self._running.items()}
        jobs = self._records.list_jobs(before, status, kind, limit)
        return [running.get(job.id, job) for job in jobs]

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job and wait for its end; a job that has ended stays as it is."""
        with self._lock:
            running = self._running.get(job_id)
        if running is not None:
            _interrupt(running)
            running.ended.wait(JOB_CANCEL_S)
        return self.get(job_id)

    def stop(self) -> None:
        """End every job, before the server stops: they are interrupted."""
        with self._lock:
            self._stopping = True
            running = list(self._running.values())
        for entry in running:
            _interrupt(entry)
        self.notifier.notify()
        for entry in running:
            entry.ended.wait(JOB_CANCEL_S)

    def is_stopping(self) -> bool:
        """Return True when the server stops."""
        return self._stopping

    # One job, in its thread

    def _run(self, running: _RunningJob) -> None:
        try:
            with self._places:
                self._record(running, *self._outcome(running))
        finally:
            with self._lock:
                del self._running[running.job.id]
            running.ended.set()
            self.notifier.notify([running.job.id])

    def _outcome(self, running: _RunningJob) -> tuple[str, JobOutcome]:
        job = running.job
        try:
            _check(running)
            started_at_ms = now_ms()
            self._records.start(job.id, started_at_ms)
            self._update(running, status="running", started_at_ms=started_at_ms)
            outcome = self._work(running)
        except _Cancelled:
            return "interrupted" if self._stopping else "cancelled", JobOutcome(None)
        except FourfoldError as error:
            return "failed", JobOutcome(None, job_error(redact_paths(error).as_dict()))
        except Exception as error:  # noqa: BLE001  (reported; the thread has no caller)
            # The record has no place for a traceback.
            _log.exception("Job %s failed", job.id)
            unexpected = FourfoldError(f"job {job.id} failed: {type(error).__name__}")
            return "failed", JobOutcome(None, job_error(unexpected.as_dict()))
        return "succeeded" if outcome.error is None else "failed", outcome

    def _work(self, running: _RunningJob) -> JobOutcome:
        work: Callable[[_RunningJob], JobOutcome]
        match running.body:
            case VerifyJob():
                work = self._verify
            case BackupJob():
                work = self._back_up
            case GcJob():
                work = self._collect
            case PublishJob():
                work = self._publish
            case CompactJob() | BuildIndexJob() | BuildCompanionsJob() as body:
                work = partial(self._maintain, _MAINTENANCE[type(body)])
            case SnapshotsJob():
                work = self._add_snapshots
            case LoadJob() as body:
                work = partial(self._load, body)
            case MaterializeJob():
                work = self._materialize
            case StatsJob() as body:
                work = partial(self._measure, body)
        return work(running)

    def _record(self, running: _RunningJob, status: str, outcome: JobOutcome) -> None:
        progress = running.job.progress
        done = progress.total if status == "succeeded" else progress.done
        end = {
            "status": status,
            "ended_at_ms": now_ms(),
            "progress": JobProgress(progress.label, done, progress.total),
            "result": outcome.result,
            "error": outcome.error,
        }
        # Recorded first: a client that sees the end finds the job among those with its status.
        self._records.end(msgspec.structs.replace(running.job, **end))
        self._update(running, **end)

    def _update(self, running: _RunningJob, **changes: Any) -> None:
        running.job = msgspec.structs.replace(running.job, **changes)
        self.notifier.notify([running.job.id])

    def _advance(self, running: _RunningJob, label: str, done: int, total: int) -> None:
        elapsed_ms = now_ms() - (running.job.started_at_ms or 0)
        running.rate.add(elapsed_ms, done)
        label = without_paths(label)
        running.stages.add(label, done, total, now_ms())
        progress = JobProgress(label, done, total, running.rate.to_wire())
        self._update(running, progress=progress, stages=running.stages.to_wire())

    def _verify(self, running: _RunningJob) -> JobOutcome:
        objects = ["--objects"] if running.job.options.get("objects") else []
        document, error = self._run_child(running, ["verify", *objects])
        if document is None:
            return JobOutcome(None, error)
        checked = document["checked"]
        problems = [without_paths(text) for check in checked for text in check["problems"]]
        result = {
            "ok": document["ok"],
            "checked": len(checked),
            "problem_count": len(problems),
            "problems": problems[:_PROBLEMS_MAX],
        }
        return JobOutcome(result, error)

    def _back_up(self, running: _RunningJob) -> JobOutcome:
        name = running.job.options["name"]
        command = ["backup", "--all"] if running.job.options.get("one_point") else ["backup"]
        self._backups.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            document, error = self._run_child(running, command, str(self._backups / name))
        except _Cancelled:
            shutil.rmtree(self._backups / f".{name}.partial", ignore_errors=True)
            raise
        if document is None:
            return JobOutcome(None, error)
        figures = {field: document[field] for field in ("databases", "files", "bytes", "at")}
        return JobOutcome({"name": name, **figures}, error)

    def _run_child(
        self, running: _RunningJob, command: list[str], *arguments: str
    ) -> tuple[dict[str, Any] | None, JobError | None]:
        """Run `fourfold COMMAND ROOT` and return its document and its error."""
        line = [sys.executable, "-m", "fourfold", *command, "--json", str(self._store.root)]
        environment = {**os.environ, "FOURFOLD_PROGRESS": "json"}
        environment[STARTED_BY] = started_by_job(running.job.id)
        error: JobError | None = None
        with tempfile.TemporaryFile() as output:
            with running.lock:
                _check(running)
                child = running.child = subprocess.Popen(
                    [*line, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.PIPE,
                    env=environment,
                    # Ctrl-C in the terminal of the server is not for its children.
                    start_new_session=True,
                )
            with child:
                assert child.stderr is not None
                for text in child.stderr:
                    error = self._read_line(running, text) or error
            _check(running)
            output.seek(0)
            text = output.read()
        document = msgspec.json.decode(text) if text else None
        if child.returncode and error is None:
            message = f"the process ended with code {child.returncode}"
            error = job_error(FourfoldError(message).as_dict())
        return document, error

    def _read_line(self, running: _RunningJob, text: bytes) -> JobError | None:
        """Handle a line of progress; return the error that a line contains."""
        try:
            line = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return None
        if "progress" in line:
            progress = line["progress"]
            self._advance(running, progress["label"], progress["done"], progress["total"])
            return None
        error = line.get("error")
        return None if error is None else job_error(error)

    def _materialize(self, running: _RunningJob) -> JobOutcome:
        options = running.job.options
        into = tables_folder(self._store.root) / options["model"]
        into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        full = ["--full"] if options.get("full") else []
        arguments = ("--model", options["model"], "--into", str(into), *full)
        return self._run_pipeline(running, "materialize", *arguments)

    def _measure(self, body: StatsJob, running: _RunningJob) -> JobOutcome:
        """Return the figures of a model, which a run of the pipeline computes."""
        return self._run_pipeline(running, "stats", "--model", body.model)

    def _run_pipeline(self, running: _RunningJob, job: str, *arguments: str) -> JobOutcome:
        """Run a job of the pipeline in a child process, beside the writers of this one."""
        document, error = self._run_child(running, ["pipeline", "run", job], *arguments)
        if document is None:
            return JobOutcome(None, error)
        result = {name: document[name] for name in _RUN_FIELDS}
        result["sentence"] = without_paths(document["sentence"])
        result["lines"] = [without_paths(line) for line in document["lines"]]
        figures = document["report"] if job == "stats" else {}
        return JobOutcome(figures | result, error)

    def _publish(self, running: _RunningJob) -> JobOutcome:
        """Publish in slices; each adds its restore point, so cancelling loses nothing."""
        from fourfold.store import publish  # noqa: PLC0415 - few stores publish

        databases = rows = segments = 0
        points: list[str] = []
        failures: dict[str, FourfoldError] = {}
        advance = partial(self._advance, running)
        reports = publish.iter_publish(
            self._store, PUBLISH_SLICE_DATABASES, advance, running.cancelled.is_set
        )
        try:
            for report in reports:
                databases += len(report.published)
                rows += sum(database.rows for database in report.published)
                segments += 0 if report.streams is None else report.streams.sealed
                points += [] if report.point is None else [report.point.id]
                failures |= report.failures
                _check(running)
        except ChildStopped:
            raise _Cancelled from None
        result = {"databases": databases, "rows": rows, "segments": segments, "points": points}
        return JobOutcome(result, _first_error(failures))

    def _maintain(
        self, work: Callable[[ArchiveJob], dict[str, Any]], running: _RunningJob
    ) -> JobOutcome:
        """Compact or index what is published, or build its companions."""
        job = ArchiveJob(
            self._store,
            partial(_check, running),
            running.cancelled.is_set,
            partial(self._advance, running),
        )
        return JobOutcome(work(job), _first_error(job.failures))

    def _add_snapshots(self, running: _RunningJob) -> JobOutcome:
        made = spaces = 0
        for space in self._iter_spaces(running):
            added = maintain(space, "all", ()).made
            made += added
            spaces += bool(added)
        return JobOutcome({"spaces": spaces, "snapshots": made})

    def _load(self, body: LoadJob, running: _RunningJob) -> JobOutcome:
        """Write an upload in slices; a load that is cancelled can be continued."""
        path = upload_path(uploads_folder(self._store.root), body.upload)
        target: load.LoadTarget
        match body.model:
            case "documents":
                open_space = partial(self._use_space, running, body.history or None)
                target = load.DocumentsTarget(body, open_space)
            case "streams":
                target = load.StreamTarget(body, self._store.streams)
            case "graphs":
                target = load.GraphsTarget(self._store.graphs)

        def advance(label: str, done: int, total: int) -> None:
            _check(running)
            self._advance(running, label, done, total)

        return JobOutcome(load.run_load(body, path, target, advance))

    @contextmanager
    def _use_space(self, running: _RunningJob, history: str | None, did: str) -> Iterator[Space]:
        """Open a space for a job, and create it if needed."""
        if not self._store.has_space(did):
            self._call(running, self._spaces.create(did, history))
        space = self._call(running, self._spaces.acquire(did))
        try:
            yield space
        finally:
            running.loop.call_soon_threadsafe(self._spaces.release, did)

    def _iter_spaces(self, running: _RunningJob, others: int = 0) -> Iterator[Space]:
        """Yield each space, opened for writing, as one step of a job; `others` follow them."""
        dids = self._store.spaces()
        for done, did in enumerate(dids):
            _check(running)
            self._advance(running, did, done, len(dids) + others)
            with self._use_space(running, None, did) as space:
                yield space
        _check(running)
        self._advance(running, "", len(dids), len(dids) + others)

    def _collect(self, running: _RunningJob) -> JobOutcome:
        """Collect the garbage of each space with a policy, and of the other models."""
        root = self._store.root
        others = [name for name in _COLLECTED if model(name).location.names(root)]
        collected = freed = 0
        for space in self._iter_spaces(running, len(others)):
            if space.gc_policy() is not None:
                freed += space.gc().bytes
                collected += 1
        total = running.job.progress.total
        result: dict[str, Any] = {"spaces": collected, "bytes": freed}
        for left, name in zip(range(len(others), 0, -1), others, strict=True):
            _check(running)
            self._advance(running, name, total - left, total)
            result[name] = msgspec.to_builtins(getattr(self._store, name).gc())
        self._advance(running, "", total, total)
        return JobOutcome(result)

    def _call(self, running: _RunningJob, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, running.loop).result(OPEN_SPACE_S)


def _interrupt(running: _RunningJob) -> None:
    """End the work of a job; its child is killed if it does not end."""
    with running.lock:
        running.cancelled.set()
        child = running.child
    if child is None or child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(JOB_CANCEL_S / 2)
    except subprocess.TimeoutExpired:
        child.kill()


def _check(running: _RunningJob) -> None:
    if running.cancelled.is_set():
        raise _Cancelled


def _first_error(failures: dict[str, FourfoldError]) -> JobError | None:
    return next((job_error(redact_paths(item).as_dict()) for item in failures.values()), None)


def job_error(error: dict[str, Any]) -> JobError:
    """Return an error of a job, as `FourfoldError.as_dict` describes it, without file paths."""
    return JobError(
        kind=error["kind"],
        message=without_paths(error["message"]),
        hint=without_paths(error.get("hint", "")),
        retryable=error.get("retryable", False),
    )

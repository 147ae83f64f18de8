"""Records of jobs, in `server.sqlite`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import FormatError, NotFound
from fourfold.kernel import Transaction
from fourfold.kernel.idempotency import IdempotentRequest, run_once
from fourfold.server.database import FILE_NAME, SQL, open_database, open_for_writing
from fourfold.wire.store import JobError, JobInfo, JobProgress

JOBS_RECORDED: Final = 1_000
"""Jobs that are recorded after they have ended."""
_NEWEST: Final = 2**63 - 1
_encode: Final = msgspec.json.encode


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class JobStore:
    """The recorded jobs of one store. The file is open only while it is read or written."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME

    def interrupt_unfinished(self) -> None:
        """Record that jobs without an end were interrupted; only for the server that starts."""
        if not self._path.exists():
            return
        try:
            with open_database(self._path, "r") as database, database.read() as snapshot:
                unfinished = snapshot.value(SQL.unfinished_jobs)
        except FormatError:
            # Written by an older version, without jobs.
            return
        if unfinished:
            self._write(lambda txn: txn.execute(SQL.interrupt_jobs, (now_ms(),)))

    def add(
        self, kind: str, options: dict[str, Any], request: IdempotentRequest | None
    ) -> tuple[JobInfo, bool]:
        """Record a new job; return it, and True if the same request was recorded before."""
        with open_for_writing(self._path) as database:

            def work() -> bytes:
                with database.write() as txn:
                    number = txn.value(SQL.add_job, (kind, _text(options), now_ms()))
                    txn.execute(SQL.expire_jobs, (JOBS_RECORDED,))
                return str(number).encode()

            if request is None:
                result, replayed = work(), False
            else:
                result, replayed = run_once(database, request, work)
        return self.get(result.decode()), replayed

    def start(self, job_id: str, started_at_ms: int) -> None:
        """Record that a job runs."""
        self._write(lambda txn: txn.execute(SQL.start_job, (int(job_id), started_at_ms)))

    def end(self, job: JobInfo) -> None:
        """Record the end of a job."""
        progress = job.progress
        row = (
            *(int(job.id), job.status, job.ended_at_ms),
            *(progress.label, progress.done, progress.total),
            None if job.result is None else _text(job.result),
            None if job.error is None else _text(job.error),
        )
        self._write(lambda txn: txn.execute(SQL.end_job, row))

    def get(self, job_id: str) -> JobInfo:
        """Return a job.

        Raises:
            NotFound: there is no such job.
        """
        is_number = job_id.isascii() and job_id.isdecimal() and len(job_id) < len(str(_NEWEST))
        rows = self._rows(SQL.job, (int(job_id),)) if is_number else []
        if not rows or rows[0].id != job_id:
            raise NotFound(f"unknown job {job_id!r:.80}")
        return rows[0]

    def list_jobs(
        self, before: int | None, status: str | None, kind: str | None, limit: int
    ) -> list[JobInfo]:
        """Return jobs before a number, newest first."""
        return self._rows(SQL.jobs, (_NEWEST if before is None else before, status, kind, limit))

    def _rows(self, sql: str, parameters: tuple[Any, ...]) -> list[JobInfo]:
        if not self._path.exists():
            return []
        try:
            database = open_database(self._path, "r")
        except FormatError:
            # An older version wrote it: a writer runs the migrations.
            with open_for_writing(self._path):
                database = open_database(self._path, "r")
        with database, database.read() as snapshot:
            return [_job(row) for row in snapshot.all(sql, parameters)]

    def _write(self, work: Any) -> None:
        def run(txn: Transaction) -> None:
            work(txn)

        with open_for_writing(self._path) as database:
            database.transact(run)


def _text(value: object) -> str:
    return _encode(value).decode()


def _job(row: tuple[Any, ...]) -> JobInfo:
    number, kind, options, status, created, started, ended, label, done, total, result, error = row
    return JobInfo(
        id=str(number),
        kind=kind,
        options=msgspec.json.decode(options),
        status=status,
        created_at_ms=created,
        started_at_ms=started,
        ended_at_ms=ended,
        progress=JobProgress(label, done, total),
        result=None if result is None else msgspec.json.decode(result),
        error=None if error is None else msgspec.json.decode(error, type=JobError),
    )

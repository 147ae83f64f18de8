"""The runs of pipeline jobs: rows of `databases/pipeline.sqlite`, a database of the store.

The pipeline writes them; the pipeline and the server read them. A run opens the database to read
the watermarks, to begin, and to end, never in between: the process that has it open for writing
excludes all others, and jobs run at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FormatError, WriterLocked
from fourfold.kernel import Database, holder, load_migrations, load_queries
from fourfold.retry import Retries
from fourfold.store import layout

JOB_RECORDS_WAIT_S: Final = 30.0
"""Maximum wait for another job that writes to the table of runs."""
NAME: Final = "pipeline"
_JOB: Final = "job "
_PACKAGE: Final = "fourfold.store.pipeline_runs"
SQL: Final = load_queries(_PACKAGE)
_MIGRATIONS: Final = load_migrations(_PACKAGE)


class Run(msgspec.Struct, frozen=True):
    """A row of the table of runs."""

    id: str
    job: str
    target: str
    work: str
    state: str
    options: dict[str, Any]
    input: dict[str, Any]
    output: str
    started_at: str
    finished_at: str | None
    duration_ms: int | None
    rows_in: int | None
    rows_out: int | None
    skipped: list[dict[str, str]]
    report: dict[str, Any]
    error: dict[str, Any] | None
    pid: int
    host: str
    version: str
    started_by: str = ""
    """`job` and the number of a job of the server; empty for a run of another process."""
    progress: dict[str, Any] | None = None
    """Stages and steps by interval of a run that has ended, as `RunProgress`."""


def database_path(root: str | Path) -> Path:
    """Return the path of the database."""
    return layout.database_path(Path(root), NAME)


@contextmanager
def open_for_writing(root: str | Path) -> Iterator[Database]:
    """Open the database for one write, waiting for another job that uses it."""
    retries = Retries.every(limits.JOB_RECORDS_POLL_S, on=WriterLocked, within_s=JOB_RECORDS_WAIT_S)
    path = database_path(root)
    with retries.run(lambda: Database.open(path, migrations=_MIGRATIONS)) as database:
        yield database


@contextmanager
def open_for_reading(root: str | Path) -> Iterator[Database | None]:
    """Open the database for one read; yields None before the first run."""
    path = database_path(root)
    if not path.exists():
        yield None
        return
    try:
        database = Database.open(path, migrations=_MIGRATIONS, mode="r")
    except FormatError:
        # The first job of this store may just be creating it, without a row yet.
        if holder(path) is not None:
            yield None
            return
        # An older version wrote it: a writer runs the migrations.
        with open_for_writing(root):
            database = Database.open(path, migrations=_MIGRATIONS, mode="r")
    with database:
        yield database


def history(
    root: str | Path,
    job: str | None = None,
    limit: int = limits.HISTORY_PAGE_ROWS,
    *,
    before: str | None = None,
    commands_only: bool = False,
    states: Sequence[str] | None = None,
) -> list[Run]:
    """Return the newest runs, newest first.

    Args:
        root: Folder of the store.
        job: Only runs of this job.
        limit: Maximum number of runs.
        before: Only runs older than the run of this id.
        commands_only: Leave out runs that a job of the server started.
        states: Only runs recorded in one of these states.
    """
    recorded = None if states is None else msgspec.json.encode(states).decode()
    return _read(root, SQL.history, (job, limit, before, commands_only, recorded))


def find(root: str | Path, run_id: str) -> Run | None:
    """Return a run by its id, or None."""
    return next(iter(_read(root, SQL.run, (run_id,))), None)


def find_of_job(root: str | Path, job_id: str, started_at: str) -> Run | None:
    """Return the run that a job of the server started at or after a time, or None."""
    return next(iter(_read(root, SQL.run_of_job, (started_by_job(job_id), started_at))), None)


def job_of(run: Run) -> str | None:
    """Return the id of the job of the server that started a run, or None."""
    return run.started_by.removeprefix(_JOB) if run.started_by.startswith(_JOB) else None


def started_by_job(job_id: str) -> str:
    """Return the value of `started_by` of runs of a job of the server."""
    return f"{_JOB}{job_id}"


def newest(root: str | Path) -> list[Run]:
    """Return the newest run of each job and target."""
    return _read(root, SQL.newest, ())


def _read(root: str | Path, sql: str, parameters: tuple[Any, ...]) -> list[Run]:
    with open_for_reading(root) as database:
        if database is None:
            return []
        with database.read() as snapshot:
            return [_run(row) for row in snapshot.all(sql, parameters)]


def _run(row: tuple[Any, ...]) -> Run:
    names = Run.__struct_fields__
    values = dict(zip(names, row, strict=True))
    for name in ("options", "input", "skipped", "report", "error", "progress"):
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name])
    return Run(**values)


def lock_file(root: Path, job: str, target: str) -> Path:
    """Return the file that the process of a run locks."""
    return layout.pipeline_folder(root) / "locks" / lock_name(job, target)


def lock_name(job: str, target: str) -> str:
    """Return a short name for a job and its target."""
    return f"{job}-{hashlib.sha256(target.encode()).hexdigest()[:12]}"


def is_running(root: str | Path, job: str, target: str) -> bool:
    """Return True while a process runs this job and target."""
    return holder(lock_file(Path(root).absolute(), job, target)) is not None


def current_state(root: str | Path, run: Run) -> str:
    """Return the state of a run; interrupted if its process has ended without recording that."""
    if run.state == "running" and not is_running(root, run.job, run.target):
        return "interrupted"
    return run.state

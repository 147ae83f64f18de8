"""The table of runs: the pipeline's own database in the store, `databases/pipeline.sqlite`.

A run opens it to read the watermarks, to begin, and to end, never in between: the process that has
it open for writing excludes all others, and jobs run at the same time. As an ordinary database of
the store, it is backed up, restored and verified with it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold._version import __version__
from fourfold.errors import FormatError, WriterLocked
from fourfold.kernel import Database, Transaction, holder, load_migrations, load_queries
from fourfold.pipeline.jobs.job import Plan, Report, SkippedFile
from fourfold.retry import Retries
from fourfold.store import layout

JOB_RECORDS_WAIT_S: Final = 30.0
"""Maximum wait for another job that writes to the table of runs."""
JOB_RANGES_KEPT: Final = 100
"""Input ranges listed in the row of a run; further ones are only counted."""

NAME = "pipeline"
_PACKAGE = "fourfold.pipeline.jobs"
_SQL = load_queries(_PACKAGE)
_MIGRATIONS = load_migrations(_PACKAGE)
_UNSUCCESSFUL = frozenset({"failed", "interrupted"})


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


class RunIdentity(NamedTuple):
    """The identity of a run while it runs."""

    run: str
    job: str
    target: str
    work: str


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
def _open_for_reading(root: str | Path) -> Iterator[Database | None]:
    path = database_path(root)
    if not path.exists():
        yield None
        return
    try:
        database = Database.open(path, migrations=_MIGRATIONS, mode="r")
    except FormatError:
        # The first job of this store may just be creating it, without a row yet.
        if holder(path) is None:
            raise
        yield None
        return
    with database:
        yield database


def watermarks(root: str | Path, job: str, target: str) -> dict[str, int]:
    """Return the position that the job has reached in each input of the target."""
    with _open_for_reading(root) as database:
        if database is None:
            return {}
        with database.read() as snapshot:
            return dict(snapshot.all(_SQL.watermarks, (job, target)))


def history(
    root: str | Path, job: str | None = None, limit: int = limits.HISTORY_PAGE_ROWS
) -> list[Run]:
    """Return the newest runs, newest first."""
    with _open_for_reading(root) as database:
        if database is None:
            return []
        with database.read() as snapshot:
            return [_run(row) for row in snapshot.all(_SQL.history, (job, limit))]


def newest(root: str | Path) -> list[Run]:
    """Return the newest run of each job and target."""
    with _open_for_reading(root) as database:
        if database is None:
            return []
        with database.read() as snapshot:
            return [_run(row) for row in snapshot.all(_SQL.newest)]


def _mark_killed(txn: Transaction, job: str, target: str) -> None:
    for run, pid, host in txn.all(_SQL.unfinished, (job, target)):
        error = {
            "kind": "interrupted",
            "message": f"process {pid} on {host} ended without a result",
        }
        txn.execute(_SQL.interrupt, (run, _now(), _json(error)))


def begin(
    root: Path, identity: RunIdentity, plan: Plan | None, options: Mapping[str, Any]
) -> tuple[RunIdentity, dict[str, Any]]:
    """Insert the row of a run, and mark killed runs. `plan` is None if planning failed.

    If the newest run was killed or failed and had the same plan, its work is resumed: the result
    has the id of that work, and its completed steps.

    The caller holds the lock of the job and target, so any run still listed as running is dead.
    """
    with open_for_writing(root) as database, database.write() as txn:
        _mark_killed(txn, identity.job, identity.target)
        steps: dict[str, Any] = {}
        if plan is not None:
            work, steps = _resumed_work(txn, identity, plan)
            identity = identity._replace(work=work)
        row = (
            identity.run,
            identity.job,
            identity.target,
            identity.work,
            "" if plan is None else plan.key,
            _json(options),
            _json({} if plan is None else plan.summary(JOB_RANGES_KEPT)),
            "" if plan is None else plan.output,
            _now(),
            os.getpid(),
            socket.gethostname(),
            __version__,
        )
        txn.execute(_SQL.begin_run, row)
    return identity, steps


def _resumed_work(
    txn: Transaction, identity: RunIdentity, plan: Plan
) -> tuple[str, dict[str, Any]]:
    """Return the id and the steps of the work to continue; that of the new run if there is none."""
    last = txn.one(_SQL.last_end, (identity.job, identity.target))
    if last is None:
        return identity.work, {}
    work, key, state = last
    if state not in _UNSUCCESSFUL:
        return identity.work, {}
    if key != plan.key:
        # The inputs have changed, so the partial work cannot be used.
        txn.execute(_SQL.delete_steps, (work,))
        return identity.work, {}
    return work, {name: msgspec.json.decode(data) for name, data in txn.all(_SQL.steps, (work,))}


def save_step(root: Path, work: str, name: str, data: Any) -> None:
    """Store a completed step of some work."""
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(_SQL.save_step, (work, name, _json(data)))


def end(
    root: Path,
    identity: RunIdentity,
    state: str,
    duration_s: float,
    *,
    report: Report | None = None,
    skipped: list[SkippedFile] | None = None,
    error: Mapping[str, Any] | None = None,
    reached: Plan | None = None,
) -> None:
    """Record the end of a run. With `reached`, the same transaction raises the watermarks and
    deletes the steps.
    """
    figures = report or Report()
    row = (
        identity.run,
        state,
        _now(),
        round(duration_s * 1000),
        figures.rows_in if report else None,
        figures.rows_out if report else None,
        figures.output,
        _json(skipped or []),
        _json(figures.facts),
        None if error is None else _json(error),
    )
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(_SQL.end_run, row)
        if reached is not None:
            skipped_sources = {file.source for file in skipped or []}
            rows = [
                (identity.job, identity.target, range_.source, range_.upto)
                for range_ in reached.ranges
                if range_.source not in skipped_sources
            ]
            if rows:
                txn.execute_many(_SQL.raise_watermark, rows)
            txn.execute(_SQL.delete_steps, (identity.work,))


def delete_watermarks(root: str | Path, job: str, target: str) -> None:
    """Delete the watermarks, so that the next run reads every input from the start."""
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(_SQL.delete_watermarks, (job, target))


def _run(row: tuple[Any, ...]) -> Run:
    names = Run.__struct_fields__
    values = dict(zip(names, row, strict=True))
    for name in ("options", "input", "skipped", "report", "error"):
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name])
    return Run(**values)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"

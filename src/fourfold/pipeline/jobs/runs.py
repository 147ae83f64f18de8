"""Records of runs: their begin, their steps and their end, with the watermarks of their inputs.

The table of runs is in the pipeline's own database in the store, `fourfold.store.pipeline_runs`. As
an ordinary database of the store, it is backed up, restored and verified with it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold._version import __version__
from fourfold.kernel import Transaction
from fourfold.pipeline.jobs.job import Plan, Report, SkippedFile
from fourfold.store.job_progress import STARTED_BY, RunProgress
from fourfold.store.pipeline_runs import SQL, open_for_reading, open_for_writing

JOB_RANGES_KEPT: Final = 100
"""Input ranges listed in the row of a run; further ones are only counted."""

_UNSUCCESSFUL = frozenset({"failed", "interrupted"})


class RunIdentity(NamedTuple):
    """The identity of a run while it runs."""

    run: str
    job: str
    target: str
    work: str


def watermarks(root: str | Path, job: str, target: str) -> dict[str, int]:
    """Return the position that the job has reached in each input of the target."""
    with open_for_reading(root) as database:
        if database is None:
            return {}
        with database.read() as snapshot:
            return dict(snapshot.all(SQL.watermarks, (job, target)))


def _mark_killed(txn: Transaction, job: str, target: str) -> None:
    for run, pid, host in txn.all(SQL.unfinished, (job, target)):
        error = {
            "kind": "interrupted",
            "message": f"process {pid} on {host} ended without a result",
        }
        txn.execute(SQL.interrupt, (run, _now(), _json(error)))


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
            os.environ.get(STARTED_BY, ""),
        )
        txn.execute(SQL.begin_run, row)
    return identity, steps


def _resumed_work(
    txn: Transaction, identity: RunIdentity, plan: Plan
) -> tuple[str, dict[str, Any]]:
    """Return the id and the steps of the work to continue; that of the new run if there is none."""
    last = txn.one(SQL.last_end, (identity.job, identity.target))
    if last is None:
        return identity.work, {}
    work, key, state = last
    if state not in _UNSUCCESSFUL:
        return identity.work, {}
    if key != plan.key:
        # The inputs have changed, so the partial work cannot be used.
        txn.execute(SQL.delete_steps, (work,))
        return identity.work, {}
    return work, {name: msgspec.json.decode(data) for name, data in txn.all(SQL.steps, (work,))}


def save_step(root: Path, work: str, name: str, data: Any) -> None:
    """Store a completed step of some work."""
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(SQL.save_step, (work, name, _json(data)))


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
    progress: RunProgress | None = None,
) -> None:
    """Record the end of a run and its stages. With `reached`, the same transaction raises the
    watermarks and deletes the steps.
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
        None if progress is None else _json(progress),
    )
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(SQL.end_run, row)
        if reached is not None:
            skipped_sources = {file.source for file in skipped or []}
            rows = [
                (identity.job, identity.target, range_.watermark, range_.upto)
                for range_ in reached.ranges
                if range_.source not in skipped_sources
            ]
            if rows:
                txn.execute_many(SQL.raise_watermark, rows)
            txn.execute(SQL.delete_steps, (identity.work,))


def delete_watermarks(root: str | Path, job: str, target: str) -> None:
    """Delete the watermarks, so that the next run reads every input from the start."""
    with open_for_writing(root) as database, database.write() as txn:
        txn.execute(SQL.delete_watermarks, (job, target))


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"

"""All jobs of a store: those of this server, and runs of the pipeline by other processes.

A run that a job of the server started is shown as that job. The id of any other run is that of the
run; only the process that runs it can cancel it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import FourfoldError, InvalidInput, NotFound, Refused
from fourfold.server.errors import without_paths
from fourfold.server.jobs import Jobs, job_error
from fourfold.store import pipeline_runs
from fourfold.store.job_progress import RunProgress, read_progress
from fourfold.store.pipeline_runs import Run
from fourfold.wire.store import JobInfo, JobInput, JobProgress, JobRun, JobStatus

INPUTS_MAX: Final = 100
_RUNS_READ: Final = 100
_ON_PIPELINE: Final = frozenset({"materialize", "stats"})
"""Kinds of jobs that run on the pipeline, in a process of their own."""
_STATUS: Final[dict[str, JobStatus]] = {
    "running": "running",
    "done": "succeeded",
    "nothing": "succeeded",
    "failed": "failed",
    "interrupted": "interrupted",
}


class JobList:
    """Jobs of one server and runs of its store, as one list."""

    def __init__(self, jobs: Jobs, root: Path) -> None:
        self._jobs = jobs
        self._root = root

    def get(self, job_id: str) -> JobInfo:
        """Return a job with its progress, and with its run on the pipeline.

        Raises:
            NotFound: there is no such job.
        """
        if not is_run(job_id):
            job = self._jobs.get(job_id)
            run = self._run_of(job)
            return job if run is None else msgspec.structs.replace(job, run=_details(run))
        run = pipeline_runs.find(self._root, job_id)
        if run is None:
            raise NotFound(f"unknown job {job_id!r:.80}")
        return msgspec.structs.replace(self._job(run), run=_details(run))

    def _run_of(self, job: JobInfo) -> Run | None:
        if job.kind not in _ON_PIPELINE or job.started_at_ms is None:
            return None
        started_at = datetime.fromtimestamp(job.started_at_ms / 1000, UTC).replace(tzinfo=None)
        # What a job shows of its run is additional, and being written as the first one begins.
        with suppress(FourfoldError):
            return pipeline_runs.find_of_job(
                self._root, job.id, started_at.isoformat(timespec="milliseconds") + "Z"
            )
        return None

    def page(
        self, position: str, status: str | None, kind: str | None, limit: int
    ) -> tuple[list[JobInfo], str | None]:
        """Return a page of jobs after a position, newest first, and the position after it."""
        before_job, before_run = _parse_position(position)
        jobs = self._jobs.list_jobs(before_job, status, kind, limit + 1)
        runs: list[JobInfo] = []
        for run in self._iter_runs(kind, status, before_run):
            job = self._job(run)
            if status in {None, job.status}:
                runs.append(job)
            if len(runs) > limit:
                break
        merged = sorted(jobs + runs, key=lambda job: job.created_at_ms, reverse=True)
        page = merged[:limit]
        if len(merged) <= limit:
            return page, None
        last_job = next((job.id for job in reversed(page) if not is_run(job.id)), None)
        last_run = next((job.id for job in reversed(page) if is_run(job.id)), before_run)
        number = before_job if last_job is None else int(last_job)
        return page, f"{'' if number is None else number}/{last_run or ''}"

    def _iter_runs(self, kind: str | None, status: str | None, before: str | None) -> Iterator[Run]:
        # A run that was killed is recorded as running.
        states = [state for state, mapped in _STATUS.items() if mapped == status]
        recorded = [*states, "running"] if status == "interrupted" else states
        while True:
            runs = pipeline_runs.history(
                *(self._root, kind, _RUNS_READ),
                before=before,
                commands_only=True,
                states=None if status is None else recorded,
            )
            yield from runs
            if len(runs) < _RUNS_READ:
                return
            before = runs[-1].id

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job of this server and wait for its end.

        Raises:
            NotFound: there is no such job.
            Refused: another process runs it.
        """
        if not is_run(job_id):
            return self._jobs.cancel(job_id)
        job = self.get(job_id)
        if job.status == "running" and job.run is not None:
            raise Refused(
                f"job {job_id!r}: it is run by {job.run.process}, not by this server",
                hint="Interrupt that process; the next run continues its work.",
            )
        return job

    def _job(self, run: Run) -> JobInfo:
        """Return a run as a job."""
        state = pipeline_runs.current_state(self._root, run)
        recorded = _recorded(run) or read_progress(self._root, run.id)
        progress = JobProgress() if recorded is None else recorded.progress
        if _STATUS[state] == "succeeded" and progress.total:
            progress = msgspec.structs.replace(progress, done=progress.total)
        started_at_ms = to_ms(run.started_at)
        result = None
        if state in {"done", "nothing"}:
            figures = {name: value for name, value in run.report.items() if _is_figure(value)}
            result = {"outcome": state, "rows_in": run.rows_in, "rows_out": run.rows_out} | figures
        return JobInfo(
            id=run.id,
            kind=run.job,
            options=_options(run),
            status=_STATUS[state],
            created_at_ms=started_at_ms,
            started_at_ms=started_at_ms,
            ended_at_ms=None if run.finished_at is None else to_ms(run.finished_at),
            progress=progress,
            result=result,
            error=None if run.error is None else job_error(run.error),
            started_by="command",
            stages=[] if recorded is None else recorded.stages,
        )


def is_run(job_id: str) -> bool:
    """Return True for the id of a run; those of jobs of the server are numbers."""
    return not job_id.isdecimal()


def to_ms(text: str) -> int:
    """Return a recorded time in milliseconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _parse_position(position: str) -> tuple[int | None, str | None]:
    job, _, run = position.partition("/")
    if job and not job.isdecimal():
        raise InvalidInput("cursor: must be the next_cursor of a page of this list")
    return int(job) if job else None, run or None


def _recorded(run: Run) -> RunProgress | None:
    if run.progress is None:
        return None
    try:
        return msgspec.convert(run.progress, RunProgress)
    except msgspec.ValidationError:
        # A newer version may record more.
        return None


def _is_figure(value: object) -> bool:
    return isinstance(value, bool | int | float | str)


def _options(run: Run) -> dict[str, Any]:
    """Return the options of a run that were given, with the names of files instead of paths."""
    return {
        name: [_name(item) for item in value] if isinstance(value, list) else _name(value)
        for name, value in run.options.items()
        if value not in (None, "", False, [])
    }


def _name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return Path(value).name if value.startswith("/") else without_paths(value)


def _details(run: Run) -> JobRun:
    return JobRun(
        id=run.id,
        process=f"process {run.pid} on {run.host}",
        version=run.version,
        output=Path(run.output).name,
        input_count=run.input.get("sources", 0),
        inputs=[
            JobInput(name=without_paths(entry["source"]), after=entry["after"], until=entry["upto"])
            for entry in run.input.get("ranges", [])[:INPUTS_MAX]
        ],
        skipped=[
            without_paths(f"{entry['source']}: {entry['problem']}")
            for entry in run.skipped[:INPUTS_MAX]
        ],
        resumed=not run.work.endswith(run.id),
    )

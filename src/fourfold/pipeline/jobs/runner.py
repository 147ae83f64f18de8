"""Run jobs: one at a time for a job and target, each recorded, resumable after a kill.

A run holds an `flock` for its job and target, which the operating system releases when the process
ends. The holder knows that every other run that is still listed as running was killed; it marks it
so, and resumes its work if the plan is still the same.

The built-in jobs are listed here by module, each of which names its job `job`; they are imported on
first use. A model adds its jobs to `MODULES`, a user calls `register`.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import settings
from fourfold.errors import AlreadyExists, FourfoldError, InvalidInput, NotFound, WriterLocked
from fourfold.kernel.lock import WriterLock, holder
from fourfold.pipeline.jobs import runs
from fourfold.pipeline.jobs.job import (
    Advance,
    Context,
    Job,
    Option,
    Plan,
    Report,
    pluralize,
    silent,
)
from fourfold.pipeline.jobs.runs import Begun
from fourfold.pipeline.scratch import pipeline_folder, staging_folder
from fourfold.pipeline.spark import unwrap_error
from fourfold.store import open_store

MODULES: Final = (
    "fourfold.pipeline.jobs.bootstrap",
    "fourfold.pipeline.jobs.compact",
    "fourfold.pipeline.jobs.components",
    "fourfold.pipeline.jobs.delta_streams",
    "fourfold.pipeline.jobs.gc",
    "fourfold.pipeline.jobs.index",
    "fourfold.pipeline.jobs.lineage",
    "fourfold.pipeline.jobs.load",
    "fourfold.pipeline.jobs.materialize",
    "fourfold.pipeline.jobs.seal",
    "fourfold.pipeline.jobs.snapshots",
    "fourfold.pipeline.jobs.stats",
    "fourfold.pipeline.jobs.verify",
)

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_added: dict[str, Job] = {}


def register(job: Job) -> Job:
    """Register your own job under its name."""
    if not _NAME.fullmatch(job.name):
        raise InvalidInput(f"invalid job name {job.name!r}", hint="Use a name such as my-job.")
    if job.name in all_jobs():
        raise AlreadyExists(f"job {job.name!r} already exists")
    _added[job.name] = job
    return job


def unregister(name: str) -> None:
    """Remove a job of your own."""
    _added.pop(name, None)


def all_jobs() -> dict[str, Job]:
    """Return all jobs by name, sorted by name."""
    own: list[Job] = [importlib.import_module(module).job for module in MODULES]
    return {job.name: job for job in sorted([*own, *_added.values()], key=lambda job: job.name)}


def find(name: str) -> Job:
    """Return a job by name."""
    jobs = all_jobs()
    if name not in jobs:
        raise NotFound(f"unknown job {name!r}", hint=f"Jobs: {', '.join(jobs)}.")
    return jobs[name]


class RunReport(msgspec.Struct, frozen=True):
    """The outcome of a run: "done", "nothing" (nothing to do) or "planned" (a dry run)."""

    job: str
    target: str
    input: dict[str, Any]
    output: str
    rows_in: int
    rows_out: int
    duration_s: float
    skipped: list[dict[str, str]]
    report: dict[str, Any]
    sentence: str
    lines: list[str] = []
    outcome: str = "planned"
    run: str | None = None
    resumed: bool = False


def run(
    job: Job | str,
    root: str | Path,
    options: Mapping[str, Any] | None = None,
    *,
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    dry_run: bool = False,
    skip_bad: bool = False,
    progress: Advance = silent,
) -> RunReport:
    """Run a job over the store in `root`.

    Spark is started only if the job needs it: on `master`, at `remote`, or as the given `spark`. A
    dry run plans and writes nothing, not even a row in the table of runs.
    """
    job = find(job) if isinstance(job, str) else job
    folder = Path(root).absolute()
    checked = checked_options(job, options or {})
    if not (folder / settings.FILE_NAME).exists():
        if not job.makes_store or dry_run:
            raise NotFound(f"{folder}: not a Fourfold store (no {settings.FILE_NAME})")
        open_store(folder).close()
    with _sessions(spark, master, remote) as open_session:
        context = Context(
            root=folder,
            options=checked,
            watermark={},
            work="",
            open_session=open_session,
            skip_bad=skip_bad,
            dry_run=dry_run,
            advance=progress,
        )
        target = job.target(context)
        if dry_run:
            return _planned(job, target, context)
        with _locked(folder, job.name, target):
            return _run_locked(job, target, context)


def _planned(job: Job, target: str, context: Context) -> RunReport:
    started = time.monotonic()
    context.watermark = runs.watermarks(context.root, job.name, target)
    plan = _unwrapped(lambda: job.plan(context))
    positions = pluralize(plan.summary()["positions"], "position")
    inputs = f"{positions} of {pluralize(len(plan.ranges), 'input')}"
    sentence = "nothing to do" if plan.empty else f"would read {inputs} and write {plan.output}"
    report = Report(facts=plan.facts, sentence=sentence)
    return _done(job, target, plan, report, context, time.monotonic() - started)


def _run_locked(job: Job, target: str, context: Context) -> RunReport:
    root, started = context.root, time.monotonic()
    runs.prepare(root)
    context.watermark = runs.watermarks(root, job.name, target)
    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    prefix = _prefix(job.name, target)
    context.work = f"{prefix}{run_id}"
    begun = Begun(run_id, job.name, target, context.work)
    plan = _planned_or_recorded(job, begun, context, started)
    resumed_work, steps = runs.resume(root, job.name, target, plan)
    context.work, context.finished = resumed_work or context.work, steps
    context.keep_step = lambda name, data: runs.keep_step(root, context.work, name, data)
    begun = begun._replace(work=context.work)
    _sweep(root, prefix, context.work)
    runs.begin(root, begun, plan, context.options)
    try:
        if plan.empty:
            report, state = Report(sentence="nothing to do"), "nothing"
        else:
            result = _unwrapped(lambda: job.run(context, plan))
            report, state = _unwrapped(lambda: job.commit(context, plan, result)), "done"
    except BaseException as error:
        _record_failure(begun, time.monotonic() - started, error, context)
        raise
    took = time.monotonic() - started
    runs.end(root, begun, state, took, report=report, skipped=context.skipped, reached=plan)
    _sweep(root, prefix, "")
    done = _done(job, target, plan, report, context, took)
    return msgspec.structs.replace(
        done, run=run_id, outcome=state, resumed=resumed_work is not None
    )


def _planned_or_recorded(job: Job, begun: Begun, context: Context, started: float) -> Plan:
    """Return the plan; a failure to plan is recorded too."""
    try:
        plan: Plan = _unwrapped(lambda: job.plan(context))
    except BaseException as error:
        runs.begin(context.root, begun, None, context.options)
        _record_failure(begun, time.monotonic() - started, error, context)
        raise
    return plan


def _record_failure(
    begun: Begun, duration_s: float, error: BaseException, context: Context
) -> None:
    state = "failed" if isinstance(error, Exception) else "interrupted"
    details: dict[str, Any]
    if isinstance(error, FourfoldError):
        details = error.as_dict()
    else:
        details = {"kind": "internal", "message": f"{type(error).__name__}: {error}"}
    # The caller must see the job's own error, even if the disk is full.
    with suppress(FourfoldError):
        runs.end(context.root, begun, state, duration_s, skipped=context.skipped, error=details)


def _unwrapped(call: Callable[[], Any]) -> Any:
    """Call, and convert an error that crossed Spark back into the original."""
    try:
        return call()
    except Exception as error:
        cause = unwrap_error(error)
        if cause is error:
            raise
        raise cause from error


def _done(  # noqa: PLR0917
    job: Job, target: str, plan: Plan, report: Report, context: Context, took: float
) -> RunReport:
    return RunReport(
        job=job.name,
        target=target,
        input=plan.summary(),
        output=report.output or plan.output,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        duration_s=round(took, 3),
        skipped=[msgspec.to_builtins(file) for file in context.skipped],
        report=dict(report.facts),
        sentence=job.report(report),
        lines=list(report.lines),
    )


def checked_options(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with defaults; raise InvalidInput if one is unknown or missing."""
    by_key = {option.key: option for option in job.options}
    for name in given:
        if name not in by_key:
            raise InvalidInput(
                f"job {job.name!r}: unknown option {name!r}",
                hint=f"Options: {', '.join(by_key) or 'none'}.",
            )
    return {key: _checked(job, option, given.get(key)) for key, option in by_key.items()}


def _checked(job: Job, option: Option, value: Any) -> Any:
    if value is None or (option.many and not value):
        if option.required:
            raise InvalidInput(
                f"job {job.name!r}: option --{option.name} is required",
                hint=option.help,
            )
        return list(option.default or ()) if option.many else option.default
    if option.choices and value not in option.choices:
        raise InvalidInput(
            f"--{option.name} must be one of {', '.join(option.choices)}, got {value!r}",
        )
    if option.kind == "path":
        for path in value if option.many else (value,):
            if "://" in str(path):
                raise InvalidInput(
                    f"--{option.name} must be a path on this machine, got {str(path)!r}",
                    hint="Write to a local folder, and copy it to the object store.",
                )
    return [str(item) for item in value] if option.many else value


def is_running(root: str | Path, job: str, target: str) -> bool:
    """Return True while a process runs this job and target."""
    return holder(_lock_file(Path(root).absolute(), job, target)) is not None


@contextmanager
def _locked(root: Path, job: str, target: str) -> Iterator[None]:
    path = _lock_file(root, job, target)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = WriterLock(path)
    except WriterLocked as error:
        owner = holder(path) or {}
        raise WriterLocked(
            f"job {job!r} is already running on {target or root}: "
            f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}",
            hint=f"Wait for it; `fourfold pipeline status {root}` shows its status.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _lock_file(root: Path, job: str, target: str) -> Path:
    return pipeline_folder(root) / "locks" / _prefix(job, target).rstrip("-")


def _prefix(job: str, target: str) -> str:
    return f"{job}-{hashlib.sha256(target.encode()).hexdigest()[:12]}-"


def _sweep(root: Path, prefix: str, keep: str) -> None:
    """Remove the staging folders of earlier work for this job and target."""
    staging = staging_folder(root)
    pattern = re.compile(re.escape(prefix) + r"\d{8}T\d{6}-[0-9a-f]{8}")
    if staging.is_dir():
        for folder in staging.iterdir():
            if folder.name != keep and pattern.fullmatch(folder.name):
                shutil.rmtree(folder)


@contextmanager
def _sessions(spark: Any, master: str | None, remote: str | None) -> Iterator[Callable[[], Any]]:
    """Yield a function that opens a session; one that was started here is stopped at the end."""
    started: list[Any] = []

    def open_session() -> Any:
        if spark is not None:
            return spark
        from fourfold.pipeline.spark import running, session  # noqa: PLC0415 - as Spark needs it

        before = running()
        opened = session(master=master, remote=remote, quiet=True)
        # A session of the caller, in any thread, is not stopped here.
        if before is None:
            started.append(opened)
        return opened

    try:
        yield open_session
    finally:
        for opened in started:
            opened.stop()

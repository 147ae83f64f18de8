"""Run jobs: one at a time for a job and target, each recorded, resumable after a kill.

A run holds an `flock` for its job and target, which the operating system releases when the process
ends. The holder knows that every other run that is still listed as running was killed; it marks it
so, and resumes its work if the plan is still the same.

Jobs that several models support are listed here, those of one model in its `PipelineModel`; each
names a module whose `job` is the job, imported when it is needed. A user calls `register`.
"""

from __future__ import annotations

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
    Context,
    Job,
    Option,
    Plan,
    Progress,
    Report,
    ignore_progress,
    pluralize,
)
from fourfold.pipeline.jobs.runs import RunIdentity
from fourfold.pipeline.models import list_models
from fourfold.pipeline.scratch import staging_folder
from fourfold.pipeline.spark import unwrap_error
from fourfold.store import open_store
from fourfold.store.job_progress import ProgressFile, RunProgress
from fourfold.store.pipeline_runs import lock_file, lock_name

SHARED_JOBS: Final = {
    "gc": "fourfold.pipeline.jobs.gc",
    "load": "fourfold.pipeline.jobs.load",
    "materialize": "fourfold.pipeline.jobs.materialize",
    "stats": "fourfold.pipeline.jobs.stats",
    "verify": "fourfold.pipeline.jobs.verify",
}
"""The modules of the jobs that several models support, by name."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_added: dict[str, Job] = {}


def register(job: Job) -> Job:
    """Register your own job under its name."""
    if not _NAME.fullmatch(job.name):
        raise InvalidInput(f"invalid job name {job.name!r}", hint="Use a name such as my-job.")
    if job.name in job_names():
        raise AlreadyExists(f"job {job.name!r} already exists")
    _added[job.name] = job
    return job


def unregister(name: str) -> None:
    """Remove a job of your own."""
    _added.pop(name, None)


def job_names() -> tuple[str, ...]:
    """Return the names of all jobs, sorted, without importing them."""
    return tuple(sorted({*_modules(), *_added}))


def get_job(name: str) -> Job:
    """Import and return a job by name, or raise NotFound."""
    if name in _added:
        return _added[name]
    module = _modules().get(name)
    if module is None:
        raise NotFound(f"unknown job {name!r}", hint=f"Jobs: {', '.join(job_names())}.")
    job: Job = importlib.import_module(module).job
    return job


def all_jobs() -> dict[str, Job]:
    """Import all jobs, and return them by name, sorted by name."""
    return {name: get_job(name) for name in job_names()}


def _modules() -> dict[str, str]:
    modules = dict(SHARED_JOBS)
    for model in list_models():
        modules |= model.jobs
    return modules


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
    progress: Progress = ignore_progress,
) -> RunReport:
    """Run a job over the store in `root`.

    Spark is started only if the job needs it: on `master`, at `remote`, or as the given `spark`. A
    dry run plans and writes nothing, not even a row in the table of runs.
    """
    job = get_job(job) if isinstance(job, str) else job
    folder = Path(root).absolute()
    checked = resolve_options(job, options or {})
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
            return _plan_only(job, target, context)
        with _locked(folder, job.name, target):
            return _run_locked(job, target, context)


def _plan_only(job: Job, target: str, context: Context) -> RunReport:
    started = time.monotonic()
    context.watermark = runs.watermarks(context.root, job.name, target)
    plan = _call_unwrapped(lambda: job.plan(context))
    positions = pluralize(plan.summary()["positions"], "position")
    inputs = f"{positions} of {pluralize(len(plan.ranges), 'input')}"
    sentence = "nothing to do" if plan.empty else f"would read {inputs} and write {plan.output}"
    report = Report(facts=plan.facts, sentence=sentence)
    return _report_of(job, target, plan, report, context, time.monotonic() - started)


def _run_locked(job: Job, target: str, context: Context) -> RunReport:
    root, started = context.root, time.monotonic()
    context.watermark = runs.watermarks(root, job.name, target)
    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    prefix = f"{lock_name(job.name, target)}-"
    context.work = f"{prefix}{run_id}"
    identity = RunIdentity(run_id, job.name, target, context.work)
    plan = _plan_or_record(job, identity, context, started)
    identity, steps = runs.begin(root, identity, plan, context.options)
    resumed = identity.work != context.work
    context.work, context.finished = identity.work, steps
    record, report_to_caller = ProgressFile(root, run_id), context.advance

    def advance(label: str, done: int, total: int) -> None:
        record.advance(label, done, total)
        report_to_caller(label, done, total)

    context.advance = advance
    context.save_step = lambda name, data: runs.save_step(root, identity.work, name, data)
    _sweep(root, prefix, identity.work)
    try:
        if plan.empty:
            report, state = Report(sentence="nothing to do"), "nothing"
        else:
            record.advance("starting", 0, 0)
            result = _call_unwrapped(lambda: job.run(context, plan))
            record.advance("committing", 0, 0)
            report, state = _call_unwrapped(lambda: job.commit(context, plan, result)), "done"
    except BaseException as error:
        _record_failure(identity, time.monotonic() - started, error, context, record.end())
        raise
    took = time.monotonic() - started
    runs.end(
        *(root, identity, state, took),
        report=report,
        skipped=context.skipped,
        reached=plan,
        progress=record.end(),
    )
    _sweep(root, prefix, "")
    done = _report_of(job, target, plan, report, context, took)
    return msgspec.structs.replace(done, run=run_id, outcome=state, resumed=resumed)


def _plan_or_record(job: Job, identity: RunIdentity, context: Context, started: float) -> Plan:
    """Return the plan; a failure to plan is recorded too."""
    try:
        plan: Plan = _call_unwrapped(lambda: job.plan(context))
    except BaseException as error:
        runs.begin(context.root, identity, None, context.options)
        _record_failure(identity, time.monotonic() - started, error, context)
        raise
    return plan


def _record_failure(
    identity: RunIdentity,
    duration_s: float,
    error: BaseException,
    context: Context,
    progress: RunProgress | None = None,
) -> None:
    state = "failed" if isinstance(error, Exception) else "interrupted"
    details: dict[str, Any]
    if isinstance(error, FourfoldError):
        details = error.as_dict()
    else:
        details = {"kind": "internal", "message": f"{type(error).__name__}: {error}"}
    # The caller must see the job's own error, even if the disk is full.
    with suppress(FourfoldError):
        runs.end(
            *(context.root, identity, state, duration_s),
            skipped=context.skipped,
            error=details,
            progress=progress,
        )


def _call_unwrapped(call: Callable[[], Any]) -> Any:
    """Call, and convert an error that crossed Spark back into the original."""
    try:
        return call()
    except Exception as error:
        cause = unwrap_error(error)
        if cause is error:
            raise
        raise cause from error


def _report_of(  # noqa: PLR0917
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


def resolve_options(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with defaults; raise InvalidInput if one is unknown or missing."""
    by_key = {option.key: option for option in job.options}
    for name in given:
        if name not in by_key:
            raise InvalidInput(
                f"job {job.name!r}: unknown option {name!r}",
                hint=f"Options: {', '.join(by_key) or 'none'}.",
            )
    return {key: _resolve_option(job, option, given.get(key)) for key, option in by_key.items()}


def _resolve_option(job: Job, option: Option, value: Any) -> Any:
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


@contextmanager
def _locked(root: Path, job: str, target: str) -> Iterator[None]:
    path = lock_file(root, job, target)
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

"""Runs jobs: one at a time for a job and target, each leaving its row, none losing its way.

A run holds an `flock` for its job and target, which the operating system frees when the process
ends, however it ends. Whoever holds it knows that every other run that is still listed as running
was killed, marks it so, and takes up its work where the plan has stayed the same.

Which jobs there are.

The jobs that come with Fourfold are named here by their modules, each of which calls its job `job`;
they are imported when somebody asks. A model adds its jobs to `MODULES`, a user calls `register`.
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
from fourfold.pipeline.jobs.job import Advance, Context, Job, Option, Plan, Report, counted, silent
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
    """Make a job of your own known by its name."""
    if not _NAME.fullmatch(job.name):
        raise InvalidInput(f"{job.name!r} cannot be the name of a job", hint="As in `my-job`.")
    if job.name in all_jobs():
        raise AlreadyExists(f"there is a job {job.name!r} already")
    _added[job.name] = job
    return job


def unregister(name: str) -> None:
    """Forget a job of your own."""
    _added.pop(name, None)


def all_jobs() -> dict[str, Job]:
    """Every job by its name, in the order of the names."""
    own: list[Job] = [importlib.import_module(module).job for module in MODULES]
    return {job.name: job for job in sorted([*own, *_added.values()], key=lambda each: each.name)}


def find(name: str) -> Job:
    jobs = all_jobs()
    if name not in jobs:
        raise NotFound(f"there is no job {name!r}", hint=f"Those that exist: {', '.join(jobs)}.")
    return jobs[name]


class RunReport(msgspec.Struct, frozen=True):
    """What came of a run. `outcome` is "done", "nothing" (there was nothing to do) or "planned" (a
    dry run).
    """

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

    Spark is started only when the job needs it: on `master`, at `remote`, or as the given `spark`.
    A dry run plans and writes nothing at all, no row either.
    """
    job = find(job) if isinstance(job, str) else job
    folder = Path(root).absolute()
    given = checked_options(job, options or {})
    if not (folder / settings.FILE_NAME).exists():
        if not job.makes_store or dry_run:
            raise NotFound(f"{folder}: is not a Fourfold store (it has no {settings.FILE_NAME})")
        open_store(folder).close()
    with _sessions(spark, master, remote) as open_session:
        context = Context(
            root=folder,
            options=given,
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
        with _alone(folder, job.name, target):
            return _run_alone(job, target, context)


def _planned(job: Job, target: str, context: Context) -> RunReport:
    started = time.monotonic()
    context.watermark = runs.watermarks(context.root, job.name, target)
    plan = _plainly(lambda: job.plan(context))
    what = (
        f"{counted(plan.shown()['positions'], 'position')} of {counted(len(plan.ranges), 'input')}"
    )
    sentence = "nothing to do" if plan.empty else f"would read {what} and write {plan.output}"
    report = Report(facts=plan.facts, sentence=sentence)
    return _done(job, target, plan, report, context, time.monotonic() - started)


def _run_alone(job: Job, target: str, context: Context) -> RunReport:
    root, started = context.root, time.monotonic()
    runs.prepare(root)
    context.watermark = runs.watermarks(root, job.name, target)
    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    prefix = _prefix(job.name, target)
    context.work = f"{prefix}{run_id}"
    begun = Begun(run_id, job.name, target, context.work)
    plan = _planned_or_recorded(job, begun, context, started)
    found, steps = runs.take_over(root, job.name, target, plan)
    context.work, context.finished = found or context.work, steps
    context.keep_step = lambda name, data: runs.keep_step(root, context.work, name, data)
    begun = begun._replace(work=context.work)
    _sweep(root, prefix, context.work)
    runs.begin(root, begun, plan, context.options)
    try:
        if plan.empty:
            report, state = Report(sentence="nothing to do"), "nothing"
        else:
            result = _plainly(lambda: job.run(context, plan))
            report, state = _plainly(lambda: job.commit(context, plan, result)), "done"
    except BaseException as error:
        _record_failure(begun, time.monotonic() - started, error, context)
        raise
    took = time.monotonic() - started
    runs.end(root, begun, state, took, report=report, skipped=context.skipped, reached=plan)
    _sweep(root, prefix, "")
    done = _done(job, target, plan, report, context, took)
    return msgspec.structs.replace(done, run=run_id, outcome=state, resumed=found is not None)


def _planned_or_recorded(job: Job, begun: Begun, context: Context, started: float) -> Plan:
    """The plan. A failure to make one leaves a row too."""
    try:
        plan: Plan = _plainly(lambda: job.plan(context))
    except BaseException as error:
        runs.begin(context.root, begun, None, context.options)
        _record_failure(begun, time.monotonic() - started, error, context)
        raise
    return plan


def _record_failure(
    begun: Begun, duration_s: float, error: BaseException, context: Context
) -> None:
    state = "failed" if isinstance(error, Exception) else "interrupted"
    told: dict[str, Any]
    if isinstance(error, FourfoldError):
        told = error.as_dict()
    else:
        told = {"kind": "internal", "message": f"{type(error).__name__}: {error}"}
    # The job's own error is what the caller must see, also when the disk takes no row any more.
    with suppress(FourfoldError):
        runs.end(context.root, begun, state, duration_s, skipped=context.skipped, error=told)


def _plainly(call: Callable[[], Any]) -> Any:
    """Call, and turn an error that crossed Spark back into the one that it was."""
    try:
        return call()
    except Exception as error:
        found = unwrap_error(error)
        if found is error:
            raise
        raise found from error


def _done(  # noqa: PLR0917 - these are the parts that it is made of
    job: Job, target: str, plan: Plan, report: Report, context: Context, took: float
) -> RunReport:
    return RunReport(
        job=job.name,
        target=target,
        input=plan.shown(),
        output=report.output or plan.output,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        duration_s=round(took, 3),
        skipped=[msgspec.to_builtins(each) for each in context.skipped],
        report=dict(report.facts),
        sentence=job.report(report),
        lines=list(report.lines),
    )


def checked_options(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with their defaults; refuses what the job does not know, and what is missing."""
    known = {option.key: option for option in job.options}
    for name in given:
        if name not in known:
            raise InvalidInput(
                f"the job {job.name!r} has no option {name!r}",
                hint=f"It has: {', '.join(known) or 'none'}.",
            )
    return {key: _checked(job, option, given.get(key)) for key, option in known.items()}


def _checked(job: Job, option: Option, value: Any) -> Any:
    if value is None or (option.many and not value):
        if option.required:
            raise InvalidInput(f"the job {job.name!r} needs --{option.name}: {option.help}")
        return list(option.default or ()) if option.many else option.default
    if option.choices and value not in option.choices:
        raise InvalidInput(
            f"--{option.name} {value!r} is none of {', '.join(option.choices)}",
        )
    if option.kind == "path":
        for path in value if option.many else (value,):
            if "://" in str(path):
                raise InvalidInput(
                    f"--{option.name} must be a path on this machine, got {str(path)!r}",
                    hint="Write to a local folder, and copy it to the object store.",
                )
    return [str(each) for each in value] if option.many else value


def is_running(root: str | Path, job: str, target: str) -> bool:
    """Whether a process is at this job and target now."""
    return holder(_lock_file(Path(root).absolute(), job, target)) is not None


@contextmanager
def _alone(root: Path, job: str, target: str) -> Iterator[None]:
    path = _lock_file(root, job, target)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = WriterLock(path)
    except WriterLocked as error:
        owner = holder(path) or {}
        raise WriterLocked(
            f"the job {job!r} is already running on {target or root}: "
            f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}",
            hint=f"Wait for it; `fourfold pipeline status {root}` shows how it stands.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _lock_file(root: Path, job: str, target: str) -> Path:
    return pipeline_folder(root) / "locks" / _prefix(job, target).rstrip("-")


def _prefix(job: str, target: str) -> str:
    return f"{job}-{hashlib.sha256(target.encode()).hexdigest()[:12]}-"


def _sweep(root: Path, prefix: str, kept: str) -> None:
    """Remove what earlier pieces of work for this job and target left behind."""
    staging = staging_folder(root)
    pattern = re.compile(re.escape(prefix) + r"\d{8}T\d{6}-[0-9a-f]{8}")
    if staging.is_dir():
        for left in staging.iterdir():
            if left.name != kept and pattern.fullmatch(left.name):
                shutil.rmtree(left)


@contextmanager
def _sessions(spark: Any, master: str | None, remote: str | None) -> Iterator[Callable[[], Any]]:
    """How to get a session; one that was started here is stopped at the end."""
    started: list[Any] = []

    def open_session() -> Any:
        if spark is not None:
            return spark
        from fourfold.pipeline.spark import running, session  # noqa: PLC0415 - as Spark needs it

        before = running()
        found = session(master=master, remote=remote, quiet=True)
        # One that the caller already has, in whichever thread, is not ours to stop.
        if before is None:
            started.append(found)
        return found

    try:
        yield open_session
    finally:
        for each in started:
            each.stop()

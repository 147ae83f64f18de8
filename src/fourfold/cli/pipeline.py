"""`fourfold pipeline`: jobs over all history, on Spark.

`list`, `status` and `history` show jobs and their runs; `run` has one command for each job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.pipeline import jobs
from fourfold.store import open_store


@plain_command("list", rows=True)
def list_jobs(out: Output) -> None:
    """List the jobs."""
    listed = [
        {
            "name": job.name,
            "summary": job.summary,
            "options": [option.name for option in job.options],
        }
        for job in jobs.all_jobs().values()
    ]
    out.rows(
        {"jobs": listed},
        "jobs",
        {"job": "name", "what it does": "summary"},
        fields=("name", "summary", "options"),
    )


@plain_command("status", rows=True)
@root_argument(required=True)
def status(out: Output, root: Path) -> None:
    """Show the newest run of each job of ROOT, for each target."""
    folder = _checked(root)
    _show(out, folder, jobs.newest(folder))


@plain_command("history", rows=True)
@root_argument(required=True)
@click.option("--job", help="Only runs of this job.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of runs.",
)
def history(out: Output, root: Path, *, job: str | None, limit: int) -> None:
    """List the runs of ROOT, newest first."""
    folder = _checked(root)
    if job is not None:
        jobs.get_job(job)
    _show(out, folder, jobs.history(folder, job, limit))


def _checked(root: Path) -> Path:
    with open_store(root, mode="r") as store:
        return store.root


def _show(out: Output, root: Path, runs: list[jobs.Run]) -> None:
    out.rows(
        {"root": str(root), "runs": [_facts(root, run) for run in runs]},
        "runs",
        {
            "run": "id",
            "job": "job",
            "state": "state",
            "started": "started_at",
            "seconds": _seconds,
            "read": "rows_in",
            "written": "rows_out",
            "output": "output",
        },
        fields=jobs.Run.__struct_fields__,
        empty=f"{root}: no job has run yet. See `fourfold pipeline list`.",
    )


def _seconds(run: dict[str, Any]) -> str:
    return "" if run["duration_ms"] is None else f"{run['duration_ms'] / 1000:.1f}"


def _facts(root: Path, run: jobs.Run) -> dict[str, Any]:
    return {**msgspec.to_builtins(run), "state": jobs.current_state(root, run)}


class _Jobs(SectionedGroup):
    """A group with one command for each job; jobs are loaded on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(jobs.job_names())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.sections = (("Jobs", self.list_commands(ctx)),)
        super().format_commands(ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return _command(jobs.get_job(cmd_name)) if cmd_name in jobs.job_names() else None


@click.command("run", cls=_Jobs, sections=())
def run() -> None:
    """Run a job over the store ROOT."""


def _command(job: jobs.Job) -> click.Command:
    def call(
        out: Output,
        root: Path,
        *,
        master: str | None,
        remote: str | None,
        dry_run: bool,
        skip_bad: bool,
        **options: Any,
    ) -> None:
        with out.progress(job.name) as advance:
            done = jobs.run(
                job,
                root,
                {key: value for key, value in options.items() if value is not None},
                master=master,
                remote=remote,
                dry_run=dry_run,
                skip_bad=skip_bad,
                progress=advance,
            )
        _running_show(out, done)
        verdict = job.verdict(done.report)
        if verdict is not None:
            raise verdict

    call.__doc__ = f"{job.summary}\n\n{job.explanation}"
    decorated: Callable[..., None] = call
    for option in reversed(job.options):
        decorated = _option(option)(decorated)
    for decorate in reversed(_SHARED):
        decorated = decorate(decorated)
    return plain_command(job.name)(root_argument(required=True)(decorated))


_SHARED: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option("--master", help="Spark master: local[*], spark://..., yarn, k8s://..."),
    click.option("--remote", help="Spark Connect server, instead of --master: sc://HOST:PORT."),
    click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing."),
    click.option("--skip-bad", is_flag=True, help="Skip bad input, and report it."),
)


def _option(option: jobs.Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name = f"--{option.name}"
    help_ = option.help
    if option.kind == "flag":
        return click.option(name, option.key, is_flag=True, default=None, help=help_)
    kind: Any = {"number": int, "path": click.Path(path_type=Path)}.get(option.kind, str)
    return click.option(
        name,
        option.key,
        type=click.Choice(option.choices) if option.choices else kind,
        required=option.required,
        multiple=option.many,
        default=None,
        help=help_ if option.default is None else f"{help_}  [default: {option.default}]",
    )


def _running_show(out: Output, done: jobs.RunReport) -> None:
    if out.as_json:
        out.document(msgspec.to_builtins(done))
        return
    taken_up = "(resumed an earlier run)" if done.resumed else ""
    out.line(f"{done.job}: {done.sentence}{taken_up}")
    for line in done.lines:
        out.line(line)
    for entry in done.skipped:
        out.line(f"skipped: {entry['source']}: {entry['problem']}")


SECTIONS: Final[Sections] = (
    ("Jobs", ("list", "run")),
    ("See what was done", ("status", "history")),
)

_EPILOG: Final = """\b
Examples:
  fourfold pipeline list
  fourfold pipeline run load ROOT --from notes.ndjson --space did:web:shop.example
  fourfold pipeline run load ROOT --from notes.ndjson --space did:web:shop.example --dry-run
  fourfold pipeline history ROOT

ROOT is an argument, --root or FOURFOLD_ROOT.
Spark runs on this machine unless you pass --master or --remote.
Every command takes --json and --traceback.
"""


@click.command("pipeline", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Jobs over all history, on Spark.

    A job processes everything new since its last run, makes its result visible at once, and records
    the run. A killed run is resumed by the next.
    """


for _each in (list_jobs, run, status, history):
    command.add_command(_each)

"""`fourfold job`: jobs of a server, and runs of the pipeline that it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

import click
import msgspec

from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.options import COMMAND_RETRY_S, is_url, root_argument
from fourfold.cli.options import command as plain_command
from fourfold.cli.output import Output
from fourfold.errors import InvalidInput
from fourfold.wire.store import JobInfo, JobKind, JobStatus

if TYPE_CHECKING:
    from fourfold.client.threads.remote_jobs import RemoteJobs

_key_option: Final = click.option(
    "--key",
    envvar="FOURFOLD_KEY",
    help="Key of the server; prefer FOURFOLD_KEY, which other users cannot see.",
)


def _on_server(name: str, *, rows: bool = False) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command on a server: ROOT is its address."""

    def decorate(function: Callable[..., None]) -> click.Command:
        return plain_command(name, rows=rows)(
            root_argument(required=True, url=True)(_key_option(function))
        )

    return decorate


@contextmanager
def _jobs(root: str, key: str | None) -> Iterator[RemoteJobs]:
    if not is_url(root):
        raise InvalidInput(
            f"{root}: must be the address of a server",
            hint=f"`fourfold pipeline history {root}` lists the runs of a folder.",
        )
    from fourfold.client import connect  # noqa: PLC0415 - an extra

    with connect(root, key, retry_for=COMMAND_RETRY_S) as store:
        yield store.jobs


@_on_server("start")
@click.argument("kind", type=click.Choice(get_args(JobKind)), metavar="KIND")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the job, such as model=sessions; repeatable.",
)
@click.option("--detach", is_flag=True, help="Do not wait for the end of the job.")
def start(
    out: Output, root: str, *, key: str | None, kind: str, options: tuple[str, ...], detach: bool
) -> None:
    """Start a job at the server ROOT, and show its progress until it ends.

    KIND is verify, backup, gc, publish, compact, index, companions, snapshots, load, materialize or
    stats. An interrupted command leaves the job running.
    """
    chosen = dict(map(_parse_option, options))
    with _jobs(root, key) as jobs:
        job = jobs.start(kind, **chosen)
        if not detach:
            with out.progress(kind) as advance:
                job = jobs.wait(job.id, advance)
    _show(out, job)


@_on_server("list", rows=True)
@click.option("--kind", help="Only jobs of this kind.")
@click.option("--status", type=click.Choice(get_args(JobStatus)), help="Only with this status.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of jobs.",
)
def list_jobs(
    out: Output, root: str, *, key: str | None, kind: str | None, status: str | None, limit: int
) -> None:
    """List jobs of the server ROOT and runs of the pipeline by commands, newest first."""
    with _jobs(root, key) as jobs:
        found = [msgspec.to_builtins(job) for job in jobs.list(kind, status, limit)]
    out.rows(
        {"jobs": found},
        "jobs",
        {
            "job": "id",
            "kind": "kind",
            "status": "status",
            "progress": _progress,
            "by": "started_by",
        },
        fields=JobInfo.__struct_fields__,
        empty=f"{root}: no job was started yet.",
    )


@_on_server("show")
@click.argument("job", metavar="JOB")
def show(out: Output, root: str, *, key: str | None, job: str) -> None:
    """Show JOB of the server ROOT: its progress, and its result or error."""
    with _jobs(root, key) as jobs:
        _show(out, jobs.get(job))


@_on_server("cancel")
@click.argument("job", metavar="JOB")
def cancel(out: Output, root: str, *, key: str | None, job: str) -> None:
    """Cancel JOB of the server ROOT; one that has ended stays as it is."""
    with _jobs(root, key) as jobs:
        _show(out, jobs.cancel(job))


def _parse_option(text: str) -> tuple[str, Any]:
    """Return the name and the value of an option; true and false are flags."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"--option {text!r} must have the form NAME=VALUE")
    return name, {"true": True, "false": False}.get(value, value)


def _progress(job: dict[str, Any]) -> str:
    progress = job["progress"]
    return f"{progress['done']} of {progress['total']}" if progress["total"] else ""


def _show(out: Output, job: JobInfo) -> None:
    facts = msgspec.to_builtins(job)
    if out.as_json:
        out.document(facts)
        return
    steps = _progress(facts)
    out.line(f"job {job.id}: {job.kind} {job.status}{f', {steps} steps' if steps else ''}")
    for name, value in (job.result or {}).items():
        out.line(f"  {name.replace('_', ' ')}: {value}")
    if job.error is not None:
        out.line(f"  error: {job.error.message}")


SECTIONS: Final[Sections] = (
    ("Run", ("start", "cancel")),
    ("See what was done", ("list", "show")),
)

_EPILOG: Final = """\b
Examples:
  fourfold job start http://127.0.0.1:4437 compact
  fourfold job start http://127.0.0.1:4437 stats --option model=sessions
  fourfold job list http://127.0.0.1:4437 --status running

ROOT is the address of a server: an argument, --root or FOURFOLD_ROOT.
Every command takes --json and --traceback.
"""


@click.command("job", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Jobs of a server: work on its store beside its requests."""


for _each in (start, cancel, list_jobs, show):
    command.add_command(_each)

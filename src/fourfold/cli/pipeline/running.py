"""`fourfold pipeline run JOB ROOT ...`: one command for each job, made from what the job says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from fourfold.cli.groups import SectionedGroup
from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output
from fourfold.pipeline import jobs


class _Jobs(SectionedGroup):
    """The jobs, as commands; looked up when somebody asks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(jobs.all_jobs())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.sections = (("Jobs", self.list_commands(ctx)),)
        super().format_commands(ctx, formatter)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        found = jobs.all_jobs().get(cmd_name)
        return None if found is None else _command(found)


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
        _show(out, done)
        verdict = job.verdict(done.report)
        if verdict is not None:
            raise verdict

    call.__doc__ = f"{job.summary}\n\n{job.explanation}"
    decorated: Callable[..., None] = call
    for option in reversed(job.options):
        decorated = _option(option)(decorated)
    for decorate in reversed(_SHARED):
        decorated = decorate(decorated)
    return command(job.name)(root_argument(required=True)(decorated))


_SHARED: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option("--master", help="Where Spark runs: local[*], spark://..., yarn, k8s://..."),
    click.option("--remote", help="A Spark Connect server instead: sc://HOST:PORT."),
    click.option("--dry-run", is_flag=True, help="Only say what would be done."),
    click.option("--skip-bad", is_flag=True, help="Leave out what is bad, and report it."),
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


def _show(out: Output, done: jobs.Done) -> None:
    if out.as_json:
        out.document(msgspec.to_builtins(done))
        return
    taken_up = " (taken up where an earlier run left it)" if done.resumed else ""
    out.line(f"{done.job}: {done.sentence}{taken_up}")
    for line in done.lines:
        out.line(line)
    for each in done.skipped:
        out.line(f"left out: {each['source']}: {each['problem']}")

"""`fourfold pipeline list`, `status` and `history`: which jobs there are, and what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output
from fourfold.pipeline import jobs
from fourfold.store import open_store


@command("list")
def list_jobs(out: Output) -> None:
    """List the jobs."""
    found = [
        {
            "name": job.name,
            "summary": job.summary,
            "options": [option.name for option in job.options],
        }
        for job in jobs.all_jobs().values()
    ]
    if out.as_json:
        out.document({"jobs": found})
    else:
        out.table(("job", "what it does"), [(each["name"], each["summary"]) for each in found])


@command("status")
@root_argument(required=True)
def status(out: Output, root: Path) -> None:
    """Show how each job of ROOT stands: its newest run for each place that it writes to."""
    folder = _checked(root)
    _show(out, folder, jobs.newest(folder))


@command("history")
@root_argument(required=True)
@click.option("--job", help="Only the runs of this job.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many, from the newest on.",
)
def history(out: Output, root: Path, *, job: str | None, limit: int) -> None:
    """List the runs of ROOT, newest first."""
    folder = _checked(root)
    if job is not None:
        jobs.find(job)
    _show(out, folder, jobs.history(folder, job, limit))


def _checked(root: Path) -> Path:
    with open_store(root, mode="r") as store:
        return store.root


def _show(out: Output, root: Path, runs: list[jobs.Run]) -> None:
    found = [_facts(root, run) for run in runs]
    if out.as_json:
        out.document({"root": str(root), "runs": found})
    elif not found:
        out.line(f"{root}: no job has run yet. See `fourfold pipeline list`.")
    else:
        out.table(
            ("run", "job", "state", "started", "seconds", "read", "written", "output"),
            [
                (
                    each["id"],
                    each["job"],
                    each["state"],
                    each["started_at"],
                    "" if each["duration_ms"] is None else f"{each['duration_ms'] / 1000:.1f}",
                    each["rows_in"],
                    each["rows_out"],
                    each["output"],
                )
                for each in found
            ],
        )


def _facts(root: Path, run: jobs.Run) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(run)
    if run.state == "running" and not jobs.is_running(root, run.job, run.target):
        # Its process is gone; the next run of the job will say so in the table.
        facts["state"] = "interrupted"
    return facts

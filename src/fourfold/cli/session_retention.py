"""`fourfold session retention`: delete sessions that are old, or not among the newest."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from fourfold.cli.options import Age, root_argument
from fourfold.cli.options import command as plain_command
from fourfold.cli.output import Output, counted
from fourfold.models.sessions.model import MODEL
from fourfold.models.sessions.records import RetentionReport
from fourfold.store import open_store


@plain_command("retention")
@root_argument(required=True)
@click.argument("prefix", default="")
@click.option("--max-age", type=Age(), help="Keep sessions with an event in this time: 30d.")
@click.option(
    "--keep-latest",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the N sessions with the newest events.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
def retention(
    out: Output,
    root: Path,
    prefix: str,
    max_age: float | None,
    keep_latest: int | None,
    *,
    dry_run: bool,
) -> None:
    """Delete the sessions whose ids begin with PREFIX, by default all, that exceed the limits.

    A session with a lease in force is kept, and so is one that another session needs: one that it
    shares a lineage edge with, or `a` for `a/b`. `gc` removes the events after its grace period.
    """
    if max_age is None and keep_latest is None:
        raise click.UsageError("Pass --max-age, --keep-latest, or both.")
    report = RetentionReport(0, 0, [])
    with open_store(root, mode="r" if dry_run else "rw") as store:
        if MODEL.location.names(root):
            report = store.sessions.apply_retention(
                prefix, max_age_s=max_age, keep_latest=keep_latest, dry_run=dry_run
            )
    if out.as_json:
        out.document({"root": str(root), "dry_run": dry_run, **msgspec.to_builtins(report)})
        return
    for sid in report.sessions:
        out.line(sid)
    verb = "would be deleted" if dry_run else "deleted"
    out.line(f"{counted(report.deleted, 'session')} {verb}, {report.kept} needed or in use")

"""`fourfold session retention`: delete sessions that are old, or not among the newest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from fourfold.cli.options import Age, root_argument
from fourfold.cli.options import command as plain_command
from fourfold.cli.output import Output, counted
from fourfold.models.sessions.model import MODEL
from fourfold.models.sessions.records import RetentionReport, StoredRetention
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


@plain_command("policies", rows=True)
@root_argument(required=True)
@click.option("--apply", "applies", is_flag=True, help="Delete what the policies do not keep, now.")
@click.option("--dry-run", is_flag=True, help="Count what the policies do not keep.")
def policies(out: Output, root: Path, *, applies: bool, dry_run: bool) -> None:
    """List the stored retention policies of ROOT; with --apply, apply them.

    A server applies them every ten minutes, and `fourfold session gc` before it collects.
    """
    if applies and dry_run:
        raise click.UsageError("--apply and --dry-run exclude each other.")
    rows: list[dict[str, Any]] = []
    with open_store(root, mode="rw" if applies else "r") as store:
        if MODEL.location.names(root):
            rows = [msgspec.to_builtins(policy) for policy in store.sessions.list_retentions()]
            reports = {}
            if applies or dry_run:
                reports = store.sessions.apply_stored_retentions(dry_run=dry_run)
            for row in rows:
                report = reports.get(row["prefix"])
                row["deleted"] = None if report is None else report.deleted
    out.rows(
        {"root": str(root), "dry_run": dry_run, "policies": rows},
        "policies",
        {
            "prefix": lambda row: row["prefix"] or "(all)",
            "max age": lambda row: _age(row["max_age_s"]),
            "keep latest": "keep_latest",
            "deleted": "deleted",
        },
        fields=(*StoredRetention.__struct_fields__, "deleted"),
        empty="no policies",
    )


@plain_command("set-policy")
@root_argument(required=True)
@click.argument("prefix")
@click.option("--max-age", type=Age(), help="Keep sessions with an event in this time: 30d.")
@click.option(
    "--keep-latest",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the N sessions with the newest events.",
)
def set_policy(
    out: Output, root: Path, prefix: str, max_age: float | None, keep_latest: int | None
) -> None:
    """Store a retention policy for the sessions whose ids begin with PREFIX; '' means all.

    Of several policies, that with the longest prefix of an id decides. For one session, PREFIX is
    its id.
    """
    if max_age is None and keep_latest is None:
        raise click.UsageError("Pass --max-age, --keep-latest, or both.")
    with open_store(root) as store:
        policy = store.sessions.set_retention(prefix, max_age_s=max_age, keep_latest=keep_latest)
    if out.as_json:
        out.document(msgspec.to_builtins(policy))
        return
    out.line(f"stored the policy of {prefix or 'all sessions'}")


@plain_command("delete-policy")
@root_argument(required=True)
@click.argument("prefix")
def delete_policy(out: Output, root: Path, prefix: str) -> None:
    """Delete the stored retention policy of PREFIX."""
    with open_store(root) as store:
        store.sessions.delete_retention(prefix)
    if out.as_json:
        out.document({"prefix": prefix, "deleted": True})
        return
    out.line(f"deleted the policy of {prefix or 'all sessions'}")


def _age(seconds: float | None) -> str:
    """Format the greatest age of sessions."""
    if seconds is None:
        return ""
    return f"{seconds / 86_400:g}d" if seconds >= 86_400 else f"{seconds:g}s"

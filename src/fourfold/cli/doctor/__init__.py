"""`fourfold doctor`: check this machine and a store, and print a fix for each problem."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from fourfold.cli.doctor import machine, store
from fourfold.cli.doctor.findings import DoctorTarget, Finding, examine
from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument, set_option
from fourfold.errors import FourfoldError
from fourfold.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from fourfold.cli.output import Output

CHECKS: Final[Mapping[str, Callable[[DoctorTarget], Iterable[Finding]]]] = {
    "python": machine.python,
    "sqlite": machine.sqlite,
    "java": machine.java,
    "spark": machine.spark,
    "disk": machine.disk,
    "file system": machine.file_system,
    "fsync": machine.fsync,
    "server": machine.server,
    "store": store.store,
    "settings": store.settings,
    "permissions": store.permissions,
    "locks": store.locks,
    "write-ahead log": store.logs,
    "leftovers": store.leftovers,
    "databases": store.databases,
    "objects": store.objects,
}


@fourfold_command("doctor", rows=True)
@root_argument(required=False)
@click.option("--spark", "start_spark", is_flag=True, help="Start Spark and run two small jobs.")
@set_option
def command(out: Output, root: Path | None, *, start_spark: bool, flags: dict[str, str]) -> None:
    """Check the machine, and the store in ROOT; print a fix for each problem.

    Exits with 1 if a check fails. Warnings and skipped checks are not failures.
    """
    try:
        settings = load(root, environ=os.environ, flags=flags)
    except FourfoldError:
        # The check of the settings reports the error; here there are just no settings.
        settings = None
    target = DoctorTarget(root, os.environ, flags, settings, start_spark)
    with out.progress("checking") as advance:
        findings = []
        for finding in examine(target, CHECKS):
            findings.append(finding)
            advance(finding.check, len({entry.check for entry in findings}), len(CHECKS))
    counts = {
        status: sum(finding.status == status for finding in findings)
        for status in ("ok", "warn", "fail", "skip")
    }
    out.rows(
        {
            "root": None if root is None else str(root),
            "ok": not counts["fail"],
            "counts": counts,
            "findings": [finding.as_dict() for finding in findings],
        },
        "findings",
        {"check": "check", "status": "status", "finding": "message"},
        fields=("check", "status", "message", "fix", "facts"),
    )
    if out.format == "text":
        _show_fixes(out, findings, counts)
    if counts["fail"]:
        raise click.exceptions.Exit(1)


def _show_fixes(out: Output, findings: list[Finding], counts: Mapping[str, int]) -> None:
    for status, title in (("fail", "To fix:"), ("warn", "To consider:")):
        fixable = [finding for finding in findings if finding.status == status and finding.fix]
        if fixable:
            out.line()
            out.line(title)
            for finding in fixable:
                out.line(f"  {finding.check}: {finding.fix}")
    out.line()
    out.line(", ".join(f"{count} {status}" for status, count in counts.items() if count))

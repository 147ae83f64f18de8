"""`python -m bench.sessions`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import commands, machine, measurement
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.sessions import conversation, lines, report
from bench.sessions.results import Result
from bench.sessions.rounds import Bench

ROUNDS = 3
QUICK_ROUNDS = 2
PEERS = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "openai-agents",
    "eventsourcing",
)


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds that count ({ROUNDS}).")
@click.option("--only", default="", help=f"Workloads, as in A,D: {', '.join(lines.WORKLOADS)}.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int | None, only: str, docs: bool) -> None:
    """Measure sessions."""
    console = commands.console()
    if docs:
        _document(console)
        return
    chosen = commands.select_columns(only, lines.WORKLOADS)
    result = _measure(console, chosen, rounds or (QUICK_ROUNDS if quick else ROUNDS), quick=quick)
    report.show(result, console)
    path = BUILD / "newest-sessions.json"
    if not (quick or only):
        path = RESULTS / f"sessions-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if result.missed else 0)


def _measure(console: Console, chosen: set[str], rounds: int, *, quick: bool) -> Result:
    counts = lines.QUICK if quick else lines.FULL
    found = [line for line in lines.lines(counts) if line.workload in chosen]
    curves = lines.curves(counts) if "B" in chosen else []
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        bench = Bench(Path(folder), found, curves)
        facts = machine.describe(bench.folder)
        with console.status("preparing") as status:
            bench.prepare(status.update)
            bench.run(rounds, status.update)
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        machine=facts,
        versions=_versions(),
        settings={
            "synchronous": "FULL",
            "turns": str(counts.turns),
            "seed": str(conversation.SEED),
            "rounds": str(rounds),
            "foreign_share_max": str(measurement.FOREIGN_SHARE_MAX),
            "slow_disk_factor": str(measurement.SLOW_DISK_FACTOR),
        },
        outcomes=bench.outcomes(),
        flatness=bench.flatness(),
        records=bench.records,
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _document(console: Console) -> None:
    path = newest_result("sessions")
    figures = report.markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
    console.print(commands.document("sessions", path, figures))


if __name__ == "__main__":
    main()

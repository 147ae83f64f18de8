"""`python -m bench.documents`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import commands, machine, measurement
from bench.documents import dataset, lines, report
from bench.documents.results import Result
from bench.documents.rounds import Bench
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.limits import CHECKPOINT_BYTES

ROUNDS = 5
QUICK_ROUNDS = 3


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds that count ({ROUNDS}).")
@click.option("--only", default="", help=f"Workloads, as in A,D: {', '.join(lines.WORKLOADS)}.")
@click.option("--history", type=click.Choice(lines.HISTORIES), help="One history only.")
@click.option("--page", type=click.Choice([str(p) for p in lines.PAGE_SIZES]), help="One size.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(
    *, quick: bool, rounds: int | None, only: str, history: str | None, page: str | None, docs: bool
) -> None:
    """Measure spaces of documents."""
    console = commands.console()
    if docs:
        _document(console)
        return
    bench = _bench(commands.select_columns(only, lines.WORKLOADS), history, page, quick=quick)
    wanted = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    result = _measure(console, bench, wanted, quick=quick)
    report.show(result, console)
    if quick or only or history or page:
        path = BUILD / "newest-documents.json"
    else:
        path = RESULTS / f"documents-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if result.missed else 0)


def _bench(chosen: set[str], history: str | None, page: str | None, *, quick: bool) -> Bench:
    counts = lines.QUICK if quick else lines.FULL
    bench = Bench(Path(), counts, [], [], [])
    for kind in lines.HISTORIES:
        for size in lines.PAGE_SIZES:
            if history not in {None, kind} or page not in {None, str(size)}:
                continue
            found = lines.lines(counts, kind, size)
            bench.lines += [line for line in found if line.workload in chosen]
            if "F" in chosen:
                bench.curves += lines.curves(counts, kind, size)
            if "H" in chosen:
                bench.policies += lines.policies(counts, kind, size)
    return bench


def _measure(console: Console, bench: Bench, rounds: int, *, quick: bool) -> Result:
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        bench.folder = Path(folder)
        facts = machine.describe(bench.folder)
        with console.status("preparing") as status:
            bench.prepare(status.update)
            bench.run(rounds, rounds if quick else 3 * rounds, status.update)
    counts = bench.counts
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        machine=facts,
        settings={
            "synchronous": "NORMAL",
            "checkpoint_bytes": str(CHECKPOINT_BYTES),
            "commits": str(counts.commits),
            "entities_written": str(dataset.WRITTEN),
            "entities_read": str(counts.entities),
            "bulk_operations": str(counts.operations),
            "revisions_of_the_past": str(counts.past_commits),
            "seed": str(dataset.SEED),
            "rounds": str(rounds),
            "foreign_share_max": str(measurement.FOREIGN_SHARE_MAX),
            "slow_disk_factor": str(measurement.SLOW_DISK_FACTOR),
        },
        outcomes=bench.outcomes(rounds),
        flatness=bench.flatness(rounds),
        policies=bench.policy_outcomes(rounds),
        bytes_per_revision=bench.bytes_per_revision,
        records=bench.records,
    )


def _document(console: Console) -> None:
    path = newest_result("documents")
    figures = report.markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
    console.print(commands.document("documents", path, figures))


if __name__ == "__main__":
    main()

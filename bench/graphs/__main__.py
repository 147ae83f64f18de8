"""`python -m bench.graphs`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import commands, machine, measurement
from bench.graphs import dataset, lines, report
from bench.graphs.results import Result
from bench.graphs.rounds import Bench
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.limits import CHECKPOINT_BYTES
from fourfold.models.graphs import PROFILE

ROUNDS = 5


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, help="Rounds that count.")
@click.option("--only", default="", help=f"Workloads, as in A,C: {', '.join(lines.WORKLOADS)}.")
@click.option("--largest", is_flag=True, help="Workload D up to 10,000,000 rows; minutes.")
@click.option("--docs", is_flag=True, help="Write the newest results into docs/performance.md.")
def main(*, quick: bool, rounds: int, only: str, largest: bool, docs: bool) -> None:
    """Measure graphs."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    if docs:
        _document(console)
        return
    chosen = {"D"} if largest else commands.select_columns(only, lines.WORKLOADS)
    bench = _bench(chosen, quick=quick, largest=largest)
    result = _measure(console, bench, rounds, quick=quick)
    report.show(result, console)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    if quick or (only and not largest):
        path = BUILD / "newest-graphs.json"
    else:
        path = RESULTS / f"{'largest-graphs' if largest else 'graphs'}-{today}.json"
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if result.missed else 0)


def _bench(chosen: set[str], *, quick: bool, largest: bool) -> Bench:
    counts = lines.QUICK if quick else lines.FULL
    if largest:
        counts = replace(counts, sizes=(*counts.sizes, lines.LARGEST))
    found = [line for line in lines.lines(counts) if line.workload in chosen]
    return Bench(Path(), counts, found, lines.curves(counts) if "D" in chosen else [])


def _measure(console: Console, bench: Bench, rounds: int, *, quick: bool) -> Result:
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        bench.folder = Path(folder)
        facts = machine.describe(bench.folder)
        with console.status("preparing") as status:
            bench.prepare(status.update)
            bench.run(rounds, rounds if quick else rounds + 2, status.update)
    counts = bench.counts
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        machine=facts,
        settings={
            "synchronous": PROFILE.synchronous,
            "page_size": str(PROFILE.page_size),
            "cache_kib": str(PROFILE.cache_kib),
            "checkpoint_bytes": str(CHECKPOINT_BYTES),
            "rows": str(counts.rows),
            "batch_rows": str(dataset.BATCH),
            "envelopes": str(counts.envelopes),
            "log_rows": str(counts.log_rows),
            "page_rows": str(dataset.PAGE),
            "seed": str(dataset.SEED),
            "rounds": str(rounds),
            "foreign_share_max": str(measurement.FOREIGN_SHARE_MAX),
            "slow_disk_factor": str(measurement.SLOW_DISK_FACTOR),
        },
        prepared_s=bench.prepared_s,
        file_mib=bench.file_mib,
        outcomes=bench.outcomes(rounds),
        flatness=bench.flatness(rounds),
        records=bench.records,
    )


def _document(console: Console) -> None:
    path = newest_result("graphs")
    figures = report.markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
    if any(RESULTS.glob("largest-graphs-*.json")):
        more = newest_result("largest-graphs")
        shown = report.markdown(
            commands.load(more, Result), str(more.relative_to(ROOT)), machine=False
        )
        figures += f"\n\nUp to 10,000,000 rows, in a run of its own:\n\n{shown}"
    console.print(commands.document("graphs", path, figures))


if __name__ == "__main__":
    main()

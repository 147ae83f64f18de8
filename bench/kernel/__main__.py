"""`python -m bench.kernel`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import commands, machine, measurement
from bench.kernel import ceiling, dataset, report
from bench.kernel.database import PROFILE
from bench.kernel.results import Result
from bench.kernel.rounds import Bench
from bench.kernel.workloads import BATCH, WORKLOADS, Line, all_lines
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.limits import CHECKPOINT_BYTES

ROUNDS = 5
QUICK_ROUNDS = 3


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rows and rounds; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds that count ({ROUNDS}).")
@click.option("--only", default="", help=f"Workloads, as in A,C: {', '.join(WORKLOADS)}.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int | None, only: str, docs: bool) -> None:
    """Measure Fourfold's kernel against C."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=132)
    if docs:
        _document(console)
        return
    lines = _chosen(only)
    wanted = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    result = _measure(console, lines, wanted, quick=quick)
    report.show(result, console)
    if quick or only:
        path = BUILD / "newest.json"
    else:
        path = RESULTS / f"kernel-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if result.missed else 0)


def _measure(console: Console, lines: list[Line], rounds: int, *, quick: bool) -> Result:
    BUILD.mkdir(exist_ok=True)
    limit = _limit(console)
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        bench = Bench(Path(folder), lines, limit, quick)
        bench.prepare()
        facts = machine.describe(bench.folder)
        with console.status("warming up") as status:
            bench.run(rounds, rounds if quick else 3 * rounds, status.update)
    about = {}
    if limit is not None:
        about = {
            "sqlite": limit.version.sqlite,
            "origin": limit.origin,
            "compiler": limit.compiler,
            "options": " ".join(limit.version.options),
        }
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        quick=quick,
        machine=facts,
        ceiling=about,
        settings={
            "synchronous": PROFILE.synchronous,
            "page_size": str(PROFILE.page_size),
            "cache_kib": str(PROFILE.cache_kib),
            "checkpoint_bytes": str(CHECKPOINT_BYTES),
            "batch_rows": str(BATCH),
            "keys": str(dataset.KEYS),
            "payload_bytes": str(dataset.PAYLOAD_BYTES),
            "seed": str(dataset.SEED),
            "rounds": str(rounds),
            "foreign_share_max": str(measurement.FOREIGN_SHARE_MAX),
            "slow_disk_factor": str(measurement.SLOW_DISK_FACTOR),
        },
        outcomes=bench.outcomes(rounds),
        records=bench.records,
    )


def _limit(console: Console) -> ceiling.Ceiling | None:
    """The C program; without one the benchmark goes on, and says so."""
    try:
        with console.status("building the C program"):
            limit = ceiling.build(BUILD)
    except ceiling.CompileError as error:
        console.print(str(error), style="yellow", markup=False)
        return None
    if limit is None:
        console.print("No C compiler found: absolute figures only.", style="yellow")
    return limit


def _chosen(only: str) -> list[Line]:
    names = {part.strip().upper() for part in only.split(",") if part.strip()}
    if unknown := names - set(WORKLOADS):
        raise click.BadParameter(f"no workload {', '.join(sorted(unknown))}", param_hint="--only")
    return [line for line in all_lines() if not names or line.workload in names]


def _document(console: Console) -> None:
    path = newest_result("kernel")
    figures = report.markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
    console.print(commands.document("kernel", path, figures))


if __name__ == "__main__":
    main()

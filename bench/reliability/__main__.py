"""`python -m bench.reliability`: check what a server promises under faults and over time."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bench import commands, tables
from bench.place import RESULTS, ROOT, newest_result
from bench.reliability import fuzz, readers, sinks, sizes, soak
from bench.reliability import kills as kill_rounds

DOCUMENT = ROOT / "docs" / "reliability.md"
SIZING = ROOT / "docs" / "operating" / "sizing.md"
CHART = ROOT / "docs" / "images" / "soak.svg"


@click.group()
def main() -> None:
    """Check histories of clients under faults, and measure a server over time."""


@main.command("kills")
@click.option("--kills", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--per-round", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where stores are created.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep stores with violations here.")
@click.option("--record", is_flag=True, help="Write the result after each round.")
@click.option("--resume", is_flag=True, help="Add to the newest result.")
def kills(
    *,
    kills: int,
    per_round: int,
    seed: int,
    folder: Path | None,
    keep: Path | None,
    record: bool,
    resume: bool,
) -> None:
    """Kill a server again and again while clients of all models write."""
    console = commands.console()
    path = RESULTS / f"kills-{datetime.now(UTC):%Y-%m-%d}.json"
    previous = commands.load(newest_result("kills"), kill_rounds.Result) if resume else None
    result = None
    with TemporaryDirectory(dir=folder) as place:
        for result in kill_rounds.run(Path(place), seed, kills, per_round, keep, previous):
            console.print(
                f"{result.kills} kills, {len(result.violations)} violations, "
                f"{len(result.problems)} problems, {result.seconds:.0f} s"
            )
            if record:
                commands.save(result, path)
    assert result is not None
    for line in (*result.violations, *result.problems):
        console.print(line)
    sys.exit(1 if result.violations or result.problems else 0)


@main.command("sinks")
@click.option("--kills", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--per-round", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where stores are created.")
@click.option("--record", is_flag=True, help="Write the result after each round.")
@click.option("--resume", is_flag=True, help="Add to the newest result.")
def run_sinks(
    *, kills: int, per_round: int, seed: int, folder: Path | None, record: bool, resume: bool
) -> None:
    """Kill the sinks of the pipeline again and again, and count the rows that they wrote."""
    console = commands.console()
    path = RESULTS / f"sinks-{datetime.now(UTC):%Y-%m-%d}.json"
    known = sorted(RESULTS.glob("sinks-*.json"))
    previous = commands.load(known[-1], sinks.Result) if resume and known else None
    result = None
    with TemporaryDirectory(dir=folder) as place:
        for result in sinks.run(Path(place), seed, kills, per_round, previous):
            console.print(f"{result.kills} kills, {result.broken} broken rows, {result.seconds} s")
            if record:
                commands.save(result, path)
    sys.exit(1 if result is not None and result.broken else 0)


@main.command("soak")
@click.option("--seconds", type=click.FloatRange(min=1), default=3600, show_default=True)
@click.option("--every", "every_s", type=click.FloatRange(min=0.1), default=10, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the store is created.")
@click.option("--record", is_flag=True, help="Write the result after each sample.")
def run_soak(*, seconds: float, every_s: float, folder: Path | None, record: bool) -> None:
    """Keep a server under mixed load, and sample what it uses."""
    console = commands.console()
    path = RESULTS / f"soak-{datetime.now(UTC):%Y-%m-%d}.json"
    with TemporaryDirectory(dir=folder) as place:
        for result in soak.run(Path(place), seconds, every_s):
            console.print(str(result.samples[-1]))
            if record:
                commands.save(result, path)
    for line in result.errors:
        console.print(line)
    sys.exit(1 if result.errors else 0)


@main.command("readers")
@click.option("--count", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the stores are created.")
@click.option("--record", is_flag=True, help="Write the result.")
def run_readers(*, count: int, folder: Path | None, record: bool) -> None:
    """Let readers wait in a server, and measure their memory and appends beside them."""
    console = commands.console()
    path = RESULTS / f"readers-{datetime.now(UTC):%Y-%m-%d}.json"
    with TemporaryDirectory(dir=folder) as place:
        result = readers.run(Path(place), count)
    console.print(readers.table(result, path))
    if record:
        commands.save(result, path)


@main.command("sizes")
@click.option("--count", type=click.IntRange(min=10), default=2000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the stores are created.")
@click.option("--record", is_flag=True, help="Write the result.")
def run_sizes(*, count: int, folder: Path | None, record: bool) -> None:
    """Measure what a server takes for each stream, space, session and write."""
    console = commands.console()
    path = RESULTS / f"sizes-{datetime.now(UTC):%Y-%m-%d}.json"
    with TemporaryDirectory(dir=folder) as place:
        result = sizes.run(Path(place), count)
    console.print(sizes.table(result, path))
    if record:
        commands.save(result, path)


@main.command("fuzz")
@click.option("--examples", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where figures are collected.")
@click.option("--record", is_flag=True, help="Write the result.")
def run_fuzz(*, examples: int, folder: Path | None, record: bool) -> None:
    """Run the fuzz tests with many cases."""
    console = commands.console()
    path = RESULTS / f"fuzz-{datetime.now(UTC):%Y-%m-%d}.json"
    with TemporaryDirectory(dir=folder) as place:
        result = fuzz.run(Path(place), examples)
    console.print(fuzz.table(result, path))
    if record:
        commands.save(result, path)
    for line in result.failures:
        console.print(line)
    sys.exit(1 if result.failures else 0)


def installations(results: list[dict[str, Any]], path: Path) -> str:
    """Return what `scripts/smoke_wheel.py` measured, as Markdown."""
    rows = [
        (
            str(result["extra"]),
            str(result["packages"]),
            f"{result['megabytes']:.0f} MB",
            f"{result['import_ms']:.0f} ms",
            "passed" if result["passed"] else "failed",
        )
        for result in results
    ]
    columns = ("extra", "packages", "size", "`import fourfold`", "its program")
    return "\n\n".join([tables.markdown(columns, rows), f"From `bench/results/{path.name}`."])


@main.command("docs")
def docs() -> None:
    """Write the newest results into docs/reliability.md and docs/operating/sizing.md."""
    path = newest_result("kills")
    figures = kill_rounds.table(commands.load(path, kill_rounds.Result), path)
    tables.put_between_marks(DOCUMENT, "kills", figures)
    path = newest_result("sinks")
    figures = sinks.table(commands.load(path, sinks.Result), path)
    tables.put_between_marks(DOCUMENT, "sinks", figures)
    path = newest_result("readers")
    figures = readers.table(commands.load(path, readers.Result), path)
    tables.put_between_marks(DOCUMENT, "readers", figures)
    path = newest_result("fuzz")
    tables.put_between_marks(DOCUMENT, "fuzz", fuzz.table(commands.load(path, fuzz.Result), path))
    path = newest_result("wheel")
    tables.put_between_marks(DOCUMENT, "wheel", installations(json.loads(path.read_bytes()), path))
    path = newest_result("sizes")
    figures = sizes.table(commands.load(path, sizes.Result), path)
    tables.put_between_marks(SIZING, "sizes", figures)
    path = newest_result("soak")
    result = commands.load(path, soak.Result)
    tables.put_between_marks(DOCUMENT, "soak", soak.table(result, path))
    CHART.write_text(soak.chart(result), encoding="utf-8")


if __name__ == "__main__":
    main()

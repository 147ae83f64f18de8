"""`python -m bench.archive`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata

import click
import msgspec
from rich.console import Console

from bench import commands, machine, part_tables, parts
from bench.archive import appending, bootstrapping, catching_up, sealing, sizes, spark
from bench.parts import Part
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams.servers import PACKAGES as PEERS

ROUNDS = 5
PACKAGES = ("pyarrow", "pyspark")
PARTS: dict[str, Callable[..., Part]] = {
    "A": sealing.measure,
    "B": catching_up.measure,
    "C": appending.measure,
    "D": sizes.measure,
    "E": bootstrapping.measure,
    "F": spark.measure,
    "G": spark.measure_seal,
}


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds that count ({ROUNDS}).")
@click.option("--only", default="", help=f"Parts, as in A,C: {', '.join(PARTS)}.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int | None, only: str, docs: bool) -> None:
    """Measure the archive of streams, part by part.

    A part that is measured again takes its place in the result of the same day.
    """
    console = commands.console()
    if docs:
        _document(console)
        return
    path = RESULTS / f"archive-{datetime.now(UTC):%Y-%m-%d}.json"
    if quick:
        path = BUILD / "newest-archive.json"
    chosen, missed = commands.select_columns(only, PARTS), False
    with alone():
        (BUILD / "archive").mkdir(exist_ok=True)
        facts, versions = machine.describe(BUILD), _versions()
        for name in sorted(chosen):
            part = PARTS[name](rounds or (1 if quick else ROUNDS), quick=quick)
            part = msgspec.structs.replace(part, machine=facts, versions=versions)
            part_tables.show(part, console)
            parts.save(part, name, path)
            missed |= any(each.verdict.startswith("FAIL") for each in part.figures)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if missed and not quick else 0)


def _versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in PACKAGES}
    return found | dict(package.rpartition("@")[::2] for package in PEERS)


def _document(console: Console) -> None:
    path = newest_result("archive")
    figures = part_tables.markdown(parts.load(path), str(path.relative_to(ROOT)))
    console.print(commands.document("archive", path, figures))


if __name__ == "__main__":
    main()

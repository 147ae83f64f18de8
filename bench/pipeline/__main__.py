"""`python -m bench.pipeline`: measure, print, and keep the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from typing import NamedTuple

import click
import msgspec
from rich.console import Console

from bench import machine, part_tables, parts, tables
from bench.parts import Part
from bench.pipeline import archived, cluster, many_files, materialize, published, scan, stores
from bench.place import BUILD, DOCUMENT, RESULTS, ROOT, alone, newest_result

ROUNDS = 5
QUICK_ROWS = 20_000
PACKAGES = ("pyspark", "pyarrow", "adbc-driver-sqlite")


class Kind(NamedTuple):
    """A part: how its stores are made, how it is measured, and whether rows matter to it."""

    prepare: Callable[[int], None]
    measure: Callable[[int, int], Part]
    by_rows: bool = False


PARTS = {
    "scan": Kind(scan.prepare, scan.measure, by_rows=True),
    "published": Kind(published.prepare, published.measure, by_rows=True),
    "records": Kind(archived.prepare_records, archived.measure_records, by_rows=True),
    "planning": Kind(archived.prepare_planning, archived.measure_planning),
    "restore": Kind(archived.prepare_restore, archived.measure_restore, by_rows=True),
    "sql": Kind(archived.prepare_sql, archived.measure_sql),
    "materialize": Kind(materialize.prepare, materialize.measure, by_rows=True),
    "cluster": Kind(cluster.prepare, cluster.measure),
    "memory": Kind(materialize.prepare_hot, materialize.measure_hot),
    "files": Kind(many_files.prepare, many_files.measure),
    "start": Kind(many_files.prepare, many_files.measure_start),
}


@click.command()
@click.option("--quick", is_flag=True, help="Few rows, one round; no result is written.")
@click.option("--rows", type=click.IntRange(min=1_000), default=stores.SPACE_ROWS, help="Rows.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, help="Rounds that count.")
@click.option("--only", default="", help=f"Parts, as in scan,start: {', '.join(PARTS)}.")
@click.option("--prepare", "only_prepare", is_flag=True, help="Make the stores, measure nothing.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rows: int, rounds: int, only: str, only_prepare: bool, docs: bool) -> None:
    """Measure the pipeline, part by part."""
    if quick:
        rows, rounds = QUICK_ROWS, 1
    console = Console(width=140)
    if docs:
        path = newest_result("pipeline")
        source = str(path.relative_to(ROOT))
        figures = part_tables.markdown(parts.load(path), source)
        tables.put_between_marks(DOCUMENT, "pipeline", figures)
        console.print(f"{source} is in {DOCUMENT.relative_to(ROOT)}")
        return
    chosen = _chosen(only)
    BUILD.mkdir(exist_ok=True)
    for name in chosen:
        PARTS[name].prepare(rows)
    if only_prepare:
        return
    # A run of another size is for looking around: its result is not kept.
    whole = rows in {stores.SPACE_ROWS, 10 * stores.SPACE_ROWS}
    path = BUILD / "newest-pipeline.json"
    missed = False
    with alone():
        if whole:
            path = parts.file_of_day(RESULTS, "pipeline", f"{datetime.now(UTC):%Y-%m-%d}")
        facts = machine.describe(BUILD)
        versions = {name: metadata.version(name) for name in PACKAGES}
        for name in chosen:
            part = PARTS[name].measure(rows, rounds)
            part = msgspec.structs.replace(part, machine=facts, versions=versions)
            part_tables.show(part, console)
            label = f"{name}-{rows:09}" if PARTS[name].by_rows else name
            parts.save(part, label, path)
            missed |= any(each.verdict.startswith("FAIL") for each in part.figures)
    console.print(f"Every round: {path.relative_to(ROOT)}")
    sys.exit(1 if missed and whole else 0)


def _chosen(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in PARTS:
            raise click.BadParameter(f"no part {name!r}; there are {', '.join(PARTS)}")
    return names or list(PARTS)


if __name__ == "__main__":
    main()

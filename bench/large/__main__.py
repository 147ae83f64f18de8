"""`python -m bench.large`: build a large store, visit it, print, and write the result."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
from rich.table import Table

import fourfold
from bench import commands, machine, tables
from bench.large import building, visits
from bench.large.building import Size, build
from bench.large.visits import Line
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams.servers import Command, Server


class Result(msgspec.Struct, frozen=True):
    """Figures of one run."""

    finished_at: str
    machine: Machine
    size: Size
    build_s: float
    store_mb: float
    memory_mb: tuple[float, float]
    """Resident memory of the server before the visits and after them."""
    foreign_share: float | None
    lines: list[Line]


def measure(port: int, size: Size, say: building.Say) -> list[Line]:
    """Visit every page, list and call, and step through a document in a browser."""
    lines = []
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for what, path in visits.requests(size, at).items():
        say(what)
        lines.append(visits.visit(port, what, path))
    with fourfold.connect(f"http://127.0.0.1:{port}") as store:
        for what, ask in visits.calls(size).items():
            say(f"client: {what}")
            lines.append(visits.call(store, what, ask))
    steps = visits.steps_in_browser(port)
    if steps is None:
        say("No Chromium: the steps of the time bar are not measured in a browser.")
    else:
        lines.append(steps)
    return lines


def run(folder: Path, root: Path, size: Size, say: building.Say) -> Result:
    """Build a store, unless there is one, and visit it."""
    facts = machine.describe(folder)

    def serve(port: int, _: Path) -> Command:
        return [sys.executable, "-m", "fourfold", "serve", str(root), f"--port={port}"], {}

    with machine.ForeignLoad() as foreign:
        build_s = 0.0
        if not root.exists():
            began = time.perf_counter()
            build(root, size, say)
            build_s = time.perf_counter() - began
        with Server("fourfold", serve, folder) as server:
            server.settle()
            before = server.memory_mib()
            lines = measure(server.port, size, say)
            memory = tuple(round(1.048576 * mib, 1) for mib in (before, server.memory_mib()))
    stored = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=facts,
        size=size,
        build_s=round(build_s, 1),
        store_mb=round(stored / 1e6, 1),
        memory_mb=(memory[0], memory[1]),
        foreign_share=foreign.share,
        lines=lines,
    )


COLUMNS = ("what", "first ms", "p50 ms", "max ms", "kB")


def row(line: Line) -> list[str]:
    """Return the cells of a line."""
    times = (line.first_ms, line.p50_ms, line.max_ms)
    return [line.what, *(f"{figure:,.1f}" for figure in times), f"{line.size / 1e3:,.1f}"]


def summary(result: Result) -> str:
    """Return what the store has and what it took, as a sentence."""
    size = result.size
    built = f", built in {result.build_s:,.0f} s" if result.build_s else ""
    return (
        f"A store with {size.spaces:,} spaces, {size.streams:,} streams, a document of"
        f" {size.revisions:,} revisions, a session of {size.events:,} events and a graph of"
        f" {size.objects:,} objects with {size.edges:,} edges: {result.store_mb:,.0f} MB"
        f"{built}. Resident memory of the server: {result.memory_mb[0]:.0f} MB"
        f" before the visits, {result.memory_mb[1]:.0f} MB after them."
    )


def markdown(result: Result, source: str) -> str:
    """Return the figures for the page."""
    return "\n\n".join(
        (
            "\n".join(f"- {line}" for line in tables.machine_facts(result.machine)),
            summary(result),
            tables.markdown(COLUMNS, [row(line) for line in result.lines]),
            f"Others used {result.foreign_share or 0:.0%} of the machine meanwhile.",
            f"Measured {result.finished_at}; `{source}`.",
        )
    )


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Share of everything to build.")
@click.option(
    "--streams", type=click.IntRange(min=building.BATCH), help="Number of streams, such as 1000000."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=BUILD,
    help="Folder for the store.",
)
@click.option(
    "--build",
    "destination",
    type=click.Path(path_type=Path, file_okay=False),
    help="Only build the store, in this folder, and keep it.",
)
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Visit a store that was built with the same options, instead of building one.",
)
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(
    *,
    scale: float,
    streams: int | None,
    folder: Path,
    destination: Path | None,
    store: Path | None,
    docs: bool,
) -> None:
    """Build a large store, and time the pages and lists of its server."""
    console = commands.console()
    if docs:
        path = newest_result("large")
        figures = markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
        console.print(commands.document("large", path, figures))
        return
    size = Size().scaled(scale)
    if streams is not None:
        size = msgspec.structs.replace(size, streams=streams)
    if destination is not None:
        build(destination, size, console.print)
        console.print(f"Look at it: fourfold open {destination}")
        return
    with alone(), TemporaryDirectory(dir=folder) as place:
        root = store.resolve() if store else Path(place) / "store"
        result = run(Path(place), root, size, console.print)
    table = Table(title=summary(result))
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left")
    for line in result.lines:
        table.add_row(*row(line))
    console.print(table)
    name = f"large-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if scale == 1.0 else BUILD / "newest-large.json"
    commands.save(result, path)
    console.print(f"Every figure: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

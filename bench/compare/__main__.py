"""`python -m bench.compare --base COMMIT`: this version beside an earlier one, in one sitting.

Each round runs every workload with the package of both versions, one after the other in random
order. A figure is processor time of one operation, the least of all blocks and rounds: it means the
same on a machine that does other work, where rates do not. The size on disk is exact.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from bench import commands, machine, tables
from bench.compare.child import WORKLOADS, Figures
from bench.machine import Machine, interpreter
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams import load, servers

CATCH_UP_BYTES = 30_000_000
NOISE = 0.05
"""Differences up to this share are within the spread of equal versions."""
UNITS = {
    "C bytes of a turn": "B",
    "C bytes of a store with two turns": "B",
    "C 30 MB": "ms",
}


class Line(msgspec.Struct, frozen=True):
    """A figure of both versions, and of every round."""

    workload: str
    name: str
    unit: str
    before: list[float]
    after: list[float]

    @property
    def ratio(self) -> float:
        """The figure of this version, in units of the earlier one."""
        return min(self.after) / min(self.before)


class Result(msgspec.Struct, frozen=True):
    """All figures of one run."""

    finished_at: str
    base: str
    machine: Machine
    lines: list[Line]


def extract(commit: str) -> Path:
    """Return the source of a commit, in a folder of its own."""
    folder = BUILD / "compare" / commit
    if not folder.exists():
        command = ["git", "archive", commit, "src"]
        archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as source:
            source.extractall(folder, filter="data")
    return folder / "src"


def measure(workload: str, source: Path, place: Path) -> Figures:
    """Return the figures of one run of one version, on a new store in `place`."""
    path = f"{source}{os.pathsep}{ROOT}"
    with TemporaryDirectory(dir=place) as scratch:
        folder = Path(scratch) / "store"
        if workload == "streams A B C":
            return measure_server(folder, path)
        done = subprocess.run(
            [interpreter(), "-m", "bench.compare.child", workload, str(folder)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        raise click.ClickException(f"{workload}: {done.stderr.strip()[-2000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_server(folder: Path, path: str) -> Figures:
    """Return processor time of the server for an append, and the time of a reader to catch up."""
    with servers.fourfold("fourfold", folder, settings={"PYTHONPATH": path}) as server:
        for name in ("s0", "read"):
            server.create(name)
        load.appends(server, 1, 64, 1, 1)
        one = [load.appends(server, 1, 64, 1, 2)["cpu_us"] for _ in range(2)]
        batch = [load.appends(server, 1, 16, 100, 2)["cpu_us"] for _ in range(2)]
        load.preload(server, "read", CATCH_UP_BYTES)
        server.settle()
        rates = [load.catch_up(server, "read")["per_s"] for _ in range(6)]
    return {
        "A append, 64 connections": min(one),
        "B 100 in a request": min(batch),
        "C 30 MB": CATCH_UP_BYTES / 1e3 / max(rates),
    }


def compare(base: str, chosen: list[str], rounds: int, place: Path) -> Iterator[list[Line]]:
    """Run the workloads with both versions, in turns; yield all lines after each round."""
    sources = {"before": extract(base), "after": ROOT / "src"}
    lines: dict[tuple[str, str], Line] = {}
    for number in range(rounds):
        for workload in chosen:
            for version in random.sample(list(sources), len(sources)):
                for name, value in measure(workload, sources[version], place).items():
                    empty = Line(workload, name, UNITS.get(name, "us"), [], [])
                    line = lines.setdefault((workload, name), empty)
                    getattr(line, version).append(round(value, 3))
            click.echo(f"round {number + 1}: {workload}", err=True)
        yield list(lines.values())


def markdown(result: Result, source: str) -> str:
    """Return the result as it stands in docs/performance.md."""
    facts = "\n".join(f"- {fact}" for fact in tables.machine_facts(result.machine))
    rows = [
        [
            f"{line.workload.split()[0]} {line.name}",
            f"{min(line.before):,.4g} {line.unit}",
            f"{min(line.after):,.4g} {line.unit}",
            f"{line.ratio:.2f}",
            "slower" if line.ratio > 1 + NOISE else "faster" if line.ratio < 1 - NOISE else "equal",
        ]
        for line in result.lines
    ]
    table = tables.markdown(("", f"{result.base[:8]}", "this version", "ratio", ""), rows)
    rounds = max(len(line.after) for line in result.lines)
    return (
        f"{facts}\n\n{table}\n\nMeasured at {result.finished_at}, the least of {rounds} rounds; "
        f"a ratio within {NOISE:.0%} of 1 is called equal. Every round: `{source}`."
    )


@click.command()
@click.option("--base", default="00ea4eb", show_default=True, help="The earlier commit.")
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True),
    default=Path("/dev/shm") if Path("/dev/shm").exists() else BUILD,
    show_default=True,
    help="Where the stores are. In memory the time of a sync does not blur the figures.",
)
@click.option("--only", default="", help="Workloads, as in `streams,documents D`.")
@click.option("--docs", is_flag=True, help="Put the newest result into docs/performance.md.")
def main(base: str, rounds: int, folder: Path, only: str, docs: bool) -> None:
    """Compare this version with an earlier one."""
    if docs:
        path = newest_result("compare")
        figures = markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
        click.echo(commands.document("compare", path, figures))
        return
    parts = [part.strip() for part in only.split(",") if part.strip()]
    every = [*WORKLOADS, "streams A B C"]
    chosen = [name for name in every if not parts or any(map(name.startswith, parts))]
    load.require_wrk()
    with alone():
        BUILD.mkdir(exist_ok=True)
        facts = machine.describe(folder)
        path = RESULTS / f"compare-{datetime.now(UTC):%Y-%m-%d}.json"
        for lines in compare(base, chosen, rounds, folder):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            result = Result(now, base, facts, lines)
            if not parts:
                # A run that is stopped leaves the rounds that are complete.
                commands.save(result, path)
    click.echo(markdown(result, str(path.relative_to(ROOT))))


if __name__ == "__main__":
    main()

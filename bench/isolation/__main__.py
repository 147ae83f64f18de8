"""`python -m bench.isolation`: measure, print, and keep the result."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

import fourfold
from bench import commands, machine, tables
from bench.isolation import http_cases, steadiness, store_cases
from bench.isolation.probe import Latency, ThreadProbe
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams.servers import Server

RECORDS = 1_000_000
ROUNDS = 3
GOAL_MS = 50.0
CAPACITY_S = 1.0
WARM_UP_S = 1.0
WINDOW_S = 3.0
CLIENT_NICE = 19
Say = Callable[[str], None]
C = TypeVar("C")


class Line(msgspec.Struct, frozen=True):
    """One case: how long its task took, and what small writes waited meanwhile."""

    case: str
    task_s: float
    latency: Latency
    foreign_share: float | None
    rounds_p99_ms: tuple[float, ...] = ()
    """Of every round, in their order; the line is that of the median one."""

    @property
    def holds(self) -> bool:
        return self.latency.p99_ms < GOAL_MS and not self.latency.failed


def median_line(lines: list[Line]) -> Line:
    """Return the line of the round with the median p99, with those of all rounds."""
    ordered = sorted(lines, key=lambda line: line.latency.p99_ms)
    every = tuple(line.latency.p99_ms for line in lines)
    return msgspec.structs.replace(ordered[(len(ordered) - 1) // 2], rounds_p99_ms=every)


class Result(msgspec.Struct, frozen=True):
    finished_at: str
    machine: Machine
    records: int
    rates: dict[str, float]
    """Writes a second that came, for each model: half of what it takes."""
    lines: list[Line]
    steadiness: steadiness.Steadiness | None = None
    """Speed of the machine between the rounds."""


def merged(old: Result, new: Result) -> Result:
    """Return a result with the newer line of each case, in the order of the cases."""
    lines = {line.case: line for line in (*old.lines, *new.lines)}
    cases = (*http_cases.CASES, *store_cases.CASES)
    ordered = [lines[case] for case in cases if case in lines]
    return msgspec.structs.replace(
        new,
        rates=old.rates | new.rates,
        lines=ordered,
        steadiness=new.steadiness or old.steadiness,
    )


@click.command()
@click.option("--records", default=RECORDS, show_default=True, help="Records a case works on.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds of the HTTP cases.")
@click.option("--only", default="", help="Cases whose name contains one of these texts: a,b.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=BUILD,
    help="Folder for the stores. In memory (/dev/shm), stalls of the disk do not count.",
)
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, records: int, rounds: int, only: str, folder: Path, docs: bool) -> None:
    """Measure what small writes wait for while large work runs.

    A run of some cases takes their place in the result of the same day.
    """
    console = commands.console()
    if docs:
        path = newest_result("isolation")
        source = str(path.relative_to(ROOT))
        figures = markdown(commands.load(path, Result), source)
        console.print(commands.document("isolation", path, figures))
        return
    name = f"isolation-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if records == RECORDS else BUILD / "newest-isolation.json"
    before = commands.load(path, Result) if path.exists() and records == RECORDS else None

    def save(result: Result) -> None:
        commands.save(result if before is None else merged(before, result), path)

    with alone(), TemporaryDirectory(dir=folder) as place, console.status("starting") as status:
        bench = Bench(Path(place), records, rounds, only, save)

        def report(case: str) -> None:
            status.update(case)
            if not console.is_terminal:
                console.print(f"{datetime.now(UTC):%H:%M:%S} {case}")

        result = bench.run(report)
    show(result, console)
    console.print(f"Every case: {path.relative_to(ROOT)}")


class Bench:
    """All cases, one after the other, each beside its probe. Saves the result after each."""

    def __init__(
        self, folder: Path, records: int, rounds: int, only: str, save: Callable[[Result], None]
    ) -> None:
        self._folder = folder
        self._records = records
        self._rounds = rounds
        self._only = only.split(",")
        self._save = save
        self._machine = machine.describe(folder)
        self._rates: dict[str, float] = {}
        self._lines: dict[str, list[Line]] = {}
        self._loops: list[int] = []

    def run(self, say: Say) -> Result:
        if self._select(http_cases.CASES):
            say("writing streams")
            http_cases.prepare(
                self._folder / "streams", self._records, self._select(http_cases.CASES)
            )
            for number in range(self._rounds):
                self._measure_speed(say)
                self._measure_server(self._folder / f"round-{number}", say)
        self._measure_store(say)
        self._measure_speed(say)
        return self._result()

    def _measure_speed(self, say: Say) -> None:
        say("speed of the machine")
        self._loops += steadiness.count_loops()

    def _result(self) -> Result:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [median_line(found) for found in self._lines.values()]
        speed = steadiness.summarize(self._loops) if self._loops else None
        return Result(now, self._machine, self._records, self._rates, lines, speed)

    def _select(self, cases: Mapping[str, C]) -> dict[str, C]:
        return {
            name: case for name, case in cases.items() if any(part in name for part in self._only)
        }

    def _add(self, line: Line, say: Say) -> None:
        self._lines.setdefault(line.case, []).append(line)
        self._save(self._result())
        say("  ".join(_row(line)))

    def _measure_server(self, folder: Path, say: Say) -> None:
        cases = self._select(http_cases.CASES)
        root = folder / "streams"
        shutil.copytree(self._folder / "streams", root)
        with Server("fourfold", lambda port, _: _serve(port, root), folder) as server:
            target = http_cases.Target(server.port, root)
            for name, task in cases.items():
                # A virtual machine is not as fast at one time as at another.
                with ServerProbe(server.port, 0.0) as capacity:
                    time.sleep(CAPACITY_S)
                rate = self._rates["streams"] = round(capacity.latency.rate / 2)
                say(name)
                surroundings = http_cases.SURROUNDINGS.get(name, nullcontext)
                with surroundings(target), machine.ForeignLoad() as foreign:
                    with ServerProbe(server.port, rate) as probe:
                        time.sleep(WARM_UP_S)
                        taken = _run_client(lambda task=task: task(target))  # type: ignore[misc]
                    latency = probe.latency
                self._add(Line(name, taken, latency, foreign.share), say)
        shutil.rmtree(folder)

    def _measure_store(self, say: Say) -> None:
        cases = self._select(store_cases.CASES)
        if not cases:
            return
        models = list(dict.fromkeys(case.model for case in cases.values()))
        say(f"writing {', '.join(models)}")
        root = self._folder / "store"
        store_cases.prepare(root, self._records, models)
        with fourfold.open(root) as store:
            for name, case in cases.items():
                say(name)
                if case.model not in self._rates:
                    probe = ThreadProbe(lambda case=case: case.write(store), 0.0)  # type: ignore[misc]
                    probe.start()
                    time.sleep(CAPACITY_S)
                    self._rates[case.model] = round(probe.stop().rate / 2)
                rate = self._rates[case.model]
                probe = ThreadProbe(lambda case=case: case.write(store), rate)  # type: ignore[misc]
                probe.start()
                time.sleep(WARM_UP_S)
                taken = _run(lambda case=case: case.task(store))  # type: ignore[misc]
                self._add(Line(name, taken, probe.stop(), None), say)


def _run_client(task: Callable[[], object]) -> float:
    """Run a task in a process with low priority: a client elsewhere would take no CPU time here."""

    def run() -> None:
        os.nice(CLIENT_NICE)
        _leave_a_core(os.getpid())
        task()

    def start() -> None:
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode

    return _run(start)


def _leave_a_core(pid: int) -> None:
    """Keep a client on the last core, so that the server has the others.

    Otherwise the scheduler puts the server and the load on one core for seconds, and a task of low
    priority on the other.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})


def _run(task: Callable[[], object]) -> float:
    """Run a task; a short one is followed by a pause, so that enough writes are counted."""
    began = time.perf_counter()
    task()
    taken = time.perf_counter() - began
    time.sleep(max(0.5, WINDOW_S - taken))
    return round(taken, 2)


def _serve(port: int, root: Path) -> tuple[list[str], dict[str, str]]:
    connections = {"FOURFOLD_SERVER_CONNECTIONS_MAX": "16000"}
    arguments = [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port)]
    return arguments, connections


class ServerProbe:
    """A probe in a process of its own; `latency` is there when the block has ended."""

    def __init__(self, port: int, rate: float) -> None:
        self._arguments = [str(port), "probe", str(rate)]
        self.latency = Latency(0, 0.0, 0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.isolation.probe", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        _leave_a_core(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        output, _error = self._process.communicate(b"", timeout=60)
        self.latency = msgspec.convert(json.loads(output), Latency)


def _row(line: Line) -> list[str]:
    return [
        line.case,
        f"{line.task_s:.1f}",
        f"{line.latency.rate:,.0f}",
        f"{line.latency.p50_ms:.1f}",
        f"{line.latency.p99_ms:.1f}",
        " ".join(f"{p99:.0f}" for p99 in line.rounds_p99_ms),
        f"{line.latency.max_ms:.0f}",
        str(line.latency.failed),
        "pass" if line.holds else "FAIL",
    ]


COLUMNS = (
    "beside",
    "task s",
    "writes/s",
    "p50 ms",
    "p99 ms",
    "of rounds",
    "max ms",
    "failed",
    "p99 < 50 ms",
)


def show(result: Result, console: Console) -> None:
    table = Table(title=f"Small writes beside work on {result.records:,} records")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left")
    for line in result.lines:
        table.add_row(*_row(line))
    console.print(table)


def markdown(result: Result, source: str) -> str:
    facts = "\n".join(f"- {line}" for line in tables.machine_facts(result.machine))
    rates = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in result.rates.items())
    paragraphs = [
        facts,
        f"{result.records:,} records a case; half of what each takes, the last time: {rates}.",
        tables.markdown(COLUMNS, [_row(line) for line in result.lines]),
        f"Measured {result.finished_at}; every case: `{source}`.",
    ]
    if result.steadiness is not None:
        paragraphs.insert(2, _describe_speed(result.steadiness))
    return "\n\n".join(paragraphs)


def _describe_speed(speed: steadiness.Steadiness) -> str:
    return (
        f"A plain loop between the rounds: in the slowest of {speed.windows} tenths of a second "
        f"it ran at {speed.slowest:.0%} of its median speed, in one of ten at "
        f"{speed.slow_tenth:.0%} or less."
    )


if __name__ == "__main__":
    main()

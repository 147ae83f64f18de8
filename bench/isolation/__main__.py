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
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

import fourfold
from bench import commands, machine, tables
from bench.isolation import http_cases, route_cases, steadiness, store_cases
from bench.isolation.probe import Latency, ThreadProbe
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams.servers import Server
from fourfold.store import Store

RECORDS = 1_000_000
ROUNDS = 1
GOAL_MS = 50.0
CAPACITY_S = 1.0
WARM_UP_S = 1.0
WINDOW_S = 5.0
"""A shorter task is repeated for this time."""
RESTS = 2
"""Length of the rest after a short task, as a multiple of its time."""
TASK_S = 40.0
"""A longer task is stopped after this time."""
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
    times: int = 1
    """How often the task ran in `task_s`, with rests."""
    stopped: bool = False
    """The task was stopped before its end; the latency covers the time until then."""
    finished_at: str = ""
    machine: Machine | None = None
    """The run of this line; empty in lines of older files."""

    @property
    def holds(self) -> bool:
        return self.latency.p99_ms < GOAL_MS and not self.latency.failed


def median_line(lines: list[Line]) -> Line:
    """Return the line of the round with the median p99, with those of all rounds.

    Of two rounds it is the slower one.
    """
    ordered = sorted(lines, key=lambda line: line.latency.p99_ms)
    every = tuple(line.latency.p99_ms for line in lines)
    return msgspec.structs.replace(ordered[len(ordered) // 2], rounds_p99_ms=every)


class Result(msgspec.Struct, frozen=True):
    finished_at: str
    machine: Machine
    records: int
    rates: dict[str, float]
    """Writes a second that came, for each model: half of what it takes."""
    lines: list[Line]
    steadiness: steadiness.Steadiness | None = None
    """Speed of the machine between the rounds."""


CASES = (*http_cases.CASES, *route_cases.CASES, *store_cases.CASES)


def merged(old: Result, new: Result) -> Result:
    """Return a result with the newer line of each case, in the order of the cases.

    Each line keeps the time, the commit and the machine of its own run.
    """
    lines = {line.case: line for result in (old, new) for line in lines_with_runs(result)}
    ordered = [lines[case] for case in CASES if case in lines]
    return msgspec.structs.replace(
        new,
        rates=old.rates | new.rates,
        lines=ordered,
        steadiness=new.steadiness or old.steadiness,
    )


def lines_with_runs(result: Result) -> list[Line]:
    """Return the lines of a result; those without a run are of the run of the result."""
    return [
        line
        if line.machine is not None
        else msgspec.structs.replace(line, finished_at=result.finished_at, machine=result.machine)
        for line in result.lines
    ]


def started_from(path: Path, only: str) -> Result | None:
    """Return the result that a run of some cases continues; a full run starts an empty one."""
    newest = max(path.parent.glob("isolation-[0-9]*.json"), default=None)
    return commands.load(newest, Result) if only and newest is not None else None


@click.command()
@click.option("--records", default=RECORDS, show_default=True, help="Records a case works on.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds of the cases over HTTP.")
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

    A run of some cases replaces their lines in a copy of the newest result.
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
    before = started_from(path, only) if records == RECORDS else None

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
        streams = self._select(http_cases.CASES)
        routes = self._select(route_cases.CASES)
        cases = self._select(store_cases.CASES)
        if streams:
            say("writing streams")
            names = {name for case in streams.values() for name in case.streams}
            http_cases.prepare(self._folder / "streams", self._records, names)
        models = {model for case in routes.values() for model in case.models}
        models |= {case.model for case in cases.values()}
        if models:
            say(f"writing {', '.join(sorted(models))}")
            http_cases.prepare(self._folder / "store", 0, ())
            store_cases.prepare(self._folder / "store", self._records, sorted(models))
        for number in range(self._rounds):
            for name, served in (("streams", streams), ("store", routes)):
                if served:
                    self._measure_speed(say)
                    self._measure_server(self._folder / name, number, served, say)
        self._measure_store(cases, say)
        self._measure_speed(say)
        return self._result()

    def _measure_speed(self, say: Say) -> None:
        say("speed of the machine")
        self._loops += steadiness.count_loops()

    def _result(self) -> Result:
        now = _now()
        lines = [median_line(found) for found in self._lines.values()]
        speed = steadiness.summarize(self._loops) if self._loops else None
        return Result(now, self._machine, self._records, self._rates, lines, speed)

    def _select(self, cases: Mapping[str, C]) -> dict[str, C]:
        return {
            name: case for name, case in cases.items() if any(part in name for part in self._only)
        }

    def _add(self, case: str, task: TaskTimes, latency: Latency, say: Say) -> None:
        line = Line(
            case,
            task.seconds,
            latency,
            task.foreign_share,
            times=task.times,
            stopped=task.stopped,
            finished_at=_now(),
            machine=self._machine,
        )
        self._lines.setdefault(case, []).append(line)
        self._save(self._result())
        say("  ".join(_row(line)))

    def _measure_server(
        self, source: Path, number: int, cases: Mapping[str, http_cases.Case], say: Say
    ) -> None:
        folder = self._folder / f"round-{number}-{source.name}"
        root = folder / source.name
        shutil.copytree(source, root)
        with Server("fourfold", lambda port, _: serve(port, root), folder) as server:
            target = http_cases.Target(server.port, root)
            for name, case in cases.items():
                # A virtual machine is not as fast at one time as at another.
                with ServerProbe(server.port, 0.0) as capacity:
                    time.sleep(CAPACITY_S)
                rate = self._rates["streams"] = round(capacity.latency.rate / 2)
                say(name)
                with case.surroundings(target), machine.ForeignLoad() as foreign:
                    with ServerProbe(server.port, rate) as probe:
                        time.sleep(WARM_UP_S)
                        task = _run_client(case, target)
                    latency = probe.latency
                self._add(name, task._replace(foreign_share=foreign.share), latency, say)
        shutil.rmtree(folder)

    def _measure_store(self, cases: Mapping[str, store_cases.Case], say: Say) -> None:
        if not cases:
            return
        with fourfold.open(self._folder / "store") as store:
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
                task = run_in_store(store, case, store_cases.StopWatch(TASK_S))
                self._add(name, task, probe.stop(), say)


def run_in_store(store: Store, case: store_cases.Case, watch: store_cases.StopWatch) -> TaskTimes:
    """Run the task of a case until it is stopped, or often enough to fill the window."""
    with watch.limiting(store_cases.database_of(store, case.model)):
        began = time.perf_counter()
        times = Repetition(once=case.once)
        times.run(lambda: case.task(store, watch))
    return TaskTimes(round(time.perf_counter() - began, 2), times.count, watch.stopped)


class TaskTimes(NamedTuple):
    """What running the task of a case took."""

    seconds: float
    times: int
    stopped: bool = False
    foreign_share: float | None = None


class Repetition:
    """Repeats a short task until `WINDOW_S` have passed; one that runs once is followed by a rest.

    The p99 is that of the whole window: a single task of a few milliseconds would not appear in it.
    Without rests, writes that never end would need the other half of what the server can take.
    """

    def __init__(
        self,
        *,
        once: bool,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._once = once
        self._clock = clock
        self._sleep = sleep
        self.count = 0

    def run(self, task: Callable[[], object]) -> None:
        began = now = self._clock()
        while (rest := began + WINDOW_S - now) > 0 or not self.count:
            self.count += 1
            task()
            took = self._clock() - now
            rest -= took
            if rest > 0:
                self._sleep(rest if self._once else min(RESTS * took, rest))
            if self._once:
                return
            now = self._clock()


def _run_client(case: http_cases.Case, target: http_cases.Target) -> TaskTimes:
    """Run a task in a process with low priority: a client elsewhere would take no CPU time here."""
    context = multiprocessing.get_context("fork")
    output, inherited = context.Pipe(duplex=False)

    def run() -> None:
        os.nice(CLIENT_NICE)
        _leave_a_core(os.getpid())
        began = time.perf_counter()
        times = Repetition(once=case.once)
        stopped: list[bool] = []
        times.run(lambda: stopped.append(case.task(target) is True))
        inherited.send((round(time.perf_counter() - began, 2), times.count, any(stopped)))

    process = context.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
    return TaskTimes(*output.recv())


def _leave_a_core(pid: int) -> None:
    """Keep a client on the last core, so that the server has the others.

    Otherwise the scheduler puts the server and the load on one core for seconds, and a task of low
    priority on the other.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def serve(port: int, root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the server that is measured."""
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
        f"{line.task_s:.1f}{' (stopped)' if line.stopped else ''}",
        str(line.times),
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
    "times",
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
    lines = lines_with_runs(result)
    runs = list(dict.fromkeys(line.machine for line in lines if line.machine is not None))
    rates = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in result.rates.items())
    several = len(runs) > 1
    rows = [_row(line) + ([_run_name(runs, line)] if several else []) for line in lines]
    paragraphs = [
        *(_describe_run(run, runs, lines) for run in runs),
        f"{result.records:,} records a case; half of what each takes, the last time: {rates}.",
        tables.markdown((*COLUMNS, *(["run"] if several else [])), rows),
        f"Measured {result.finished_at}; every case: `{source}`.",
    ]
    if result.steadiness is not None:
        paragraphs.insert(-2, _describe_speed(result.steadiness))
    return "\n\n".join(paragraphs)


def _describe_run(run: Machine, runs: list[Machine], lines: list[Line]) -> str:
    """Return the facts of a run, with its name if there are several."""
    facts = "\n".join(f"- {fact}" for fact in tables.machine_facts(run))
    if len(runs) == 1:
        return facts
    days = sorted({line.finished_at[:10] for line in lines if line.machine == run})
    return f"Run {_letter(runs, run)}, {', '.join(days)}:\n\n{facts}"


def _run_name(runs: list[Machine], line: Line) -> str:
    return "" if line.machine is None else _letter(runs, line.machine)


def _letter(runs: list[Machine], run: Machine) -> str:
    return chr(ord("a") + runs.index(run))


def _describe_speed(speed: steadiness.Steadiness) -> str:
    return (
        f"A plain loop between the rounds: in the slowest of {speed.windows} tenths of a second "
        f"it ran at {speed.slowest:.0%} of its median speed, in one of ten at "
        f"{speed.slow_tenth:.0%} or less."
    )


if __name__ == "__main__":
    main()

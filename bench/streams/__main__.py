"""`python -m bench.streams`: measure, print, and keep the result."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import commands, machine
from bench.place import BUILD, RESULTS, ROOT, alone
from bench.streams import load, report, results, servers
from bench.streams.results import Cell, Record, Result
from bench.streams.servers import Server

ROUNDS = 3
SECONDS = 2.0
CATCH_UP_BYTES = 100_000_000
LIVE_MESSAGES = 150
WORKLOADS = {
    "A": "appends of 200 bytes",
    "B": "batches of 100 messages",
    "C": "catching up with 100 MB",
    "D": "live readers",
    "E": "memory",
}
Say = Callable[[str], None]
REDIS = "redis-always"


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds that count ({ROUNDS}).")
@click.option("--only", default="", help=f"Workloads, as in A,C: {', '.join(WORKLOADS)}.")
@click.option("--servers", "named", default="", help="Servers, as in fourfold,prisma-tuned.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int | None, only: str, named: str, docs: bool) -> None:
    """Measure `fourfold serve` beside other servers.

    A run of some workloads takes their place in the result of the same day.
    """
    console = commands.console()
    if docs:
        _document(console)
        return
    load.require_wrk()
    wanted = rounds or (1 if quick else ROUNDS)
    chosen = commands.select_columns(only, WORKLOADS)
    bench = Bench(chosen, set(filter(None, named.split(","))), quick=quick)
    with console.status("starting") as status:
        result = bench.run(wanted, status.update)
    path = BUILD / "newest-streams.json"
    if not quick and not named:
        path = RESULTS / f"streams-{datetime.now(UTC):%Y-%m-%d}.json"
        result = results.merged(commands.load(path, Result) if path.exists() else None, result)
    report.show(result, console)
    commands.save(result, path)
    console.print(f"Every round: {path.relative_to(ROOT)}")


class Bench:
    """All servers, in turns, cell by cell, round by round."""

    def __init__(self, chosen: set[str], named: set[str], *, quick: bool) -> None:
        self._chosen = chosen
        self._named = named
        self._seconds = 1.0 if quick else SECONDS
        self._bytes = CATCH_UP_BYTES // (10 if quick else 1)
        self._messages = 50 if quick else LIVE_MESSAGES
        self._records: list[Record] = []
        self._folder = Path()

    def run(self, rounds: int, say: Say) -> Result:
        peers = BUILD / "streams-peers"
        say("installing the peers")
        servers.install(peers)
        with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder, ExitStack() as stack:
            self._folder = Path(folder)
            facts = machine.describe(self._folder)
            found = [
                stack.enter_context(each)
                for each in servers.all_servers(self._folder, peers)
                if not self._named or each.name in self._named
            ]
            self._prepare(found, say)
            for number in range(rounds):
                turned = found[number % len(found) :] + found[: number % len(found)]
                self._round(number + 1, turned, say)
        return Result(
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=facts,
            versions=_versions(),
            settings={
                "seconds": str(self._seconds),
                "rounds": str(rounds),
                "catch_up_bytes": str(self._bytes),
                "live_messages": str(self._messages),
                **servers.TUNED,
            },
            records=self._records,
        )

    def _prepare(self, found: list[Server], say: Say) -> None:
        for server in found:
            say(f"preparing {server.name}")
            server.settle()
            if "E" in self._chosen:
                self._keep(1, Cell("E", "idle"), server, {"rss_mib": server.memory_mib()}, 0.0)
            if server.name != REDIS:
                for number in range(100):
                    server.create(f"s{number}")
                server.create("live")
                if self._chosen & {"A", "B"}:
                    load.appends(server, 100, 16, 1, 1.0)
                if "C" in self._chosen:
                    server.create("large")
                    load.preload(server, "large", self._bytes)
                    load.catch_up(server, "large")
            server.settle()
            server.sleep()

    def _round(self, number: int, found: list[Server], say: Say) -> None:
        for cell in _cells(self._chosen):
            for server in found:
                if server.name == REDIS and cell.workload not in {"A", "B"}:
                    continue
                say(f"round {number}: {cell.title}, {server.name}")
                self._measure(number, cell, server)
        if "E" in self._chosen:
            for server in found:
                memory = {"rss_mib": server.memory_mib()}
                self._keep(number, Cell("E", "after the load"), server, memory, 0.0)

    def _measure(self, number: int, cell: Cell, server: Server) -> None:
        server.wake()
        server.settle()
        # What others left to be written is not written at the cost of this one.
        os.sync()
        sync_us = machine.sync_cost_us(self._folder, 100)[0]
        before, served = _seconds_used(), server.cpu_seconds()
        if cell.workload in {"A", "B"}:
            figures = load.appends(
                server, cell.streams, cell.connections, cell.batch, self._seconds
            )
        elif cell.workload == "C":
            figures = load.catch_up(server, "large")
        else:
            figures = load.live(server, "live", cell.mode, self._messages)
        after = _seconds_used()
        ours = after[2] - before[2] + server.cpu_seconds() - served
        passed = after[1] - before[1]
        foreign = max(0.0, (after[0] - before[0] - ours) / passed) if passed else 0.0
        server.settle()
        server.sleep()
        self._keep(number, cell, server, figures, foreign, sync_us)

    def _keep(
        self,
        number: int,
        cell: Cell,
        server: Server,
        figures: dict[str, float],
        foreign: float,
        sync_us: float | None = None,
    ) -> None:
        cost = machine.sync_cost_us(self._folder, 100)[0] if sync_us is None else sync_us
        self._records.append(Record(number, cell, server.name, figures, round(foreign, 3), cost))


def _cells(chosen: set[str]) -> list[Cell]:
    found = [
        Cell(
            "A",
            f"{streams} stream{'s' if streams > 1 else ''}, {connections} connections",
            streams,
            connections,
        )
        for streams in (1, 100)
        for connections in (1, 16, 64)
    ]
    found += [
        Cell("B", f"100 in a request, {count} connections", 1, count, 100) for count in (1, 16)
    ]
    found.append(Cell("C", "100 MB from the beginning"))
    found += [Cell("D", mode, mode=mode) for mode in ("long-poll", "sse")]
    return [cell for cell in found if cell.workload in chosen]


def _seconds_used() -> tuple[float, float, float]:
    """Busy and all seconds of the machine, and those of this process and what it waited for."""
    busy, passed = machine._processor_seconds()
    return busy, passed, machine._own_seconds()


def _versions() -> dict[str, str]:
    found = dict(package.rpartition("@")[::2] for package in servers.PACKAGES)
    for name, command in (
        ("redis", ["redis-server", "--version"]),
        ("node", ["node", "--version"]),
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        found[name] = next((w[2:] for w in done.split() if w.startswith("v=")), done.strip())
    return found


def _document(console: Console) -> None:
    # The other benchmark of streams keeps its results under a longer name.
    path = max(RESULTS.glob("streams-[0-9]*.json"), default=None)
    if path is None:
        raise click.ClickException("bench/results holds no result of streams yet: run it first")
    figures = report.markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
    console.print(commands.document("streams", path, figures))


if __name__ == "__main__":
    main()

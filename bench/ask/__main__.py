"""`python -m bench.ask`: measure SQL in process and finding documents, print, and keep the result.

Processor time of this process, because the machine may be shared; the command line in wall time.
Each figure is the best of its rounds. SQLite directly, by the same driver, is the limit of the raw
scan, in turns with it; what peers need for the same work is beside the figures.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import click
import msgspec

import fourfold
from bench import commands, machine
from bench.ask import find
from bench.ask.peers import Parquet
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.kernel import load_queries

SQL = load_queries("bench.ask")
BIG = "did:web:big.example"
SMALL_SPACES = 20
LOOKUPS = 5_000
SEED = 19
DUCKDB = "DuckDB on Parquet"
UNFOLDED = "SQLite, without folding"


class Figure(msgspec.Struct, frozen=True):
    """A measured value, its unit, the goal, and the values of peers."""

    name: str
    value: float
    unit: str
    goal: float
    at_least: bool
    peers: dict[str, float] = {}

    @property
    def met(self) -> bool:
        """True if the value reaches the goal."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


class Result(msgspec.Struct, frozen=True):
    """One run."""

    finished_at: str
    quick: bool
    entities: int
    rounds: int
    machine: Machine
    figures: list[Figure]


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True)
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int, docs: bool) -> None:
    """Measure SQL in process."""
    console = commands.console()
    if docs:
        path = newest_result("ask")
        console.print(commands.document("ask", path, table(commands.load(path, Result), path)))
        return
    entities = 5_000 if quick else 100_000
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        root = Path(folder) / "store"
        facts = machine.describe(Path(folder))
        fill(root, entities)
        figures = measure(root, entities, rounds)
        figures += measure_find(Path(folder), 10 * entities, rounds)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    result = Result(finished, quick, entities, rounds, facts, figures)
    path = BUILD / "newest-ask.json"
    if not quick:
        path = RESULTS / f"ask-{datetime.now(UTC):%Y-%m-%d}.json"
    commands.save(result, path)
    console.print(table(result, path))
    sys.exit(0 if all(figure.met for figure in figures) else 1)


def fill(root: Path, entities: int) -> None:
    """Create one large space, half of its heads patched, and small ones."""
    with fourfold.open(root) as store:
        space = store.space(BIG)
        for begin in range(0, entities, 500):
            space.transact(
                [
                    {"op": "set", "id": name(number), "value": value(number)}
                    for number in range(begin, begin + 500)
                ]
            )
        patches = [{"op": "increment", "path": "/n", "by": 1}]
        for begin in range(0, entities, 1_000):
            space.transact(
                [
                    {"op": "patch", "id": name(number), "patches": patches}
                    for number in range(begin, begin + 1_000, 2)
                ]
            )
        for number in range(SMALL_SPACES):
            store.space(f"did:web:s{number}.example").set("a", value(number))


def name(number: int) -> str:
    """Return the id of an entity."""
    return f"e{number:07}"


def value(number: int) -> dict[str, object]:
    """Return a document of about 80 bytes."""
    return {"n": number, "status": "open", "text": "x" * 40}


def measure(root: Path, entities: int, rounds: int) -> list[Figure]:
    """Return the figures of all queries, each the best of its rounds."""
    chosen = random.Random(SEED).sample(range(entities), LOOKUPS)
    ids = json.dumps([name(number) for number in chosen])
    limits: dict[str, Any] = {"max_rows": 10**9, "max_bytes": 10**12, "timeout_s": 600}
    with fourfold.open(root, mode="r") as store:
        space = store.space(BIG)
        direct = apsw.Connection(
            str(root / "spaces" / f"{BIG}.sqlite"), flags=apsw.SQLITE_OPEN_READONLY
        )
        first = best(lambda: store.sql(SQL.first_row), rounds)
        call = best(lambda: space.sql(SQL.state + " LIMIT 0", **limits), rounds)
        parquet = Parquet(root.parent, space.sql(SQL.raw_in_process, **limits))
        scan, limit, duck_scan = best_in_turns(
            lambda: space.sql(SQL.raw_in_process, **limits),
            lambda: direct.execute(SQL.raw).fetchall(),
            lambda: parquet.query(SQL.parquet_rows),
            rounds=rounds,
        )
        parquet.close()
        parquet = Parquet(root.parent, space.sql(SQL.state, **limits))
        state, heads, duck_state = best_in_turns(
            lambda: space.sql(SQL.state, **limits),
            lambda: direct.execute(SQL.heads).fetchall(),
            lambda: parquet.query(SQL.parquet_rows),
            rounds=rounds,
        )
        parquet.close()
        head_lookups = best(lambda: direct.execute(SQL.head_lookups, [ids]).fetchall(), rounds)
        lookups = best(lambda: space.sql(SQL.lookups, [ids], **limits), rounds) - call
    command = [
        sys.executable,
        "-m",
        "fourfold",
        "sql",
        str(root),
        "select 1 as n from state limit 1",
    ]
    return [
        Figure(f"first row, {SMALL_SPACES + 1} spaces", first * 1e3, "ms", 50, at_least=False),
        Figure("command line", wall(command, rounds), "s", 1, at_least=False),
        Figure(
            *("raw scan, of SQLite directly", limit / scan, "", 0.9),
            at_least=True,
            peers={DUCKDB: limit / duck_scan},
        ),
        Figure(
            *("state, half patched", entities / state, "rows/s", 80_000),
            at_least=True,
            peers={UNFOLDED: entities / heads, DUCKDB: entities / duck_state},
        ),
        Figure(
            *("lookup in a join", lookups / LOOKUPS * 1e6, "us", 100),
            at_least=False,
            peers={UNFOLDED: head_lookups / LOOKUPS * 1e6},
        ),
    ]


def measure_find(folder: Path, entries: int, rounds: int) -> list[Figure]:
    """Return the figures of finding documents."""
    find.fill(folder / "find", entries)
    pages = find.page_ms(folder / "find", rounds)
    ratios = find.commit_ratios(folder, rounds)
    peer = find.plain_page_ms(folder / "find", folder / "plain.sqlite", rounds)
    shown = f"find, page of {find.PAGE}, {entries:,} entries"
    return [
        *(
            Figure(
                *(f"{shown}, {name}", value, "ms", 1),
                at_least=False,
                peers={"SQLite, index of the newest state": peer} if name == "now" else {},
            )
            for name, value in pages.items()
        ),
        Figure("commit with 1 index, of none", ratios["1x1"], "", 0.75, at_least=True),
        Figure("commit with 3 indexes, of none", ratios["3x1"], "", 0.6, at_least=True),
        Figure("100 operations with 1 index, of none", ratios["1x100"], "", 0, at_least=True),
        Figure("100 operations with 3 indexes, of none", ratios["3x100"], "", 0, at_least=True),
    ]


def best(work: Callable[[], object], rounds: int) -> float:
    """Return the least processor time of some calls, in seconds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def best_in_turns(*works: Callable[[], object], rounds: int) -> list[float]:
    """Return the least processor time of each work; they run in turns, under equal conditions."""
    times = [[best(work, 1) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def wall(command: list[str], rounds: int) -> float:
    """Return the least time of a command, in seconds, with its modules compiled."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append(time.perf_counter() - begin)
    return min(times)


def table(result: Result, path: Path) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| | measured | goal | peers |", "|---|---|---|---|"]
    for figure in result.figures:
        sign = "at least" if figure.at_least else "at most"
        met = "" if figure.met else " (missed)"
        peers = "; ".join(f"{name} {value:,.3g}" for name, value in figure.peers.items())
        lines.append(
            f"| {figure.name} | {figure.value:,.3g} {figure.unit}{met} |"
            f" {f'{sign} {figure.goal:,g} {figure.unit}' if figure.goal else 'reported'} |"
            f" {peers} |".replace("  ", " ")
        )
    where = path.relative_to(ROOT)
    return "\n".join([*lines, "", f"Measured {result.finished_at}: `{where}`."])


if __name__ == "__main__":
    main()

"""`python -m bench.ask.streams`: search and aggregates over companions, and peers on the same data.

Messages like those of a log are appended, published and given companions. Each figure is the least
processor time of its calls in this process, because the machine may be shared; wall times are kept
beside them. DuckDB reads the Parquet of the segments, in this process with two threads, and ripgrep
the NDJSON, in wall time. At last companions are built in the background, as a server does it, while
another stream gets appends at half of its capacity.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec

import fourfold
from bench import commands, machine
from bench.isolation.probe import ThreadProbe
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold.models.streams.archive import archiver

SEED = 19
WORDS = 2_100
SERVICES = ["auth", "pay", "search", "mail", "cart", "stock", "edge", "jobs"]
LEVELS = ["debug", "info", "info", "info", "warn", "error"]
START_MS = 1_767_225_600_000
DECLARATION = {
    "text": ["message"],
    "columns": ["service", "level", "status", "duration", "host", "region", "bytes", "user"],
    "timestamp": "time",
    "rollups": [{"every": "1m", "by": ["service", "level"], "measures": ["duration"]}],
}


class Figure(msgspec.Struct, frozen=True):
    """A measured value, its unit, the goal if there is one, and peers."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    peers: dict[str, float] = {}
    wall: float | None = None
    """The same as wall time, the median."""

    @property
    def met(self) -> bool:
        """True if the value reaches the goal, or there is none."""
        return self.goal is None or self.value <= self.goal


class Result(msgspec.Struct, frozen=True):
    """One run."""

    finished_at: str
    messages: int
    rounds: int
    machine: Machine
    figures: list[Figure]


def messages(count: int) -> Any:
    """Yield messages of about 270 bytes, a day of them."""
    chance = random.Random(SEED)
    words = [f"word{number:04d}" for number in range(WORDS)]
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    step = 86_400_000 / count
    for number in range(count):
        text = " ".join(chance.choices(words, weights, k=9))
        if number % 100_000 == 777:
            text += f" rare{number // 100_000}"
        yield {
            "time": int(START_MS + number * step),
            "service": chance.choice(SERVICES),
            "level": chance.choice(LEVELS),
            "status": chance.choice([200, 200, 200, 201, 304, 404, 500, 503]),
            "duration": round(chance.expovariate(1 / 40), 2),
            "host": f"host-{chance.randrange(40)}",
            "region": chance.choice(["eu-west", "eu-north", "us-east"]),
            "bytes": chance.randrange(100_000),
            "user": f"u{chance.randrange(50_000)}",
            "message": text,
        }


def fill(root: Path, count: int, ndjson: Path) -> dict[str, float]:
    """Append messages and publish all but the tail; return what it took."""
    facts: dict[str, float] = {}
    with fourfold.open(root) as store, ndjson.open("wb") as lines:
        stream = store.streams.create("logs", "application/json")
        stream.set_schema(search=DECLARATION)
        batch: list[bytes] = []
        for message in messages(count):
            batch.append(msgspec.json.encode(message))
            if len(batch) == 2_000:
                stream.append_bytes(b"[" + b",".join(batch) + b"]")
                lines.write(b"\n".join(batch) + b"\n")
                batch.clear()
        store.archive.publish_all()
        began = time.process_time()
        done = store.archive.build_companions()
        facts["companions"] = done.companions
        facts["build_s"] = time.process_time() - began
        with store.streams.database.read() as snapshot:
            facts["companion_bytes"] = snapshot.value(
                "SELECT sum(size_bytes) FROM search_segment_companions"
            )
    facts["ndjson_bytes"] = ndjson.stat().st_size
    return facts


def least_ms(
    rounds: int,
    call: Callable[[int], object],
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """Return the least time of calls by a clock, and the median wall time, after one more call."""
    call(0)
    times, walls = [], []
    for number in range(rounds):
        began, wall = clock(), time.perf_counter()
        call(number)
        times.append((clock() - began) * 1000)
        walls.append((time.perf_counter() - wall) * 1000)
    return min(times), sorted(walls)[len(walls) // 2]


def measure(root: Path, count: int, ndjson: Path, rounds: int) -> list[Figure]:
    """Measure searches and aggregates, and the peers."""
    middle = START_MS + 43_200_000
    with fourfold.open(root) as store:
        stream = store.streams.open("logs")
        folder = store.archive.segments.cache.folder
        peers = _peers(folder, ndjson, rounds)

        def rare(number: int) -> None:
            page = stream.search(f"rare{number % max(1, count // 100_000)}")
            assert len(page) == 1
            assert page.coverage.segments_scanned == 0
            assert page.coverage.complete

        def range_filter(number: int) -> None:
            page = stream.search(f"duration:>{150 + number} service:auth", total=True)
            assert page.total is not None
            assert page.total.exact

        def rollup(_number: int) -> None:
            result = stream.aggregate(
                by=["service"], every="1m", measures=["count", "avg(duration)"]
            )
            assert result.coverage.segments_scanned == 0

        def hour(number: int) -> None:
            since = middle + 60_000 * number
            stream.aggregate(by=["level"], every="1m", since=since, until=since + 3_599_999)

        calls: dict[str, tuple[Callable[[int], object], float | None]] = {
            "rare term, with its message": (rare, 5.0),
            "range filter, counted, 50 messages": (range_filter, 100.0),
            "one-minute rollup": (rollup, 50.0),
            "one-minute rollup of one hour": (hour, None),
            "frequent word, newest 50": (lambda _n: stream.search("word0001"), None),
            "columns: p95 by service": (
                lambda _n: stream.aggregate(by=["service"], measures=["p95(duration)"]),
                None,
            ),
        }
        figures = []
        for name, (call, goal) in calls.items():
            least, wall = least_ms(rounds, call)
            figures.append(Figure(name, least, "ms", goal, peers.get(name, {}), wall))
        tail = [msgspec.json.encode(message) for message in messages(count)][
            : 16 * 1024 * 1024 // 270
        ]
        for at in range(0, len(tail), 2_000):
            stream.append_bytes(b"[" + b",".join(tail[at : at + 2_000]) + b"]")
        for at, name in ((0, "rare term"), (2, "one-minute rollup")):
            call = list(calls.values())[at][0]
            least, _ = least_ms(rounds, call)
            more = least - figures[at].value
            figures.append(Figure(f"unsealed 16 MiB, {name}: more than without", more, "ms", 50.0))
    return figures


def isolate(root: Path, seconds: float) -> list[Figure]:
    """Measure appends beside the background of a server that builds companions."""
    archiver.ARCHIVE_UPKEEP_S = 0.1  # type: ignore[misc]
    with fourfold.open(root) as store:
        probed = store.streams.create("probe", "application/json")
        capacity = ThreadProbe(lambda: probed.append({"n": 1}), 0.0)
        capacity.start()
        time.sleep(2.0)
        rate = capacity.stop().rate / 2
        logs = store.streams.open("logs")
        # Another declaration: every companion is built again.
        logs.set_schema(search={**DECLARATION, "columns": ["service", f"field{time.time_ns()}"]})
        probe = ThreadProbe(lambda: probed.append({"n": 1}), rate)
        probe.start()
        with store.archive.running():
            time.sleep(seconds)
        latency = probe.stop()
        with store.streams.database.read() as snapshot:
            built = snapshot.value(
                "SELECT count(*) FROM search_segment_companions JOIN search_companion_plans"
                " USING (stream) WHERE plan_generation = generation"
            )
    assert built, "no companion was built meanwhile"
    assert not latency.failed
    return [
        Figure(f"p99 of {rate:.0f} appends/s beside companions", latency.p99_ms, "ms", 50.0),
        Figure(f"companions built meanwhile, in {seconds:g} s", built, ""),
    ]


def _peers(folder: Path, ndjson: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Measure DuckDB on the Parquet of the segments, and ripgrep on NDJSON."""
    found: dict[str, dict[str, float]] = {
        name: {}
        for name in (
            "rare term, with its message",
            "range filter, counted, 50 messages",
            "one-minute rollup",
        )
    }
    if shutil.which("rg"):
        found["rare term, with its message"]["ripgrep on NDJSON"] = least_ms(
            rounds,
            lambda number: subprocess.run(
                ["rg", "-N", rf"\brare{number % 3}\b", str(ndjson)],
                check=False,
                capture_output=True,
            ),
            time.perf_counter,
        )[1]
    try:
        import duckdb
    except ImportError:
        return found
    files = [str(path) for path in folder.rglob("*.parquet") if path.read_bytes()[:4] == b"PAR1"]
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    source = "(SELECT decode(payload)::JSON AS j FROM read_parquet(?))"
    queries = {
        "rare term, with its message": f"SELECT j FROM {source} WHERE j->>'message' LIKE '%rare1%'",
        "range filter, counted, 50 messages": (
            f"SELECT count(*) FROM {source} WHERE (j->>'duration')::DOUBLE > 150"
            " AND j->>'service' = 'auth'"
        ),
        "one-minute rollup": (
            f"SELECT (j->>'time')::BIGINT // 60000, j->>'service', count(*),"
            f" avg((j->>'duration')::DOUBLE) FROM {source} GROUP BY 1, 2"
        ),
    }
    for name, query in queries.items():

        def run(_number: int, query: str = query) -> object:
            return connection.execute(query, [files]).fetchall()

        found[name]["DuckDB on the segments"] = least_ms(2, run, time.perf_counter)[0]
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer messages; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Fill this folder, or measure the one that was filled.",
)
@click.option("--fill", "only_fill", is_flag=True, help="Fill the folder, and measure nothing.")
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, quick: bool, rounds: int, folder: Path | None, only_fill: bool, docs: bool) -> None:
    """Measure searches of streams."""
    console = commands.console()
    if docs:
        path = newest_result("streamsearch")
        text = table(commands.load(path, Result), path)
        console.print(commands.document("streamsearch", path, text))
        return
    count = 100_000 if quick else 1_000_000
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        place = folder or Path(temporary)
        facts = machine.describe(Path(temporary))
        ndjson, marker = place / "logs.ndjson", place / "filled.json"
        if not marker.exists():
            marker.write_text(json.dumps(fill(place / "store", count, ndjson)))
        if only_fill:
            return
        filled = json.loads(marker.read_text())
        figures = measure(place / "store", count, ndjson, rounds)
        figures += isolate(place / "store", 15.0)
    share = 100 * filled["companion_bytes"] / filled["ndjson_bytes"]
    figures.append(Figure("companions, share of the NDJSON", share, "%", 30.0))
    figures.append(Figure("build of companions", count / filled["build_s"], "messages/s"))
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    result = Result(finished, count, rounds, facts, figures)
    path = BUILD / "newest-streamsearch.json"
    if not quick:
        path = RESULTS / f"streamsearch-{finished[:10]}.json"
    commands.save(result, path)
    console.print(table(result, path))


def table(result: Result, path: Path) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| | measured | goal | wall, median | peers |", "|---|---|---|---|---|"]
    for figure in result.figures:
        goal = "" if figure.goal is None else f"at most {figure.goal:g} {figure.unit}"
        met = "" if figure.met else " (missed)"
        wall = "" if figure.wall is None else f"{figure.wall:,.3g} ms"
        peers = ", ".join(f"{name} {value:,.3g} ms" for name, value in figure.peers.items())
        value = f"{figure.value:,.3g} {figure.unit}".strip()
        lines.append(f"| {figure.name} | {value}{met} | {goal} | {wall} | {peers} |")
    where = path.relative_to(ROOT)
    return "\n".join([*lines, "", f"{result.messages:,} messages. `{where}`."])


if __name__ == "__main__":
    main()

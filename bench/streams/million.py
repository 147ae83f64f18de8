"""`python -m bench.streams.million`: a million streams in one database, beside one stream.

    create      every stream made by a request of its own, many at a time; they share commits
    open        a new process until the store can be appended to
    append      records of 200 bytes, 64 coroutines at a time: to streams at random, to one stream
    alone       the same, one after the other: each append is a commit of its own
    candidates  which streams have enough pending to be sealed
    info, page  one stream by its name; the first hundred behind a name

Appends run in processes of their own, the two stores in turn, so that the memory that is reported
is that of a process which did nothing else.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec

import fourfold
from bench import machine
from bench.measurement import FOREIGN_SHARE_MAX, quantile, spread
from bench.place import BUILD, DOCUMENT, RESULTS, alone, newest_result
from bench.tables import markdown, put_between_marks
from fourfold.models.streams import Append, StreamOptions, Streams

RECORD = b'{"n":0,"text":"' + b"x" * 183 + b'"}'
JSON = "application/json"
CONCURRENT = 64
ALONE = 2_000
LOOKS = 1_000
ROUNDS = 3
STORES = ("many", "one")


def name_of(number: int) -> str:
    return f"tenant/{number % 1000:03}/stream/{number:07}"


def resident() -> tuple[int, int]:
    """What this process holds in memory now, and has held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return 1024 * int(held["VmRSS"]), 1024 * int(held["VmHWM"])


async def create(streams: Streams, count: int) -> None:
    wave = 2_000
    for first in range(0, count, wave):
        made = [
            streams.create_with_options_async(StreamOptions(name_of(number), JSON))
            for number in range(first, min(first + wave, count))
        ]
        await asyncio.gather(*made)


async def appends(streams: Streams, names: list[str], concurrent: int) -> list[float]:
    """Append to each in turn; how long each took, in microseconds."""
    waiting, taken = iter(names), []

    async def work() -> None:
        for name in waiting:
            began = time.perf_counter()
            await streams.append_async(name, Append([RECORD], JSON))
            taken.append(1e6 * (time.perf_counter() - began))

    await asyncio.gather(*(work() for _ in range(concurrent)))
    return taken


def timed(call: Callable[[], object], times: int) -> dict[str, float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(1e6 * (time.perf_counter() - began))
    taken.sort()
    return {"p50_us": quantile(taken, 0.5), "p99_us": quantile(taken, 0.99)}


def child(root: Path, streams_count: int, count: int, seed: int) -> dict[str, Any]:
    """One round on one store."""
    began = time.perf_counter()
    with fourfold.open(root) as store:
        streams = store.streams
        opened = time.perf_counter() - began
        chance = random.Random(seed)
        names = [name_of(chance.randrange(streams_count)) for _ in range(count + ALONE)]
        began = time.perf_counter()
        asyncio.run(appends(streams, names[ALONE:], CONCURRENT))
        crowd = time.perf_counter() - began
        lone = sorted(asyncio.run(appends(streams, names[:ALONE], 1)))
        memory = resident()
        [busiest] = streams.candidates(1, limit=1)
        looks = {
            "none is due": timed(lambda: streams.candidates(16 << 20), LOOKS),
            "32 are due": timed(lambda: streams.candidates(busiest[2] // 2, limit=32), LOOKS),
            "info": timed(lambda: streams.info(chance.choice(names)), LOOKS),
            "page": timed(lambda: streams.list(after=chance.choice(names), limit=100), LOOKS // 4),
        }
    return {
        "open_s": opened,
        "appends_per_s": count / crowd,
        "alone_p50_us": quantile(lone, 0.5),
        "alone_p99_us": quantile(lone, 0.99),
        "rss_bytes": memory[0],
        "rss_most_bytes": memory[1],
        "looks": looks,
    }


def measure(streams_count: int, count: int, folder: Path) -> dict[str, Any]:
    counts = {"many": streams_count, "one": 1}
    created: dict[str, float] = {}
    for store_name, wanted in counts.items():
        with fourfold.open(folder / store_name) as store:
            began = time.perf_counter()
            asyncio.run(create(store.streams, wanted))
            created[store_name] = time.perf_counter() - began
            if store_name == "many":
                memory = resident()
    size = (folder / "many/streams/wal.sqlite").stat().st_size
    rounds: dict[str, list[dict[str, Any]]] = {store_name: [] for store_name in STORES}
    for number in range(ROUNDS):
        for store_name in STORES if number % 2 == 0 else reversed(STORES):
            arguments = [str(folder / store_name), str(counts[store_name]), str(count)]
            command = [sys.executable, "-m", "bench.streams.million", "--child", *arguments]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rounds[store_name].append(json.loads(done.stdout))
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine.describe(folder)),
        "streams": streams_count,
        "appends": count,
        "create_seconds": created["many"],
        "create_rss_bytes": memory[1],
        "file_bytes": size,
        "rounds": rounds,
    }


def show(result: dict[str, Any]) -> str:
    """The figures as a table: medians, with the spread of the rounds."""
    rounds = result["rounds"]

    def line(title: str, of: Callable[[dict[str, Any]], float], form: str = "{:,.0f}") -> list[str]:
        cells = []
        for store_name in STORES:
            found = spread([of(each) for each in rounds[store_name]])
            least, most = form.format(found.min), form.format(found.max)
            cells.append(f"{form.format(found.median)} ({least}-{most})")
        ratio = median(of(each) for each in rounds["many"]) / median(
            of(each) for each in rounds["one"]
        )
        return [title, *cells, f"{ratio:.2f}"]

    def look(what: str, which: str) -> Callable[[dict[str, Any]], float]:
        return lambda each: float(each["looks"][what][which])

    rows = [
        line("appends/s, 64 at a time", lambda each: each["appends_per_s"]),
        line("append alone, p50 µs", lambda each: each["alone_p50_us"]),
        line("append alone, p99 µs", lambda each: each["alone_p99_us"]),
        line("candidates, none due, p50 µs", look("none is due", "p50_us"), "{:,.1f}"),
        line("candidates, none due, p99 µs", look("none is due", "p99_us"), "{:,.1f}"),
        line("candidates, 32 of those due, p50 µs", look("32 are due", "p50_us"), "{:,.1f}"),
        line("candidates, 32 of those due, p99 µs", look("32 are due", "p99_us"), "{:,.1f}"),
        line("info of one by name, p50 µs", look("info", "p50_us"), "{:,.1f}"),
        line("a page of 100, p50 µs", look("page", "p50_us"), "{:,.1f}"),
        line("open, ms", lambda each: 1e3 * each["open_s"], "{:,.1f}"),
        line("memory after the appends, MiB", lambda each: each["rss_bytes"] / 2**20),
    ]
    many = f"{result['streams']:,} streams"
    made = result["streams"] / result["create_seconds"]
    return f"""{markdown(["", many, "1 stream", "ratio"], rows)}

{many} made in {result["create_seconds"]:.1f} s ({made:,.0f}/s), each on disk when its request \
was answered; {result["file_bytes"] / 2**20:,.0f} MiB, \
{result["file_bytes"] / result["streams"]:.0f} bytes each. The process that made them held \
{result["create_rss_bytes"] / 2**20:.0f} MiB at most. Others used \
{result["foreign_share"] or 0:.0%} of the machine meanwhile{_warning(result)}.
"""


def _warning(result: dict[str, Any]) -> str:
    busy = (result["foreign_share"] or 0) > FOREIGN_SHARE_MAX
    return ": the figures are disturbed" if busy else ""


@click.command()
@click.option("--streams", default=1_000_000, help="Streams in the large store.")
@click.option("--appends", "count", default=30_000, help="Appends of one round.")
@click.option("--keep", is_flag=True, help="Keep the result in bench/results.")
@click.option("--docs", is_flag=True, help="Only put the newest kept result into the page.")
@click.option("--child", nargs=3, hidden=True)
def main(
    streams: int, count: int, keep: bool, docs: bool, child: tuple[str, str, str] | None
) -> None:
    """Measure what a million streams cost."""
    if child is not None:
        click.echo(json.dumps(_child(child)))
        return
    if docs:
        kept = newest_result("streams-million")
        figures = show(json.loads(kept.read_text(encoding="utf-8"))).rstrip()
        put_between_marks(DOCUMENT, "streams-million", figures)
        return
    with alone(), TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        with machine.ForeignLoad() as others:
            result = measure(streams, count, Path(folder))
        result["foreign_share"] = others.share
    click.echo(show(result))
    name = f"streams-million-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if keep else BUILD / "newest-streams-million.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _child(arguments: tuple[str, str, str]) -> dict[str, Any]:
    root, streams_count, count = arguments
    return child(Path(root), int(streams_count), int(count), seed=7)


if __name__ == "__main__":
    main()

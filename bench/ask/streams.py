"""`python -m bench.ask.streams`: search and aggregates over companions, and peers on the same data.

Messages like those of a log are appended, published and given companions. Each figure is the least
processor time of its calls in this process, because the machine may be shared; wall times are kept
beside them. The unsealed tail is appended to a copy of the store, so that a folder that was filled
can be measured again. At last companions are built in the background, as a server does it, while
another stream gets appends at half of its capacity.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

import fourfold
from bench import commands, machine
from bench.ask.messages import (
    DAY_MS,
    DECLARATION,
    NAME,
    START_MS,
    append,
    append_tail,
    messages,
    rare_word,
)
from bench.ask.rounds import least_ms
from bench.ask.stream_peers import RANGE, RARE, ROLLUP, Peers
from bench.isolation.probe import ThreadProbe
from bench.machine import Machine
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from fourfold import Stream
from fourfold.models.streams.archive import archiver

Calls = dict[str, Callable[[Stream, int], object]]
GOALS = {RARE: 5.0, RANGE: 100.0, ROLLUP: 50.0}
TAIL_GOAL_MS = 50.0
BUILT_WITHIN_S = 60.0


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
    unmeasured: dict[str, str] = {}
    """Peers that were not measured, and why."""
    peers_at: str | None = None
    """End of the run that measured the peers, if it was another one."""


def fill(root: Path, count: int, ndjson: Path) -> dict[str, float]:
    """Append messages, publish them, and build companions; return what it took."""
    facts: dict[str, float] = {}
    ndjson.unlink(missing_ok=True)
    with fourfold.open(root) as store:
        stream = store.streams.create(NAME, "application/json")
        stream.set_schema(search=DECLARATION)
        facts["ndjson_bytes"] = append(stream, messages(count), ndjson)
        store.archive.publish_all()
        began = time.process_time()
        done = store.archive.build_companions()
        facts["companions"] = done.companions
        facts["build_s"] = time.process_time() - began
        with store.streams.database.read() as snapshot:
            facts["companion_bytes"] = snapshot.value(
                "SELECT sum(size_bytes) FROM search_segment_companions"
            )
    return facts


def questions(count: int) -> Calls:
    """Return what is asked, by the name of its figure."""
    middle = START_MS + DAY_MS // 2

    def rare(stream: Stream, number: int) -> None:
        page = stream.search(rare_word(number, count))
        assert len(page) == 1
        assert page.coverage.segments_scanned == 0
        assert page.coverage.complete

    def range_filter(stream: Stream, number: int) -> None:
        page = stream.search(f"duration:>{150 + number} service:auth", total=True)
        assert page.total is not None
        assert page.total.exact

    def rollup(stream: Stream, _number: int) -> None:
        result = stream.aggregate(by=["service"], every="1m", measures=["count", "avg(duration)"])
        assert result.coverage.segments_scanned == 0

    def hour(stream: Stream, number: int) -> None:
        since = middle + 60_000 * number
        stream.aggregate(by=["level"], every="1m", since=since, until=since + 3_599_999)

    return {
        RARE: rare,
        RANGE: range_filter,
        ROLLUP: rollup,
        "one-minute rollup of one hour": hour,
        "frequent word, newest 50": lambda stream, _n: stream.search("word0001"),
        "columns: p95 by service": lambda stream, _n: stream.aggregate(
            by=["service"], measures=["p95(duration)"]
        ),
    }


def warm(root: Path, calls: Calls, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the least processor time of each call, and its median wall time, in one store."""
    with fourfold.open(root) as store:
        stream = store.streams.open(NAME)
        return {
            name: least_ms(rounds, lambda number, call=call: call(stream, number))  # type: ignore[misc]
            for name, call in calls.items()
        }


def first(root: Path, calls: Calls, rounds: int) -> dict[str, float]:
    """Return the least processor time of each call when it is the first one of a store."""
    times: dict[str, float] = {}
    for name, call in calls.items():
        for _ in range(rounds):
            with fourfold.open(root) as store:
                stream = store.streams.open(NAME)
                began = time.process_time()
                call(stream, 0)
                took = (time.process_time() - began) * 1000
            times[name] = min(took, times.get(name, took))
    return times


def measure(root: Path, tailed: Path, count: int, rounds: int, peers: Peers) -> list[Figure]:
    """Measure searches and aggregates, and what an unsealed tail adds, in a copy of the store."""
    calls = questions(count)
    limited = {name: calls[name] for name in GOALS}
    figures = [
        Figure(name, least, "ms", GOALS.get(name), peers.figures.get(name, {}), wall)
        for name, (least, wall) in warm(root, calls, rounds).items()
    ]
    sealed = {figure.name: figure.value for figure in figures}
    unread = first(root, limited, rounds)
    shutil.copytree(root, tailed)
    size = append_tail(tailed, count)
    for name, took in first(tailed, limited, rounds).items():
        more = took - unread[name]
        figures.append(Figure(f"tail not read before, {name}: more", more, "ms", TAIL_GOAL_MS))
    for name, (took, _) in warm(tailed, limited, rounds).items():
        more = took - sealed[name]
        figures.append(Figure(f"tail read before, {name}: more", more, "ms", TAIL_GOAL_MS))
    return [*figures, Figure("messages of the unsealed tail", size, "")]


def isolate(root: Path, seconds: float, capacity_s: float = 2.0) -> list[Figure]:
    """Measure appends beside the background of a server that builds companions."""
    archiver.ARCHIVE_UPKEEP_S = 0.1  # type: ignore[misc]
    with fourfold.open(root) as store:
        probed = store.streams.create("probe", "application/json")
        capacity = ThreadProbe(lambda: probed.append({"n": 1}), 0.0)
        capacity.start()
        time.sleep(capacity_s)
        rate = capacity.stop().rate / 2
        idle = ThreadProbe(lambda: probed.append({"n": 1}), rate)
        idle.start()
        time.sleep(seconds)
        unloaded = idle.stop()
        logs = store.streams.open(NAME)
        # Another declaration: every companion is built again.
        logs.set_schema(search={**DECLARATION, "columns": ["service", "level", "host"]})
        probe = ThreadProbe(lambda: probed.append({"n": 1}), rate)
        probe.start()
        began = time.monotonic()
        with store.archive.running():
            while (took := time.monotonic() - began) < seconds or not _built(store):
                assert took < seconds + BUILT_WITHIN_S, "no companion was built meanwhile"
                time.sleep(0.1)
        latency = probe.stop()
        built = _built(store)
    assert not latency.failed
    return [
        Figure(f"p99 of {rate:.0f} appends/s, nothing else", unloaded.p99_ms, "ms"),
        Figure(f"p99 of {rate:.0f} appends/s beside companions", latency.p99_ms, "ms", 50.0),
        Figure(f"companions built meanwhile, in {seconds:g} s", built, ""),
    ]


def _built(store: fourfold.Store) -> int:
    with store.streams.database.read() as snapshot:
        return int(
            snapshot.value(
                "SELECT count(*) FROM search_segment_companions JOIN search_companion_plans"
                " USING (stream) WHERE plan_generation = generation"
            )
        )


def measure_peers(root: Path, work: Path, ndjson: Path, count: int, rounds: int) -> Peers:
    """Measure all peers that can be had here."""
    peers = Peers()
    with fourfold.open(root) as store:
        folder = store.archive.segments.cache.folder
    peers.measure_ripgrep(ndjson, count, rounds)
    peers.measure_duckdb(folder, count)
    work.mkdir(parents=True, exist_ok=True)
    peers.measure_sqlite(work / "peer.sqlite", count, rounds)
    peers.measure_prisma(work / "prisma", BUILD / "streams-peers", count, rounds)
    return peers


@click.command()
@click.option("--quick", is_flag=True, help="Fewer messages; no result is written.")
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Fill this folder, or measure the one that was filled.",
)
@click.option("--fill", "only_fill", is_flag=True, help="Fill the folder, and measure nothing.")
@click.option(
    "--own", is_flag=True, help="Measure no peers, and keep their figures of the newest result."
)
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(
    *, quick: bool, rounds: int, folder: Path | None, only_fill: bool, own: bool, docs: bool
) -> None:
    """Measure searches of streams."""
    console = commands.console()
    if docs:
        path = newest_result("streamsearch")
        text = table(commands.load(path, Result), path)
        console.print(commands.document("streamsearch", path, text))
        return
    count = 100_000 if quick else 1_000_000
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    before = commands.load(newest_result("streamsearch"), Result) if own else None
    with alone(), TemporaryDirectory(dir=folder or BUILD, prefix="work-") as temporary:
        work = Path(temporary)
        place = folder or work
        facts = machine.describe(work)
        ndjson, marker = place / "logs.ndjson", place / "filled.json"
        if not marker.exists():
            if (place / "store").exists():
                raise click.ClickException(
                    f"{place} was not filled to the end; use an empty folder"
                )
            filled = {"messages": count, **fill(place / "store", count, ndjson)}
            marker.write_text(json.dumps(filled))
        if only_fill:
            return
        filled = json.loads(marker.read_text())
        if filled["messages"] != count:
            raise click.ClickException(
                f"{place} has {filled['messages']:,} messages, not {count:,}"
            )
        if before is None:
            peers = measure_peers(place / "store", work, ndjson, count, rounds)
        else:
            peers = Peers()
            peers.figures |= {figure.name: figure.peers for figure in before.figures}
            peers.unmeasured = before.unmeasured
        figures = measure(place / "store", work / "tailed", count, rounds, peers)
        figures += isolate(work / "tailed", 15.0)
    share = 100 * filled["companion_bytes"] / filled["ndjson_bytes"]
    figures.append(Figure("companions, share of the NDJSON", share, "%", 30.0))
    figures.append(Figure("build of companions", count / filled["build_s"], "messages/s"))
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    peers_at = None if before is None else before.peers_at or before.finished_at
    result = Result(finished, count, rounds, facts, figures, peers.unmeasured, peers_at)
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
    measured = f"{result.messages:,} messages, {result.machine.cpu}, {result.machine.cores} cores"
    lines += [
        "",
        f"{measured}, {result.machine.filesystem}. Measured {result.finished_at}: `{where}`.",
    ]
    if result.peers_at is not None:
        lines.append(f"Peers were measured at {result.peers_at}.")
    lines += [f"Not measured: {name} ({reason})." for name, reason in result.unmeasured.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

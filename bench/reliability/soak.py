"""A soak: a server under mixed load for an hour, and what it uses over that time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from bench import machine
from bench.machine import Machine
from bench.measurement import quantile
from bench.reliability.chart import Panel, draw
from bench.reliability.models import MODELS, Model, expect
from bench.reliability.server import Connection, Server

_SETTINGS = {"FOURFOLD_ARCHIVE_PUBLISH_S": "30", "FOURFOLD_ARCHIVE_SEAL_AGE_S": "60"}
_APPENDS_PER_S = 4.0
"""Of each writer: two for each model."""
_QUERY_S = 2.0
_QUERIES = (
    "select count(*) as n from documents_commits",
    "select count(*) as n from streams_records",
    "select count(*) as n from sessions_events",
)
_FEEDS = (
    "/v1/stream/history?offset=now&live=sse",
    "/v1/spaces/did:web:history/watch",
    "/v1/apps/history/feed",
    "/v1/sessions/live/history",
)


class Sample(msgspec.Struct, frozen=True):
    """What the server used at one time, and how it responded since the previous sample."""

    seconds: float
    memory_bytes: int
    """Memory that no other process shares, the anonymous part of its resident pages."""
    open_files: int
    wal_bytes: int
    store_bytes: int
    log_bytes: int
    """Size of the text that the server logged."""
    appends: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float


class Result(msgspec.Struct, frozen=True):
    """A soak."""

    finished_at: str
    machine: Machine
    seconds: float
    foreign_share: float | None
    appends: dict[str, int]
    reads: int
    queries: int
    events: int
    """Events that live readers received."""
    errors: list[str]
    samples: list[Sample]


class Load:
    """Threads that write, read, follow and query, until they are stopped."""

    def __init__(self, port: int) -> None:
        self.appends = {model.name: 0 for model in MODELS}
        self.reads = self.queries = self.events = 0
        self.errors: list[str] = []
        self._port = port
        self._taken_ms: list[float] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        for model in MODELS:
            for number in range(2):
                self._add(self._write, model(), f"w{number}")
            self._add(self._read, model())
        for path in _FEEDS:
            self._add(self._follow, path)
        self._add(self._query)

    def start(self) -> None:
        """Create the logs and start the threads."""
        connection = Connection(self._port)
        for model in MODELS:
            model().create(connection)
        connection.close()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def take_times(self) -> list[float]:
        """Return the times of the appends since the last call, sorted."""
        with self._lock:
            taken, self._taken_ms = self._taken_ms, []
        return sorted(taken)

    def _add(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(
            threading.Thread(target=self._guard, args=(work, *arguments), daemon=True)
        )

    def _guard(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - a soak reports every error, and goes on
            self.errors.append(f"{work.__name__}: {error!r}")

    def _write(self, model: Model, name: str) -> None:
        connection, random = Connection(self._port), Random(f"{model.name} {name}")
        for number in count():
            before = time.perf_counter()
            model.append(connection, [f"{name}-{number}"], 60.0, (name, number))
            with self._lock:
                self._taken_ms.append((time.perf_counter() - before) * 1000)
                self.appends[model.name] += 1
            if self._ended.wait(random.expovariate(_APPENDS_PER_S)):
                break
        connection.close()

    def _read(self, model: Model) -> None:
        """Read the newest entries once a second."""
        connection, last = Connection(self._port), None
        while not self._ended.wait(1.0):
            entries = model.tail(connection, last)
            last = entries[-1].position if entries else last
            self.reads += 1
        connection.close()

    def _query(self) -> None:
        connection = Connection(self._port)
        for number in count():
            body = {"query": _QUERIES[number % len(_QUERIES)]}
            expect(connection.request("POST", "/v1/sql", body, timeout_s=60))
            self.queries += 1
            if self._ended.wait(_QUERY_S):
                break
        connection.close()

    def _follow(self, path: str) -> None:
        """Follow a feed, with a new connection every minute."""
        connection = Connection(self._port)
        while not self._ended.is_set():
            deadline = time.monotonic() + 60
            for line in connection.lines(path):
                self.events += line.startswith(b"data:")
                if self._ended.is_set() or time.monotonic() >= deadline:
                    break
        connection.close()


def run(folder: Path, seconds: float, every_s: float) -> Iterator[Result]:
    """Run a server under load; yield the result so far after every sample."""
    facts = machine.describe(folder)
    store = folder / "store"
    server = Server(store, options=("--objects", str(folder / "objects")), environment=_SETTINGS)
    load, samples = Load(server.port), list[Sample]()
    try:
        load.start()
        started = time.monotonic()
        with machine.ForeignLoad() as foreign:
            while (passed := time.monotonic() - started) < seconds:
                time.sleep(min(every_s, seconds - passed))
                samples.append(_sample(server, store, load, time.monotonic() - started))
                yield _result(facts, load, samples, None)
            load.stop()
            server.stop()
    finally:
        server.kill()
    yield _result(facts, load, samples, foreign.share)


def _sample(server: Server, store: Path, load: Load, seconds: float) -> Sample:
    taken = load.take_times() or [0.0]
    sizes = {path: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return Sample(
        seconds=round(seconds, 1),
        memory_bytes=int(fields["RssAnon"].split()[0]) * 1024,
        open_files=len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
        wal_bytes=sum(size for path, size in sizes.items() if path.name.endswith("-wal")),
        store_bytes=sum(sizes.values()),
        log_bytes=len(server.log().encode()),
        appends=len(taken),
        p50_ms=round(quantile(taken, 0.5), 2),
        p99_ms=round(quantile(taken, 0.99), 2),
        slowest_ms=round(taken[-1], 2),
    )


def _result(facts: Machine, load: Load, samples: list[Sample], foreign: float | None) -> Result:
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=facts,
        seconds=samples[-1].seconds,
        foreign_share=foreign,
        appends=dict(load.appends),
        reads=load.reads,
        queries=load.queries,
        events=load.events,
        errors=list(load.errors),
        samples=list(samples),
    )


def chart(result: Result) -> str:
    """Draw a soak as SVG."""
    minutes = [sample.seconds / 60 for sample in result.samples]

    def panel(title: str, value: Callable[[Sample], float]) -> Panel:
        return Panel(title, [value(sample) for sample in result.samples])

    panels = [
        panel("memory, MB", lambda sample: sample.memory_bytes / 1e6),
        panel("open files", lambda sample: sample.open_files),
        panel("write-ahead logs, MB", lambda sample: sample.wal_bytes / 1e6),
        panel("store, MB", lambda sample: sample.store_bytes / 1e6),
        panel("p99 of an append, ms", lambda sample: sample.p99_ms),
        panel("log of the server, KB", lambda sample: sample.log_bytes / 1e3),
    ]
    return draw(minutes, panels, "minutes")


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""
    first = result.samples[len(result.samples) // 10]
    last = result.samples[-1]
    p99 = sorted(sample.p99_ms for sample in result.samples)
    appends = ", ".join(f"{name} {number:,}" for name, number in result.appends.items())
    foreign = "" if result.foreign_share is None else f" ({result.foreign_share:.0%} of it others)"
    facts = [
        f"{result.seconds / 60:.0f} minutes on a shared machine{foreign}",
        (
            f"Appends: {appends}; {result.reads:,} reads, {result.queries:,} queries, "
            f"{result.events:,} events of feeds; {len(result.errors)} errors"
        ),
        (
            f"Memory: {first.memory_bytes / 1e6:.0f} MB after a tenth of the time, "
            f"{last.memory_bytes / 1e6:.0f} MB at the end; "
            f"open files: {first.open_files} and {last.open_files}"
        ),
        (
            f"p99 of an append in a sample: median {quantile(p99, 0.5):.0f} ms, "
            f"greatest {p99[-1]:.0f} ms"
        ),
    ]
    return "\n\n".join(
        [
            "![Memory, open files, logs, store and p99 over time](images/soak.svg)",
            "\n".join(f"- {fact}" for fact in facts),
            f"From `bench/results/{path.name}`.",
        ]
    )

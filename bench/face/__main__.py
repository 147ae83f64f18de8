"""`python -m bench.face`: measure, print, and write the result."""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
from rich.table import Table

from bench import commands, machine, tables
from bench.face import routing
from bench.face.watchers import open_feed
from bench.machine import Machine
from bench.measurement import quantile, verdict
from bench.place import BUILD, RESULTS, ROOT, alone, newest_result
from bench.streams.servers import Command, Server

WATCHERS = 1_000
ROUNDS = 60
PAUSE_S = 0.4
"""Pause before a round, in which the feeds of the round before are served."""
APPENDS = 3_000
STREAMS_ONLY = """
import sys, fourfold
from pathlib import Path
from fourfold.server.auth import Access
from fourfold.server.run import serve
root = Path(sys.argv[1])
with fourfold.open(root) as store:
    serve(store.streams, Access(root), host="127.0.0.1", port=int(sys.argv[2]))
"""


class Line(msgspec.Struct, frozen=True):
    """One figure, with its goal."""

    name: str
    figure: float
    unit: str
    goal: float | None
    note: str = ""


class Result(msgspec.Struct, frozen=True):
    """Figures of one run."""

    finished_at: str
    machine: Machine
    watchers: int
    foreign_share: float | None
    lines: list[Line]


class Client:
    """A connection that commits and appends."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._count = 0

    def send(self, method: str, path: str, body: bytes | None = None) -> None:
        headers = {"content-type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise click.ClickException(f"{method} {path}: {response.status} {text!r:.200}")

    def commit(self, did: str) -> float:
        """Commit one document, and return the milliseconds that it took."""
        self._count += 1
        body = json.dumps({"n": self._count}).encode()
        start = time.perf_counter()
        self.send("PUT", f"/v1/spaces/{did}/documents/note", body)
        return 1_000 * (time.perf_counter() - start)


def serve(port: int, folder: Path) -> Command:
    """Return the command of a server with everything mounted."""
    command = [sys.executable, "-m", "fourfold", "serve", str(folder / "store"), f"--port={port}"]
    return command, {"FOURFOLD_SERVER_CONNECTIONS_MAX": "4000"}


def serve_streams(port: int, folder: Path) -> Command:
    """Return the command of a server with the routes of streams only."""
    return [sys.executable, "-c", STREAMS_ONLY, str(folder / "store"), str(port)], {}


@contextmanager
def reading(port: int, did: str, count: int) -> Iterator[None]:
    """Have `count` watches of a space in another process."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "bench.face.watchers", str(port)),
            *(f"/v1/spaces/{did}/watch", str(count)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    with child:
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            raise click.ClickException("the watches did not start")
        yield
        child.communicate(b"", timeout=60)


def measure_commits(server: Server, watchers: int, rounds: int) -> list[Line]:
    """Time commits to a space with watches and to one without, in turns."""
    client = Client(server.port)
    spaces = {"no watches": "did:web:quiet.example", "watches": "did:web:watched.example"}
    taken: dict[tuple[str, str], list[float]] = {}
    for did in spaces.values():
        client.send("PUT", f"/v1/spaces/{did}")
        client.commit(did)
    with reading(server.port, spaces["watches"], watchers):
        for _ in range(rounds):
            for name, did in spaces.items():
                time.sleep(PAUSE_S)
                taken.setdefault((name, "alone"), []).append(client.commit(did))
                # The second one arrives while the feeds of the first are served.
                taken.setdefault((name, "next"), []).append(client.commit(did))
    lines = []
    for turn, text in (("alone", "a commit"), ("next", "the commit right after it")):
        without = sorted(taken["no watches", turn])
        with_ = sorted(taken["watches", turn])
        added = quantile(with_, 0.5) - quantile(without, 0.5)
        note = f"p50 {quantile(without, 0.5):.2f} to {quantile(with_, 0.5):.2f} ms"
        lines.append(Line(f"{watchers:,} watches add to {text}", added, "ms", 1.0, note))
    return lines


def measure_delivery(server: Server, rounds: int) -> list[Line]:
    """Time from the start of a commit to its event, with 20 watches."""
    client = Client(server.port)
    did = "did:web:live.example"
    client.send("PUT", f"/v1/spaces/{did}")
    feeds = [open_feed(server.port, f"/v1/spaces/{did}/watch") for _ in range(20)]
    selector = selectors.DefaultSelector()
    for feed in feeds:
        selector.register(feed, selectors.EVENT_READ)
    taken = []
    for _ in range(rounds):
        time.sleep(0.05)
        start = time.perf_counter()
        client.commit(did)
        waiting = set(feeds)
        while waiting:
            for key, _ in selector.select(30):
                assert isinstance(key.fileobj, socket.socket)
                if b"event: commit" in key.fileobj.recv(65536) and key.fileobj in waiting:
                    waiting.discard(key.fileobj)
                    taken.append(1_000 * (time.perf_counter() - start))
    for feed in feeds:
        feed.close()
    taken.sort()
    name = "from a commit to its event, 20 watches"
    return [
        Line(f"{name}, p50", quantile(taken, 0.5), "ms", 10.0),
        Line(f"{name}, p99", quantile(taken, 0.99), "ms", None),
    ]


def measure_appends(full: Server, streams: Server, appends: int) -> Line:
    """Compare the processor time of an append with everything mounted and with streams only."""
    costs: dict[str, list[float]] = {"full": [], "streams": []}
    for server in (full, streams):
        Client(server.port).send("PUT", "/v1/stream/orders")
    for _ in range(5):
        for name, server in (("full", full), ("streams", streams)):
            client = Client(server.port)
            before = server.cpu_seconds()
            for _ in range(appends):
                client.send("POST", "/v1/stream/orders", b'{"n": 1}')
            costs[name].append(1e6 * (server.cpu_seconds() - before) / appends)
    with_, without = (sorted(costs[name])[2] for name in ("full", "streams"))
    note = f"{without:.0f} to {with_:.0f} µs"
    return Line("everything mounted adds to an append", 100 * (with_ / without - 1), "%", 5.0, note)


def measure_routing(folder: Path) -> list[Line]:
    """Time the route table and the decoder, and the whole frame over a bare ASGI application."""
    lines = []
    for method, costs in routing.measure(folder).items():
        lines.append(Line(f"routing and decoding of a {method}", costs.routing, "µs", 10.0))
        note = f"{costs.bare:.1f} to {costs.server:.1f} µs"
        added = costs.server - costs.bare
        lines.append(Line(f"the server adds to a {method} over bare ASGI", added, "µs", None, note))
    return lines


def run(folder: Path, watchers: int, rounds: int) -> Result:
    """Measure everything on one server."""
    facts = machine.describe(folder)
    with (
        # Outermost: the servers count as ours once they have ended.
        machine.ForeignLoad() as foreign,
        Server("all routes", serve, folder / "full") as server,
        Server("routes of streams", serve_streams, folder / "streams") as streams,
    ):
        server.settle()
        idle = Line("resident memory of an idle server", server.memory_mib() * 1.048576, "MB", 60)
        lines = [
            idle,
            *measure_commits(server, watchers, rounds),
            *measure_delivery(server, 2 * rounds),
            measure_appends(server, streams, APPENDS),
        ]
    lines += measure_routing(folder / "routing")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(now, facts, watchers, foreign.share, lines)


COLUMNS = ("what", "figure", "goal", "verdict", "from, to")


def row(line: Line) -> list[str]:
    """Return the cells of a line."""
    goal = "-" if line.goal is None else f"at most {line.goal:g} {line.unit}"
    judged = verdict(line.figure, line.goal, at_most=True, clean=True)
    return [line.name, f"{line.figure:.2f} {line.unit}", goal, judged, line.note]


def markdown(result: Result, source: str) -> str:
    """Return the figures for the page."""
    return "\n\n".join(
        (
            "\n".join(f"- {line}" for line in tables.machine_facts(result.machine)),
            tables.markdown(COLUMNS, [row(line) for line in result.lines]),
            f"Others used {result.foreign_share or 0:.0%} of the machine meanwhile.",
            f"Measured {result.finished_at}; `{source}`.",
        )
    )


@click.command()
@click.option("--watchers", default=WATCHERS, show_default=True)
@click.option("--rounds", default=ROUNDS, show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=BUILD,
    help="Folder for the stores. In memory (/dev/shm), stalls of the disk do not count.",
)
@click.option("--docs", is_flag=True, help="Write the newest result into docs/performance.md.")
def main(*, watchers: int, rounds: int, folder: Path, docs: bool) -> None:
    """Measure what watches cost commits, what routes cost requests, and the idle server."""
    console = commands.console()
    if docs:
        path = newest_result("face")
        figures = markdown(commands.load(path, Result), str(path.relative_to(ROOT)))
        console.print(commands.document("face", path, figures))
        return
    with alone(), TemporaryDirectory(dir=folder) as place:
        result = run(Path(place), watchers, rounds)
    table = Table(title=f"{watchers:,} watches")
    for name in COLUMNS:
        table.add_column(name)
    for line in result.lines:
        table.add_row(*row(line))
    console.print(table)
    full = (watchers, rounds) == (WATCHERS, ROUNDS)
    name = f"face-{datetime.now(UTC):%Y-%m-%d}.json"
    path = RESULTS / name if full else BUILD / "newest-face.json"
    commands.save(result, path)
    console.print(f"Every figure: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

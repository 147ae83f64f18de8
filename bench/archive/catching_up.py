"""B: a reader that catches up with a stream all of which is in published segments.

    plain       pyarrow reads the payloads of the objects and joins them with commas
    cold        the engine, as the server reads: the cache is empty, every segment is fetched from
                the object store, its digest checked, and kept
    cached      the same, once the segments are in the cache

and over HTTP, each from a server of its own: Fourfold, restarted with an empty cache, and once
more right after; the peer with the settings of the benchmark of streams. The peer has sealed and
uploaded all of it too; its object store lives in its process, so that it cannot be restarted
without losing that, and it reads from its own cache on disk.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import fourfold
from bench.archive import messages, plain
from bench.measurement import spread
from bench.parts import Figure, Part, one, ratio, undisturbed
from bench.place import BUILD
from bench.streams import load, servers
from bench.streams.servers import Server
from bench.turns import Taken, in_turns
from fourfold.models.streams.archive.records import CACHE
from fourfold.models.streams.model import segments_folder

MESSAGES = 500_000
QUICK = 50_000
UPLOAD_S = 120.0
PEER = {
    **servers.TUNED,
    # The rest that fills no segment is sealed too, and the objects lie in files.
    "DS_SEGMENT_MAX_INTERVAL_MS": "1000",
    "DS_MOCK_R2_MAX_INMEM_BYTES": "1",
}


def measure(rounds: int, *, quick: bool) -> Part:
    count = QUICK if quick else MESSAGES
    root = messages.store("notes", count, published=True)
    peers = BUILD / "streams-peers"
    servers.install(peers)
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary, ExitStack() as stack:
        copy = Path(temporary) / "ours" / "store"
        shutil.copytree(root, copy)
        work = _Work(copy)
        work.prove()
        peer = stack.enter_context(_peer(Path(temporary) / "peer", peers, work.body_bytes))
        served = _Served(copy, peer, work.body_bytes)
        runs: dict[str, Callable[[], object]] = {
            "plain": work.plain,
            "cold": work.cold,
            "cached": work.cached,
            "HTTP cold": served.cold,
            "HTTP cached": served.cached,
            "HTTP peer": served.peer,
        }
        seconds, shares = in_turns(runs, rounds)
    return Part(
        title=f"B. Catching up with {work.body_bytes / 1e6:,.0f} MB in {count:,} messages",
        rows=count,
        figures=_figures(seconds, shares, work.body_bytes / 1e6, served.peaks),
        seconds=seconds,
        foreign_share=shares,
        facts={"segments": len(work.files), "peer": PEER},
    )


def _figures(
    seconds: dict[str, list[float]],
    shares: dict[str, list[float]],
    megabytes: float,
    peaks: list[float],
) -> list[Figure]:
    return [
        *(
            Figure(
                f"{name}, MB/s",
                spread([megabytes / each for each in seconds[name]]),
                clean=undisturbed(shares[name]),
            )
            for name in seconds
        ),
        ratio("cold to plain pyarrow", seconds, shares, "cold", "plain", 0.5),
        ratio("cached to plain pyarrow", seconds, shares, "cached", "plain", 0.5),
        ratio("HTTP, cold to the peer", seconds, shares, "HTTP cold", "HTTP peer", 2.0),
        ratio("HTTP, cached to the peer", seconds, shares, "HTTP cached", "HTTP peer", 2.0),
        one("most memory of the server", max(peaks), "MiB"),
    ]


class _Work:
    """The same stream, by pyarrow and by the engine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.files = messages.segment_files(root)
        self.body_bytes = 0

    def prove(self) -> None:
        """Both have the same bytes."""
        body = b",".join(plain.joined(file) for file in self.files)
        digest = hashlib.sha256()
        with fourfold.open(self._root) as store:
            for number, piece in enumerate(_pieces(store)):
                digest.update(b"," * (number > 0) + piece)
        if digest.digest() != hashlib.sha256(body).digest():
            raise click.ClickException("the engine and pyarrow do not read the same")
        self.body_bytes = len(body)

    def plain(self) -> None:
        for file in self.files:
            plain.joined(file)

    def cold(self) -> Taken:
        empty_cache(self._root)
        return self.cached()

    def cached(self) -> Taken:
        with fourfold.open(self._root) as store:
            assert store.streams is not None
            began = time.perf_counter()
            for _ in _pieces(store):
                pass
            return Taken(time.perf_counter() - began)


def _pieces(store: fourfold.Store) -> Iterator[bytes]:
    """The body of the whole stream, as the server sends it."""
    streams, at = store.streams, 0
    info = streams.info(messages.NAME)
    while at < info.next_offset:
        piece, at = streams.read_joined(info, at, info.next_offset)
        yield piece


def empty_cache(root: Path) -> None:
    shutil.rmtree(segments_folder(root) / CACHE, ignore_errors=True)


class _Served:
    """Servers with that stream. Ours is started for each run; the peer sleeps between its own."""

    def __init__(self, root: Path, peer: Server, body_bytes: int) -> None:
        self._root = root
        self._peer = peer
        self._body_bytes = body_bytes
        self.peaks: list[float] = []

    def cold(self) -> Taken:
        empty_cache(self._root)
        return self.cached()

    def cached(self) -> Taken:
        with servers.fourfold("fourfold", self._root.parent) as server:
            # The first read of a process loads pyarrow.
            load.catch_up(server, messages.SMALL)
            server.settle()
            figures = load.catch_up(server, messages.NAME)
        self.peaks.append(figures["peak_mib"])
        return self._taken(figures)

    def peer(self) -> Taken:
        self._peer.wake()
        self._peer.settle()
        figures = load.catch_up(self._peer, messages.NAME)
        self._peer.sleep()
        return self._taken(figures)

    def _taken(self, figures: load.Figures) -> Taken:
        """What the same body takes at this rate: servers frame it differently."""
        return Taken(self._body_bytes / 1e6 / figures["per_s"])


@contextmanager
def _peer(folder: Path, peers: Path, size: int) -> Iterator[Server]:
    """The peer with a stream of the same size, when it has uploaded it all."""
    spill = {"DS_MOCK_R2_SPILL_DIR": str(folder / "objects")}
    with servers.prisma("prisma-tuned", folder, peers, PEER | spill) as peer:
        peer.create(messages.NAME)
        load.preload(peer, messages.NAME, size)
        until = time.monotonic() + UPLOAD_S
        while not _is_uploaded(_details(peer)):
            if time.monotonic() > until:
                raise click.ClickException("the peer has not uploaded its segments in time")
            time.sleep(0.25)
        peer.settle()
        peer.sleep()
        yield peer


def _details(peer: Server) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=30)
    connection.request("GET", f"/v1/stream/{messages.NAME}/_details")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def _is_uploaded(details: dict[str, Any]) -> bool:
    told = details["stream"]
    return int(told["uploaded_through"]) == int(told["next_offset"]) - 1

"""C: appends while the archive seals and uploads, beside the same appends while it is idle.

Both servers start from the same store, in which one stream has a backlog, and get the same load:
appends of 200 bytes to a hundred streams from 16 connections. For one of them nothing is due, so
its archive only looks around; the other seals, uploads and trims the backlog, and what is appended,
as long as the load lasts.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

import fourfold
from bench.archive import messages
from bench.measurement import spread
from bench.parts import Figure, Part, undisturbed
from bench.place import BUILD
from bench.processes import foreign
from bench.streams import load, servers
from bench.streams.servers import Server

BACKLOG = 900_000
QUICK = 300_000
STREAMS = 100
CONNECTIONS = 16
SECONDS = 5.0
QUICK_SECONDS = 2.0
NEVER = {
    "FOURFOLD_ARCHIVE_SEAL_BYTES": str(1 << 40),
    "FOURFOLD_ARCHIVE_SEAL_ROWS": str(10**6),
    "FOURFOLD_ARCHIVE_SEAL_AGE_S": "86400",
}
STATES: dict[str, dict[str, str]] = {
    "idle": NEVER,
    "sealing": {"FOURFOLD_ARCHIVE_SEAL_BYTES": str(4 << 20)},
}
RATIO = 2.0
BEGIN_S = 30.0


def measure(rounds: int, *, quick: bool) -> Part:
    load.require_wrk()
    root = _store(QUICK if quick else BACKLOG)
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in STATES}
    shares: dict[str, list[float]] = {name: [] for name in STATES}
    seconds = QUICK_SECONDS if quick else SECONDS
    for _ in range(rounds):
        for name in random.sample(list(STATES), len(STATES)):
            with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
                shutil.copytree(root, Path(folder) / "store")
                # Or the copy is brought to disk while appends are measured.
                os.sync()
                with foreign() as seen:
                    figures[name].append(_round(Path(folder), name, seconds))
            shares[name].append(seen.foreign_share)
    clean = all(undisturbed(each) for each in shares.values())

    def column(name: str, figure: str) -> list[float]:
        return [each[figure] for each in figures[name]]

    pairs = zip(column("sealing", "p99_ms"), column("idle", "p99_ms"), strict=True)
    ratios = [busy / idle for busy, idle in pairs]
    told = [
        Figure(f"{name}, {title}", spread(column(name, figure)), unit, clean=clean)
        for figure, title, unit in (
            ("p99_ms", "p99", "ms"),
            ("p50_ms", "p50", "ms"),
            ("per_s", "appends", "/s"),
        )
        for name in STATES
    ]
    return Part(
        title=f"C. Appends from {CONNECTIONS} connections while the archive seals and uploads",
        rows=0,
        figures=[
            *told,
            Figure("published meanwhile", spread(column("sealing", "mb_per_s")), "MB/s"),
            Figure("p99, sealing to idle", spread(ratios), "", RATIO, at_most=True, clean=clean),
        ],
        foreign_share=shares,
        facts={"rounds": figures, "seconds": seconds},
    )


def _store(backlog: int) -> Path:
    root = BUILD / "archive" / f"backlog-{backlog}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    messages.append_all(root, messages.NAME, messages.notes(backlog))
    with fourfold.open(root) as store:
        for number in range(STREAMS):
            store.streams.create(f"s{number}", content_type=messages.JSON)
    (root / "complete").touch()
    return root


def _round(folder: Path, state: str, seconds: float) -> dict[str, float]:
    objects = f"--objects={folder / 'objects'}"
    with servers.fourfold("fourfold", folder, objects, settings=STATES[state]) as server:
        if state == "idle":
            server.settle()
        else:
            _wait_for_the_first(server)
        before, ended = _published(server)
        found = load.appends(server, STREAMS, CONNECTIONS, 1, seconds)
        after, _ = _published(server)
    if state == "sealing" and after >= ended:
        raise click.ClickException("the backlog was published before the load was over")
    if state == "idle" and after:
        raise click.ClickException("something was published although nothing is due")
    return found | {"mb_per_s": (after - before) * messages.NOTE_BYTES / seconds / 1e6}


def _wait_for_the_first(server: Server) -> None:
    """Until something of the backlog is published: from then on it goes on and on."""
    until = time.monotonic() + BEGIN_S
    while not _published(server)[0]:
        if time.monotonic() > until:
            raise click.ClickException("nothing was published although there is a backlog")
        time.sleep(0.05)


def _published(server: Server) -> tuple[int, int]:
    """How far the stream with the backlog is published, and where it ends."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/v1/stream/{messages.NAME}/_details")
    details = json.loads(connection.getresponse().read())
    connection.close()
    told = (details["archive"]["published_offset"], details["next_offset"])
    published, ended = (int(each.rpartition("_")[2]) for each in told)
    return published, ended

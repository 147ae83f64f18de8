"""E: a node from nothing but manifests: what a stream costs, with more and more of them.

Each stream has a manifest and one segment; an object store that is a local folder has them. Every
run is a process of its own, whose clock runs over `bootstrap` alone, and whose memory is reported.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import fourfold
from bench.archive import messages
from bench.measurement import cpu_seconds, spread
from bench.parts import Figure, Part, one, undisturbed
from bench.place import BUILD
from bench.processes import foreign
from fourfold.archive.manifest import Manifest, decode, encode, manifest_key, segment_key
from fourfold.models.streams.archive import bootstrap
from fourfold.objects import FolderStore

SIZES = (1_000, 10_000, 100_000)
QUICK = (100, 1_000, 5_000)
RATIO = 1.5
LINKS = 30_000
"""Names that one file gets; file systems allow so many and a few more."""


def measure(rounds: int, *, quick: bool) -> Part:
    sizes = QUICK if quick else SIZES
    stores = {count: objects(count) for count in sizes}
    found: dict[int, list[dict[str, float]]] = {count: [] for count in sizes}
    shares: dict[str, list[float]] = {f"{count:,} streams": [] for count in sizes}
    for number in range(rounds + 1):
        for count in random.sample(sizes, len(sizes)):
            if number == 0 and count == max(sizes):
                # The first round warms up, for which the smaller ones do.
                continue
            with foreign() as seen:
                figures = _in_child(stores[count])
            assert figures["streams"] == count
            if number:
                found[count].append(figures)
                shares[f"{count:,} streams"].append(seen.foreign_share)
    clean = all(undisturbed(each) for each in shares.values())
    each = {count: [run["seconds"] / count * 1e6 for run in runs] for count, runs in found.items()}
    middles = [median(values) for values in each.values()]
    return Part(
        title="E. Bootstrap from manifests",
        rows=0,
        figures=[
            *(
                Figure(f"{count:,} streams, each", spread(values), "us", clean=clean)
                for count, values in each.items()
            ),
            *(
                one(f"{count:,} streams, most memory", max(r["peak_mib"] for r in runs), "MiB")
                for count, runs in found.items()
            ),
            one(
                "dearest stream to cheapest",
                max(middles) / min(middles),
                "",
                RATIO,
                at_most=True,
                clean=clean,
            ),
        ],
        seconds={
            f"{count:,} streams": [r["seconds"] for r in runs] for count, runs in found.items()
        },
        foreign_share=shares,
        facts={"rounds": {str(count): runs for count, runs in found.items()}},
    )


def objects(count: int) -> Path:
    """An object store with so many streams; one that is there already is taken as it is."""
    folder = BUILD / "archive" / f"objects-{count}"
    if (folder / "complete").exists():
        return folder / "objects"
    shutil.rmtree(folder, ignore_errors=True)
    with TemporaryDirectory(dir=BUILD, prefix="work-") as temporary:
        pattern, segment = _one_stream(Path(temporary) / "store")
    made = FolderStore(folder / "objects")
    linked: Path | None = None
    for number in range(count):
        name = f"tenant/{number % 1000:03}/stream/{number:07}"
        manifest = msgspec.structs.replace(pattern, name=name)
        path = made.path(manifest_key(name))
        path.parent.mkdir(parents=True)
        path.write_bytes(encode(manifest))
        digest = manifest.segments.sha256[0]
        path = made.path(segment_key(name, manifest.incarnation, 0, digest))
        path.parent.mkdir(parents=True)
        if linked is None or number % LINKS == 0:
            linked = path
            path.write_bytes(segment)
        else:
            os.link(linked, path)
    (folder / "complete").touch()
    return folder / "objects"


def _one_stream(root: Path) -> tuple[Manifest, bytes]:
    """A manifest and a segment as they are published, to make the others of."""
    messages.append_all(root, messages.NAME, messages.orders(3))
    with fourfold.open(root) as store:
        store.archive.publish_all()
        key = manifest_key(messages.NAME)
        manifest = decode(store.objects.get(key).data, key)
        [segment] = manifest.kept()
        return manifest, store.objects.get(segment.key).data


def _in_child(objects: Path) -> dict[str, float]:
    with TemporaryDirectory(dir=BUILD, prefix="work-") as folder:
        command = [sys.executable, "-m", "bench.archive.bootstrapping", str(objects), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"bootstrap of {objects}: {done.stderr.strip()[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def child(objects: Path, root: Path) -> dict[str, Any]:
    with fourfold.open(root) as store, FolderStore(objects) as source:
        database, now = store.streams.database, store.streams.clock()
        began, used = time.perf_counter(), cpu_seconds()
        report = bootstrap(database, source, now_ms=now)
        taken, used = time.perf_counter() - began, cpu_seconds() - used
    if report.failures or report.unclaimed:
        raise RuntimeError(f"not all was restored: {list(report.failures.items())[:3]}")
    peak = _peak_kib() / 1024
    return {
        "streams": len(report.restored),
        "seconds": taken,
        "cpu_seconds": used,
        "peak_mib": peak,
    }


def _peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(child(Path(sys.argv[1]), Path(sys.argv[2]) / "store")))

"""Processor time of the machine: that of a Spark session, and that of all other processes.

A session is this process, its JVM and the Python workers of that. `bench.machine` knows only
processes that were waited for, so here the tree is looked through.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import _processor_seconds
from fourfold.pipeline.spark import DAEMON

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.05
_SET_CHILD_SUBREAPER = 36
# Programs that fork Python workers; the command line of the JVM has the name of ours, too.
_DAEMONS = (b"-m\0pyspark.daemon", b"-m\0" + DAEMON.encode())


class Watch:
    """What was seen while a block ran."""

    def __init__(self) -> None:
        self.foreign_share = 0.0
        self.databases_of_a_worker = 0
        self.worker_bytes = 0


@contextmanager
def foreign() -> Iterator[Watch]:
    """The share of the processor time that others used while the block ran, from 0 to 1."""
    seen = Watch()
    _adopt_orphans()
    busy, total = _processor_seconds()
    ours = _tree_seconds()
    yield seen
    busy_after, total_after = _processor_seconds()
    passed = max(total_after - total, 1e-9)
    others = (busy_after - busy) - (_tree_seconds() - ours)
    seen.foreign_share = round(min(max(0.0, others / passed), 1.0), 3)


@contextmanager
def workers() -> Iterator[Watch]:
    """Python workers while the block runs: the most databases that one had open at a time, and the
    most memory that one has had.
    """
    seen, over = Watch(), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            _look(seen)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
        time.sleep(2 * _LOOK_S)
    finally:
        over.set()
        watcher.join()


def _look(seen: Watch) -> None:
    for process in _tree():
        folder = Path("/proc") / str(process)
        try:
            command = (folder / "cmdline").read_bytes()
            if not any(daemon in command for daemon in _DAEMONS):
                continue
            names = {str(fd.readlink()) for fd in (folder / "fd").iterdir()}
            fields = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
        except OSError:
            continue
        open_now = sum(name.endswith(".sqlite") for name in names)
        seen.databases_of_a_worker = max(seen.databases_of_a_worker, open_now)
        peak = int(fields.get("VmHWM", "0 kB").split()[0]) * 1024
        seen.worker_bytes = max(seen.worker_bytes, peak)


def _adopt_orphans() -> None:
    """A JVM outlives the process that started it, and Python workers their daemon. What they used
    would count as somebody else's if they became children of another process.
    """
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _tree() -> list[int]:
    """This process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for process, fields in _stats():
        children.setdefault(int(fields[1]), []).append(process)
    found, todo = [], [os.getpid()]
    while todo:
        process = todo.pop()
        found.append(process)
        todo += children.get(process, [])
    return found


def _tree_seconds() -> float:
    ours = set(_tree())
    return sum(
        sum(int(ticks) for ticks in fields[11:15]) / _TICKS
        for process, fields in _stats()
        if process in ours
    )


def _stats() -> Iterator[tuple[int, list[str]]]:
    """The fields of every process behind its name: its state, its parent, and so on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        yield int(path.parent.name), text.rpartition(")")[2].split()

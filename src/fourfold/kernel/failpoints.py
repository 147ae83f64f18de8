"""Fault points: named places in the kernel where a test can make the machine fail.

A point is hit with `if faults.armed: faults.hit("kernel.commit.before")`: while nothing is armed
that costs one look at a dictionary. Tests arm a point in code, or in a child process through the
environment:

    FOURFOLD_FAULTS="kernel.commit.before=kill@3,kernel.statement.after=raise"

which kills the process with SIGKILL at the third hit of the first point, and raises StorageError at
the first hit of the second. Every point that exists is listed in `POINTS`; arming an unknown one is
an error.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fourfold.errors import DiskFull, InvalidConfig, StorageError

POINTS = (
    "kernel.begin.before",
    "kernel.begin.after",
    "kernel.statement.before",
    "kernel.statement.after",
    "kernel.savepoint.release",
    "kernel.commit.before",
    "kernel.commit.after",
    "kernel.acknowledge.before",
    "kernel.rollback.before",
    "kernel.checkpoint.before",
    "kernel.checkpoint.after",
    "kernel.migration.backed_up",
    "kernel.migration.before",
    "kernel.migration.after",
    "kernel.backup.copied",
    "kernel.backup.renamed",
    "kernel.restore.copied",
    "kernel.restore.kept",
    "kernel.restore.renamed",
)

ARCHIVE_POINTS = (
    "archive.segment.built",
    "archive.segment.renamed",
    "archive.seal.committed",
    "archive.upload.before",
    "archive.upload.after",
    "archive.manifest.intended",
    "archive.manifest.uploaded",
    "archive.manifest.sliced",
    "archive.manifest.recorded",
    "archive.run.built",
    "archive.object.expected",
    "archive.object.uploaded",
    "archive.object.named",
    "archive.collect.deleted",
    "archive.pack.uploaded",
    "archive.retired.listed",
)
"""Points outside of the kernel, where a log is sealed and published."""

STREAM_POINTS = (
    "streams.delete.buried",
    "streams.delete.sliced",
)
"""Points where a stream is deleted."""

ENVIRONMENT = "FOURFOLD_FAULTS"


@dataclass(slots=True)
class Fault:
    """What happens at a point: `action` runs at hit number `at` (and at each later hit if
    `repeat`).
    """

    action: Callable[[str], None]
    at: int = 1
    repeat: bool = False
    hits: int = 0


armed: dict[str, Fault] = {}
_lock = threading.Lock()


def kill(_point: str) -> None:
    """End the process as a power switch would: no handlers, no flushing."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # The signal is on its way; nothing after this line may run.


def fail(point: str) -> None:
    raise StorageError(f"fault injected at {point}", hint="A test armed this fault point.")


def fill(point: str) -> None:
    raise DiskFull(f"fault injected at {point}")


ACTIONS: dict[str, Callable[[str], None]] = {"kill": kill, "raise": fail, "full": fill}


def arm(
    point: str, action: Callable[[str], None] | str = fail, *, at: int = 1, repeat: bool = False
) -> None:
    """Make `point` do `action` at its `at`-th hit from now on."""
    known = (*POINTS, *ARCHIVE_POINTS, *STREAM_POINTS)
    if point not in known:
        raise InvalidConfig(f"unknown fault point {point!r}", hint=f"One of: {', '.join(known)}.")
    if isinstance(action, str):
        if action not in ACTIONS:
            raise InvalidConfig(f"unknown fault action {action!r}", hint="kill, raise or full.")
        action = ACTIONS[action]
    with _lock:
        armed[point] = Fault(action, at, repeat)


def disarm() -> None:
    """Back to a machine that works."""
    with _lock:
        armed.clear()


def hit(point: str) -> None:
    """Called by the kernel at `point`; does nothing unless that point is armed and its turn has
    come.
    """
    with _lock:
        fault = armed.get(point)
        if fault is None:
            return
        fault.hits += 1
        due = fault.hits == fault.at or (fault.repeat and fault.hits > fault.at)
    if due:
        fault.action(point)


def arm_from_environment(text: str | None) -> None:
    """Arm what `FOURFOLD_FAULTS` asks for; called once, when the kernel is imported."""
    for part in (text or "").split(","):
        if not part.strip():
            continue
        point, _, rest = part.strip().partition("=")
        action, _, at = rest.partition("@")
        if at and not at.isdigit():
            raise InvalidConfig(f"{ENVIRONMENT}: {part.strip()!r} wants a number after '@'")
        arm(point, action or "raise", at=int(at or 1))


arm_from_environment(os.environ.get(ENVIRONMENT))

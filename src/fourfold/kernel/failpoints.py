"""Failpoints: named places in the code where a test can inject a failure.

A point is hit with `if failpoints.armed: failpoints.hit("kernel.commit.before")`, which costs one
truth test of a dictionary while nothing is armed. Tests arm a point in code, or in a child process
through the environment:

    FOURFOLD_FAULTS="kernel.commit.before=kill@3,kernel.statement.after=raise"

This kills the process with SIGKILL at the third hit of the first point, and raises StorageError at
the first hit of the second. Arming a point that is not listed here is an error.
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
)
"""Points in sealing and publishing."""

TABLE_POINTS = (
    "archive.tables.sealed",
    "archive.tables.committed",
    "archive.tables.compacted",
    "archive.tables.purged",
    "archive.tables.swept",
    "archive.format_1.deleted",
    "archive.catalog.intended",
    "archive.catalog.compacted",
    "archive.catalog.committed",
    "archive.catalog.recorded",
    "archive.restore.filled",
    "archive.restore.placed",
    "archive.follow.applied",
    "archive.follow.committed",
    "archive.follow.replaced",
    "archive.follow.streams",
)
"""Points in publishing to archive tables, in restoring from them and in their maintenance."""

DELTA_POINTS = (
    "archive.delta.commit.before",
    "archive.delta.commit.after",
    "archive.delta.checkpoint.before",
    "archive.delta.checkpoint.after",
    "archive.delta.truncate.before",
    "archive.delta.truncate.after",
)
"""Points in the Delta logs of tables."""

DOCUMENT_POINTS = ("documents.index.build",)
"""Points in the maintenance of documents."""

STREAM_POINTS = (
    "streams.delete.buried",
    "streams.delete.sliced",
    "streams.compact.copied",
    "streams.compact.published",
    "streams.compact.trimmed",
)
"""Points in the deletion of streams, and in compaction by key."""

ENVIRONMENT = "FOURFOLD_FAULTS"


@dataclass(slots=True)
class InjectedFault:
    """An injected failure: `action` runs at hit number `at`, and at later hits if `repeat`."""

    action: Callable[[str], None]
    at: int = 1
    repeat: bool = False
    hits: int = 0


armed: dict[str, InjectedFault] = {}
_lock = threading.Lock()


def kill(_point: str) -> None:
    """End the process with SIGKILL: no handlers, no flushing."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # Wait for the signal: nothing after this line may run.


def fail(point: str) -> None:
    """Raise StorageError."""
    raise StorageError(f"fault injected at {point}", hint="Disarm the failpoint; a test armed it.")


def fill(point: str) -> None:
    """Raise DiskFull."""
    raise DiskFull(f"fault injected at {point}")


ACTIONS: dict[str, Callable[[str], None]] = {"kill": kill, "raise": fail, "full": fill}


def arm(
    point: str, action: Callable[[str], None] | str = fail, *, at: int = 1, repeat: bool = False
) -> None:
    """Run `action` at the `at`-th hit of `point`, counted from now."""
    known = (
        *POINTS,
        *ARCHIVE_POINTS,
        *TABLE_POINTS,
        *DELTA_POINTS,
        *DOCUMENT_POINTS,
        *STREAM_POINTS,
    )
    if point not in known:
        raise InvalidConfig(f"unknown failpoint {point!r}", hint=f"Use one of {', '.join(known)}.")
    if isinstance(action, str):
        if action not in ACTIONS:
            raise InvalidConfig(
                f"unknown failpoint action {action!r}", hint="Use kill, raise or full."
            )
        action = ACTIONS[action]
    with _lock:
        armed[point] = InjectedFault(action, at, repeat)


def disarm() -> None:
    """Disarm all points."""
    with _lock:
        armed.clear()


def hit(point: str) -> None:
    """Count a hit of `point`, and run its action if it is armed and due."""
    with _lock:
        fault = armed.get(point)
        if fault is None:
            return
        fault.hits += 1
        due = fault.hits == fault.at or (fault.repeat and fault.hits > fault.at)
    if due:
        fault.action(point)


def arm_from_environment(text: str | None) -> None:
    """Arm the points in the value of `FOURFOLD_FAULTS`. Called once, at import."""
    for part in (text or "").split(","):
        if not part.strip():
            continue
        point, _, rest = part.strip().partition("=")
        action, _, at = rest.partition("@")
        if at and not at.isdigit():
            raise InvalidConfig(f"{ENVIRONMENT}: expected a number after '@', got {part.strip()!r}")
        arm(point, action or "raise", at=int(at or 1))


arm_from_environment(os.environ.get(ENVIRONMENT))

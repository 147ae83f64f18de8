"""Health: three states, each with the values and thresholds that led to it.

`ok` means ready. `degraded` means ready, but attention is needed. `failed` means that writes fail
or are at risk. The thresholds are in `limits` and in the settings.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fourfold import limits
from fourfold.errors import CorruptData, DiskFull, FourfoldError, StorageError

BUSY_DEGRADED_COUNT: Final = 3

State = Literal["ok", "degraded", "failed"]
_ORDER: tuple[State, ...] = ("ok", "degraded", "failed")
_ERRORS: Final[dict[str, type[FourfoldError]]] = {
    "disk_free_bytes": DiskFull,
    "integrity_errors": CorruptData,
}
"""Errors of findings that failed, by name; StorageError for others."""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One measured value with its thresholds."""

    name: str
    state: State
    value: float
    degraded_at: float
    failed_at: float
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database: the worst of its findings."""

    state: State
    findings: tuple[HealthFinding, ...]
    error: FourfoldError | None = None

    @property
    def ready(self) -> bool:
        """True unless the state is `failed`."""
        return self.state != "failed"

    def reason(self) -> FourfoldError | None:
        """Return why the state is `failed`: the error of the writer, or the worst value."""
        if self.ready or self.error is not None:
            return self.error
        finding = next(finding for finding in self.findings if finding.state == "failed")
        return _ERRORS.get(finding.name, StorageError)(
            f"database: {finding.name} is {finding.value:g}, fails at {finding.failed_at:g}",
            hint=finding.hint,
            details={"finding": finding.name, "value": finding.value},
        )


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Values from which a finding is degraded or failed."""

    wal_degraded_bytes: int = limits.WAL_DEGRADED_BYTES
    wal_failed_bytes: int = limits.WAL_FAILED_BYTES
    busy_degraded_count: int = BUSY_DEGRADED_COUNT
    disk_degraded_bytes: int = limits.DISK_DEGRADED_BYTES
    disk_failed_bytes: int = limits.DISK_FAILED_BYTES


def assess(
    folder: Path,
    *,
    wal_size_bytes: int,
    busy_count: int,
    failure: FourfoldError | None,
    integrity_errors: int,
    thresholds: Thresholds,
) -> Health:
    """Compare the values with the thresholds."""
    free = shutil.disk_usage(folder).free
    findings = (
        _above(
            "wal_size_bytes",
            wal_size_bytes,
            thresholds.wal_degraded_bytes,
            thresholds.wal_failed_bytes,
            "Close long-running readers, then run a checkpoint.",
        ),
        _above(
            "busy_count",
            busy_count,
            thresholds.busy_degraded_count,
            float("inf"),
            "Find the connection that holds the write lock for a long time.",
        ),
        _below(
            "disk_free_bytes",
            free,
            thresholds.disk_degraded_bytes,
            thresholds.disk_failed_bytes,
            "Free some space on the volume.",
        ),
        _above(
            "integrity_errors",
            integrity_errors,
            1,
            1,
            "Restore the newest good backup with `fourfold restore`.",
        ),
        _above("writer_failed", int(failure is not None), 1, 1, failure.hint if failure else ""),
    )
    worst = max((finding.state for finding in findings), key=_ORDER.index)
    return Health(worst, findings, failure)


def _above(name: str, value: float, degraded: float, failed: float, hint: str) -> HealthFinding:
    state: State = "failed" if value >= failed else "degraded" if value >= degraded else "ok"
    return HealthFinding(name, state, value, degraded, failed, hint if state != "ok" else "")


def _below(name: str, value: float, degraded: float, failed: float, hint: str) -> HealthFinding:
    state: State = "failed" if value < failed else "degraded" if value < degraded else "ok"
    return HealthFinding(name, state, value, degraded, failed, hint if state != "ok" else "")

"""What one run reports about itself, and what several runs say together: the same for every
benchmark.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from itertools import chain
from statistics import median
from typing import Protocol

import msgspec

FOREIGN_SHARE_MAX = 0.15
"""A run during which others used more of the machine than this does not count."""
SLOW_DISK_FACTOR = 2.0
"""Nor does one before which the disk was this much slower than it can be."""


class Measurement(msgspec.Struct, frozen=True):
    """The clock runs until all work is where it belongs: for writers, after the final
    checkpoint.
    """

    seconds: float
    cpu_seconds: float
    """Of all threads of the process, so that work done on a second core is seen."""
    transactions: int
    p50_us: float
    p99_us: float
    """Of a request; of a transaction in the bulk runs."""
    pragmas: dict[str, str] = {}


class Spread(msgspec.Struct, frozen=True):
    median: float
    min: float
    max: float


def spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def quantile(ascending: list[float], q: float) -> float:
    return ascending[round(q * (len(ascending) - 1))]


def cpu_seconds() -> float:
    """Processor time of this process until now, all threads together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def disturbed(foreign_share: float | None, sync_us: float, quiet_sync_us: float) -> bool:
    """Whether others were at work, judged by the processors and by the disk."""
    busy = foreign_share is not None and foreign_share > FOREIGN_SHARE_MAX
    return busy or sync_us > SLOW_DISK_FACTOR * quiet_sync_us


class Judged(Protocol):
    """A line of a result."""

    @property
    def clean(self) -> bool: ...

    @property
    def verdict(self) -> str: ...


def all_clean(*lines: Iterable[Judged]) -> bool:
    """Whether nobody disturbed any of them."""
    return all(line.clean for line in chain(*lines))


def any_missed(*lines: Iterable[Judged]) -> bool:
    """Whether one of them misses its target, undisturbed."""
    return any(line.verdict == "FAIL" for line in chain(*lines))


def verdict(figure: float, target: float | None, *, at_most: bool = False, clean: bool) -> str:
    """Return whether a figure meets its target; with a star if it is inconclusive."""
    if target is None:
        return "-"
    word = "pass" if (figure <= target if at_most else figure >= target) else "FAIL"
    return word if clean else f"{word} *"

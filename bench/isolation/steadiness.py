"""Speed of the machine itself: how much of a plain loop runs in each tenth of a second.

A server that is busy for two thirds of the time has a backlog as soon as the machine runs at half
of its speed for a moment, whatever runs beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from bench.measurement import quantile

WINDOW_S = 0.1
SECONDS = 4.0


class Steadiness(msgspec.Struct, frozen=True):
    """Speed of a loop in the slow windows, as a share of its median speed."""

    windows: int
    slowest: float
    slow_tenth: float
    """The speed that nine of ten windows exceed."""


def count_loops(
    seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter
) -> list[int]:
    """Return how often a loop ran in each window."""
    counts = []
    end = clock() + seconds
    now = clock()
    while now < end:
        until = now + WINDOW_S
        count = 0
        while now < until:
            now = clock()
            count += 1
        counts.append(count)
    return counts


def summarize(counts: list[int]) -> Steadiness:
    ordered = sorted(float(count) for count in counts)
    median = quantile(ordered, 0.5)
    tenth = quantile(ordered, 0.1)
    return Steadiness(len(counts), round(ordered[0] / median, 2), round(tenth / median, 2))

"""The clock and the batches of the figures of searches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most so many values."""
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch


def least_ms(
    rounds: int,
    call: Callable[[int], object],
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """Return the least time of calls by a clock, and the median wall time, after one more call."""
    call(0)
    times, walls = [], []
    for number in range(rounds):
        began, wall = clock(), time.perf_counter()
        call(number)
        times.append((clock() - began) * 1000)
        walls.append((time.perf_counter() - wall) * 1000)
    return min(times), sorted(walls)[len(walls) // 2]

"""The work of one run: what comes before the clock, what the clock measures, what comes after."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from bench.measurement import Measurement, cpu_seconds, quantile

T = TypeVar("T")
_BLOCK = 100
"""Reads that are timed together: the clock itself would be a large part of one."""


def _nothing() -> None:
    return


def _none() -> int:
    return 0


@dataclass(slots=True)
class Job:
    """`run` returns how many seconds each operation took."""

    run: Callable[[], list[float]]
    warm: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing
    """Proves what was done, and closes."""
    transactions: Callable[[], int] = _none

    def measured(self) -> Measurement:
        self.warm()
        # What was prepared belongs to the benchmark; the collector itself stays on.
        gc.collect()
        gc.freeze()
        transactions = self.transactions()
        cpu = cpu_seconds()
        started = time.perf_counter()
        taken = self.run()
        seconds = time.perf_counter() - started
        cpu = cpu_seconds() - cpu
        transactions = self.transactions() - transactions
        self.after()
        taken.sort()
        return Measurement(
            seconds=seconds,
            cpu_seconds=cpu,
            transactions=transactions or len(taken),
            p50_us=quantile(taken, 0.50) * 1e6,
            p99_us=quantile(taken, 0.99) * 1e6,
        )


def in_blocks(items: Iterable[T], ask: Callable[[T], object]) -> list[float]:
    """Ask for every item; seconds of one, on average over each block."""
    taken = []
    block = list(items)
    for at in range(0, len(block), _BLOCK):
        part = block[at : at + _BLOCK]
        before = time.perf_counter()
        for item in part:
            ask(item)
        taken.append((time.perf_counter() - before) / len(part))
    return taken

"""What one run reports about itself: the same fields whether it was C or Fourfold."""

from __future__ import annotations

import msgspec


class Measurement(msgspec.Struct, frozen=True):
    """The clock runs from before the first BEGIN until after the final checkpoint."""

    seconds: float
    cpu_seconds: float
    """Of all threads of the process, so that work done on a second core is seen."""
    transactions: int
    p50_us: float
    p99_us: float
    """Of a request; of a transaction in the bulk runs."""
    pragmas: dict[str, str] = {}


class Task(msgspec.Struct, frozen=True):
    """What a child process that runs the kernel is to do."""

    form: str
    database: str
    data: str
    count: int
    batch: int
    callers: int

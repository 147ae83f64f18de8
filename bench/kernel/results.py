"""The result of a benchmark: every run of every round, what follows from them, and its file."""

from __future__ import annotations

from statistics import median

import msgspec

from bench.machine import Machine
from bench.measurement import Measurement, Spread, disturbed, spread


class Record(msgspec.Struct, frozen=True):
    """One run: round 0 is the warm-up, which nothing is computed from."""

    round: int
    lines: list[str]
    side: str
    form: str
    rows: int
    batch: int
    callers: int
    measured: Measurement
    foreign_share: float | None
    sync_us: float
    """What the disk asked for a durable append just before this run."""

    @property
    def rate(self) -> float:
        return self.rows / self.measured.seconds

    def disturbed(self, quiet_sync_us: float) -> bool:
        """Whether others were at work, judged by the processors and by the disk."""
        return disturbed(self.foreign_share, self.sync_us, quiet_sync_us)


class Side(msgspec.Struct, frozen=True):
    """One side of a line over all its rounds."""

    form: str
    rate: Spread
    p50_us: float
    p99_us: float
    cpu_us: float
    """Processor time of a row, on all cores together."""
    group: float
    """Rows of a transaction, on average."""


class Outcome(msgspec.Struct, frozen=True):
    """One line of the result."""

    name: str
    workload: str
    title: str
    bulk: bool
    rounds: int
    disturbed_rounds: int
    """Rounds that others disturbed. They were left out, unless too few others remained."""
    clean: bool
    fourfold: Side
    limits: list[Side]
    """Every C form, the best first: that one is the limit."""
    ratio: Spread | None
    """Of neighbours in the same round: Fourfold's rate to the limit's."""
    target: float | None

    @property
    def verdict(self) -> str:
        if self.ratio is None or self.target is None:
            return "-"
        word = "pass" if self.ratio.median >= self.target else "FAIL"
        return word if self.clean else f"{word} *"


class Result(msgspec.Struct, frozen=True):
    """Everything that a run of the benchmark found out."""

    finished_at: str
    quick: bool
    machine: Machine
    ceiling: dict[str, str]
    settings: dict[str, str]
    outcomes: list[Outcome]
    records: list[Record]

    @property
    def clean(self) -> bool:
        return all(outcome.clean for outcome in self.outcomes)

    @property
    def missed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.verdict == "FAIL"]


def summarise(records: list[Record]) -> Side:
    return Side(
        form=records[0].form,
        rate=spread([record.rate for record in records]),
        p50_us=median(record.measured.p50_us for record in records),
        p99_us=median(record.measured.p99_us for record in records),
        cpu_us=median(r.measured.cpu_seconds / r.rows * 1e6 for r in records),
        group=median(record.rows / record.measured.transactions for record in records),
    )

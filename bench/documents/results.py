"""The result of a benchmark of documents: every run of every round, and what follows from them."""

from __future__ import annotations

import msgspec

from bench.documents.task import Run
from bench.machine import Machine
from bench.measurement import Measurement, Spread, all_clean, any_missed, disturbed, verdict


class Record(msgspec.Struct, frozen=True):
    """One run: round 0 is the warm-up, which nothing is computed from."""

    round: int
    run: Run
    operations: int
    measured: Measurement
    foreign_share: float | None
    sync_us: float
    """What the disk asked for a durable append just before this run."""

    @property
    def rate(self) -> float:
        return self.operations / self.measured.seconds

    @property
    def us(self) -> float:
        return self.measured.seconds / self.operations * 1e6

    @property
    def cpu_us(self) -> float:
        return self.measured.cpu_seconds / self.operations * 1e6

    def disturbed(self, quiet_sync_us: float) -> bool:
        return disturbed(self.foreign_share, self.sync_us, quiet_sync_us)


class Outcome(msgspec.Struct, frozen=True):
    """One line of the result."""

    workload: str
    title: str
    history: str
    page_size: int
    against: str
    rate: Spread
    reference_rate: Spread
    cpu_us: float
    reference_cpu_us: float
    """Processor time of one operation, all threads together."""
    group: float
    """Operations that shared a database transaction, on average; 0 where nothing is written."""
    ratio: Spread
    """Of neighbours in the same round."""
    target: float | None
    at_most: bool
    rounds: int
    clean: bool

    @property
    def verdict(self) -> str:
        return verdict(self.ratio.median, self.target, at_most=self.at_most, clean=self.clean)


class Flatness(msgspec.Struct, frozen=True):
    """What one operation costs at each length of the history."""

    title: str
    history: str
    page_size: int
    us: dict[int, float]
    ratio: float
    """The dearest to the cheapest, each the median of its rounds."""
    target: float | None
    clean: bool

    @property
    def verdict(self) -> str:
        return verdict(self.ratio, self.target, at_most=True, clean=self.clean)


class PolicyOutcome(msgspec.Struct, frozen=True):
    title: str
    policy: str
    history: str
    page_size: int
    bytes_per_revision: float
    past_us: float
    clean: bool


class Result(msgspec.Struct, frozen=True):
    """Everything that a run of the benchmark found out."""

    finished_at: str
    quick: bool
    machine: Machine
    settings: dict[str, str]
    outcomes: list[Outcome]
    flatness: list[Flatness]
    policies: list[PolicyOutcome]
    bytes_per_revision: dict[str, float]
    """Of the chains that points in time are read from: by history and page size."""
    records: list[Record]

    @property
    def clean(self) -> bool:
        return all_clean(self.outcomes, self.flatness) and all(each.clean for each in self.policies)

    @property
    def missed(self) -> bool:
        return any_missed(self.outcomes, self.flatness)

"""The result of a benchmark of graphs: every run of every round, and what follows from them."""

from __future__ import annotations

import msgspec

from bench.graphs.task import Run
from bench.machine import Machine
from bench.measurement import Measurement, Spread, all_clean, any_missed, disturbed, verdict


class Record(msgspec.Struct, frozen=True):
    """One run: round 0 is the warm-up, which nothing is computed from."""

    round: int
    run: Run
    measured: Measurement
    foreign_share: float | None
    sync_us: float
    """What the disk asked for a durable append just before this run."""

    @property
    def rate(self) -> float:
        return self.run.count / self.measured.seconds

    @property
    def us(self) -> float:
        return self.measured.seconds / self.run.count * 1e6

    @property
    def cpu_us(self) -> float:
        return self.measured.cpu_seconds / self.run.count * 1e6

    def disturbed(self, quiet_sync_us: float) -> bool:
        return disturbed(self.foreign_share, self.sync_us, quiet_sync_us)


class Outcome(msgspec.Struct, frozen=True):
    """One line of the result."""

    workload: str
    title: str
    against: str
    rate: Spread
    reference_rate: Spread
    cpu_us: float
    reference_cpu_us: float
    """Processor time of one operation, all threads together."""
    ratio: Spread
    """Of neighbours in the same round."""
    target: float | None
    rounds: int
    clean: bool

    @property
    def verdict(self) -> str:
        return verdict(self.ratio.median, self.target, clean=self.clean)


class Flatness(msgspec.Struct, frozen=True):
    """What one operation costs at each size of the database."""

    title: str
    us: dict[int, float]
    ratio: float
    """The dearest to the cheapest, each the median of its rounds."""
    target: float | None
    clean: bool

    @property
    def verdict(self) -> str:
        return verdict(self.ratio, self.target, at_most=True, clean=self.clean)


class Result(msgspec.Struct, frozen=True):
    """Everything that a run of the benchmark found out."""

    finished_at: str
    quick: bool
    machine: Machine
    settings: dict[str, str]
    prepared_s: dict[str, float]
    """How long each file took to make."""
    file_mib: dict[str, float]
    outcomes: list[Outcome]
    flatness: list[Flatness]
    records: list[Record]

    @property
    def clean(self) -> bool:
        return all_clean(self.outcomes, self.flatness)

    @property
    def missed(self) -> bool:
        return any_missed(self.outcomes, self.flatness)

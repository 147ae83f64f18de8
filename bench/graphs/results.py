"""The result of a benchmark of graphs: every run of every round, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.graphs.task import Run
from bench.machine import Machine
from bench.measurement import Measurement, Spread, disturbed


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
        return _verdict(self.target, self.target is None or self.ratio.median >= self.target, self)


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
        return _verdict(self.target, self.target is None or self.ratio <= self.target, self)


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
        parts: list[Outcome | Flatness] = [*self.outcomes, *self.flatness]
        return all(part.clean for part in parts)

    @property
    def missed(self) -> bool:
        parts: list[Outcome | Flatness] = [*self.outcomes, *self.flatness]
        return any(part.verdict == "FAIL" for part in parts)


def _verdict(target: float | None, held: bool, part: Outcome | Flatness) -> str:
    if target is None:
        return "-"
    word = "pass" if held else "FAIL"
    return word if part.clean else f"{word} *"


def save(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def load(path: Path) -> Result:
    return msgspec.json.decode(path.read_bytes(), type=Result)

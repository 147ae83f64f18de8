"""The result of a benchmark of sessions: every run of every round, and what follows from them."""

from __future__ import annotations

import msgspec

from bench.machine import Machine
from bench.measurement import Spread, all_clean, any_missed, disturbed, verdict
from bench.sessions.task import Found, Run


class Record(msgspec.Struct, frozen=True):
    """One run: round 0 is the warm-up, which nothing is computed from."""

    round: int
    run: Run
    found: Found
    foreign_share: float | None
    sync_us: float

    def disturbed(self, quiet_sync_us: float) -> bool:
        return disturbed(self.foreign_share, self.sync_us, quiet_sync_us)


class Outcome(msgspec.Struct, frozen=True):
    """One line of the result."""

    workload: str
    title: str
    figure: str
    against: str
    ours: Spread | None
    theirs: Spread | None
    ratio: Spread | None
    """Of neighbours in the same round."""
    target: float | None
    at_most: bool
    rounds: int
    clean: bool
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return self.note
        return verdict(self.ratio.median, self.target, at_most=self.at_most, clean=self.clean)


class Flatness(msgspec.Struct, frozen=True):
    """What one operation costs at each length of the log."""

    title: str
    us: dict[int, float]
    ratio: float
    target: float
    clean: bool

    @property
    def verdict(self) -> str:
        return verdict(self.ratio, self.target, at_most=True, clean=self.clean)


class Result(msgspec.Struct, frozen=True):
    """Everything that a run of the benchmark found out."""

    finished_at: str
    quick: bool
    machine: Machine
    versions: dict[str, str]
    settings: dict[str, str]
    outcomes: list[Outcome]
    flatness: list[Flatness]
    records: list[Record]

    @property
    def clean(self) -> bool:
        return all_clean(self.outcomes, self.flatness)

    @property
    def missed(self) -> bool:
        return any_missed(self.outcomes, self.flatness)

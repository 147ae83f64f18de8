"""The result of a benchmark of streams: every run of every round, and what follows from them."""

from __future__ import annotations

import msgspec

from bench.machine import Machine
from bench.measurement import Spread, disturbed, spread

OURS = "fourfold"


class Cell(msgspec.Struct, frozen=True):
    """What is measured, and which figure of it counts."""

    workload: str
    title: str
    streams: int = 1
    connections: int = 1
    batch: int = 1
    mode: str = ""


class Record(msgspec.Struct, frozen=True):
    """One run of one server. Round 0 is the warm-up, which nothing is computed from."""

    round: int
    cell: Cell
    server: str
    figures: dict[str, float]
    foreign_share: float
    sync_us: float


class Target(msgspec.Struct, frozen=True):
    """Our figure against another server's: a ratio, or, without a server, a bound of its own."""

    workload: str
    figure: str
    against: str
    ratio: float
    at_most: bool = False
    connections: tuple[int, ...] = ()


TARGETS = (
    Target("A", "per_s", "prisma-tuned", 3.0, connections=(1,)),
    Target("A", "per_s", "prisma-tuned", 1.4, connections=(16,)),
    Target("A", "per_s", "prisma-tuned", 1.8, connections=(64,)),
    Target("A", "p99_ms", "prisma-tuned", 1.0, at_most=True, connections=(16, 64)),
    Target("A", "per_s", "file", 8.0, connections=(16, 64)),
    Target("A", "per_s", "redis-always", 0.6, connections=(16, 64)),
    Target("B", "per_s", "prisma-tuned", 1.5),
    Target("C", "per_s", "prisma-tuned", 3.0),
    Target("C", "peak_mib", "", 150.0, at_most=True),
    Target("D", "p50_ms", "prisma-tuned", 1.0, at_most=True),
    Target("D", "p99_ms", "prisma-tuned", 1.0, at_most=True),
)


class Outcome(msgspec.Struct, frozen=True):
    """One target in one cell."""

    cell: Cell
    target: Target
    ours: Spread
    theirs: Spread | None
    ratio: float
    clean: bool

    @property
    def verdict(self) -> str:
        bound = self.target.ratio
        good = self.ratio <= bound if self.target.at_most else self.ratio >= bound
        return ("pass" if good else "FAIL") + ("" if self.clean else " *")


class Result(msgspec.Struct, frozen=True):
    finished_at: str
    machine: Machine
    versions: dict[str, str]
    settings: dict[str, str]
    records: list[Record]

    @property
    def quiet_sync_us(self) -> float:
        return min((each.sync_us for each in self.records), default=0.0)

    def counted(self, cell: Cell, server: str) -> tuple[list[Record], bool]:
        """The rounds of a cell that count, and whether nobody disturbed them: the undisturbed ones
        where there are any, all of them otherwise.
        """
        found = [r for r in self.records if r.round and r.cell == cell and r.server == server]
        quiet = self.quiet_sync_us
        clean = [r for r in found if not disturbed(r.foreign_share, r.sync_us, quiet)]
        return (clean, True) if clean else (found, False)

    def figure(self, cell: Cell, server: str, name: str) -> Spread | None:
        values = [r.figures[name] for r in self.counted(cell, server)[0] if name in r.figures]
        return spread(values) if values else None

    @property
    def cells(self) -> list[Cell]:
        return list(dict.fromkeys(record.cell for record in self.records))

    @property
    def servers(self) -> list[str]:
        return list(dict.fromkeys(record.server for record in self.records))

    def outcomes(self) -> list[Outcome]:
        return [
            outcome
            for cell in self.cells
            for target in TARGETS
            if cell.workload == target.workload
            and (not target.connections or cell.connections in target.connections)
            and (outcome := self._outcome(cell, target)) is not None
        ]

    def _outcome(self, cell: Cell, target: Target) -> Outcome | None:
        ours = self.figure(cell, OURS, target.figure)
        if ours is None:
            return None
        clean = self.counted(cell, OURS)[1]
        if not target.against:
            return Outcome(cell, target, ours, None, ours.median, clean)
        theirs = self.figure(cell, target.against, target.figure)
        if theirs is None or not theirs.median:
            return None
        both = clean and self.counted(cell, target.against)[1]
        return Outcome(cell, target, ours, theirs, ours.median / theirs.median, both)


def merged(old: Result | None, new: Result) -> Result:
    """A later run of some workloads takes the place of what an earlier one said of them."""
    if old is None:
        return new
    again = {cell.workload for cell in new.cells}
    kept = [record for record in old.records if record.cell.workload not in again]
    return msgspec.structs.replace(
        new, records=sorted([*kept, *new.records], key=lambda record: record.cell.workload)
    )

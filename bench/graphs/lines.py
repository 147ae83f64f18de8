"""What is measured: each line of the result, its run, the run that it is held against, and the
target.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.graphs.dataset import TARGETS
from bench.graphs.task import Run
from bench.loops import loops

SIZES = (10_000, 100_000, 1_000_000)
LARGEST = 10_000_000
WORKLOADS = {
    "A": "insert_many, 10,000 rows to a transaction",
    "B": "envelopes by 64 callers",
    "C": "the change feed",
    "D": "cost against the number of rows",
    "E": "beside a change feed made by hand, with triggers",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything."""

    rows: int
    envelopes: int
    log_numbers: int
    grown: int
    reads: int
    sizes: tuple[int, ...]

    @property
    def log_rows(self) -> int:
        return TARGETS + 5 * self.log_numbers


FULL = Counts(60_000, 5_000, 12_000, 500, 2_000, SIZES)
QUICK = Counts(20_000, 2_000, 4_000, 200, 500, SIZES[:2])


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result: how `subject` does beside `reference`."""

    workload: str
    title: str
    subject: Run
    reference: Run
    against: str
    target: float | None = None


def lines(counts: Counts) -> list[Line]:
    found: list[Line] = []

    def add(
        workload: str, title: str, ours: Run, theirs: Run, against: str, target: float | None = None
    ) -> None:
        found.append(Line(workload, title, ours, theirs, against, target))

    for kind, title in (
        ("parent", "parents"),
        ("attr", "attributes"),
        ("edge", "edges"),
        ("rating", "ratings"),
        ("attr shared", "attributes that are shared, their parents proved"),
    ):
        ours = Run(f"insert {kind}", counts.rows, "base")
        limit = Run(f"kernel insert {kind}", counts.rows, "base")
        add("A", title, ours, limit, "kernel's bulk insert", 0.7)
    for callers in (loops()[0], "threads"):
        for size in ("one", "five"):
            ours = Run(f"envelope {size} {callers}", counts.envelopes, "base")
            limit = Run(f"kernel envelope {size} {callers}", counts.envelopes, "base")
            who = "64 threads" if callers == "threads" else f"64 coroutines ({callers})"
            rows = "one row" if size == "one" else "five rows"
            add("B", f"{rows}, {who}", ours, limit, "kernel's group commit", 0.6)
    feed = Run("feed", counts.log_rows, "log")
    for way in ("number", "id"):
        bare = Run(f"bare select by {way}", counts.log_rows, "log")
        add("C", "the whole log in pages", feed, bare, f"bare SELECT by {way}", 0.5)
    ours, by_hand = (
        Run(f, counts.rows, d) for f, d in (("insert attr", "base"), ("peer insert", "peer-base"))
    )
    add("E", "attributes, 10,000 to a transaction", ours, by_hand, "triggers")
    one = Run("one envelope", counts.envelopes, "base")
    by_hand = Run("peer envelope", counts.envelopes, "peer-base")
    add("E", "five rows to a transaction, one caller", one, by_hand, "triggers")
    many = Run(f"envelope five {loops()[0]}", counts.envelopes, "base")
    add("E", "five rows to a transaction, 64 callers", many, by_hand, "triggers, one caller")
    add(
        "E",
        "the whole log in pages",
        feed,
        Run("peer feed", counts.log_rows, "peer-log"),
        "audit table",
    )
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost of one operation against the number of rows."""

    title: str
    runs: tuple[tuple[int, Run], ...]
    target: float | None = 1.5


def curves(counts: Counts) -> list[Curve]:
    found = []
    for form, title, count, target in (
        ("one envelope", "an envelope of five rows", counts.grown, 1.5),
        (
            "old insert",
            "an attribute of an old parent, 1,000 to a transaction",
            10 * counts.grown,
            None,
        ),
        ("pages", "a page of 1,000 rows of the feed, anywhere", counts.reads // 20, 1.5),
        ("attributes", "the current attributes of a parent", counts.reads, 1.5),
        ("past", "the newest version of an object up to a number", counts.reads, 1.5),
    ):
        in_place = form in {"one envelope", "old insert"}
        runs = tuple((n, Run(form, count, f"size-{n}", in_place)) for n in counts.sizes)
        found.append(Curve(title, runs, target))
    return found

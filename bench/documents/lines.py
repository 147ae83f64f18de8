"""What is measured: each line of the result, its run, the run that it is held against, and the
target.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.documents.task import Run
from bench.loops import loops

HISTORIES = ("revisions", "facts")
PAGE_SIZES = (32_768, 4_096)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
FACTS_SIZE_MAX = 100_000
"""Longer chains of facts take minutes to prepare; nothing is promised for them."""

WORKLOADS = {
    "A": "one commit after another, one operation each",
    "B": "64 callers at once",
    "C": "commits of 1,000 operations",
    "D": "current reads",
    "E": "read_many of 1,000",
    "F": "cost against the length of history",
    "G": "points in time",
    "H": "when snapshots are made: by weight, and every ten patches",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything."""

    commits: int
    operations: int
    entities: int
    chain_commits: int
    chain_reads: int
    past_commits: int
    sizes: tuple[int, ...]


FULL = Counts(3_000, 20_000, 11_000, 500, 2_000, 20_000, SIZES)
QUICK = Counts(1_000, 5_000, 2_200, 300, 500, 2_000, SIZES[:3])


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the result: how `subject` does beside `reference`."""

    workload: str
    title: str
    history: str
    page_size: int
    subject: Run
    reference: Run
    against: str
    target: float | None = None
    at_most: bool = False
    """Whether the figure is how many times as long it takes, and the target a bound on that."""


def lines(counts: Counts, history: str, page_size: int) -> list[Line]:
    """The lines of one history at one page size."""
    found: list[Line] = []
    decides = history == "revisions"

    def run(form: str, count: int, data: str) -> Run:
        return Run(form, history, page_size, count, data)

    def add(
        workload: str,
        title: str,
        subject: Run,
        reference: Run,
        against: str,
        target: float | None = None,
        *,
        at_most: bool = False,
    ) -> None:
        held = target if decides else None
        found.append(
            Line(workload, title, history, page_size, subject, reference, against, held, at_most)
        )

    single = run("set", counts.commits, "written")
    for form, title in (
        ("set", "Commit of a set"),
        ("patch", "Commit of a patch"),
        ("confirmed", "Commit of a set, with a confirmed read"),
    ):
        ours = run(form, counts.commits, "written")
        bare = run(f"bare {form}", counts.commits, "written")
        add("A", title, ours, bare, "bare loop", 0.6)
    for form in (*loops(), "threads"):
        title = "64 threads" if form == "threads" else f"64 coroutines ({form})"
        target = 3.0 if page_size == PAGE_SIZES[0] else None
        add("B", title, run(form, counts.commits, "written"), single, "one caller", target)
    for form, title, data, target in (
        ("bulk-set", "1,000 sets of new entities", "written", 0.5),
        ("bulk-patch", "1,000 patches, not in memory", "many", None),
    ):
        ours = run(form, counts.operations if data == "written" else counts.entities, data)
        limit = run(f"kernel {form}", ours.count, data)
        add("C", title, ours, limit, "kernel's bulk insert", target)
    pairs = run("key-value", counts.entities, "pairs")
    memory = run("read memory", counts.entities, "many")
    file = run("read file", counts.entities, "many")
    add("D", "Read, 0 to 10 patches deep", memory, pairs, "key-value", 0.5)
    add("D", "The same, from the file", file, pairs, "key-value")
    many = run("many file", counts.entities, "many")
    add("E", "read_many, from the file", many, file, "single reads", 2.0)
    many = run("many memory", counts.entities, "many")
    add("E", "read_many, from memory", many, memory, "single reads")
    past = run("chain past", counts.chain_reads, "past")
    current = run("chain file", counts.chain_reads, "past")
    newest = run("chain memory", counts.chain_reads, "past")
    add("G", "Read at a random seq", past, current, "current, from the file", 5.0, at_most=True)
    add("G", "Read at a random seq", past, newest, "current, from memory", at_most=True)
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost of one operation against the length of the history."""

    title: str
    history: str
    page_size: int
    runs: tuple[tuple[int, Run], ...]
    target: float | None


def curves(counts: Counts, history: str, page_size: int) -> list[Curve]:
    sizes = [n for n in counts.sizes if history == "revisions" or n <= FACTS_SIZE_MAX]
    target = 1.5 if history == "revisions" else None
    found = []
    for form, title, count in (
        ("chain commit", "commit of a patch", counts.chain_commits),
        ("chain memory", "current read", counts.chain_reads),
        ("chain file", "current read, from the file", counts.chain_reads),
    ):
        runs = tuple((n, Run(form, history, page_size, count, f"chain-{n}")) for n in sizes)
        found.append(Curve(title, history, page_size, runs, target))
    return found


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to decide when to make a snapshot, for a document of some size."""

    title: str
    policy: str
    filler: int
    history: str
    page_size: int
    run: Run


def policies(counts: Counts, history: str, page_size: int) -> list[Policy]:
    found = []
    for size, filler in (("330 bytes", 200), ("20 kB", 20_000)):
        for policy in ("by weight", "every ten"):
            data = f"policy {filler} {policy}".replace(" ", "-")
            run = Run("chain past", history, page_size, counts.chain_reads, data)
            found.append(Policy(f"document of {size}", policy, filler, history, page_size, run))
    return found

"""What is measured: each line of the result, its run, the run beside it, and the target."""

from __future__ import annotations

from dataclasses import dataclass

from bench.sessions.state import SHAPES
from bench.sessions.task import Run

WORKLOADS = {
    "A": "durable appends, one by one and in batches of 100, beside the kernel's",
    "B": "reopening a store and reading a view, against the length of the log",
    "C": "a conversation of 1,000 turns through LangGraph",
    "D": "durable appends beside other stores of conversations and events",
    "E": "state that grows or changes, through LangGraph and the OpenAI Agents SDK",
}
SIZES = (1_000, 10_000, 100_000, 1_000_000)
BATCH = 100


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything."""

    single: int
    batched: int
    reopened: int
    views: int
    turns: int
    states: int
    sizes: tuple[int, ...]


FULL = Counts(2_000, 100_000, 20, 2_000, 1_000, 300, SIZES)
QUICK = Counts(500, 5_000, 10, 500, 60, 60, SIZES[:2])


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of one run, divided by that of another in the same round."""

    workload: str
    title: str
    figure: str
    subject: Run
    reference: Run
    against: str
    target: float | None = None
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure at each length of the log."""

    title: str
    figure: str
    runs: tuple[tuple[int, Run], ...]
    target: float


def lines(counts: Counts) -> list[Line]:
    found = []
    for size in (200, 1_024):
        for form, count, title in (
            ("single", counts.single, "Append, one by one"),
            ("batch", counts.batched, "Append, batches of 100"),
            ("coroutines", counts.batched, "Append, 64 coroutines"),
        ):
            ours, theirs = Run(form, count, size), Run(f"kernel {form}", count, size)
            target = None if form == "coroutines" else 0.6
            found.append(Line("A", f"{title}, {size} B", "rate", ours, theirs, "kernel", target))
    ours = Run("talk fourfold", counts.turns)
    for form, name, share in (
        ("talk sqlite", "SqliteSaver", 400),
        ("talk delta", "SqliteSaver, DeltaChannel", 4),
    ):
        theirs = Run(form, counts.turns)
        full = counts.turns == FULL.turns
        disk = 1 / share if full else None
        found += [
            Line("C", "Disk", "bytes", ours, theirs, name, disk, at_most=True),
            Line(
                "C", "Last turn", "last_ms", ours, theirs, name, 1.0 if full else None, at_most=True
            ),
            Line("C", "All turns", "seconds", ours, theirs, name, at_most=True),
            Line("C", "Newest checkpoint", "get_ms", ours, theirs, name, at_most=True),
        ]
    for form, count, title in (
        ("items 2", counts.single, "2 items a call"),
        ("items 100", counts.batched, "100 items a call"),
    ):
        ours, theirs = Run(f"agents {form}", count), Run(f"sqlitesession {form}", count)
        found.append(Line("D", title, "rate", ours, theirs, "OpenAI SQLiteSession", 1.0))
    for size in (200, 1_024):
        for form, count in (("single", counts.single), ("batch", counts.batched)):
            title = f"Append, {'one by one' if form == 'single' else 'batches of 100'}, {size} B"
            # Both are given messages. What it takes to insert bytes that were ready before the
            # clock started is told too; ours are never ready.
            for more, name, target in (
                ("", "eventsourcing", 1.0),
                (" ready", "eventsourcing, bytes ready", None),
            ):
                ours, theirs = (
                    Run(form, count, size),
                    Run(f"eventsourcing {form}{more}", count, size),
                )
                found.append(Line("D", title, "rate", ours, theirs, name, target))
    return found + _states(counts)


def _states(counts: Counts) -> list[Line]:
    full = counts.states == FULL.states
    found = []
    for shape in SHAPES:
        ours = Run(f"state fourfold {shape}", counts.states)
        theirs = Run(f"state sqlite {shape}", counts.states)
        for title, figure, target in (
            ("disk", "bytes", None),
            ("processor", "cpu", 1.0 if full else None),
            ("first read", "cold_ms", 2.0 if full and shape == "messages" else None),
        ):
            line = Line(
                "E", f"{shape}, {title}", figure, ours, theirs, "SqliteSaver", target, at_most=True
            )
            found.append(line)
    ours, theirs = Run("read fourfold", counts.turns), Run("read sqlite", counts.turns)
    for title, figure in (("all reads", "cpu"), ("last read", "last_ms")):
        found.append(
            Line(
                "E",
                f"items, {title}",
                figure,
                ours,
                theirs,
                "OpenAI SQLiteSession",
                1.0 if full else None,
                at_most=True,
            )
        )
    return found


def curves(counts: Counts) -> list[Curve]:
    def runs(form: str, count: int) -> tuple[tuple[int, Run], ...]:
        return tuple((size, Run(form, count, data=f"log-{size}")) for size in counts.sizes)

    return [
        Curve("open the store and the session", "us", runs("reopen", counts.reopened), 2.0),
        Curve("view in the process that writes", "us", runs("view", counts.views), 2.0),
        Curve("view from the file", "us", runs("view file", counts.views), 2.0),
        Curve("last message of a view", "us", runs("last message", counts.views), 2.0),
    ]

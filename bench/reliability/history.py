"""Histories of concurrent clients, and their checker.

A client records every request that it sent as an `Operation`, and every read of the log as a
`Poll`. At the end the whole log is read; `check` compares it with the responses of the clients:

- an acknowledged value is in the log, once, at the position of the response;
- a refused value is not in the log;
- a value without a response is in the log at most once;
- the values of one operation are all there, next to each other and in order, or none is;
- an operation that began after another one had returned comes after it in the log;
- what a reader received is a prefix of the log, with everything acknowledged before the poll began;
- times of entries do not decrease, in logs that promise this.

Positions decide the order, so a check takes one pass and not a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Outcome = Literal["acknowledged", "refused", "unknown"]
Kind = Literal[
    "lost", "doubled", "refused", "foreign", "torn", "moved", "reordered", "reader", "stale", "time"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One append of unique values; times are those of one monotonic clock."""

    values: tuple[str, ...]
    invoked: int
    returned: int
    outcome: Outcome
    position: int | None = None
    """Position of the first value, where the response states it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One value in a log; values of one commit may have the same position."""

    position: int
    value: str
    time: str = ""


@dataclass(frozen=True, slots=True)
class Poll:
    """One read of everything after the previous poll: when it began, and the entries known then."""

    invoked: int
    entries: int


@dataclass(slots=True)
class Reader:
    """A client that reads a log from its start, poll by poll."""

    entries: list[Entry] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that a history breaks."""

    kind: Kind
    value: str
    detail: str = ""


def check(
    operations: Sequence[Operation],
    log: Sequence[Entry],
    readers: Sequence[Reader] = (),
    *,
    times_grow: bool = False,
) -> list[Violation]:
    """List the promises that the history of a log breaks; empty if it keeps all."""
    index: dict[str, int] = {}
    violations: list[Violation] = []
    for place, entry in enumerate(log):
        if entry.value in index:
            violations.append(Violation("doubled", entry.value, f"at {entry.position}"))
        else:
            index[entry.value] = place
    known = {value for operation in operations for value in operation.values}
    violations += [Violation("foreign", value) for value in index if value not in known]
    for operation in operations:
        violations += _check_operation(operation, log, index)
    violations += _check_order(operations, index)
    for reader in readers:
        violations += _check_reader(reader, operations, log, index)
    if times_grow:
        violations += [
            Violation("time", entry.value, f"{entry.time} after {before.time}")
            for before, entry in pairwise(log)
            if entry.time < before.time
        ]
    return violations


def _check_operation(
    operation: Operation, log: Sequence[Entry], index: dict[str, int]
) -> Iterator[Violation]:
    places = [index[value] for value in operation.values if value in index]
    first = operation.values[0]
    if operation.outcome == "refused":
        if places:
            yield Violation("refused", first, "is in the log")
        return
    if not places and operation.outcome == "unknown":
        return
    if operation.outcome == "acknowledged":
        yield from (Violation("lost", value) for value in operation.values if value not in index)
    if len(places) < len(operation.values) or places != list(
        range(places[0], places[0] + len(places))
    ):
        if places:
            yield Violation("torn", first, f"places {places}")
        return
    position = log[places[0]].position
    if operation.position not in {None, position}:
        yield Violation("moved", first, f"acknowledged at {operation.position}, is at {position}")


def _check_order(operations: Sequence[Operation], index: dict[str, int]) -> Iterator[Violation]:
    """Find operations that come after one that began when they had returned already."""
    latest, latest_value = -1, ""
    present = [operation for operation in operations if operation.values[0] in index]
    for operation in sorted(present, key=lambda operation: index[operation.values[0]]):
        # Without a response, the server may have done it at any later time.
        if operation.outcome == "acknowledged" and operation.returned < latest:
            yield Violation("reordered", operation.values[0], f"after {latest_value}")
        if operation.invoked > latest:
            latest, latest_value = operation.invoked, operation.values[0]


def _check_reader(
    reader: Reader,
    operations: Sequence[Operation],
    log: Sequence[Entry],
    index: dict[str, int],
) -> Iterator[Violation]:
    for place, entry in enumerate(reader.entries):
        if place >= len(log) or log[place] != entry:
            yield Violation("reader", entry.value, f"differs from the log at place {place}")
            return
    acknowledged = sorted(
        (operation.returned, index[operation.values[-1]], operation.values[-1])
        for operation in operations
        if operation.outcome == "acknowledged" and operation.values[-1] in index
    )
    due, due_value, following = -1, "", 0
    for poll in reader.polls:
        while following < len(acknowledged) and acknowledged[following][0] < poll.invoked:
            _, place, value = acknowledged[following]
            if place > due:
                due, due_value = place, value
            following += 1
        if due >= poll.entries:
            yield Violation("stale", due_value, f"not among the {poll.entries} entries of a poll")
            return

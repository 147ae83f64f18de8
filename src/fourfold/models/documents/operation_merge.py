"""Merge of a place by the operations of both sides since their base.

The states alone do not tell two increments of a counter from one, nor two appends to a list from a
rewrite. The log does. Where everything that both sides did to a place since the base commutes, the
operations of the source are applied to the state of the target: increments add up, and what both
appended is kept, the target's first.

    increment          adds up with increments
    append             joins appends, and adds to the end `/-`; the order is the target's, then the
                       order in which the source committed
    add-unique         joins, each value once
    remove-by-value    removes from what the other side left

Operations on one array commute unless one side adds what the other removes, or appends what the
other adds once. Anything else that touched the place (a replace, a splice, a move, a set or a
delete of the whole document) leaves the decision to the merge of states.

An operation counts once, however it came to a side: the operations of a side are those of the
commits in its past that are not in the past of the base, whatever their branch, and the commits of
merges, which repeat them, are left out. Whether they make the state of the side out of that of the
base is checked. If they do not (a resolution decided otherwise, or a collection took some of them),
or if there are too many, nothing is guessed: a place to which both sides added is a conflict then,
even if it looks the same on both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from fourfold.content.json_pointer import ABSENT, END, Path, is_prefix, lookup
from fourfold.errors import InvalidInput
from fourfold.models.documents.ancestry import Since
from fourfold.models.documents.diff import find_equal, identical
from fourfold.models.documents.encoding import stored, trusted
from fourfold.models.documents.field_merge import CONTESTED, UNDECIDED, UNKNOWN
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.overlap import touches
from fourfold.models.documents.patch import Draft, PatchStep, Program, compile  # noqa: A004

MERGE_OPERATIONS_MAX: Final = 100_000
"""Maximum operations on one entity since the base, on one side of a merge."""

_COMMUTING: Final = frozenset({"increment", "append", "add-unique", "remove-by-value"})
_ACCUMULATING: Final = frozenset({"increment", "append"})
"""Those of which two are not one."""


class SideLog(NamedTuple):
    """Operations of one side on an entity since the base, without merges."""

    steps: Sequence[PatchStep] | None
    """None if the whole document was set or deleted."""
    complete: bool


def read_log(view: HistoryReader, entity: str, changes: Since) -> SideLog:
    """Read what the commits of `changes` did to an entity, in the order of the log."""
    rows: list[tuple[Any, ...]] = []
    complete = True
    for interval in changes.intervals:
        place = (interval.branch, entity, interval.after, interval.until)
        for row in view.rows(view.sql.revisions_of_entity, place):
            if len(rows) == MERGE_OPERATIONS_MAX:
                complete = False
                break
            if row[2] not in changes.merges:
                rows.append(row)
        complete = complete and view.value(view.sql.lost_revision, place) is None
    rows.sort(key=lambda row: (row[2], row[3]))
    if any(row[4] != "patch" for row in rows):
        return SideLog(None, complete)
    steps = [step for row in rows for step in compile(stored(row[5]), stored=True).steps]
    return SideLog(steps, complete)


class Combiner:
    """Merges the places of one entity; the logs are read when they are first needed."""

    def __init__(
        self, ours: Callable[[], SideLog], theirs: Callable[[], SideLog], *, virtual: bool
    ) -> None:
        self._read = ours, theirs
        self._virtual = virtual
        self._logs: tuple[SideLog, SideLog] | None = None

    def __call__(self, path: Path, base: Any, ours: Any, theirs: Any) -> Any:
        """Return the merged value; UNDECIDED if the states decide, CONTESTED if nothing can."""
        if self._logs is None:
            self._logs = self._read[0](), self._read[1]()
        logs = self._logs
        mine, others = (_steps_at(log.steps, path) for log in logs)
        if mine is None or others is None or not path:
            return UNDECIDED
        complete = logs[0].complete and logs[1].complete
        if complete and base is not UNKNOWN and (mine or others) and _commute(mine, others):
            explained = self._explains(path, base, mine, ours) and self._explains(
                path, base, others, theirs
            )
            merged = _applied(path, ours, others) if explained else UNDECIDED
            if merged is not UNDECIDED:
                return merged
        # What is neither a number nor an array has no operation that adds to it.
        if type(ours) not in (int, float, list):
            return UNDECIDED
        adds = (_adds(mine) or not logs[0].complete, _adds(others) or not logs[1].complete)
        return CONTESTED if all(adds) else UNDECIDED

    def _explains(self, path: Path, base: Any, steps: list[PatchStep], state: Any) -> bool:
        """Return True if these operations, and nothing else, lead from the base to a state."""
        if not steps and not self._virtual:
            return identical(base, state)
        # In a virtual base, what several sides appended is in an order of its own.
        return _is_alike(_applied(path, base, steps), state)


def _adds(steps: list[PatchStep]) -> bool:
    return any(step.op in _ACCUMULATING for step in steps)


def _steps_at(steps: Sequence[PatchStep] | None, path: Path) -> list[PatchStep] | None:
    """Return what was done at or below a place; None if something there does not commute."""
    if steps is None:
        return None
    result: list[PatchStep] = []
    for step in steps:
        if step.op == "add" and len(step.path) > 1 and step.path[-1] == END:
            done = PatchStep("append", step.path[:-1], None, [step.argument])
        else:
            done = step
        if done.op in _COMMUTING and is_prefix(path, done.path):
            result.append(done)
        elif any(
            is_prefix(touch.path, path) or is_prefix(path, touch.path)
            for touch in touches(Program((step,)))
        ):
            return None
    return result


def _commute(mine: list[PatchStep], others: list[PatchStep]) -> bool:
    paths = sorted({step.path for step in (*mine, *others)})
    if any(is_prefix(path, below) for path, below in pairwise(paths)):
        return False
    for path in paths:
        sides = [[step for step in steps if step.path == path] for steps in (mine, others)]
        counts = {step.op == "increment" for steps in sides for step in steps}
        if len(counts) > 1:
            return False
        if not counts.pop() and not (_keeps(*sides) and _keeps(*reversed(sides))):
            return False
    return True


def _keeps(one: list[PatchStep], other: list[PatchStep]) -> bool:
    """Return True if one side adds nothing that the other removes, nor adds once what it appends.

    All operations are on the same array.
    """
    removed = [step.argument for step in other if step.op == "remove-by-value"]
    appended = _values(other, "append")
    unique = _values(one, "add-unique")
    added = [*unique, *_values(one, "append")]
    return all(find_equal(added, value) is None for value in removed) and all(
        find_equal(appended, value) is None for value in unique
    )


def _values(steps: list[PatchStep], op: str) -> list[Any]:
    return [value for step in steps if step.op == op for value in step.argument]


def _applied(path: Path, value: Any, steps: list[PatchStep]) -> Any:
    """Return what the operations make of the value at a place; UNDECIDED if they do not fit it."""
    document: dict[str, Any] = {}
    holder = document
    for segment in path[:-1]:
        # Only objects are merged by key, so every segment is a key.
        holder[segment] = {}
        holder = holder[segment]
    if value is not ABSENT:
        holder[path[-1]] = value
    draft = Draft(document)
    try:
        draft.apply(Program(tuple(steps)))
    except InvalidInput:
        return UNDECIDED
    return lookup(draft.take(), path)


def _is_alike(one: Any, other: Any) -> bool:
    """Return True if two values differ in the order of an array, or in how a sum was rounded."""
    if type(one) is list and type(other) is list:
        return Counter(map(trusted, one)) == Counter(map(trusted, other))
    if type(one) is float and type(other) is float:
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return identical(one, other)

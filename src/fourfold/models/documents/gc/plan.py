"""Plan of gc: which points must stay readable, and which rows may be removed.

Everything at or after the horizon stays. Before it, a branch is still read at these points:

    forks       a branch shows its parent at the fork point, and so do the branches forked from it
    merges      the base of the next merge, or of a diff, of any two branches
    pins        seqs that the policy names, on every branch that existed then

Deleted branches count too: they can be read, merged and forked. Seq 0, the empty state, is always
readable.

Of the rows of an entity before the horizon, those stay that are current at a readable point. The
rows between two of them form a run, which is removed. The row after a run needs nothing if it is a
set or a delete. If it is a patch, it is replaced by the whole document, unless that would be larger
than the patches that lead to it; then these stay.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.documents import timestamps
from fourfold.models.documents.ancestry import BranchPoint, extend, last_seq, merged_by
from fourfold.models.documents.gc.horizon import horizon, truncated
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Branch

Points = dict[str, list[int]]
"""For each branch the seqs below the horizon at which it stays readable, in order."""


class Window(msgspec.Struct, frozen=True):
    """A range of seqs of the log of a branch whose entities may have rows that no reader needs."""

    branch: str
    after: int
    until: int


class GcPlan(msgspec.Struct, frozen=True):
    """A collection: the new horizon, the points below it that stay, and where to look."""

    horizon: int
    points: Points
    windows: list[Window]
    newest: int
    """The seq at which it was made."""


def stored_points(view: HistoryReader) -> Points:
    """Return the seqs that the collection in progress keeps, by branch."""
    points: Points = {}
    for branch, seq in view.all(view.sql.gc_points):
        points.setdefault(branch, []).append(seq)
    return points


def make_plan(view: HistoryReader, policy: GcPolicy, pins: tuple[int, ...]) -> GcPlan:
    """Return what gc by this policy would remove now."""
    before, old = horizon(view), stored_points(view)
    newest = last_seq(view)
    branches = [Branch(*row) for row in view.all(view.sql.branches)]
    _check_pins(branches, pins, newest, before, old)
    least = max(before, _horizon(view, policy, newest))
    points: Points = {}
    for point in sorted(_wanted(view, branches, pins, least, newest)):
        # What an earlier collection gave up cannot be promised again.
        is_readable = point.seq >= before or point.seq in old.get(point.branch, ())
        if 0 < point.seq < least and is_readable:
            points.setdefault(point.branch, []).append(point.seq)
    return GcPlan(least, points, _windows(branches, before, least, old, points), newest)


def is_current(view: HistoryReader, plan: GcPlan) -> bool:
    """Return True if a plan is still valid, though others may have committed since."""
    return not view.value(view.sql.forks_or_merges_since, (plan.newest,))


def _horizon(view: HistoryReader, policy: GcPolicy, newest: int) -> int:
    bounds = []
    if policy.keep_seqs is not None:
        bounds.append(newest - policy.keep_seqs + 1)
    if policy.keep_seconds is not None:
        since = max(time.time() - policy.keep_seconds, 0.0)
        bounds.append(timestamps.seq_at(view, datetime.fromtimestamp(since, UTC)))
    return max(min(bounds), 0) if bounds else 0


def _check_pins(
    branches: list[Branch], pins: tuple[int, ...], newest: int, before: int, old: Points
) -> None:
    for pin in pins:
        if pin > newest:
            raise InvalidInput(f"seq {pin} cannot be pinned; the newest is {newest}")
        for branch in branches:
            gone = 0 < pin < before and pin not in old.get(branch.name, ())
            if gone and branch.created_seq <= pin:
                raise truncated(f"seq {pin} cannot be pinned", before, branch.name, pin)


def _wanted(
    view: HistoryReader, branches: list[Branch], pins: tuple[int, ...], least: int, newest: int
) -> set[BranchPoint]:
    """Return every point that stays readable, also above the horizon."""
    lineage = _BranchAncestry(view, branches)
    read: dict[str, set[int]] = {branch.name: set() for branch in branches}
    for branch in branches:
        # The base of a merge, or of a diff of two retained states, is in the past of both
        # sides; and the past of a branch only grows from the horizon up to now.
        read[branch.name] |= {max(least, branch.created_seq), newest}
        read[branch.name] |= {pin for pin in pins if pin >= branch.created_seq}
        if branch.parent is not None and branch.fork_seq is not None:
            read[branch.parent].add(branch.fork_seq)
    points: set[BranchPoint] = set()
    for branch in branches:
        points.update(BranchPoint(branch.name, seq) for seq in read[branch.name])
        # The past of a branch without merges is its fork, which is read already.
        if branch.parent is not None and lineage.never_merged(branch.name):
            continue
        reached: dict[str, int] = {}
        for seq in sorted(read[branch.name]):
            points |= extend(reached, BranchPoint(branch.name, seq), lineage)
    return points


class _BranchAncestry:
    """All forks and merges of a space, read once for all branches."""

    def __init__(self, view: HistoryReader, branches: list[Branch]) -> None:
        self._forks = {
            known.name: BranchPoint(known.parent, known.fork_seq)
            for known in branches
            if known.parent is not None and known.fork_seq is not None
        }
        self._seqs: dict[str, list[int]] = {}
        self._sources: dict[str, list[BranchPoint]] = {}
        for branch, seq, text in view.rows(view.sql.all_merges):
            for source in merged_by(text):
                self._seqs.setdefault(branch, []).append(seq)
                self._sources.setdefault(branch, []).append(source)

    def fork(self, name: str) -> BranchPoint | None:
        return self._forks.get(name)

    def merges(self, name: str, after: int, until: int) -> list[BranchPoint]:
        seqs = self._seqs.get(name, [])
        return self._sources.get(name, [])[bisect_right(seqs, after) : bisect_right(seqs, until)]

    def never_merged(self, name: str) -> bool:
        """Return True if nothing was ever merged into a branch."""
        return name not in self._seqs


def _windows(
    branches: list[Branch], before: int, least: int, old: Points, points: Points
) -> list[Window]:
    """Return where rows may have become superfluous.

    That is between the two horizons, and after each point that is no longer retained, up to the
    next one that is.
    """
    windows = []
    for branch in branches:
        if least > before:
            windows.append(Window(branch.name, before, least))
        retained = [*points.get(branch.name, ()), least]
        windows += [
            Window(branch.name, seq, retained[bisect_right(retained, seq)])
            for seq in old.get(branch.name, ())
            if seq not in retained
        ]
    return windows


Place = tuple[int, int]
"""A seq, and the position of an operation in it."""
BEGINNING: Place = (0, -1)


class EntityRow(NamedTuple):
    """A row of an entity's log on one branch; `based` when the log begins with it."""

    seq: int
    op_index: int
    op: str
    size: int
    based: bool

    @property
    def place(self) -> Place:
        """Seq, and index of the operation in its commit."""
        return self.seq, self.op_index

    @property
    def whole(self) -> bool:
        """True if the state after it does not depend on earlier rows."""
        return self.op != "patch" or self.based


class RowRun(NamedTuple):
    """Rows after `after` and before `until` that no reader needs."""

    after: Place
    until: Place
    rows: int
    leading: int
    """The bytes of those rows from which the state at `until` follows; 0 when it needs none."""
    leading_from: Place
    """The first of these."""
    rest: int
    """Number of rows that are removed even if these stay."""


def runs(rows: Iterable[EntityRow], points: list[int]) -> Iterator[RowRun]:
    """Yield the runs in the log of an entity up to the horizon, the last of `points`; oldest first.

    `points` are the seqs, in order, at which the branch stays readable.
    """
    gathering = _RunBuilder()
    reading = iter(rows)
    row = next(reading, None)
    at = 0
    while row is not None:
        following = next(reading, None)
        while at < len(points) and points[at] < row.seq:
            at += 1
        stays = at < len(points) and (following is None or points[at] < following.seq)
        if not stays:
            gathering.take(row)
        else:
            run = gathering.end(row)
            if run is not None:
                yield run
        row = following


class _RunBuilder:
    """The rows since the last one that stays."""

    def __init__(self) -> None:
        self._start(BEGINNING)

    def _start(self, after: Place) -> None:
        self._after = after
        self._count = 0
        self._leading = 0
        self._leading_from = after
        self._rest = 0

    def take(self, row: EntityRow) -> None:
        if row.whole or not self._count:
            # Nothing before it, in the run, is needed for what follows.
            self._leading_from = row.place
            self._leading = 0
            self._rest = self._count
        self._leading += max(row.size, 1)
        self._count += 1

    def end(self, row: EntityRow) -> RowRun | None:
        """Return the run before a row that stays; None if it is empty."""
        run = None
        if self._count:
            run = RowRun(
                self._after,
                row.place,
                self._count,
                0 if row.whole else self._leading,
                self._leading_from,
                self._rest,
            )
        self._start(row.place)
        return run

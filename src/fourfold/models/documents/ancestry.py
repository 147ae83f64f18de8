"""Chains and ancestry of branches: what a reader sees of each branch, and the bases of merges.

    chain(b, target) = [(b, target), (parent of b, min(target, fork of b)), ...]

Nearest first. An entity's state is what the *first* branch with a word on it says, not the newest
word of all: a child that deleted an entity hides what its parent wrote. The caps only ever shrink
along the chain, so a grandparent's later writes cannot slip in through a parent.

The past of a point of history, through forks and through merges.

A point is a branch at a seq. Its past is a graph of commits: the parent of a commit is the commit
before it on its branch, or the one from which the branch was forked; a merge has the newest commit
of its source as a second parent. A seq at which a branch has no commit of its own means the commit
before it, so points are compared by their commits and never by their seqs: every branch of an idle
parent has another fork seq and shows the same state. The birth and the end of a branch change no
entity and are passed over.

The bases of two points are the newest commits in the past of both: those that are in the past of no
other such commit. A merge therefore moves the base of all later ones, in both directions and also
through a third branch. When merges crossed each other there are several bases.

The search goes from the newest commit to older ones, as git's does, and steps from merge to merge
instead of from commit to commit. It ends when one side has nothing left that is not in the past of
a base, so it costs what happened since the base and not what happened before.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput, NotFound
from fourfold.models.documents import timestamps
from fourfold.models.documents.gc.horizon import check_point
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Branch
from fourfold.models.documents.validation import check_known_branch

MERGE_PAGE_ROWS: Final = 256
"""Earlier merges that the search for a base reads at once."""

At = int | datetime | None
"""A point in history: a seq, a datetime, or None for now."""


class BranchLink(NamedTuple):
    """A branch, and the newest seq of it that is visible."""

    branch: str
    cap: int


def branch_named(view: HistoryReader, name: str) -> Branch:
    """Return a branch by its name; raise NotFound if there is none."""
    check_known_branch(name)
    row = view.one(view.sql.branch, (name,))
    if row is None:
        raise no_such_branch(name)
    return Branch(*row)


def no_such_branch(name: str) -> NotFound:
    """Return the error for an unknown branch."""
    return NotFound(f"unknown branch {name!r}", hint="List them with `fourfold space branch list`.")


def last_seq(view: HistoryReader) -> int:
    """Return the newest seq; 0 in an empty space."""
    return int(view.value(view.sql.last_seq))


def seq_of(view: HistoryReader, at: At) -> int:
    """Return the seq that `at` means in a space, whether or not its states are still readable.

    A datetime means the newest commit at or before it.

    Raises:
        InvalidInput: It is a seq after the newest, or something else.
    """
    newest = last_seq(view)
    if at is None:
        return newest
    if isinstance(at, datetime):
        seq = timestamps.seq_at(view, at)
    elif type(at) is int:
        seq = at
    else:
        raise InvalidInput(f"at must be a seq or a datetime, got {at!r:.100}")
    if not 0 <= seq <= newest:
        raise InvalidInput(f"at must be a seq from 0 to {newest}, got {seq}")
    return seq


def target_of(view: HistoryReader, branch: str, at: At) -> int:
    """Return the seq that `at` means on `branch`.

    Refused are also a seq before the branch was created, and one whose history gc has removed.
    """
    check_known_branch(branch)
    seq = seq_of(view, at)
    if at is None:
        return seq
    if branch:
        created = branch_named(view, branch).created_seq
        if seq < created:
            raise NotFound(
                f"branch {branch!r} did not exist at seq {seq}; it was created at {created}",
                hint="Read its parent at that point.",
            )
    check_point(view, branch, seq)
    return seq


def chain(view: HistoryReader, branch: str, target: int) -> list[BranchLink]:
    """Return what is visible on `branch` at the seq `target`, nearest branch first."""
    links = [BranchLink(branch, target)]
    name, cap = branch, target
    while name:
        row = branch_named(view, name)
        if row.parent is None or row.fork_seq is None:
            break
        name, cap = row.parent, min(cap, row.fork_seq)
        links.append(BranchLink(name, cap))
        if len(links) > limits.BRANCH_DEPTH_MAX + 1:
            raise CorruptData(f"the branch {branch!r} is nested deeper than any can be made")
    return links


# A merge may carry a large part of a space, and only the beginning of its request is of interest.
_MERGE = re.compile(r'\{"branch":"[^"]*","local_seq":\d+,"merge":')
_decoder = json.JSONDecoder()

_ONE: Final = 1
_OTHER: Final = 2
_OLD: Final = 4
"""The colour of everything in the past of a base."""
_BEFORE_ALL: Final = -1
"""Seq at which the default branch was created: before all others."""


class BranchPoint(NamedTuple):
    """A branch as it was at a seq."""

    branch: str
    seq: int


class Interval(NamedTuple):
    """The commits of a branch after one seq and up to another."""

    branch: str
    after: int
    until: int


class Since(NamedTuple):
    """The commits that are in the past of some points and not in that of others."""

    intervals: tuple[Interval, ...]
    merges: frozenset[int]
    """Those of them that are merges."""


class Lineage(Protocol):
    """All forks and merges of a space."""

    def fork(self, name: str) -> BranchPoint | None:
        """Return the point from which a branch was forked."""

    def merges(self, name: str, after: int, until: int) -> list[BranchPoint]:
        """Return what was merged into a branch after a seq and up to another."""


def extend(reached: dict[str, int], point: BranchPoint, lineage: Lineage) -> set[BranchPoint]:
    """Add the past of a point to `reached`; return the new points, one per branch."""
    changed: set[str] = set()
    pending = [point]
    while pending:
        name, cap = pending.pop()
        reached_seq = reached.get(name, 0)
        if name in reached and reached_seq >= cap:
            continue
        reached[name] = cap
        changed.add(name)
        fork = lineage.fork(name)
        if fork is not None:
            pending.append(BranchPoint(fork.branch, min(cap, fork.seq)))
        pending += lineage.merges(name, reached_seq, cap)
    return {BranchPoint(name, reached[name]) for name in changed}


def merged_by(text: str) -> list[BranchPoint]:
    """Return the points that a request merged, from the start of its text."""
    head = _MERGE.match(text)
    if head is None:
        return []
    merge, _ = _decoder.raw_decode(text, head.end())
    return [BranchPoint(merge["source"], merge["source_seq"])]


def common_bases(
    view: HistoryReader, ones: Sequence[BranchPoint], others: Sequence[BranchPoint]
) -> list[BranchPoint]:
    """Return the bases of two points, the newest first; nearly always there is one.

    Several points on a side count as a commit that has all of them as parents.
    """
    walk = _ColourWalk(view)
    for points, colour in ((ones, _ONE), (others, _OTHER)):
        for point in points:
            walk.paint(point, colour)
    while walk.has(_ONE) and walk.has(_OTHER):
        walk.step()
    return walk.bases


def since(
    view: HistoryReader, points: Iterable[BranchPoint], bases: Iterable[BranchPoint]
) -> Since:
    """Return the commits in the past of any of `points` that are in the past of none of `bases`."""
    walk = _ColourWalk(view)
    for paint, colour in ((points, _ONE), (bases, _OLD)):
        for point in paint:
            walk.paint(point, colour)
    while walk.has(_ONE):
        walk.step()
    return Since(tuple(walk.intervals()), frozenset(walk.merges))


class _ColourWalk:
    """Colours spread from commits to their parents, the newest commit first.

    Everything on a branch below a coloured commit has its colours, so the walk visits only the
    commits at which a colour arrives on a branch, merges, and the birth of the branch, at which the
    colours go on to its parent.
    """

    def __init__(self, view: HistoryReader) -> None:
        self._view = view
        self._painted: dict[str, int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        """For each branch and colour the newest seq at which the colour arrived."""
        self._waiting: dict[int, tuple[str, int]] = {}
        self._order: list[int] = []
        self._counts = [0] * (2 * _OLD)
        """Number of waiting commits by colour."""
        self._births: dict[str, int] = {}
        self._sources: dict[str, Iterator[tuple[int, BranchPoint]]] = {}
        self._next: dict[str, tuple[int, BranchPoint] | None] = {}
        self.bases: list[BranchPoint] = []
        self.merges: set[int] = set()

    def has(self, colour: int) -> bool:
        """Return True while a commit waits that has this colour and is in the past of no base."""
        return any(self._counts[colours] for colours in range(_OLD) if colours & colour)

    def paint(self, point: BranchPoint, colours: int) -> None:
        """Colour the newest commit at or below a point."""
        branch, seq = point
        while not (commit := self._view.value(self._view.sql.newest_change, (branch, seq))):
            fork = self._fork(branch)
            if fork is None:
                break
            branch, seq = fork.branch, min(seq, fork.seq)
        for colour in (_ONE, _OTHER, _OLD):
            if colours & colour:
                key = branch, colour
                self._newest[key] = max(seq, self._newest.get(key, 0))
        self._wait(commit, branch, colours)

    def step(self) -> None:
        """Visit the newest commit that waits."""
        seq = -heapq.heappop(self._order)
        branch, colours = self._waiting.pop(seq)
        self._counts[colours] -= 1
        before = self._painted.get(branch)
        after = colours | (before or 0)
        if after == _ONE | _OTHER:
            # Seqs of which a collection may have kept only one can mean the same commit: it is the
            # older, up to which one of the two sides has the branch.
            ends = self._newest[branch, _ONE], self._newest[branch, _OTHER]
            self.bases.append(BranchPoint(branch, min(ends)))
            after |= _OLD
        self._painted[branch] = after
        if before is None:
            # Below the state before all commits, which other branches may have been forked from.
            fork = self._fork(branch)
            born = branch_named(self._view, branch).created_seq
            self._births[branch] = _BEFORE_ALL if fork is None else born
            self._sources[branch] = self._merges(branch, seq)
            self._next[branch] = next(self._sources[branch], None)
        if seq > self._births[branch]:
            self._wait(self._births[branch], branch, after)
        elif (fork := self._fork(branch)) is not None:
            self.paint(fork, after)
        merge = self._next[branch]
        if merge is not None and merge[0] == seq:
            self.merges.add(seq)
            self.paint(merge[1], after)
            merge = self._next[branch] = next(self._sources[branch], None)
        if merge is not None:
            self._wait(merge[0], branch, after)

    def intervals(self) -> Iterator[Interval]:
        """Yield, branch by branch, what has the first colour and is in the past of no base."""
        for branch, colour in sorted(self._newest):
            if colour == _ONE:
                low = self._newest.get((branch, _OLD), 0)
                if low < self._newest[branch, _ONE]:
                    yield Interval(branch, low, self._newest[branch, _ONE])

    def _wait(self, seq: int, branch: str, colours: int) -> None:
        points = self._waiting.get(seq)
        if points is None:
            heapq.heappush(self._order, -seq)
        else:
            self._counts[points[1]] -= 1
            colours |= points[1]
        self._counts[colours] += 1
        self._waiting[seq] = branch, colours

    def _fork(self, name: str) -> BranchPoint | None:
        branch = branch_named(self._view, name)
        if branch.parent is None or branch.fork_seq is None:
            return None
        return BranchPoint(branch.parent, branch.fork_seq)

    def _merges(self, branch: str, until: int) -> Iterator[tuple[int, BranchPoint]]:
        """Yield the merges into a branch from a seq on, the newest first."""
        size = 1
        while True:
            rows = self._view.all(self._view.sql.merges, (branch, until, size))
            for seq, text in rows:
                for source in merged_by(text):
                    yield seq, source
            if len(rows) < size:
                return
            until = rows[-1][0] - 1
            size = min(4 * size, MERGE_PAGE_ROWS)

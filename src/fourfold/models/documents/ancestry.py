"""What a point of history has behind it, through forks and through merges.

A point is a branch at a seq. Behind it lie, of its own branch and of every branch it was forked
from, all earlier seqs up to the caps of the chain; and, for each merge into one of these, the
source as it was then and all that lies behind that. `reach` sums this up: for each branch, the
newest seq of it that is part of the point's past.

The base of two points is the newest point that both have behind them. A merge therefore moves the
base of all that follows, in both directions and also through a third branch: what was merged once
is not a difference any more. When merges crossed each other on the way through other branches there
are several such points, none of which has another behind it.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from fourfold.models.documents.chain import branch_named
from fourfold.models.documents.history import View

# A merge may carry a large part of a space, and only the beginning of its request is of interest.
_MERGE = re.compile(r'\{"branch":"[^"]*","local_seq":\d+,"merge":')
_decoder = json.JSONDecoder()


class Point(NamedTuple):
    """A branch as it was at a seq."""

    branch: str
    seq: int


class Lineage:
    """Forks and merges, as a point's past is made of them. This one asks the space."""

    def __init__(self, view: View) -> None:
        self._view = view

    def fork(self, name: str) -> Point | None:
        """Where a branch was forked from its parent."""
        branch = branch_named(self._view, name)
        if branch.parent is None or branch.fork_seq is None:
            return None
        return Point(branch.parent, branch.fork_seq)

    def merges(self, name: str, after: int, until: int) -> list[Point]:
        """What was merged into a branch beyond a seq and up to another."""
        rows = self._view.all(self._view.sql.merges, (name, after, until))
        return [point for _, text in rows for point in merged_by(text)]


def reach(view: View, point: Point) -> dict[str, int]:
    """The newest seq of each branch that the point has behind it."""
    reached: dict[str, int] = {}
    extend(reached, point, Lineage(view))
    return reached


def extend(reached: dict[str, int], point: Point, lineage: Lineage) -> set[Point]:
    """Add to what was reached what the point has behind it; the seqs that are new in there, each
    the newest of its branch.
    """
    changed: set[str] = set()
    pending = [point]
    while pending:
        name, cap = pending.pop()
        known = reached.get(name, 0)
        if name in reached and known >= cap:
            continue
        reached[name] = cap
        changed.add(name)
        fork = lineage.fork(name)
        if fork is not None:
            pending.append(Point(fork.branch, min(cap, fork.seq)))
        pending += lineage.merges(name, known, cap)
    return {Point(name, reached[name]) for name in changed}


def merged_by(text: str) -> list[Point]:
    """What was merged, from the beginning of a request's text; nothing if it is no merge."""
    head = _MERGE.match(text)
    if head is None:
        return []
    merge, _ = _decoder.raw_decode(text, head.end())
    return [Point(merge["source"], merge["source_seq"])]


def common_bases(view: View, one: Point, other: Point) -> list[Point]:
    """The points that both have behind them and that lie behind no other such point; the newest
    first, and nearly always one.
    """
    reached, also = reach(view, one), reach(view, other)
    shared = [Point(name, min(seq, also[name])) for name, seq in reached.items() if name in also]
    bases: list[Point] = []
    # Whatever lies behind a point is older, so the newest of those that are left is always a base.
    while shared:
        base = max(shared, key=lambda point: (point.seq, point.branch))
        bases.append(base)
        behind = reach(view, base)
        shared = [point for point in shared if behind.get(point.branch, -1) < point.seq]
    return bases

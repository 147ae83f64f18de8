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


def reach(view: View, point: Point) -> dict[str, int]:
    """The newest seq of each branch that the point has behind it."""
    reached: dict[str, int] = {}
    pending = [point]
    while pending:
        name, cap = pending.pop()
        known = reached.get(name, 0)
        if name in reached and known >= cap:
            continue
        reached[name] = cap
        branch = branch_named(view, name)
        if branch.parent is not None and branch.fork_seq is not None:
            pending.append(Point(branch.parent, min(cap, branch.fork_seq)))
        for _, text in view.all(view.sql.merges, (name, known, cap)):
            pending += _merged(text)
    return reached


def _merged(text: str) -> list[Point]:
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

"""The fold of the votes."""

from __future__ import annotations

from collections import Counter


def fold(votes):
    """Return the total of each choice."""
    totals = Counter()
    for choice, count in votes:
        totals[choice] += count
    return dict(totals)

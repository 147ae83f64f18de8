"""Which rows of an entity's log a collection takes, and what the others need to be read without
them.

Of the rows up to the horizon, those stay that are the last word at a point that stays readable. The
rows between two that stay are a run. A row after a run that is a set or a delete needs nothing; one
that is a patch needs a whole document in its place. If that would be larger than the patches that
lead to it, these stay instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Place = tuple[int, int]
"""A seq, and the position of an operation in it."""
BEGINNING: Place = (0, -1)


class LogRow(NamedTuple):
    """A row of an entity's log on one branch; `based` when the log begins with it."""

    seq: int
    op_index: int
    op: str
    size: int
    based: bool

    @property
    def place(self) -> Place:
        return self.seq, self.op_index

    @property
    def whole(self) -> bool:
        """Whether the state after it is known without what comes before."""
        return self.op != "patch" or self.based


class Run(NamedTuple):
    """Rows between `after` and `until` that nobody needs. `until` stays."""

    after: Place
    until: Place
    rows: int
    leading: int
    """The bytes of those rows from which the state at `until` follows; 0 when it needs none."""
    leading_from: Place
    """The first of these."""
    rest: int
    """How many rows go even when these stay."""


def runs(rows: Iterable[LogRow], points: list[int]) -> Iterator[Run]:
    """The runs in an entity's log up to the horizon, which is the last of `points`. Oldest first.

    `points` are the seqs, in order, at which the branch stays readable.
    """
    gathering = _Gathering()
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


class _Gathering:
    """The rows since the last one that stays."""

    def __init__(self) -> None:
        self._start(BEGINNING)

    def _start(self, after: Place) -> None:
        self._after = after
        self._count = 0
        self._leading = 0
        self._leading_from = after
        self._rest = 0

    def take(self, row: LogRow) -> None:
        if row.whole or not self._count:
            # Nothing before it, in the run, is needed for what follows.
            self._leading_from = row.place
            self._leading = 0
            self._rest = self._count
        self._leading += max(row.size, 1)
        self._count += 1

    def end(self, row: LogRow) -> Run | None:
        """The run before a row that stays; None when there is nothing in it."""
        run = None
        if self._count:
            run = Run(
                self._after,
                row.place,
                self._count,
                0 if row.whole else self._leading,
                self._leading_from,
                self._rest,
            )
        self._start(row.place)
        return run

"""The difference between two points of a space: any branch, any seq, on either side.

What counts is what a reader sees: two entities that look the same are no difference, however they
came to be so, and a deleted entity looks like one that was never written. Only entities with
revisions that one side sees and the other does not are looked at, so the cost is that of the
changes since the two sides parted.

Each difference says which side moved: the documents are compared with those of the base, the newest
point that both sides have behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import Link, Point, chain, common_bases
from fourfold.models.documents.diff import Patch, diff, identical
from fourfold.models.documents.gc.horizon import check_point
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Document, Operation, State

Side = Literal["a", "b", "both"]


class Change(msgspec.Struct, frozen=True):
    """An entity that two points show differently.

    `changed_on` says on which side it is no longer as it was at the base. `patches` turn the
    document of `a` into that of `b`; None when one of them has no document.
    """

    id: str
    a: State | None
    b: State | None
    changed_on: Side
    patches: list[Patch] | None

    @property
    def operation(self) -> Operation:
        """What makes the entity of `a` look like that of `b`."""
        document = document_of(self.b)
        if document is None:
            return {"op": "delete", "id": self.id}
        if self.patches is None:
            return {"op": "set", "id": self.id, "value": document}
        return {"op": "patch", "id": self.id, "patches": self.patches}


class Difference(msgspec.Struct, frozen=True):
    """All entities that two points show differently, sorted by id."""

    a: Point
    b: Point
    base: Point
    changes: tuple[Change, ...]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def operations(self) -> list[Operation]:
        """What makes `a` look like `b`. On the branch of `a` this brings back the state of `b`."""
        return [change.operation for change in self.changes]


def compare(view: HistoryReader, a: Point, b: Point) -> Difference:
    """What differs between two points."""
    base = common_bases(view, [a], [b])[0]
    check_point(view, *base)
    chains = chain(view, *a), chain(view, *b)
    ids = sorted(seen_by_one_only(view, *chains))
    ours = reader.states(view, chains[0], ids)
    theirs = reader.states(view, chains[1], ids)
    different = [
        entity
        for entity in ids
        if not identical(document_of(ours[entity]), document_of(theirs[entity]))
    ]
    before = reader.states(view, chain(view, *base), different)
    changes = (_change(each, ours[each], theirs[each], before[each]) for each in different)
    return Difference(a, b, base, tuple(changes))


def document_of(state: State | None) -> Document | None:
    """What a reader sees of an entity."""
    return None if state is None else state.document


def _change(entity: str, ours: State | None, theirs: State | None, before: State | None) -> Change:
    a, b, base = document_of(ours), document_of(theirs), document_of(before)
    patches = None if a is None or b is None else diff(a, b)
    side: Side = "both"
    if identical(a, base):
        side = "b"
    elif identical(b, base):
        side = "a"
    return Change(entity, ours, theirs, side, patches)


def seen_by_one_only(view: HistoryReader, one: Sequence[Link], other: Sequence[Link]) -> set[str]:
    """The entities with revisions that only one of two chains shows."""
    caps, others = dict(one), dict(other)
    found: set[str] = set()
    for branch in {*caps, *others}:
        low, high = sorted((caps.get(branch, 0), others.get(branch, 0)))
        if low < high:
            found.update(row[0] for row in view.rows(view.sql.ids_touched, (branch, low, high)))
    return found

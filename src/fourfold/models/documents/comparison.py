"""Differences between two points of a space: any branch and any seq on either side.

Documents are compared by value, however they came about, and a deleted entity equals one that was
never written. Only entities with revisions that exactly one side contains are examined, so the cost
is proportional to the changes since the common base: the newest commit that both sides contain.
Each difference tells which side changed since that base.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from fourfold import html
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import BranchLink, BranchPoint, chain, common_bases
from fourfold.models.documents.diff import Patch, diff, identical
from fourfold.models.documents.gc.horizon import check_point
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Document, Operation, State
from fourfold.models.documents.validation import check_entity, check_several

Side = Literal["a", "b", "both"]
COMPARED_AT_ONCE: Final = 32
"""Entities that are read and compared in one step."""


class Change(msgspec.Struct, frozen=True):
    """An entity that differs between two points.

    `changed_on` is the side that changed since the common base. `patches` turn the document of `a`
    into that of `b`; None if one of them has no document.
    """

    id: str
    a: State | None
    b: State | None
    changed_on: Side
    patches: list[Patch] | None

    @property
    def operation(self) -> Operation:
        """The operation that turns the entity of `a` into that of `b`."""
        document = document_of(self.b)
        if document is None:
            return {"op": "delete", "id": self.id}
        if self.patches is None:
            return {"op": "set", "id": self.id, "value": document}
        return {"op": "patch", "id": self.id, "patches": self.patches}


class Difference(msgspec.Struct, frozen=True):
    """The entities that differ between two points, sorted by id."""

    a: BranchPoint
    b: BranchPoint
    base: BranchPoint
    changes: tuple[Change, ...]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def _repr_html_(self) -> str:
        rows = ((change.id, change.changed_on, _html_of(change)) for change in self.changes)
        count = len(self.changes)
        entities = "1 entity differs" if count == 1 else f"{count:,} entities differ"
        caption = f"{entities}: {_name(self.a)} and {_name(self.b)}"
        table = html.table(("id", "changed on", "operation from a to b"), rows)
        return html.fragment(table, caption=caption)

    @property
    def operations(self) -> list[Operation]:
        """The operations that turn `a` into `b`; on the branch of `a` they restore `b`."""
        return [change.operation for change in self.changes]


def _name(point: BranchPoint) -> str:
    return f"{point.branch or 'the default branch'} at {point.seq}"


def _html_of(change: Change) -> html.Html:
    operation = change.operation
    return html.block(operation.get("patches", operation.get("value", operation["op"])))


def compare(
    view: HistoryReader,
    a: BranchPoint,
    b: BranchPoint,
    only: Iterable[str] | None = None,
    *,
    after: str = "",
    limit: int | None = None,
    end_step: Callable[[], None] = lambda: None,
) -> Difference:
    """Return the differences between two points, of all entities or only of some.

    Args:
        only: Ids of the entities to compare.
        after: Compare only entities whose ids are greater.
        limit: Return the first differences only.
        end_step: Called after a few entities.
    """
    base = common_bases(view, [a], [b])[0]
    check_point(view, *base)
    chains = chain(view, *a), chain(view, *b)
    if only is None:
        ids = sorted(seen_by_one_only(view, *chains))
    else:
        ids = sorted({check_entity(entity) for entity in check_several(only, "the ids to compare")})
    ids = ids[bisect_right(ids, after) :]
    before = chain(view, *base)
    changes: list[Change] = []
    for start in range(0, len(ids), COMPARED_AT_ONCE):
        changes += _compare_some(view, *chains, before, ids[start : start + COMPARED_AT_ONCE])
        if limit is not None and len(changes) >= limit:
            break
        end_step()
    return Difference(a, b, base, tuple(changes[:limit]))


def _compare_some(
    view: HistoryReader,
    one: Sequence[BranchLink],
    other: Sequence[BranchLink],
    base: Sequence[BranchLink],
    ids: list[str],
) -> Iterator[Change]:
    """Return the differences of some entities."""
    ours = reader.states(view, one, ids)
    theirs = reader.states(view, other, ids)
    different = [
        entity
        for entity in ids
        if not identical(document_of(ours[entity]), document_of(theirs[entity]))
    ]
    before = reader.states(view, base, different)
    return (_change(id_, ours[id_], theirs[id_], before[id_]) for id_ in different)


def document_of(state: State | None) -> Document | None:
    """Return the document of a state, or None if there is none."""
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


def seen_by_one_only(
    view: HistoryReader, one: Sequence[BranchLink], other: Sequence[BranchLink]
) -> set[str]:
    """Return the entities with revisions that exactly one of two chains contains."""
    caps, others = dict(one), dict(other)
    entities: set[str] = set()
    for branch in {*caps, *others}:
        low, high = sorted((caps.get(branch, 0), others.get(branch, 0)))
        if low < high:
            rows = view.rows(view.sql.ids_touched, (branch, low, high))
            entities.update(row[0] for row in rows)
    return entities

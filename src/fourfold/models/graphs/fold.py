"""The fold of a graph: which version of each object is current, and which objects are hidden. Pure.

    rows up to a number ──> newest version of each object ──> without what a rating suppresses

What is suppressed takes along what belongs to it: a parent its attributes, and both of them the
edges from and to them and the ratings of them.

Newest is the greatest (version, node). A version is one more than the newest that its writer knew,
so an update always beats what it was made from; two made at once on two nodes have the same
version, and the name of the node decides, on every node alike. The order in which rows arrived does
not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeVar


class ObjectVersion(Protocol):
    """Columns of a row that the fold needs."""

    @property
    def object_id(self) -> int:
        """Id of the object."""
        ...

    @property
    def version(self) -> int:
        """Number of the version."""
        ...

    @property
    def origin(self) -> str:
        """Node that wrote the version."""
        ...


class RatingVersion(ObjectVersion, Protocol):
    """Columns of a rating that the fold needs."""

    @property
    def type_id(self) -> int:
        """Number of the type."""
        ...

    @property
    def owner_identity(self) -> int:
        """Identity that owns the rating."""
        ...

    @property
    def target_parent_id(self) -> int | None:
        """Id of the rated parent, or None."""
        ...

    @property
    def target_attr_id(self) -> int | None:
        """Id of the rated attribute, or None."""
        ...

    @property
    def value_number(self) -> float | None:
        """The rating, or None."""
        ...


R = TypeVar("R", bound=ObjectVersion)
J = TypeVar("J", bound=RatingVersion)


def rank(row: ObjectVersion, node: str) -> tuple[int, str]:
    """Return the sort key of a version; `node` is this node, whose own rows have no name."""
    return row.version, row.origin or node


def current(rows: Iterable[R], node: str) -> dict[int, R]:
    """Return the newest version of each object."""
    newest: dict[int, R] = {}
    for row in rows:
        known = newest.get(row.object_id)
        if known is None or rank(row, node) > rank(known, node):
            newest[row.object_id] = row
    return newest


def suppressions(
    ratings: Iterable[J], suppress_types: AbstractSet[int]
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """Return the raters that suppress each parent and each attribute, by the current `ratings`."""
    parents: dict[int, set[int]] = {}
    attrs: dict[int, set[int]] = {}
    for rating in ratings:
        if rating.type_id in suppress_types and rating.value_number != 0:
            if rating.target_parent_id is not None:
                parents.setdefault(rating.target_parent_id, set()).add(rating.owner_identity)
            elif rating.target_attr_id is not None:
                attrs.setdefault(rating.target_attr_id, set()).add(rating.owner_identity)
    return parents, attrs


def is_hidden(by: AbstractSet[int], owner: int | None, trusted: AbstractSet[int]) -> bool:
    """Return True if one of those who suppress an object may: its owner, or one `trusted`."""
    return owner in by or not by.isdisjoint(trusted)

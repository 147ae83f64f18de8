"""The fold of a graph: which version of each object is current, and which objects are hidden. Pure.

    rows up to a number ──> newest version of each object ──> without what a rating suppresses

Newest is the greatest (version, node). A version is one more than the newest that its writer knew,
so an update always beats what it was made from; two made at once on two nodes have the same
version, and the name of the node decides, on every node alike. The order in which rows arrived does
not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeVar


class Versioned(Protocol):
    """What the fold needs to know of a row."""

    @property
    def object_id(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def origin(self) -> str: ...


class Owned(Versioned, Protocol):
    @property
    def owner_identity(self) -> int: ...


class Judgement(Versioned, Protocol):
    """What the fold needs to know of a rating."""

    @property
    def type_id(self) -> int: ...
    @property
    def owner_identity(self) -> int: ...
    @property
    def target_parent_id(self) -> int | None: ...
    @property
    def target_attr_id(self) -> int | None: ...
    @property
    def value_number(self) -> float | None: ...


R = TypeVar("R", bound=Versioned)
J = TypeVar("J", bound=Judgement)
O = TypeVar("O", bound=Owned)  # noqa: E741


def rank(row: Versioned, node: str) -> tuple[int, str]:
    """What decides between two versions; `node` is this node, whose own rows carry no name."""
    return row.version, row.origin or node


def current(rows: Iterable[R], node: str) -> dict[int, R]:
    """The newest version of each object."""
    newest: dict[int, R] = {}
    for row in rows:
        known = newest.get(row.object_id)
        if known is None or rank(row, node) > rank(known, node):
            newest[row.object_id] = row
    return newest


def suppressions(
    ratings: Iterable[J], suppress_types: AbstractSet[int]
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """Who suppresses which parent, and who which attribute, by the current `ratings`."""
    parents: dict[int, set[int]] = {}
    attrs: dict[int, set[int]] = {}
    for rating in ratings:
        if rating.type_id in suppress_types and rating.value_number != 0:
            if rating.target_parent_id is not None:
                parents.setdefault(rating.target_parent_id, set()).add(rating.owner_identity)
            elif rating.target_attr_id is not None:
                attrs.setdefault(rating.target_attr_id, set()).add(rating.owner_identity)
    return parents, attrs


def visible(
    rows: Iterable[O], suppressed_by: dict[int, set[int]], trusted: AbstractSet[int]
) -> Iterator[O]:
    """The rows that nobody hides who may: the owner of an object, and those who are `trusted`."""
    for row in rows:
        by = suppressed_by.get(row.object_id)
        if by is None or not (row.owner_identity in by or by & trusted):
            yield row

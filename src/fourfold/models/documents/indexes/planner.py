"""The planner of queries: which index serves a filter or an order, and which of its keys.

One index is used. It serves equality on its first paths, and on the next path equality with one of
several values, a range or a prefix, or the order of the result. Everything else is compared with
the documents that the index gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, Literal, NamedTuple

from fourfold.content.filters import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Filter,
    Membership,
    TextMatch,
)
from fourfold.content.json_pointer import parse_pointer
from fourfold.content.text import TextQuery
from fourfold.errors import InvalidInput
from fourfold.models.documents.indexes import keys
from fourfold.models.documents.indexes.declaration import (
    EACH_ITEM,
    Index,
    IndexPath,
    parse_path,
)
from fourfold.models.documents.indexes.text import match_expression
from fourfold.models.documents.indexes.visible import EVERYTHING, IndexRange

RANGES_MAX: Final = 1_000
"""Ranges of keys that one query reads."""

Access = Literal["equality", "range", "order", "text", "scan"]


class Order(NamedTuple):
    """The order of a result: by the value at a path, then by id."""

    path: IndexPath
    descending: bool


class IndexProbe(NamedTuple):
    """The part of an index that a query reads."""

    declared: Index
    access: Access
    ranges: tuple[IndexRange, ...]
    """In the order of their keys, without overlaps."""
    paths: int
    """Paths of the index that the ranges restrict."""
    exact: bool
    """True if the entries are exactly those of the documents that match."""
    ordered: bool
    """True if the entries come in the order of the result."""


class TextProbe(NamedTuple):
    """The hits of a full-text index that a query reads; their documents are compared."""

    declared: Index
    expression: str


class _Constraint(NamedTuple):
    """Constraint of a filter on one path: some values, or a range."""

    path: IndexPath
    points: tuple[bytes, ...] | None
    low: bytes
    high: bytes
    exact: bool
    item: int
    """Identifies the `$any`, whose conditions are about one item; 0 outside of one."""
    conditions: int = 1
    """Conditions of the filter that it stands for."""


def parse_order(order_by: str | None) -> Order | None:
    """Return the order that `"field"`, `"/pointer"` or, descending, `"-field"` means."""
    if order_by is None:
        return None
    if not isinstance(order_by, str) or not order_by.lstrip("-"):
        raise InvalidInput(
            f"order_by must be a field or a JSON Pointer, got {order_by!r:.100}",
            hint='Write "-/created" for the descending order.',
        )
    descending = order_by.startswith("-")
    field = order_by[1:] if descending else order_by
    return Order(parse_pointer(field) if field.startswith("/") else (field,), descending)


def parse_facet(field: str) -> IndexPath:
    """Return the path of a field name, or of a JSON Pointer in which `*` is every item."""
    if not isinstance(field, str) or not field:
        raise InvalidInput(f"path must be a field or a JSON Pointer, got {field!r:.100}")
    return parse_path(field) if field.startswith("/") else (field,)


def plan(
    indexes: Sequence[Index], where: Filter, order: Order | None
) -> tuple[IndexProbe | None, IndexProbe | None]:
    """Return the best probe for the filter, and the best one that gives the order."""
    constraints = _combined(list(_constraints(where)))
    conditions = len(where.conjuncts()) if where else 0
    probes = [
        probe
        for index in indexes
        if (probe := _probe(index, constraints, conditions, order)) is not None
    ]
    restricting = [probe for probe in probes if probe.access != "order"]
    ordered = [probe for probe in probes if probe.ordered]
    return max(restricting, key=_rank, default=None), max(ordered, key=_rank, default=None)


def plan_text(indexes: Sequence[Index], where: Filter) -> TextProbe | None:
    """Return the first full-text index that serves a `$text` of the filter."""
    for condition in where.conjuncts():
        path: IndexPath = ()
        part = condition
        if isinstance(part, AnyItem):
            path, part = (*part.path, EACH_ITEM), part.part
        if not isinstance(part, TextMatch):
            continue
        path = (*path, *part.path)
        query = part.query
        if EACH_ITEM in path:
            # Another item may have a word that this one must not have.
            query = TextQuery(tuple(words for words in query.parts if not words.excluded))
        for index in indexes:
            if path in index.paths:
                return TextProbe(index, match_expression(query, [index.paths.index(path)]))
    return None


def _rank(probe: IndexProbe) -> tuple[object, ...]:
    equal = probe.paths - (probe.access == "range")
    # A range of one path says more than an order, and a narrow index is read faster.
    return (
        probe.declared.options.unique and equal == len(probe.declared.paths),
        equal,
        probe.access == "range",
        probe.ordered,
        -len(probe.declared.paths),
    )


def _constraints(where: Filter) -> Iterator[_Constraint]:
    for number, condition in enumerate(where.conjuncts(), start=1):
        if isinstance(condition, AnyItem):
            prefix = (*condition.path, EACH_ITEM)
            part = condition.part
            parts = part.parts if isinstance(part, And) else (part,)
            for each in parts:
                constraint = _constraint(each, prefix, number)
                if constraint is not None:
                    # The other conditions on the item must be compared.
                    yield constraint._replace(exact=constraint.exact and len(parts) == 1)
        else:
            constraint = _constraint(condition, (), 0)
            if constraint is not None:
                yield constraint


def _constraint(condition: Condition, prefix: IndexPath, item: int) -> _Constraint | None:
    if isinstance(condition, Membership):
        values: tuple[Any, ...] = condition.values
    elif isinstance(condition, Comparison) and condition.operator == "$eq":
        values = (condition.value,)
    elif isinstance(condition, Comparison):
        bounds = _bounds(condition)
        if bounds is None:
            return None
        low, high, exact = bounds
        return _Constraint((*prefix, *condition.path), None, low, high, exact, item)
    else:
        return None
    parts = [keys.encode_part(value) for value in values]
    points = tuple(sorted({part for part in parts if part is not None}))
    if None in parts:
        # Objects and arrays have no entries.
        return None
    exact = not any(map(keys.is_cut, points))
    return _Constraint((*prefix, *condition.path), points, b"", b"", exact, item)


def _bounds(condition: Comparison) -> tuple[bytes, bytes, bool] | None:
    """Return the parts that satisfy a comparison, and whether they all do."""
    if condition.operator == "$prefix":
        low = keys.encode_prefix(condition.value)
        exact = len(condition.value.encode()) <= keys.STRING_BYTES_MAX
        return low, keys.after_all(low), exact
    if condition.operator not in {"$gt", "$gte", "$lt", "$lte"}:
        return None
    part = keys.encode_part(condition.value)
    assert part is not None
    low, high = keys.type_range(condition.value)
    is_cut = keys.is_cut(part)
    after = keys.after_all(part)
    if condition.operator == "$gt":
        low = part if is_cut else after
    elif condition.operator == "$gte":
        low = part
    elif condition.operator == "$lt":
        high = after if is_cut else part
    else:
        high = after
    return low, high, not is_cut


def _combined(constraints: list[_Constraint]) -> list[_Constraint]:
    """Intersect the ranges of one path: a value of a document must be in all of them."""
    result: list[_Constraint] = []
    ranges: dict[tuple[IndexPath, int], _Constraint] = {}
    for constraint in constraints:
        place = (constraint.path, constraint.item)
        other = ranges.get(place)
        # Below an item, another `*` may mean another value.
        if constraint.points is not None or constraint.path.count(EACH_ITEM) > 1:
            result.append(constraint)
        elif other is None:
            ranges[place] = constraint
        else:
            ranges[place] = other._replace(
                low=max(other.low, constraint.low),
                high=min(other.high, constraint.high),
                exact=other.exact and constraint.exact,
                conditions=other.conditions + 1,
            )
    return [*result, *ranges.values()]


def _probe(
    index: Index, constraints: Sequence[_Constraint], conditions: int, order: Order | None
) -> IndexProbe | None:
    """Return what an index can serve, or None."""
    points: list[tuple[bytes, ...]] = []
    last: _Constraint | None = None
    exact, used = True, 0
    for path in index.paths:
        mine = [constraint for constraint in constraints if constraint.path == path]
        equal = [constraint for constraint in mine if constraint.points is not None]
        chosen = min(equal, key=lambda one: len(one.points or ()), default=None)
        if chosen is None or not _fits(points, chosen):
            last = next((constraint for constraint in mine if constraint.points is None), None)
            break
        assert chosen.points is not None
        points.append(chosen.points)
        exact, used = exact and chosen.exact, used + chosen.conditions
    if last is not None:
        exact, used = exact and last.exact, used + last.conditions
    depth = len(points) + (last is not None)
    ordered = order is not None and _gives_order(index, points, order)
    if not depth and not ordered:
        return None
    present = ordered and len(points) < len(index.paths)
    ranges = tuple(_ranges(points, last, present=present))
    # A document has one entry for one key, and several only where `*` gives several values.
    one_key = last is None and depth == len(index.paths) and len(ranges) == 1
    return IndexProbe(
        index,
        "range" if last is not None else "equality" if points else "order",
        ranges,
        depth,
        exact=exact and used == conditions and (one_key or not index.is_multiple),
        ordered=ordered,
    )


def _fits(points: list[tuple[bytes, ...]], chosen: _Constraint) -> bool:
    count = len(chosen.points or ())
    for one in points:
        count *= len(one)
    return count <= RANGES_MAX


def _ranges(
    points: list[tuple[bytes, ...]], last: _Constraint | None, *, present: bool
) -> Iterator[IndexRange]:
    """Yield the ranges of keys; with `present`, the next path must have a value."""
    if not points and last is None:
        yield EVERYTHING
        return
    for parts in product(*points):
        lead = b"".join(parts)
        if last is None:
            low = keys.after_all(lead + keys.MISSING) if present else lead
            yield IndexRange(low, keys.after_all(lead))
        elif last.low < last.high:
            yield IndexRange(lead + last.low, lead + last.high)


def _gives_order(index: Index, points: list[tuple[bytes, ...]], order: Order) -> bool:
    """Return True if the entries come in an order: after single values, its path is next."""
    if index.is_multiple:
        return False
    for depth, path in enumerate(index.paths):
        if path == order.path:
            # Keys of the paths that follow would decide before the id does.
            return depth == len(index.paths) - 1
        if depth >= len(points) or len(points[depth]) != 1:
            return False
    return False

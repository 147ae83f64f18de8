"""Many rows of one shape at once, checked column by column.

What is asked of a column is what rows.py asks of each value, but by a few calls into C for all of
them. A batch that is not uniform, or in which something is wrong, is left to the row-by-row way,
which also knows how to name the row's fault; so this module never decides that input is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import isfinite
from operator import itemgetter, or_
from typing import Any, NamedTuple

from fourfold.errors import InvalidInput
from fourfold.models.graphs import checks
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.rows import SHAPES

COLUMNS_MIN = 12
"""So many rows are worth it; fewer are faster one by one."""
_ID_MAX = 1 << 62

Column = Sequence[Any]


class Batch(NamedTuple):
    """Rows of one kind as columns, without what their transaction gives them."""

    rows: int
    fixed: dict[str, Any]
    """Columns that are the same in all rows."""
    varying: dict[str, Column]
    types: frozenset[int]
    flags: int
    """The flags of all rows together."""
    size: int
    """Bytes of their values."""

    def column(self, name: str) -> Column:
        """The values of one column; a single one stands for all when they are the same."""
        found = self.varying.get(name)
        return (self.fixed[name],) if found is None else found


class _Unlike(Exception):
    """The rows differ in more than their values, or one of them is wrong."""


def read(kind: Kind, given: Sequence[Any], now: str) -> Batch | None:
    """The rows as columns; None when they must be looked at one by one."""
    try:
        return _read(kind, _columns(kind, given), len(given), now)
    except (_Unlike, InvalidInput):
        return None


def _columns(kind: Kind, given: Sequence[Any]) -> dict[str, Column]:
    """Every field that some row sets. All rows have the same ones, or they are unlike."""
    if set(map(type, given)) != {dict}:
        raise _Unlike
    names = tuple(given[0])
    if not SHAPES[kind].fields.issuperset(names) or set(map(len, given)) != {len(names)}:
        raise _Unlike
    try:
        columns = {name: list(map(itemgetter(name), given)) for name in names}
    except KeyError:
        raise _Unlike from None
    return {name: column for name, column in columns.items() if not _is_empty(column)}


def _is_empty(column: Column) -> bool:
    return column[0] is None and set(map(type, column)) == {type(None)}


def _read(kind: Kind, given: Mapping[str, Column], count: int, now: str) -> Batch:
    if any(len([name for name in group if name in given]) > 1 for group in _ALTERNATIVES):
        raise _Unlike
    if any(name not in given for name in _REQUIRED[kind]):
        raise _Unlike
    if (choice := _CHOICES.get(kind)) and not any(name in given for name in choice):
        raise _Unlike
    fixed: dict[str, Any] = dict.fromkeys(_EMPTY[kind])
    fixed["sync_flags"] = 0
    varying: dict[str, Column] = {}
    size = 0
    for name, column in given.items():
        checked, length = _CHECKS[name](column)
        size += length
        if len(checked) == 1:
            fixed[name] = checked[0]
        else:
            varying[name] = checked
    for name in _TIMES[kind]:
        if name not in given:
            # The time of a change is that of the creation, unless it is told.
            fixed[name] = fixed.get("created_at", now)
            if name == "updated_at" and "created_at" in varying:
                varying[name] = varying["created_at"]
    fixed = {name: value for name, value in fixed.items() if name not in varying}
    flags = varying.get("sync_flags")
    return Batch(
        count,
        fixed,
        varying,
        frozenset(varying.get("type_id", (fixed.get("type_id"),))),
        fixed["sync_flags"] if flags is None else reduce(or_, set(flags)),
        size,
    )


# One check for each column. It gives the column back, as one value if all are the same, and how
# many bytes it holds.

Check = Callable[[Column], tuple[Column, int]]


def _integers(column: Column, least: int) -> tuple[Column, int]:
    # The types come first: True and 1 are the same in a set.
    if set(map(type, column)) != {int} or min(column) < least or max(column) >= _ID_MAX:
        raise _Unlike
    return (column[:1] if len(set(column)) == 1 else column), 0


def _ids(column: Column) -> tuple[Column, int]:
    return _integers(column, 1)


def _naturals(column: Column) -> tuple[Column, int]:
    return _integers(column, 0)


def _times(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {str}:
        raise _Unlike
    several = set(column)
    for each in several:
        checks.moment(each, "time")
    return (column[:1] if len(several) == 1 else column), 0


def _texts(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {str}:
        raise _Unlike
    whole = "".join(column)
    if whole.isascii():
        return column, len(whole)
    try:
        return column, len(whole.encode())
    except UnicodeEncodeError:
        raise _Unlike from None


def _numbers(column: Column) -> tuple[Column, int]:
    if not set(map(type, column)) <= {int, float}:
        raise _Unlike
    try:
        if not all(map(isfinite, column)):
            raise _Unlike
        return list(map(float, column)), 8 * len(column)
    except OverflowError:
        raise _Unlike from None


def _blobs(column: Column) -> tuple[Column, int]:
    if set(map(type, column)) != {bytes}:
        raise _Unlike
    return column, sum(map(len, column))


def _documents(column: Column) -> tuple[Column, int]:
    for each in column:
        checks.json_text(each, "value_json")
    return _texts(column)


_CHECKS: dict[str, Check] = {
    "type_id": _ids,
    "owner_identity": _naturals,
    "sync_flags": _naturals,
    "created_at": _times,
    "updated_at": _times,
    "parent_id": _ids,
    "src_parent_id": _ids,
    "dst_parent_id": _ids,
    "dst_attr_id": _ids,
    "target_parent_id": _ids,
    "target_attr_id": _ids,
    "value_text": _texts,
    "value_number": _numbers,
    "value_blob": _blobs,
    "value_json": _documents,
}
_VALUES = ("value_text", "value_number", "value_blob", "value_json")
_ALTERNATIVES = (
    _VALUES,
    ("dst_parent_id", "dst_attr_id"),
    ("target_parent_id", "target_attr_id"),
)
_REQUIRED: dict[Kind, tuple[str, ...]] = {
    "parent": ("type_id", "owner_identity"),
    "attr": ("type_id", "owner_identity", "parent_id"),
    "edge": ("type_id", "owner_identity", "src_parent_id"),
    "rating": ("type_id", "owner_identity"),
}
_CHOICES: dict[Kind, tuple[str, str]] = {
    "edge": ("dst_parent_id", "dst_attr_id"),
    "rating": ("target_parent_id", "target_attr_id"),
}
_EMPTY: dict[Kind, tuple[str, ...]] = {
    "parent": (),
    "attr": _VALUES,
    "edge": ("dst_parent_id", "dst_attr_id"),
    "rating": ("target_parent_id", "target_attr_id", "value_text", "value_number", "value_json"),
}
_TIMES: dict[Kind, tuple[str, ...]] = {
    "parent": ("created_at", "updated_at"),
    "attr": ("created_at",),
    "edge": ("created_at",),
    "rating": ("created_at",),
}

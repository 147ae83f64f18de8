"""Equality of values, and the patches that turn one document into another.

There are two kinds of sameness, because there are two uses for it:

- `equal` is what JSON means: numbers are equal when they have the same value, so 1, 1.0 and 1e0 are
  one number; true is not 1, false is not 0, null equals nothing else. Patches that look for a value
  (`add-unique`, `remove-by-value`) use it.
- `identical` is what storage means: 1, 1.0 and True are three values, and so are 0.0 and -0.0.
  Differences and merges use it, so that nothing that changed is taken for unchanged.

For both, the order of the keys of an object does not matter, and that of an array does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from fourfold.content.json_pointer import Path, format_pointer

Patch: TypeAlias = dict[str, Any]


def equal(one: Any, other: Any) -> bool:
    """Return True if both are the same JSON value."""
    # Python's own comparison runs in C and errs in one way only: for it, True is 1.
    return bool(one == other) and _booleans_match(one, other)


def find_equal(array: list[Any], value: Any) -> int | None:
    """Return the index of the first element that equals `value`."""
    at = -1
    while True:
        try:
            at = array.index(value, at + 1)
        except ValueError:
            return None
        if _booleans_match(array[at], value):
            return at


def _booleans_match(one: Any, other: Any) -> bool:
    """Return True if two values that are equal in Python have booleans in the same places."""
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        kind = type(one)
        if kind is dict:
            pairs.extend([(value, other[key]) for key, value in one.items()])
        elif kind is list:
            pairs.extend(zip(one, other, strict=True))
        elif (kind is bool) is not (type(other) is bool):
            return False
    return True


def identical(one: Any, other: Any) -> bool:
    """Return True if both are the same value, type by type."""
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if one is other:
            continue
        kind = type(one)
        if kind is not type(other):
            return False
        if kind is dict:
            if one.keys() != other.keys():
                return False
            pairs.extend([(value, other[key]) for key, value in one.items()])
        elif kind is list:
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif one != other or (
            kind is float and math.copysign(1.0, one) != math.copysign(1.0, other)
        ):
            return False
    return True


def diff(before: Any, after: Any) -> list[Patch]:
    """Return patches that turn `before` into a document that is identical to `after`.

    Objects are compared key by key, and arrays of one length element by element. Of arrays whose
    length differs, what both begin and end with is kept and the middle is one splice. Parts that
    the two documents share as the same Python object are not looked into, so two neighbouring
    states of one history are compared in the time of what changed between them.
    """
    return [
        {"op": change.op, "path": format_pointer(change.path), **change.fields}
        for change in _changes(before, after)
    ]


def changed_paths(before: Any, after: Any) -> list[Path]:
    """Return the paths at which documents differ, in no particular order; none contains another.

    A key that was added or removed is a path itself. An array whose length changed, or that was
    rewritten from one end to the other, is one path.
    """
    return [change.path for change in _changes(before, after)]


class _Change(NamedTuple):
    op: str
    path: Path
    fields: dict[str, Any]


def _changes(before: Any, after: Any) -> Iterator[_Change]:
    # No change moves another's place: at most one splice per array, and then nothing below it.
    pending: deque[tuple[Any, Any, Path]] = deque([(before, after, ())])
    while pending:
        one, other, path = pending.popleft()
        if one is other:
            continue
        kind = type(one) if type(one) is type(other) else None
        if kind is dict:
            yield from _key_changes(one, other, path)
            pending.extend(
                (value, other[key], (*path, key)) for key, value in one.items() if key in other
            )
        elif kind is list and (len(one) != len(other) or _is_rewritten(one, other)):
            yield _splice(one, other, path)
        elif kind is list:
            pairs = enumerate(zip(one, other, strict=True))
            pending.extend((was, now, (*path, str(index))) for index, (was, now) in pairs)
        elif not identical(one, other):
            yield _Change("replace", path, {"value": other})


def _key_changes(one: dict[str, Any], other: dict[str, Any], path: Path) -> Iterator[_Change]:
    for key in one:
        if key not in other:
            yield _Change("remove", (*path, key), {})
    for key, value in other.items():
        if key not in one:
            yield _Change("add", (*path, key), {"value": value})


def _is_rewritten(one: list[Any], other: list[Any]) -> bool:
    """Return True if two arrays of one length have no elements in common or worth comparing."""
    return len(one) > 1 and not any(
        (type(was) is type(now) and type(was) in (dict, list)) or identical(was, now)
        for was, now in zip(one, other, strict=True)
    )


def _splice(one: list[Any], other: list[Any], path: Path) -> _Change:
    shorter = min(len(one), len(other))
    start = 0
    while start < shorter and identical(one[start], other[start]):
        start += 1
    end = 0
    while end < shorter - start and identical(one[-1 - end], other[-1 - end]):
        end += 1
    return _Change(
        "splice",
        path,
        {
            "index": start,
            "remove": len(one) - start - end,
            "add": other[start : len(other) - end],
        },
    )

"""Structural deltas: what turns one value of a channel into the next one.

A *delta* is a list, so that the serializer of the channel can store it, in one of these forms:

    ["=", value]                              another value
    ["+", start, end, part]                   `part` instead of the items from `start` until `end`:
                                              of a list, a string or bytes
    ["[", [[index, delta], ...]]              changed items of a list of the same length
    ["{", [[name, delta], ...], [name, ...], order]
                                              members set, members removed, and the order of all
                                              members (null if new ones are last)

Values are compared with a decoded copy of what is stored, so a value that was changed in place is
stored as changed. Only exact dicts with string keys, lists, strings and bytes are compared by their
parts. Any other value is a leaf: equal leaves have the same type and content, or are serialized to
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import ormsgpack

from fourfold.adapters.langgraph.values import EXACT

Delta: TypeAlias = list[Any]
Same: TypeAlias = Callable[[Any, Any], bool]
"""Compares two leaves by their serialized bytes."""

_EXACT: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types whose equal values are identical; 0.0 and -0.0 are not."""
_SPLICED: Final = frozenset({str, bytes, list})
_CONTAINERS: Final = frozenset({dict, list})
_NAMES: Final = frozenset({str})
_LEAF_WEIGHT: Final = 9


def weigh(value: Any) -> int:
    """Return about how many bytes a value has when it is serialized."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) + 3
    if kind is list:
        return sum(map(weigh, value), 3)
    if kind is dict:
        return sum(weigh(name) + weigh(item) for name, item in value.items()) + 3
    return _LEAF_WEIGHT


def weighs_at_least(value: Any, minimum: int) -> bool:
    """Return True if a value weighs that much; reads no more of it than necessary."""
    kind = type(value)
    if kind is dict:
        parts = chain.from_iterable(value.items())
    elif kind is list:
        parts = iter(value)
    else:
        return weigh(value) >= minimum
    weight = 3
    for part in parts:
        weight += weigh(part)
        if weight >= minimum:
            return True
    return weight >= minimum


def diff(before: Any, after: Any, same: Same) -> Delta | None:
    """Return the delta from one value to another, or None if they are equal."""
    kind = type(before)
    if kind is type(after):
        if kind is dict and _has_names(before) and _has_names(after):
            return _diff_dicts(before, after, same)
        if kind is list:
            return _diff_lists(before, after, same)
        if kind in _EXACT:
            if before == after:
                return None
            return _splice(before, after) if kind is str or kind is bytes else ["=", after]
    return None if same(before, after) else ["=", after]


def _has_names(value: dict[Any, Any]) -> bool:
    return _NAMES.issuperset(map(type, value))


def _diff_dicts(before: dict[str, Any], after: dict[str, Any], same: Same) -> Delta | None:
    changes = []
    for name, value in after.items():
        delta = diff(before[name], value, same) if name in before else ["=", value]
        if delta is not None:
            changes.append([name, delta])
    removed = [name for name in before if name not in after]
    names, order = list(after), list(before)
    if names != order:
        order = [name for name in order if name in after]
        order += [name for name in names if name not in before]
    if not changes and not removed and order == names:
        return None
    return ["{", changes, removed, None if order == names else names]


def _diff_lists(before: list[Any], after: list[Any], same: Same) -> Delta | None:
    if len(before) == len(after):
        changes = []
        for index, value in enumerate(after):
            delta = None
            if type(value) not in _CONTAINERS or not _is_packed_equal(before[index], value):
                delta = diff(before[index], value, same)
            if delta is not None:
                changes.append([index, delta])
        return ["[", changes] if changes else None
    limit = min(len(before), len(after))
    start = 0
    while start < limit and diff(before[start], after[start], same) is None:
        start += 1
    end = 0
    while end < limit - start and diff(before[-1 - end], after[-1 - end], same) is None:
        end += 1
    return ["+", start, len(before) - end, after[start : len(after) - end]]


def _is_packed_equal(before: Any, after: Any) -> bool:
    """Return True if two values have the same packed bytes; False if one cannot be packed."""
    try:
        packed = ormsgpack.packb(before, option=EXACT)
        return packed == ormsgpack.packb(after, option=EXACT)
    except (TypeError, ValueError):
        return False


def _splice(before: Any, after: Any) -> Delta:
    """Return the delta between two different strings, or two different bytes."""
    limit = min(len(before), len(after))
    start = _common_length(limit, lambda at, to: before[at:to] == after[at:to])
    ends = len(before), len(after)
    end = _common_length(
        limit - start,
        lambda at, to: before[ends[0] - to : ends[0] - at] == after[ends[1] - to : ends[1] - at],
    )
    return ["+", start, ends[0] - end, after[start : ends[1] - end]]


def _common_length(limit: int, is_equal: Callable[[int, int], bool]) -> int:
    """Return how many of the first `limit` characters are equal, by bisection."""
    low, high = 0, limit
    if is_equal(0, limit):
        return limit
    while high - low > 1:
        middle = (low + high) // 2
        if is_equal(low, middle):
            low = middle
        else:
            high = middle
    return low


def apply(value: Any, delta: Sequence[Any]) -> Any:
    """Return the value after a delta. Changes dicts and lists in place, and takes over its parts.

    Raises:
        TypeError, ValueError, LookupError: The delta is not one of this value.
    """
    form = delta[0]
    if form == "=":
        return delta[1]
    if form == "+" and type(value) in _SPLICED:
        _, start, end, part = delta
        if not 0 <= start <= end <= len(value) or type(part) is not type(value):
            raise ValueError(f"splice {start}..{end} of {len(value)} items")
        return value[:start] + part + value[end:]
    if form == "[" and type(value) is list:
        for index, change in delta[1]:
            value[index] = apply(value[index], change)
        return value
    if form == "{" and type(value) is dict:
        _, changes, removed, order = delta
        for name in removed:
            del value[name]
        for name, change in changes:
            value[name] = apply(value.get(name), change)
        return value if order is None else {name: value[name] for name in order}
    raise ValueError(f"delta {form!r:.20} of a {type(value).__name__}")


def fold(value: Any, deltas: Iterable[Sequence[Any]]) -> Any:
    """Return the value after several deltas, as `apply` does.

    Text that is only appended is joined once.
    """
    parts: list[Any] = []
    length = 0
    for delta in deltas:
        kind = type(value)
        if delta[0] == "+" and kind is str and type(delta[3]) is str:
            length = length if parts else len(value)
            if delta[1] == delta[2] == length:
                parts.append(delta[3])
                length += len(delta[3])
                continue
        if parts:
            value = value + "".join(parts)
            parts = []
        value = apply(value, delta)
    return value + "".join(parts) if parts else value


def copy_tree(value: Any, copy_leaf: Callable[[Any], Any]) -> Any:
    """Return a copy of a value; `copy_leaf` copies what is not compared by its parts."""
    kind = type(value)
    if kind in _EXACT or kind is float:
        return value
    if kind is list:
        return [copy_tree(item, copy_leaf) for item in value]
    if kind is dict and _has_names(value):
        return {name: copy_tree(item, copy_leaf) for name, item in value.items()}
    return copy_leaf(value)

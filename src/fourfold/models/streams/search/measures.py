"""Measures of groups of messages: count, sum, min, max, avg and percentiles. Pure.

Numbers are measured, everything else at a field is ignored. Sums of integers are exact up to 2**53;
other sums may differ in their last digits, because parts are added in another order. A percentile
is the nearest rank: the smallest value that at least so many percent of the values do not exceed.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from fourfold.content.json_pointer import lookup
from fourfold.errors import InvalidInput, LimitExceeded
from fourfold.models.streams.archive.indexes.fields import check_field

COUNT: Final = "count"
MEASURES_MAX: Final = 32
GROUPS_MAX: Final = 50_000
"""Groups of one aggregate."""
BY_MAX: Final = 8
_MEASURE: Final = re.compile(r"(sum|min|max|avg|p([0-9]{1,2}(?:\.[0-9]{1,3})?|100))\((.+)\)")

_EXACT_MAX: Final = 1 << 53

Key = tuple[Any, ...]
"""A group: its time or None, and a pair of type and value for each field."""


class Measure(NamedTuple):
    """A measure as requested, such as `p95(duration)`."""

    name: str
    function: str
    field: str | None
    percent: float = 0.0


def parse_measures(measures: Sequence[str]) -> tuple[Measure, ...]:
    """Return the measures of an aggregate.

    Raises:
        InvalidInput: one is unknown, or there are too many.
    """
    if isinstance(measures, str) or not 0 < len(measures) <= MEASURES_MAX:
        raise InvalidInput(f"measures: must be a list of 1 to {MEASURES_MAX}, got {measures!r:.80}")
    return tuple(dict.fromkeys(map(_parse, measures)))


def _parse(text: str) -> Measure:
    if text == COUNT:
        return Measure(COUNT, COUNT, None)
    match = _MEASURE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput(
            f"unknown measure {text!r:.80}",
            hint="Use count, or sum, min, max, avg or p95 of a field: p95(duration).",
        )
    function, percent, field = match.groups()
    check_field(field)
    if percent is not None:
        return Measure(text, "percentile", field, float(percent))
    return Measure(text, function, field)


def check_groups(by: Sequence[str]) -> tuple[str, ...]:
    """Return the fields to group by; raise InvalidInput."""
    if isinstance(by, str) or len(by) > BY_MAX:
        raise InvalidInput(f"by: must be a list of at most {BY_MAX} fields, got {by!r:.80}")
    for field in by:
        check_field(field)
        if field == "time_ms":
            raise InvalidInput("by: time_ms is the name of the interval; use another field")
    return tuple(dict.fromkeys(by))


def key_of_value(value: Any) -> tuple[int, Any]:
    """Return a value as a part of a group's key; a missing, array or object value is like null."""
    kind = type(value)
    if kind is bool:
        return (1, value)
    if kind is int or kind is float:
        return (2, plain_number(value))
    return (3, value) if kind is str else (0, None)


class Numbers:
    """The measured numbers of one field in one group."""

    __slots__ = ("count", "high", "low", "sum", "values")

    def __init__(self, *, keep: bool) -> None:
        self.count = 0
        self.sum: int | float = 0
        self.low: Any = None
        self.high: Any = None
        self.values: array[float] | None = array("d") if keep else None

    def add(self, value: Any) -> None:
        """Add a value, if it is a number."""
        if type(value) is not int and type(value) is not float:
            return
        self.merge(1, value, value, value)
        if self.values is not None:
            self.values.append(_to_float(value))

    def merge(self, count: int, total: Any, low: Any, high: Any) -> None:
        """Add the summary of several numbers."""
        if not count:
            return
        self.count += count
        self.sum = _add(self.sum, total)
        self.low = low if self.low is None or low < self.low else self.low
        self.high = high if self.high is None or high > self.high else self.high

    def extend(self, values: Sequence[float]) -> None:
        """Keep numbers for percentiles that were summarized with `merge`."""
        if self.values is not None:
            self.values.extend(values)


def _add(left: float, right: float) -> int | float:
    try:
        return left + right
    except OverflowError:
        # An integer that no float can represent, and a fraction.
        return _to_float(left) + _to_float(right)


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


class Group:
    """One group: its number of messages, and the numbers of each field."""

    __slots__ = ("count", "numbers")

    def __init__(self, numbers: tuple[Numbers, ...]) -> None:
        self.count = 0
        self.numbers = numbers


class Accumulator:
    """Groups messages, and measures them."""

    def __init__(
        self, by: Sequence[str], measures: Sequence[Measure], every_ms: int | None
    ) -> None:
        self.by = tuple(by)
        self.measures = tuple(measures)
        self.every_ms = every_ms
        self.fields = tuple(
            dict.fromkeys(measure.field for measure in measures if measure.field is not None)
        )
        self.percentiles = frozenset(
            measure.field for measure in measures if measure.function == "percentile"
        )
        self._places = [
            (measure, None if measure.field is None else self.fields.index(measure.field))
            for measure in measures
        ]
        self.bounded = frozenset(
            measure.field for measure in measures if measure.function in {"min", "max"}
        )
        """Fields whose least and greatest numbers are measured."""
        self._by_paths = [tuple(field.split(".")) for field in by]
        self._paths = [tuple(field.split(".")) for field in self.fields]
        self.groups: dict[Key, Group] = {}

    def add(self, message: Any, time_ms: int) -> None:
        """Add a message."""
        group = self.group(
            self.bucket(time_ms), [key_of_value(lookup(message, path)) for path in self._by_paths]
        )
        group.count += 1
        for numbers, path in zip(group.numbers, self._paths, strict=True):
            numbers.add(lookup(message, path))

    def bucket(self, time_ms: int) -> int | None:
        """Return the begin of the interval that a time is in; None without intervals."""
        return None if self.every_ms is None else time_ms - time_ms % self.every_ms

    def group(self, bucket: int | None, values: Iterable[tuple[int, Any]]) -> Group:
        """Return the group of an interval and of the values of the fields."""
        key = (bucket, *values)
        group = self.groups.get(key)
        if group is None:
            group = self._add_group(key)
        return group

    def _add_group(self, key: Key) -> Group:
        if len(self.groups) >= GROUPS_MAX:
            raise too_many_groups()
        group = Group(tuple(Numbers(keep=field in self.percentiles) for field in self.fields))
        self.groups[key] = group
        return group

    def merge_columns(
        self,
        keys: Iterable[Key],
        counts: Iterable[int],
        summaries: Sequence[Iterable[tuple[Any, ...]]],
    ) -> None:
        """Add groups by their keys: their counts, and summaries of the numbers of each field."""
        groups = self.groups
        for key, count, *summary in zip(keys, counts, *summaries, strict=True):
            group = groups.get(key)
            if group is None:
                group = self._add_group(key)
            group.count += count
            for numbers, parts in zip(group.numbers, summary, strict=True):
                numbers.merge(*parts)

    def merge(self, other: Accumulator) -> None:
        """Add the groups of another aggregate with the same fields and measures."""
        for key, group in other.groups.items():
            own = self.group(key[0], key[1:])
            own.count += group.count
            for numbers, added in zip(own.numbers, group.numbers, strict=True):
                numbers.merge(added.count, added.sum, added.low, added.high)
                if added.values is not None:
                    numbers.extend(added.values)

    def rows(self) -> list[dict[str, Any]]:
        """Return the groups as dictionaries, in the order of their times and values."""
        names = self.columns
        first = 1 if self.every_ms is None else 0
        return [
            dict(
                zip(
                    names,
                    # The key begins with the time, or with None if there are no intervals.
                    (*key[first:1], *[value for _, value in key[1:]], *self._results(group)),
                    strict=True,
                )
            )
            for key, group in sorted(self.groups.items(), key=itemgetter(0))
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of the rows."""
        time = () if self.every_ms is None else ("time_ms",)
        return (*time, *self.by, *(measure.name for measure in self.measures))

    def _results(self, group: Group) -> list[Any]:
        """Return the measures of a group."""
        return [
            group.count if at is None else plain_number(_result(measure, group.numbers[at]))
            for measure, at in self._places
        ]


def too_many_groups() -> LimitExceeded:
    """Return the error of an aggregate with too many groups."""
    return LimitExceeded(
        f"an aggregate has at most {GROUPS_MAX} groups",
        hint="Use a longer interval, fewer fields, or a filter.",
    )


def plain_number(value: Any) -> Any:
    """Return a number in one form, whether it was read as 1 or as 1.0."""
    if type(value) is float and value.is_integer() and abs(value) <= _EXACT_MAX:
        return int(value)
    return value


def _result(measure: Measure, numbers: Numbers) -> Any:
    if measure.function == "sum":
        return numbers.sum
    if not numbers.count:
        return None
    if measure.function == "min":
        return numbers.low
    if measure.function == "max":
        return numbers.high
    if measure.function == "avg":
        return _to_float(numbers.sum) / numbers.count
    assert numbers.values is not None
    ranked = sorted(numbers.values)
    return ranked[max(0, math.ceil(measure.percent * len(ranked) / 100) - 1)]

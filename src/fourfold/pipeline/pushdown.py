"""Filters that Spark hands to a reader, as conditions that SQLite can use.

A filter is taken whole, taken in part, or left. One taken in part makes SQLite give a few rows too
many, and Spark applies it again: so it is with times, which the log keeps as text in milliseconds.
Strings compare by their UTF-8 bytes on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from fourfold.pipeline.tables import SPACE, Column, Table

_SIGNS: Final = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_LOOSE: Final = {"=": "=", ">": ">=", ">=": ">=", "<": "<=", "<=": "<="}
_PYTHON_TYPES: Final = {"string": str, "bigint": int, "int": int}


@dataclass(slots=True)
class Condition:
    """`column sign value`; with the sign `in`, any of the values."""

    column: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether a value that is known already meets the condition."""
        if self.sign in {"in", "="}:
            return value in self.values
        other = self.values[0]
        return bool(
            {
                ">": value > other,
                ">=": value >= other,
                "<": value < other,
                "<=": value <= other,
            }[self.sign]
        )


@dataclass(slots=True)
class Pushed:
    """What was taken of the filters of one scan."""

    conditions: list[Condition] = field(default_factory=list)

    def on(self, column: str) -> list[Condition]:
        return [each for each in self.conditions if each.column == column]

    def without(self, *columns: str) -> list[Condition]:
        return [each for each in self.conditions if each.column not in columns]

    def bounds(self, column: str) -> tuple[int, int | None]:
        """The range of a whole number: beyond the first, and up to the second if it is one."""
        low, high = -1, None
        for each in self.on(column):
            lowest, highest = min(each.values), max(each.values)
            if each.sign in {"=", "in", ">=", ">"}:
                low = max(low, lowest if each.sign == ">" else lowest - 1)
            if each.sign in {"=", "in", "<=", "<"}:
                upto = highest - 1 if each.sign == "<" else highest
                high = upto if high is None else min(high, upto)
        return low, high


def take(filters: Iterable[Any], table: Table, pushed: Pushed) -> Iterator[Any]:
    """Put into `pushed` what can be taken of the filters; give back those that Spark must apply."""
    columns = {column.name: column for column in table.columns if column.filtered}
    for each in filters:
        column = columns.get(_name(each))
        if column is not None and type(each).__name__ == "IsNotNull" and not column.nullable:
            continue
        condition = None if column is None else _condition(each, column)
        if column is None or condition is None:
            yield each
            continue
        pushed.conditions.append(condition)
        if column.type == "timestamp":
            yield each


def _name(each: Any) -> str:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _condition(each: Any, column: Column) -> Condition | None:
    name = type(each).__name__
    if name == "In":
        values = tuple(value for value in each.value if value is not None)
        sign = "in"
    elif name in _SIGNS:
        values, sign = (each.value,), _SIGNS[name]
    else:
        return None
    if column.type == "timestamp":
        if not all(isinstance(value, datetime) for value in values):
            return None
        return Condition(
            column.name, _LOOSE.get(sign, sign), tuple(_log_time(value) for value in values)
        )
    wanted = _PYTHON_TYPES.get(column.type)
    if not values or not all(type(value) is wanted for value in values):
        return None
    if wanted is int and not all(-(2**63) <= value < 2**63 for value in values):
        return None
    return Condition(column.name, sign, values)


def _log_time(moment: datetime) -> str:
    """A moment as the log writes it, what is finer than a millisecond dropped."""
    there = moment.astimezone(UTC) if moment.tzinfo else moment
    return there.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def as_sql(conditions: Iterable[Condition], first: int) -> tuple[list[str], list[Any]]:
    """The conditions in SQL and their values, which are bound from the number `first` on."""
    texts: list[str] = []
    values: list[Any] = []
    for each in conditions:
        numbers = [f"?{first + len(values) + at}" for at in range(len(each.values))]
        values.extend(each.values)
        if each.sign == "in":
            texts.append(f'"{each.column}" IN ({", ".join(numbers)})')
        else:
            texts.append(f'"{each.column}" {each.sign} {numbers[0]}')
    return texts, values


def allows_space(pushed: Pushed, space: str) -> bool:
    return all(each.holds(space) for each in pushed.on(SPACE))

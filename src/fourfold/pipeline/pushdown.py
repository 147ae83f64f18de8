"""Filters that Spark hands to a reader, as conditions that SQLite can use.

A filter is taken or left. Strings compare by their UTF-8 bytes on both sides. Times are text with
three or six fractional digits; both sides are brought to six before they are compared.
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
_COMPARABLE_TIME: Final = "substr(substr({0}, 1, length({0}) - 1) || '000', 1, 26) || 'Z'"
"""`moments.comparable` in SQL. A worker has no kernel, so it is not in a file of queries."""
_PYTHON_TYPES: Final = {"string": str, "bigint": int, "int": int}


@dataclass(slots=True)
class Condition:
    """`column sign value`; with the sign `in`, any of the values."""

    column: str
    sign: str
    values: tuple[Any, ...]
    is_time: bool = False

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
        return Condition(column.name, sign, tuple(map(_log_time, values)), is_time=True)
    wanted = _PYTHON_TYPES.get(column.type)
    if not values or not all(type(value) is wanted for value in values):
        return None
    if wanted is int and not all(-(2**63) <= value < 2**63 for value in values):
        return None
    return Condition(column.name, sign, values)


def _log_time(moment: datetime) -> str:
    """Format a time as `_COMPARABLE_TIME` does."""
    there = moment.astimezone(UTC) if moment.tzinfo else moment
    return there.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def as_sql(conditions: Iterable[Condition], first: int) -> tuple[list[str], list[Any]]:
    """The conditions in SQL and their values, which are bound from the number `first` on."""
    texts: list[str] = []
    values: list[Any] = []
    for each in conditions:
        numbers = [f"?{first + len(values) + at}" for at in range(len(each.values))]
        values.extend(each.values)
        column = f'"{each.column}"'
        if each.is_time:
            column = _COMPARABLE_TIME.format(column)
        if each.sign == "in":
            texts.append(f"{column} IN ({', '.join(numbers)})")
        else:
            texts.append(f"{column} {each.sign} {numbers[0]}")
    return texts, values


def allows_space(pushed: Pushed, space: str) -> bool:
    return all(each.holds(space) for each in pushed.on(SPACE))

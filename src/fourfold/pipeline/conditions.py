"""The option `where` of a read: conditions that are applied before rows reach Spark.

    id >= 'order-1' and id < 'order-2' and op in ('set', 'patch') and seq > 100

Comparisons of a column with a constant, joined by `and`. A constant is a whole number or a string
in single quotes, in which a quote is doubled. Strings compare by their UTF-8 bytes, as in Spark.
Only columns that the table declares as filtered are allowed: a condition on another could not be
applied exactly.

A condition belongs to the options of one DataFrame: rows that do not meet it are not exported.
Filters of a query are Spark's, which applies them to the exported files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import InvalidInput
from fourfold.query.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

_COMPARE: Final = {"=": eq, ">": gt, ">=": ge, "<": lt, "<=": le}
_PYTHON_TYPES: Final = {"string": str, "bigint": int, "int": int}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<sign><=|>=|=|<|>)"
    r"|(?P<mark>[(),])|(?P<word>\w+))"
)
_HINT: Final = "As in: id >= 'order-1' and op in ('set', 'patch') and seq > 100."


@dataclass(frozen=True, slots=True)
class Condition:
    """`column sign value`; with the sign `in`, any of the values."""

    column: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Return True if a known value meets the condition."""
        if self.sign == "in":
            return value in self.values
        return bool(_COMPARE[self.sign](value, self.values[0]))


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of one read; every row meets all of them."""

    items: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that have a condition."""
        return tuple(dict.fromkeys(condition.column for condition in self.items))

    def on(self, column: str) -> list[Condition]:
        """Return the conditions on a column."""
        return [condition for condition in self.items if condition.column == column]

    def without(self, *columns: str) -> list[Condition]:
        """Return the conditions on other columns than these."""
        return [condition for condition in self.items if condition.column not in columns]

    def allow(self, column: str, value: Any) -> bool:
        """Return True if a value of a column meets every condition on it."""
        return all(condition.holds(value) for condition in self.on(column))

    def bounds(self, column: str) -> tuple[int, int | None]:
        """Return the range of a whole number: after the first, until the second if there is one."""
        low, high = -1, None
        for condition in self.on(column):
            lowest, highest = min(condition.values), max(condition.values)
            if condition.sign in {"=", "in", ">=", ">"}:
                low = max(low, lowest if condition.sign == ">" else lowest - 1)
            if condition.sign in {"=", "in", "<=", "<"}:
                until = highest - 1 if condition.sign == "<" else highest
                high = until if high is None else min(high, until)
        return low, high

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of an Arrow batch that meet the conditions; nulls never do."""
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
        import pyarrow.compute as pc  # noqa: PLC0415

        compare = {
            "=": pc.equal,
            ">": pc.greater,
            ">=": pc.greater_equal,
            "<": pc.less,
            "<=": pc.less_equal,
        }
        for condition in self.items:
            column = batch.column(condition.column)
            if condition.sign == "in":
                mask = pc.is_in(column, value_set=pa.array(condition.values, column.type))
            else:
                mask = compare[condition.sign](column, pa.scalar(condition.values[0], column.type))
            batch = batch.filter(mask)
        return batch

    def spark_columns(self) -> Iterator[SparkColumn]:
        """Yield the conditions as Spark writes them."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - an optional dependency

        for condition in self.items:
            column = F.col(condition.column)
            if condition.sign == "in":
                yield column.isin(*condition.values)
            else:
                yield _COMPARE[condition.sign](column, F.lit(condition.values[0]))

    def text(self) -> str:
        """Return the conditions as text for the option `where`."""
        return " and ".join(
            f"{condition.column} in ({', '.join(map(_constant, condition.values))})"
            if condition.sign == "in"
            else f"{condition.column} {condition.sign} {_constant(condition.values[0])}"
            for condition in self.items
        )


def parse(text: str | None, table: Table) -> Conditions:
    """Parse the option `where` of a read of a table."""
    if text is None or not text.strip():
        return Conditions()
    tokens = list(_tokens(text))
    conditions: list[Condition] = []
    while True:
        condition, tokens = _comparison(tokens, text, table)
        conditions.append(condition)
        if not tokens:
            return Conditions(tuple(conditions))
        if not _is_word(tokens[0], "and"):
            raise _malformed(text, tokens[0][1])
        tokens = tokens[1:]


def accepts(table: Table, condition: Condition) -> bool:
    """Return True if a condition can be applied to a table exactly."""
    column = next((field for field in table.columns if field.name == condition.column), None)
    return column is not None and column.filtered and _fits(column, condition.values)


def as_sql(conditions: Iterable[Condition], first: int) -> tuple[list[str], list[Any]]:
    """Return the conditions in SQL and their values, which are bound from the number `first`."""
    texts: list[str] = []
    values: list[Any] = []
    for condition in conditions:
        numbers = [f"?{first + len(values) + at}" for at in range(len(condition.values))]
        values.extend(condition.values)
        if condition.sign == "in":
            texts.append(f'"{condition.column}" IN ({", ".join(numbers)})')
        else:
            texts.append(f'"{condition.column}" {condition.sign} {numbers[0]}')
    return texts, values


Token = tuple[str, str]
"""The type of a token and its text."""


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _malformed(text, text[at:].strip())
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _comparison(tokens: list[Token], text: str, table: Table) -> tuple[Condition, list[Token]]:
    """Parse one comparison; return it and the remaining tokens."""
    if len(tokens) < 3 or tokens[0][0] != "word":
        raise _malformed(text, tokens[0][1] if tokens else "")
    column = _column(tokens[0][1], table)
    if tokens[1][0] == "sign":
        values, remaining = (_value(tokens[2], text),), tokens[3:]
        condition = Condition(column.name, tokens[1][1], values)
    elif _is_word(tokens[1], "in") and tokens[2] == ("mark", "("):
        values, remaining = _list(tokens[3:], text)
        condition = Condition(column.name, "in", values)
    else:
        raise _malformed(text, tokens[1][1])
    if not _fits(column, values):
        raise InvalidInput(
            f"option 'where': {column.name} is a {column.type}, got {values[0]!r}", hint=_HINT
        )
    return condition, remaining


def _list(tokens: list[Token], text: str) -> tuple[tuple[Any, ...], list[Token]]:
    end = tokens.index(("mark", ")")) if ("mark", ")") in tokens else 0
    inside = tokens[:end]
    if len(inside) % 2 == 0 or any(comma != ("mark", ",") for comma in inside[1::2]):
        raise _malformed(text, "in (")
    return tuple(_value(token, text) for token in inside[::2]), tokens[end + 1 :]


def _value(token: Token, text: str) -> str | int:
    if token[0] == "number":
        return int(token[1])
    if token[0] != "text":
        raise _malformed(text, token[1])
    return token[1][1:-1].replace("''", "'")


def _column(name: str, table: Table) -> Column:
    column = table.column(name)
    if not column.filtered:
        names = ", ".join(field.name for field in table.columns if field.filtered)
        raise InvalidInput(
            f"option 'where': {table.name} cannot be filtered by {name!r}",
            hint=f"Filter the DataFrame. Columns for `where`: {names or 'none'}.",
        )
    return column


def _fits(column: Column, values: tuple[Any, ...]) -> bool:
    python_type = _PYTHON_TYPES.get(column.type)
    if not values or not all(type(value) is python_type for value in values):
        return False
    return python_type is not int or all(-(2**63) <= value < 2**63 for value in values)


def _is_word(token: Token, word: str) -> bool:
    return token[0] == "word" and token[1].lower() == word


def _constant(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _malformed(text: str, near: str) -> InvalidInput:
    return InvalidInput(f"option 'where': cannot parse {text!r} at {near!r}", hint=_HINT)

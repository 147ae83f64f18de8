"""The result of a query: rows, the cut that they show, and conversions to tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fourfold.tabular import ColumnType, RecordColumn, Table, Tabular

Row = tuple[Any, ...]

_TYPES: Final[dict[str, tuple[ColumnType, type | tuple[type, ...]]]] = {
    "string": ("text", str),
    "bigint": ("int", int),
    "int": ("int", int),
    "double": ("float", (int, float)),
    "timestamp": ("time", str),
    "binary": ("bytes", bytes),
    "boolean": ("bool", int),
}


class Result(Tabular, Sequence[Row]):
    """The rows of a query, as tuples.

        result = store.sql("select id, document from documents_state")
        for id, document in result: ...
        result.to_pandas()

    A column that a query takes from a table has the type of the registry in Arrow; in rows, times
    are ISO 8601 texts and booleans are 0 and 1, as in SQLite.
    """

    __slots__ = ("columns", "cut", "rows", "truncated", "types", "warnings")

    def __init__(
        self,
        columns: Sequence[str],
        rows: list[Row],
        *,
        cut: Mapping[str, int],
        truncated: bool = False,
        types: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(columns)
        """Names of the columns."""
        self.rows = rows
        """All rows, as tuples."""
        self.cut = dict(cut)
        """The position of each database that the query read, by its name."""
        self.truncated = truncated
        """True if there are more rows than `max_rows` or `max_bytes` allows, or `warnings`."""
        self.warnings = tuple(warnings)
        """What the tables of the query lack, such as records that are only in segments."""
        self.types = dict(types or {})
        """Types of columns that come from tables, by name, as in the registry."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        names = ("columns", "rows", "cut", "truncated", "warnings")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = ", truncated" if self.truncated else ""
        return f"Result({len(self.rows)} rows: {', '.join(self.columns)}{more})"

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def write_parquet(self, path: str | Path) -> None:
        """Write the rows to a Parquet file. Requires pyarrow."""
        table = self.to_arrow()
        import_module("pyarrow.parquet").write_table(table, path)

    def _table(self) -> Table:
        columns: list[RecordColumn] = []
        converts: list[Callable[[Any], Any] | None] = []
        for at, name in enumerate(distinct_names(self.columns)):
            kind, convert = self._type(at, self.types.get(self.columns[at]))
            columns.append(RecordColumn(name, kind))
            converts.append(convert)
        if not any(converts):
            return columns, self.rows
        rows = (
            tuple(
                value if convert is None or value is None else convert(value)
                for value, convert in zip(row, converts, strict=True)
            )
            for row in self.rows
        )
        return columns, rows

    def _type(
        self, at: int, declared: str | None
    ) -> tuple[ColumnType | None, Callable[[Any], Any] | None]:
        """Return the type of a column if its values have it; an expression may have another."""
        if declared is None:
            return None, None
        kind, python = _TYPES[declared]
        values = [row[at] for row in self.rows if row[at] is not None]
        if not all(isinstance(value, python) for value in values):
            return None, None
        if (kind == "time" and not all(map(_is_time, values))) or (
            kind == "bool" and not {0, 1}.issuperset(values)
        ):
            return None, None
        return kind, bool if kind == "bool" else None


def _is_time(text: str) -> bool:
    """Return True if a text is a time as in the tables, and not a part of one."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number where one is repeated: Arrow's columns are distinct."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        result.append(name if count == 1 else f"{name}_{count}")
    return result

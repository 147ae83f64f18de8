"""Rows as tables: Arrow, pandas and Polars, and an HTML table in a notebook.

    space.history("order:1").to_pandas()
    session.log().to_polars()
    duckdb.from_arrow(stream.read())         # through the Arrow PyCapsule interface

`Tabular` is the mixin of everything that returns rows, and `Rows` a list with it. A column has the
type that its record declares, so that a table without rows has the columns of one with rows. Values
without a scalar type, such as documents, are JSON text, as in the tables of SQL and Spark.

pyarrow is optional: it is imported by the first conversion.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from fourfold import html
from fourfold.errors import MissingDependency

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

T = TypeVar("T")

ColumnType: TypeAlias = Literal["bool", "int", "float", "text", "bytes", "time", "json"]


class RecordColumn(NamedTuple):
    """A column of a table. Without a type, the type follows from the values."""

    name: str
    type: ColumnType | None = None


Table: TypeAlias = tuple[Sequence[RecordColumn], Iterable[Sequence[object]]]
"""Columns, and rows with one value for each of them."""
Shape: TypeAlias = type | Sequence[RecordColumn]
"""The class of records, or their columns."""


class Tabular:
    """Mixin for results with rows: conversions, the Arrow PyCapsule interface, and HTML."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> Table:
        """Return the columns, and the rows with one value for each column."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. Requires pyarrow.

        Times are timestamps in UTC; documents and other nested values are JSON text.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        arrow = _import("pyarrow", "fourfold[archive]")
        columns, rows = self._table()
        values = tuple(zip(*rows, strict=True)) or ((),) * len(columns)
        arrays = [
            _to_array(arrow, column, cells) for column, cells in zip(columns, values, strict=True)
        ]
        return arrow.Table.from_arrays(arrays, names=[column.name for column in columns])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame. Requires pyarrow and pandas.

        Raises:
            MissingDependency: pyarrow or pandas is not installed.
        """
        _import("pandas", "pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars DataFrame. Requires pyarrow and polars.

        Raises:
            MissingDependency: pyarrow or polars is not installed.
        """
        frame: pl.DataFrame = _import("polars", "polars").DataFrame(self.to_arrow())
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow stream, for libraries that import one.

        With it, `pyarrow.table`, `polars.DataFrame` and `duckdb.from_arrow` accept this object.
        They treat a list as a list, so pass `to_arrow()` of `Rows`.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        columns, rows = self._table()
        names = [column.name for column in columns]
        cells = [[_to_cell(value) for value in row] for row in rows]
        return html.table(names, cells) if cells else html.fragment(caption="No rows")


class RecordTable(Tabular):
    """Mixin for a sequence of records: named tuples, Structs, dicts, or objects with properties."""

    __slots__ = ()

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    @abstractmethod
    def _table_shape(self) -> Shape:
        """Return the class of the records, or the columns; () if the records decide."""

    def _table(self) -> Table:
        records, shape = list(self), self._table_shape()
        if records and not shape:
            shape = _shape_of(records)
        columns = columns_of(shape) if isinstance(shape, type) else shape
        names = [column.name for column in columns]
        return columns, ([_get(record, name) for name in names] for record in records)


def show_record(record: Any) -> str:
    """Return a record as HTML: its values, and a table of each list of records in it."""
    facts: dict[str, object] = {}
    tables = []
    for name in _field_names(record):
        value = getattr(record, name)
        shown = value._repr_html_() if hasattr(type(value), "_repr_html_") else None
        if isinstance(value, list | tuple) and value and _field_names(value[0]):
            shown = Rows(value)._repr_html_() if shown is None else shown
            tables.append(html.fragment(html.Html(shown), caption=name))
        elif shown is not None or _field_names(value):
            nested = html.Html(show_record(value) if shown is None else shown)
            tables.append(html.fragment(nested, caption=name))
        else:
            facts[name] = value
    return html.fragment(html.facts(facts), *tables, caption=type(record).__name__)


def _field_names(record: object) -> tuple[str, ...]:
    """Return the names of the fields of a record; none for other values."""
    kind: Any = type(record)
    for attribute in ("_fields", "__struct_fields__", "__dataclass_fields__"):
        if hasattr(kind, attribute):
            return tuple(getattr(kind, attribute))
    return ()


class Rows(list[T], RecordTable):
    """A list of records that is a table too: `to_arrow()`, `to_pandas()`, `to_polars()`.

    Args:
        rows: The records.
        shape: Their class, or the columns to show. By default the class of the first record, or
            the keys of all of them if they are dicts.
    """

    __slots__ = ("_shape",)

    def __init__(self, rows: Iterable[T] = (), shape: Shape = ()) -> None:
        super().__init__(rows)
        self._shape = shape

    def _table_shape(self) -> Shape:
        return self._shape

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Rows[T]:
        if isinstance(index, slice):
            return Rows(super().__getitem__(index), self._shape)
        return super().__getitem__(index)


@lru_cache(maxsize=64)
def columns_of(record: type) -> tuple[RecordColumn, ...]:
    """Return the columns of a class of records: a named tuple or a Struct, by its annotations.

    A text whose name is `at` or ends in `_at` is a time. A class that has other columns declares
    them as `TABLE_COLUMNS`, pairs of name and type.
    """
    declared = getattr(record, "TABLE_COLUMNS", None)
    if declared is not None:
        return tuple(RecordColumn(*column) for column in declared)
    names = getattr(record, "_fields", ()) or getattr(record, "__struct_fields__", ())
    hints = get_type_hints(record)
    return tuple(RecordColumn(name, _column_type(name, hints[name])) for name in names)


def _shape_of(records: Sequence[Any]) -> Shape:
    """Return the class of the first record; of dicts the keys of all of them."""
    if not isinstance(records[0], Mapping):
        return type(records[0])
    names = dict.fromkeys(name for record in records for name in record)
    return [RecordColumn(str(name)) for name in names]


_INTEGERS: Final = range(-(1 << 63), 1 << 63)
_SCALARS: Final[dict[object, ColumnType]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
    datetime: "time",
}


def _column_type(name: str, hint: object) -> ColumnType:
    if get_origin(hint) in {Union, UnionType}:
        options = [option for option in get_args(hint) if option is not NoneType]
        hint = options[0] if len(options) == 1 else None
    if get_origin(hint) is Literal:
        [hint] = {type(value) for value in get_args(hint)}
    kind = _SCALARS.get(hint, "json")
    is_time = kind == "text" and (name == "at" or name.endswith("_at"))
    return "time" if is_time else kind


def _infer(cells: Iterable[object]) -> ColumnType | None:
    """Return the type of all values, or None if there is none."""
    cells = [cell for cell in cells if cell is not None]
    kinds = set(map(type, cells))
    if int in kinds and any(type(cell) is int and cell not in _INTEGERS for cell in cells):
        # JSON has integers of any size.
        return "json"
    if kinds == {int, float}:
        return "float"
    names = {_SCALARS.get(kind, "json") for kind in kinds}
    if not names:
        return None
    return names.pop() if len(names) == 1 else "json"


def _to_array(arrow: Any, column: RecordColumn, cells: Sequence[object]) -> Any:
    kind = column.type or _infer(cells)
    if kind is None:
        return arrow.nulls(len(cells))
    convert = _CONVERSIONS.get(kind)
    if convert is not None:
        cells = [None if cell is None else convert(cell) for cell in cells]
    types = {
        "bool": arrow.bool_(),
        "int": arrow.int64(),
        "float": arrow.float64(),
        "text": arrow.string(),
        "bytes": arrow.binary(),
        "time": arrow.timestamp("us", "UTC"),
        "json": arrow.string(),
    }
    return arrow.array(cells, types[kind])


def _to_time(value: object) -> datetime | None:
    """Return a time: of a datetime, of ISO 8601 text, or of milliseconds since 1970."""
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1_000, UTC)
    if isinstance(value, str):
        return datetime.fromisoformat(value) if value else None
    assert isinstance(value, datetime)
    return value


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=msgspec.to_builtins)


_CONVERSIONS: Final[dict[ColumnType, Callable[[Any], object]]] = {
    "float": float,
    "time": _to_time,
    "json": _to_json,
}


def _to_cell(value: object) -> html.Html:
    if isinstance(value, dict | list | tuple | msgspec.Struct):
        return html.code(_to_json(value))
    return html.text(value)


def _get(record: Any, name: str) -> object:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name)


def _import(module: str, requirement: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency(
            f"{module} is not installed", hint=f"Install it: `pip install '{requirement}'`."
        ) from None

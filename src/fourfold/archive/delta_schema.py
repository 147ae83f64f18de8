"""Schemas and file statistics of Delta tables.

A schema is JSON with the types of Spark. Statistics are JSON too: the number of rows of a file and,
for each column, the number of nulls and bounds of the values. A bound may be wider than the values
but never narrower, because readers skip files by it:

- A long string is truncated, and an upper bound is then extended to be greater than the value.
- NaN is greater than every number, and a Parquet footer does not count it: doubles have no upper
  bound.
- JSON has no infinity, and no order for binary values and booleans: they have no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime
from typing import Any, Final, Self

import msgspec

from fourfold.archive.parquet import arrow
from fourfold.errors import CorruptData, InvalidInput

STATS_STRING_CHARS: Final = 256
"""Length of a string in statistics; names of spaces and streams mostly fit."""
_LAST_CHARACTER: Final = "\U0010ffff"


def encode_schema(schema: Any) -> str:
    """Return the Delta schema of an Arrow schema."""
    return msgspec.json.encode(_struct(schema)).decode()


def decode_schema(text: str) -> Any:
    """Return the Arrow schema of a Delta schema."""
    pa, _ = arrow()
    try:
        return pa.schema(_fields(msgspec.json.decode(text)))
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise CorruptData(f"schema of a Delta table is invalid: {error}") from error


def _struct(fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _delta_type(field.type),
                "nullable": field.nullable,
                "metadata": {},
            }
            for field in fields
        ],
    }


def _delta_type(kind: Any) -> Any:
    pa, _ = arrow()
    types = pa.types
    if types.is_dictionary(kind):
        return _delta_type(kind.value_type)
    if types.is_struct(kind):
        return _struct([kind.field(at) for at in range(kind.num_fields)])
    if types.is_list(kind) or types.is_large_list(kind):
        return {
            "type": "array",
            "elementType": _delta_type(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    if types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type),
            "valueType": _delta_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    name = _names().get(kind)
    if name is None:
        raise InvalidInput(f"type {kind} cannot be a column of a Delta table")
    return name


def _names() -> dict[Any, str]:
    pa, _ = arrow()
    return {
        pa.int64(): "long",
        pa.int32(): "integer",
        pa.int16(): "short",
        pa.int8(): "byte",
        pa.float64(): "double",
        pa.float32(): "float",
        pa.bool_(): "boolean",
        pa.string(): "string",
        pa.large_string(): "string",
        pa.binary(): "binary",
        pa.large_binary(): "binary",
        pa.date32(): "date",
        pa.timestamp("us", tz="UTC"): "timestamp",
    }


def _fields(struct: Any) -> list[Any]:
    pa, _ = arrow()
    return [
        pa.field(field["name"], _arrow_type(field["type"]), nullable=field.get("nullable", True))
        for field in struct["fields"]
    ]


def _arrow_type(delta: Any) -> Any:
    pa, _ = arrow()
    if isinstance(delta, str):
        for kind, name in _names().items():
            if name == delta:
                return kind
        raise CorruptData(f"unknown type {delta!r} in the schema of a Delta table")
    if delta["type"] == "struct":
        return pa.struct(_fields(delta))
    if delta["type"] == "array":
        element = _arrow_type(delta["elementType"])
        return pa.list_(pa.field("element", element, nullable=delta.get("containsNull", True)))
    if delta["type"] == "map":
        value = pa.field(
            "value",
            _arrow_type(delta["valueType"]),
            nullable=delta.get("valueContainsNull", True),
        )
        return pa.map_(_arrow_type(delta["keyType"]), value)
    raise CorruptData(f"unknown type {delta['type']!r} in the schema of a Delta table")


class FileStatistics(msgspec.Struct, frozen=True, rename="camel"):
    """Bounds of the values of a file. A column without a bound may have any value."""

    num_records: int | None = None
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}

    @classmethod
    def decode(cls, stats: str | None) -> Self:
        """Decode the statistics of an `add`; missing ones admit everything."""
        if stats is None:
            return cls()
        try:
            return msgspec.json.decode(stats, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptData(f"statistics of a Delta table are invalid: {error}") from error

    def encode(self) -> str:
        """Return the JSON of an `add`."""
        return msgspec.json.encode(self).decode()

    def admits(self, column: str, value: Any) -> bool:
        """Return False if no row of the file can have this value, which may be None."""
        if value is None:
            return self.null_count.get(column) != 0
        return self.admits_range(column, value, value)

    def admits_range(self, column: str, first: Any, last: Any) -> bool:
        """Return False if no row of the file can have a value from `first` to `last`."""
        nulls = self.null_count.get(column)
        if nulls is not None and nulls == self.num_records:
            return False
        lower, upper = self.min_values.get(column), self.max_values.get(column)
        return (lower is None or lower <= last) and (upper is None or first <= upper)


def stated_columns(columns: Iterable[str]) -> dict[str, str]:
    """Return the configuration of a table whose files have bounds for these columns alone.

    Without it, deltalake takes missing bounds of other columns for null, and finds no rows by them.
    """
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def file_statistics(metadata: Any, columns: Collection[str] | None = None) -> str:
    """Return the statistics of a Parquet file from its metadata, for the columns or for all."""
    footer: dict[str, list[Any]] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(metadata.num_columns):
            chunk = row_group.column(at)
            name = chunk.path_in_schema
            # Columns within others have no statistics here.
            if "." not in name and (columns is None or name in columns):
                footer.setdefault(name, []).append(chunk.statistics)
    nulls: dict[str, int] = {}
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    for name, chunks in footer.items():
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            nulls[name] = sum(chunk.null_count for chunk in chunks)
        filled = [chunk for chunk in chunks if chunk is None or chunk.num_values]
        if filled and all(chunk is not None and chunk.has_min_max for chunk in filled):
            _set(lower, name, lower_bound(min(chunk.min for chunk in filled)))
            _set(upper, name, upper_bound(max(chunk.max for chunk in filled)))
    return FileStatistics(metadata.num_rows, lower, upper, nulls).encode()


def _set(bounds: dict[str, Any], name: str, bound: Any) -> None:
    if bound is not None:
        bounds[name] = bound


def lower_bound(value: Any) -> Any:
    """Return a value for JSON that is not greater, or None if there is none."""
    if isinstance(value, str):
        return value[:STATS_STRING_CHARS]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _exact(value)


def upper_bound(value: Any) -> Any:
    """Return a value for JSON that is not less, or None if there is none."""
    if isinstance(value, str):
        end = STATS_STRING_CHARS
        while end < len(value) and value[end] == _LAST_CHARACTER:
            end += 1
        return value if end >= len(value) else value[:end] + _LAST_CHARACTER
    if isinstance(value, float):
        # The column may have NaN, which is greater.
        return None
    return _exact(value)


def _exact(value: Any) -> Any:
    if isinstance(value, bool | bytes) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return None

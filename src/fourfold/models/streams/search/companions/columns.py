"""The section `col`: values of declared fields as columns, and conditions over them.

A value is stored as its kind and, if it is a number or a string, in a column of that type. Values
that do not fit there are of the kind OTHER: conditions on them are undecided, and the message
itself decides. So the evaluation of a condition has two masks: rows that surely match, and rows
that may.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold.archive.parquet import arrow
from fourfold.content.filters import (
    And,
    Comparison,
    Exists,
    HasType,
    Membership,
    Not,
    Or,
    TextMatch,
)
from fourfold.content.json_pointer import ABSENT, is_encodable
from fourfold.models.streams.search.companions.plans import CompanionPlan

MISSING, NULL, FALSE, TRUE, NUMBER, STRING, OTHER = range(7)
EXACT_MAX: Final = 1 << 53
"""Integers up to this one are stored exactly."""
STRING_MAX: Final = 1_000
"""Characters of a string in a column."""
FEW_BYTES: Final = 3
"""Bytes per row of a column whose distinct strings are worth deciding once."""
TIME: Final = "time"
GROUP_ROWS: Final = 65_536
_TYPES: Final = {
    "null": (NULL,),
    "boolean": (FALSE, TRUE),
    "number": (NUMBER,),
    "string": (STRING,),
    "array": (),
    "object": (),
}


def encode_value(  # noqa: PLR0911 - one line for each kind
    value: Any,
) -> tuple[int, float | None, str | None]:
    """Return the kind of a value, and the number or the string."""
    kind = type(value)
    if kind is str:
        if len(value) <= STRING_MAX and is_encodable(value):
            return STRING, None, value
        return OTHER, None, None
    if kind is bool:
        return (TRUE if value else FALSE), None, None
    if kind is int:
        return (
            (NUMBER, float(value), None)
            if -EXACT_MAX <= value <= EXACT_MAX
            else (OTHER, None, None)
        )
    if kind is float:
        return NUMBER, value, None
    if value is None:
        return NULL, None, None
    return (MISSING if value is ABSENT else OTHER), None, None


class ColumnWriter:
    """Collects the values of a segment, and writes them."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._paths = len(fields)
        self._times = array("q")
        self._kinds = [array("b") for _ in fields]
        self._numbers: list[list[float | None]] = [[] for _ in fields]
        self._strings: list[list[str | None]] = [[] for _ in fields]

    def add(self, time_ms: int, values: Sequence[Any]) -> None:
        """Add the values of the next message."""
        self._times.append(time_ms)
        for at, value in enumerate(values):
            kind, number, string = encode_value(value)
            self._kinds[at].append(kind)
            self._numbers[at].append(number)
            self._strings[at].append(string)

    @property
    def times(self) -> tuple[int, int] | None:
        """The earliest and the latest time; None without messages."""
        return (min(self._times), max(self._times)) if self._times else None

    def write(self, path: Path) -> None:
        """Write the section."""
        pa, pq = arrow()
        columns: dict[str, Any] = {TIME: pa.array(self._times, pa.int64())}
        for at in range(self._paths):
            columns[f"k{at}"] = pa.array(self._kinds[at], pa.int8())
            columns[f"n{at}"] = pa.array(self._numbers[at], pa.float64())
            columns[f"s{at}"] = pa.array(self._strings[at], pa.string())
        pq.write_table(
            pa.table(columns),
            path,
            compression="zstd",
            row_group_size=GROUP_ROWS,
            write_page_checksum=True,
        )


class Masks(NamedTuple):
    """Rows that surely match, and rows that may."""

    sure: Any
    maybe: Any


FindText = Callable[[int, str], list[int]]
"""Called with a column of the full-text index and an expression; returns rows."""
OpenSection = Callable[[list[str] | None], Any]
"""Opens the section; the columns are read as numbers of distinct values."""


class ColumnReader:
    """Evaluates conditions over the columns of a segment."""

    def __init__(
        self, open_section: OpenSection, rows: int, plan: CompanionPlan, find_text: FindText | None
    ) -> None:
        self._open = open_section
        self._rows = rows
        self._columns = plan.column_paths
        self._texts = plan.text_paths
        self._find_text = find_text
        self._held: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """Return a column as an Arrow array."""
        if name not in self._held:
            chunked = self._open(None).read(columns=[name], use_threads=False).column(name)
            pa, _ = arrow()
            chunks = chunked.chunks
            self._held[name] = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        return self._held[name]

    def field(self, path: tuple[str, ...]) -> int | None:
        """Return the ordinal of a column, or None."""
        return self._columns.get(path)

    def times(self, since_ms: int | None, until_ms: int | None) -> Masks:
        """Return the rows whose time is within bounds."""
        pa, _ = arrow()
        compute, mask = pa.compute, self._all(True)
        if since_ms is not None:
            mask = compute.and_(mask, compute.greater_equal(self.column(TIME), since_ms))
        if until_ms is not None:
            mask = compute.and_(mask, compute.less_equal(self.column(TIME), until_ms))
        return Masks(mask, mask)

    def evaluate(self, condition: Any) -> Masks:
        """Return the rows that match a condition."""
        if isinstance(condition, And):
            return self._fold(condition.parts, "and_", default=True)
        if isinstance(condition, Or):
            return self._fold(condition.parts, "or_", default=False)
        if isinstance(condition, Not):
            pa, _ = arrow()
            inner = self.evaluate(condition.part)
            return Masks(pa.compute.invert(inner.maybe), pa.compute.invert(inner.sure))
        if isinstance(condition, TextMatch):
            return self._text(condition)
        if isinstance(condition, Comparison | Membership | Exists | HasType):
            at = self._columns.get(condition.path)
            if at is not None:
                return self._decided(at, self._on_column(at, condition))
        return Masks(self._all(False), self._all(True))

    def _fold(self, parts: Sequence[Any], name: str, *, default: bool) -> Masks:
        pa, _ = arrow()
        combine = getattr(pa.compute, name)
        sure = maybe = self._all(default)
        for part in parts:
            masks = self.evaluate(part)
            sure, maybe = combine(sure, masks.sure), combine(maybe, masks.maybe)
        return Masks(sure, maybe)

    def _all(self, value: bool) -> Any:
        pa, _ = arrow()
        return pa.repeat(pa.scalar(value), self._rows)

    def _text(self, condition: TextMatch) -> Masks:
        at = self._texts.get(condition.path)
        if at is None or self._find_text is None:
            return Masks(self._all(False), self._all(True))
        mask = self.mask_of(self._find_text(at, condition.query.match_expression()))
        return Masks(mask, mask)

    def mask_of(self, rows: Sequence[int]) -> Any:
        """Return the mask with some rows."""
        pa, _ = arrow()
        flags = bytearray(self._rows)
        for row in rows:
            flags[row] = 1
        numbers = pa.Array.from_buffers(pa.uint8(), self._rows, [None, pa.py_buffer(flags)])
        return numbers.cast(pa.bool_())

    def _decided(self, at: int, mask: Any) -> Masks:
        """Return a mask of known values, with the values that are not known undecided."""
        pa, _ = arrow()
        compute = pa.compute
        if not self._may_have_others(at):
            return Masks(mask, mask)
        other = compute.equal(self.column(f"k{at}"), OTHER)
        if not compute.any(other).as_py():
            return Masks(mask, mask)
        return Masks(compute.and_(mask, compute.invert(other)), compute.or_(mask, other))

    def _kind_is(self, at: int, kinds: Sequence[int]) -> Any:
        pa, _ = arrow()
        return pa.compute.is_in(self.column(f"k{at}"), value_set=pa.array(kinds, pa.int8()))

    def _on_column(self, at: int, condition: Any) -> Any:
        pa, _ = arrow()
        if isinstance(condition, Exists):
            there = pa.compute.invert(self._kind_is(at, [MISSING]))
            return there if condition.expected else pa.compute.invert(there)
        if isinstance(condition, HasType):
            return self._kind_is(at, _TYPES[condition.type])
        if isinstance(condition, Membership):
            mask = self._all(False)
            for value in condition.values:
                mask = pa.compute.or_(mask, self._equal(at, value))
            return mask
        return self._compare(at, condition.operator, condition.value)

    def _compare(  # noqa: PLR0911 - one line for each operator
        self, at: int, operator: str, operand: Any
    ) -> Any:
        pa, _ = arrow()
        compute = pa.compute
        if operator == "$eq":
            return self._equal(at, operand)
        if operator == "$ne":
            return compute.invert(self._equal(at, operand))
        if operator == "$prefix":
            return self._on_strings(at, lambda column: compute.starts_with(column, operand))
        if operator == "$contains":
            return self._on_strings(at, lambda column: compute.match_substring(column, operand))
        if isinstance(operand, bool):
            kept = [kind for kind in (FALSE, TRUE) if _ordered(operator, kind == TRUE, operand)]
            return self._kind_is(at, kept)
        function = getattr(
            compute,
            {"$gt": "greater", "$gte": "greater_equal", "$lt": "less", "$lte": "less_equal"}[
                operator
            ],
        )
        if isinstance(operand, str):
            # Strings are in the order of code points in UTF-8, too.
            return self._on_strings(at, lambda column: function(column, pa.scalar(operand)))
        bound = _as_float(operand)
        if bound is None:
            return self._by_value(at, lambda value: _ordered(operator, value, operand))
        return compute.fill_null(function(self.column(f"n{at}"), pa.scalar(bound)), False)

    def _equal(self, at: int, operand: Any) -> Any:
        pa, _ = arrow()
        compute = pa.compute
        if operand is None or isinstance(operand, bool):
            return self._kind_is(at, [NULL if operand is None else TRUE if operand else FALSE])
        if isinstance(operand, str):
            return self._on_strings(at, lambda column: compute.equal(column, pa.scalar(operand)))
        if isinstance(operand, int | float):
            bound = _as_float(operand)
            if bound is None:
                return self._by_value(at, lambda value: bool(value == operand))
            return compute.fill_null(compute.equal(self.column(f"n{at}"), pa.scalar(bound)), False)
        return self._all(False)

    def _on_strings(self, at: int, function: Callable[[Any], Any]) -> Any:
        """Return the strings of a column for which a function of Arrow is true."""
        pa, _ = arrow()
        name = f"s{at}"
        if name not in self._held and self._has_few_strings(name):
            self._held[f"{name}?"] = self._open([name]).read(columns=[name], use_threads=False)
        numbered = self._held.get(f"{name}?")
        if numbered is None:
            return pa.compute.fill_null(function(self.column(name)), False)
        # Each distinct string is decided once.
        masks = [
            pa.compute.fill_null(function(chunk.dictionary).take(chunk.indices), False)
            for chunk in numbered.column(name).chunks
        ]
        return masks[0] if len(masks) == 1 else pa.concat_arrays(masks)

    def _has_few_strings(self, name: str) -> bool:
        """Return True if distinct strings are few, by the bytes that a row has on average."""
        return all(
            chunk.has_dictionary_page and chunk.total_uncompressed_size <= FEW_BYTES * self._rows
            for chunk in self._chunks(name)
        )

    def _may_have_others(self, at: int) -> bool:
        """Return True unless statistics show that all values of a column are decided by it."""
        for chunk in self._chunks(f"k{at}"):
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max or statistics.max >= OTHER:
                return True
        return False

    def _chunks(self, name: str) -> Iterator[Any]:
        metadata = self._open(None).metadata
        place = metadata.schema.names.index(name)
        for at in range(metadata.num_row_groups):
            yield metadata.row_group(at).column(place)

    def _by_value(self, at: int, function: Callable[[float], bool]) -> Any:
        """Compare numbers with an integer that is not a float, one by one."""
        pa, _ = arrow()
        numbers = self.column(f"n{at}").to_pylist()
        return pa.array([value is not None and function(value) for value in numbers], pa.bool_())


def _as_float(value: float) -> float | None:
    """Return a number as a float if it is exactly one."""
    return float(value) if type(value) is float or -EXACT_MAX <= value <= EXACT_MAX else None


def _ordered(operator: str, left: Any, right: Any) -> bool:
    if operator == "$gt":
        return bool(left > right)
    if operator == "$gte":
        return bool(left >= right)
    return bool(left < right) if operator == "$lt" else bool(left <= right)

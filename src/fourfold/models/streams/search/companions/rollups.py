"""The sections `agg` and `mblk`: rollups of a segment.

A row is one interval and one group: the number of messages, and of each measure the number of
numbers, their sum, and the least and greatest. Values of groups are JSON text; NULL is a missing
value. Both sections have the same rows, in another order: one group over a long time is a few
pages of `mblk`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.parquet import arrow
from fourfold.content.filters import And, Comparison, Not, Or, iter_conditions
from fourfold.content.json_pointer import ABSENT, Absence
from fourfold.models.streams.search.companions.columns import EXACT_MAX
from fourfold.models.streams.search.companions.plans import PlannedRollup
from fourfold.models.streams.search.measures import (
    GROUPS_MAX,
    Accumulator,
    Measure,
    key_of_value,
    plain_number,
    too_many_groups,
)

GROUP_ROWS: Final = 4_096
HELD_ROWS: Final = 200_000
"""Rows of rollups in memory before they are added up."""
_PLAIN_GROUPS: Final = {str, int, bool, type(None), Absence}
_PARTS: Final = {"n": "sum", "sum": "sum", "low": "min", "high": "max"}
"""The columns of a measure, and how they are added up."""


class _Sums:
    __slots__ = ("count", "high", "low", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.low: float | None = None
        self.high: float | None = None

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self.low = value if self.low is None or value < self.low else self.low
        self.high = value if self.high is None or value > self.high else self.high


class RollupWriter:
    """Collects one rollup of a segment."""

    def __init__(self, rollup: PlannedRollup) -> None:
        self._interval_ms = rollup.interval_ms
        self._measures = len(rollup.measures)
        self._by = len(rollup.by)
        self._rows: dict[tuple[Any, ...], tuple[list[int], list[_Sums]]] = {}
        self.is_exact = True
        """False if a number does not fit: then the rollup is left out."""
        self.has_containers = False
        """True if an array or object is grouped like null: filters would see a difference."""

    def add(self, time_ms: int, by: Sequence[Any], measures: Sequence[Any]) -> None:
        """Add a message: the values of its groups and of its measures."""
        key = (time_ms - time_ms % self._interval_ms, *map(self._text, by))
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = ([0], [_Sums() for _ in range(self._measures)])
        row[0][0] += 1
        for sums, value in zip(row[1], measures, strict=True):
            kind = type(value)
            if kind is float or kind is int:
                if kind is int and not -EXACT_MAX <= value <= EXACT_MAX:
                    self.is_exact = False
                else:
                    sums.add(value)

    def _text(self, value: Any) -> str | None:
        if value is ABSENT:
            return None
        if isinstance(value, dict | list):
            self.has_containers = True
            return None
        try:
            return msgspec.json.encode(value).decode()
        except UnicodeEncodeError:
            return json.dumps(value)

    def table(self) -> Any:
        """Return the rows, in no order."""
        pa, _ = arrow()
        columns: dict[str, Any] = {
            "bucket": pa.array([key[0] for key in self._rows], pa.int64()),
            "count": pa.array([row[0][0] for row in self._rows.values()], pa.int64()),
        }
        for at in range(self._by):
            columns[f"by{at}"] = pa.array([key[at + 1] for key in self._rows], pa.string())
        for at in range(self._measures):
            sums = [row[1][at] for row in self._rows.values()]
            columns[f"n{at}"] = pa.array([entry.count for entry in sums], pa.int64())
            columns[f"sum{at}"] = pa.array([entry.sum for entry in sums], pa.float64())
            columns[f"low{at}"] = pa.array([entry.low for entry in sums], pa.float64())
            columns[f"high{at}"] = pa.array([entry.high for entry in sums], pa.float64())
        return pa.table(columns)

    def write(self, agg: Path, mblk: Path) -> None:
        """Write both sections."""
        _, pq = arrow()
        table = self.table()
        groups = [(f"by{at}", "ascending") for at in range(self._by)]
        time = [("bucket", "ascending")]
        for path, order in ((agg, time + groups), (mblk, groups + time)):
            pq.write_table(
                table.sort_by(order),
                path,
                compression="zstd",
                row_group_size=GROUP_ROWS,
                write_page_checksum=True,
            )


def rollup_of_columns(
    rollup: PlannedRollup,
    times: Any,
    by: Sequence[list[Any]],
    measures: Sequence[list[Any]],
) -> Any:
    """Return the rows that `RollupWriter` collects, from columns; None if only it can.

    The times are an Arrow array. Its rules for fractions as groups, arrays, objects, and numbers
    that do not fit are not here.
    """
    pa, _ = arrow()
    compute = pa.compute
    columns = {"bucket": floor_times(times, rollup.interval_ms)}
    texts = []
    for at, values in enumerate(by):
        encoded = _encode_groups(values)
        if encoded is None:
            return None
        columns[f"by{at}"] = encoded.indices
        texts.append(encoded.dictionary)
    keys = list(columns)
    wanted: list[tuple[str, str]] = []
    for at, values in enumerate(measures):
        numbers = _encode_numbers(values)
        if numbers is None:
            return None
        columns[f"m{at}"] = numbers
        wanted += [(f"m{at}", function) for function in ("count", "sum", "min", "max")]
    columns["row"] = pa.repeat(1, len(times))
    grouped = pa.table(columns).group_by(keys, use_threads=False)
    table = grouped.aggregate([("row", "sum"), *wanted])
    rows = {"bucket": table.column("bucket"), "count": table.column("row_sum")}
    for at, dictionary in enumerate(texts):
        rows[f"by{at}"] = compute.take(dictionary, table.column(f"by{at}"))
    for at in range(len(measures)):
        rows[f"n{at}"] = table.column(f"m{at}_count")
        rows[f"sum{at}"] = compute.fill_null(table.column(f"m{at}_sum"), 0.0)
        rows[f"low{at}"] = table.column(f"m{at}_min")
        rows[f"high{at}"] = table.column(f"m{at}_max")
    return pa.table(rows)


def _encode_groups(values: list[Any]) -> Any:
    """Return values as a dictionary array of JSON text, null for a missing one; None if unable."""
    pa, _ = arrow()
    try:
        encoded = _encode_texts(values)
        if encoded is not None:
            texts: list[str | None] = [_json(value) for value in encoded.dictionary.to_pylist()]
            return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))
        if not set(map(type, values)) <= _PLAIN_GROUPS:
            return None
        # True equals 1 as a key, and has another type.
        codes: dict[tuple[type, Any], int] = {}
        pairs = zip(map(type, values), values, strict=True)
        indices = pa.array([codes.setdefault(pair, len(codes)) for pair in pairs], pa.int32())
        texts = [None if value is ABSENT else _json(value) for _, value in codes]
        return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
    except UnicodeEncodeError:
        return None


def _encode_texts(values: list[Any]) -> Any:
    """Return values as a dictionary array, or None if they are not all text."""
    pa, _ = arrow()
    try:
        encoded = pa.array(values, pa.dictionary(pa.int32(), pa.string()))
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return None if encoded.null_count else encoded


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _encode_numbers(values: list[Any]) -> Any:
    """Return the numbers of a measure, null for other values; None if one does not fit."""
    pa, _ = arrow()
    kinds = set(map(type, values))
    if not kinds <= {int, float}:
        values = [value if type(value) is int or type(value) is float else None for value in values]
    try:
        numbers = pa.array(values, pa.float64())
    except (pa.ArrowInvalid, OverflowError):
        # An integer beyond `EXACT_MAX`.
        return None
    if pa.compute.all(pa.compute.is_finite(numbers)).as_py() is False:
        return None
    return numbers


class RollupUse(NamedTuple):
    """Mapping of an aggregate to a rollup that answers it."""

    ordinal: int
    by: list[int]
    """For each field of the aggregate, its place in the rollup."""
    measures: list[int]
    filter_fields: list[tuple[str, ...]] | None
    """The fields of the rollup, to filter by; None without a filter."""
    equal: tuple[int, str] | None
    """A field and its value as JSON that all rows must have."""


def choose(
    rollups: Sequence[PlannedRollup],
    fields: Sequence[str],
    groups: Accumulator,
    condition: Any,
    present: Sequence[int],
) -> RollupUse | None:
    """Return the rollup that answers an aggregate, or None.

    `present` are the rollups of a segment: the coarsest one that fits is used.
    """
    if groups.percentiles:
        return None
    paths = _paths(condition)
    if paths is None:
        return None
    for at in sorted(present, key=lambda at: -rollups[at].interval_ms):
        rollup = rollups[at]
        by = [fields[ordinal] for ordinal in rollup.by]
        measures = [fields[ordinal] for ordinal in rollup.measures]
        fits = groups.every_ms is None or groups.every_ms % rollup.interval_ms == 0
        own = [tuple(field.split(".")) for field in by]
        if (
            fits
            and set(groups.by) <= set(by)
            and set(groups.fields) <= set(measures)
            and paths <= set(own)
        ):
            return RollupUse(
                at,
                [by.index(field) for field in groups.by],
                [measures.index(field) for field in groups.fields],
                own if paths else None,
                _equality(condition, own),
            )
    return None


def _paths(condition: Any) -> set[tuple[str, ...]] | None:
    """Return the fields that a condition is about; None if it is about more than values."""
    paths: set[tuple[str, ...]] = set()
    if condition == And(()):
        return paths
    try:
        for part in iter_conditions(condition):
            if isinstance(part, And | Or | Not):
                continue
            paths.add(part.path)
    except AttributeError:
        return None
    return paths


def _equality(condition: Any, own: list[tuple[str, ...]]) -> tuple[int, str] | None:
    for part in condition.parts if isinstance(condition, And) else (condition,):
        if isinstance(part, Comparison) and part.operator == "$eq" and isinstance(part.value, str):
            return own.index(part.path), msgspec.json.encode(part.value).decode()
    return None


class RollupSums:
    """Adds up the rollups of many segments in Arrow; a group is a row.

    Values of groups are numbered, so that 1 and 1.0 are one group.
    """

    def __init__(self, groups: Accumulator) -> None:
        self._groups = groups
        self._tables: list[Any] = []
        self._held_rows = 0
        self._codes: list[dict[tuple[int, Any], int]] = [{} for _ in groups.by]
        """For each field, the numbers of its values."""
        # Bounds are read only if a measure shows them.
        self._parts = [
            ("n", "sum", "low", "high") if field in groups.bounded else ("n", "sum")
            for field in groups.fields
        ]

    def columns_of(self, use: RollupUse) -> list[str]:
        """Return the columns of a rollup that are needed."""
        by = use.by if use.filter_fields is None else range(len(use.filter_fields))
        columns = ["bucket", "count", *(f"by{at}" for at in by)]
        for at, parts in zip(use.measures, self._parts, strict=True):
            columns += [f"{part}{at}" for part in parts]
        return columns

    def add(self, use: RollupUse, table: Any, matches: Any) -> None:
        """Add the rollup of a segment."""
        pa, _ = arrow()
        if use.filter_fields is not None:
            table = _filtered(use.filter_fields, table, matches)
        every_ms = self._groups.every_ms
        columns = {"count": table.column("count")}
        if every_ms is not None:
            columns["bucket"] = floor_times(table.column("bucket").combine_chunks(), every_ms)
        for place, at in enumerate(use.by):
            columns[f"by{place}"] = self._encode(place, table.column(f"by{at}").combine_chunks())
        for place, (at, parts) in enumerate(zip(use.measures, self._parts, strict=True)):
            columns |= {f"{part}{place}": table.column(f"{part}{at}") for part in parts}
        self._tables.append(pa.table(columns))
        self._held_rows += table.num_rows
        if self._held_rows > HELD_ROWS:
            self._held_rows = self._add_up().num_rows

    def _encode(self, place: int, texts: Any) -> Any:
        """Return the numbers of values that are JSON text."""
        pa, _ = arrow()
        known = self._codes[place]
        encoded = texts.dictionary_encode(null_encoding="encode")
        codes = []
        for text in encoded.dictionary.to_pylist():
            key = key_of_value(ABSENT if text is None else json.loads(text))
            codes.append(known.setdefault(key, len(known)))
        return pa.array(codes, pa.int32()).take(encoded.indices)

    def _add_up(self) -> Any:
        """Return all groups as one table, which replaces the others."""
        pa, _ = arrow()
        table = pa.concat_tables(self._tables)
        wanted = {"count": "sum"}
        for place, parts in enumerate(self._parts):
            wanted |= {f"{part}{place}": _PARTS[part] for part in parts}
        keys = [name for name in table.column_names if name not in wanted]
        grouped = table.group_by(keys, use_threads=False).aggregate(list(wanted.items()))
        renamed = {f"{name}_{function}": name for name, function in wanted.items()}
        table = grouped.rename_columns([renamed.get(name, name) for name in grouped.column_names])
        # Without fields and intervals, nothing is a group of no messages.
        table = table.filter(pa.compute.is_valid(table.column("count")))
        if table.num_rows > GROUPS_MAX:
            raise too_many_groups()
        self._tables = [table]
        return table

    def merge(self) -> None:
        """Add what was added up to the aggregate."""
        if not self._tables:
            return
        groups, table = self._groups, self._add_up()
        lists = {name: table.column(name).to_pylist() for name in table.column_names}
        keys = [lists.get("bucket", [None] * table.num_rows)]
        for place, codes in enumerate(self._codes):
            values = list(codes)
            keys.append([values[code] for code in lists[f"by{place}"]])
        summaries = []
        for place, parts in enumerate(self._parts):
            columns = [lists[f"{part}{place}"] for part in parts]
            bounds = columns[2:] or [columns[1], columns[1]]
            summaries.append(zip(*columns[:2], *bounds, strict=True))
        groups.merge_columns(zip(*keys, strict=True), lists["count"], summaries)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the aggregate, if nothing else was added to it."""
        if not self._tables:
            return []
        pa, _ = arrow()
        groups, table = self._groups, self._add_up()
        order = [] if groups.every_ms is None else [("bucket", "ascending")]
        for place, codes in enumerate(self._codes):
            ranks = {key: rank for rank, key in enumerate(sorted(codes))}
            column = pa.array([ranks[key] for key in codes], pa.int32())
            by = table.schema.get_field_index(f"by{place}")
            ranked = column.take(table.column(by).combine_chunks())
            table = table.set_column(by, f"by{place}", ranked)
            order.append((f"by{place}", "ascending"))
        if order:
            table = table.sort_by(order)
        columns = [] if groups.every_ms is None else [table.column("bucket").to_pylist()]
        for place, codes in enumerate(self._codes):
            values = [value for _, value in sorted(codes)]
            columns.append([values[rank] for rank in table.column(f"by{place}").to_pylist()])
        columns += [self._measured(table, measure) for measure in groups.measures]
        names = groups.columns
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _measured(self, table: Any, measure: Measure) -> list[Any]:
        """Return a measure of all groups."""
        if measure.field is None:
            counts: list[Any] = table.column("count").to_pylist()
            return counts
        place = self._groups.fields.index(measure.field)
        part = {"min": "low", "max": "high"}.get(measure.function, "sum")
        values = table.column(f"{part}{place}").to_pylist()
        numbers = table.column(f"n{place}").to_pylist()
        if measure.function == "sum":
            return [
                plain_number(value) if n else 0 for value, n in zip(values, numbers, strict=True)
            ]
        if measure.function == "avg":
            values = [v / n if n else None for v, n in zip(values, numbers, strict=True)]
        return [plain_number(value) for value in values]


def _filtered(fields: list[tuple[str, ...]], table: Any, matches: Any) -> Any:
    """Return the rows whose groups match: each group is decided once."""
    pa, _ = arrow()
    columns = [table.column(f"by{at}").to_pylist() for at in range(len(fields))]
    decided: dict[tuple[str | None, ...], bool] = {}
    mask = []
    for texts in zip(*columns, strict=True):
        if texts not in decided:
            values = [ABSENT if text is None else json.loads(text) for text in texts]
            decided[texts] = matches(_message(fields, values))
        mask.append(decided[texts])
    return table.filter(pa.array(mask, pa.bool_()))


def concat_tables(tables: Sequence[Any]) -> Any:
    """Return rollups of the same plan as one table."""
    pa, _ = arrow()
    return pa.concat_tables(tables)


def floor_times(times: Any, every_ms: int) -> Any:
    """Return the begin of the interval of each time, also before 1970."""
    pa, _ = arrow()
    compute = pa.compute
    every = pa.scalar(every_ms, pa.int64())
    quotient = compute.divide(times, every)
    rest = compute.subtract(times, compute.multiply(quotient, every))
    below = compute.cast(compute.less(rest, 0), pa.int64())
    return compute.multiply(compute.subtract(quotient, below), every)


def _message(paths: list[tuple[str, ...]], values: list[Any]) -> Any:
    """Return a message with the values of the groups."""
    message: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        if value is not ABSENT:
            node = message
            for name in path[:-1]:
                node = node.setdefault(name, {})
            node[path[-1]] = value
    return message

"""Statements for fast bulk inserts, in three forms.

Rows of mixed keys are inserted by multi-row `VALUES`, in chunks with a fixed SQL text, so that
SQLite parses each only once. Rows of one key are inserted by a single
`INSERT ... SELECT ... FROM carray(?)`, which passes all values as one array. Rows that share most
columns, or count them up, use `VALUES` with one parameter per shared column and statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from fourfold.errors import InvalidInput
from fourfold.kernel.driver import carray

BULK_ROWS_PER_STATEMENT: Final = 128
BULK_VARIABLES_MAX: Final = 2_048
"""Rows and bound variables of one multi-row INSERT: more gains nothing, and long SQL text
is not cached.
"""

_VERBS = ("INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE")


def quoted(name: str) -> str:
    """Quote an identifier for SQL text."""
    if not name or "\x00" in name:
        raise InvalidInput(f"invalid name of a table or column: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def row_statements(
    table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]], verb: str = "INSERT"
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the statements, with their parameters, that insert `rows` in order.

    Full chunks share one text; the remainder is split into powers of two, so that few texts serve
    every length.
    """
    width = len(columns)
    for part in _parts(rows, _rows_per_statement(width)):
        # Check each row: two wrong widths can add up to the right number of values.
        if set(map(len, part)) != {width}:
            raise InvalidInput(f"{table}: each row must have {width} values: {', '.join(columns)}")
        yield values_statement(table, columns, len(part), verb), tuple(chain.from_iterable(part))


def filled_statements(
    template: str, rows: Sequence[tuple[Any, ...]], rest: tuple[Any, ...] = ()
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the statements, with their parameters, of a template for many rows of one width.

    `{rows}` in the template stands for the rows; `rest` are the parameters after them.
    """
    width = len(rows[0]) if rows else 1
    for part in _parts(rows, _rows_per_statement(width, len(rest))):
        if set(map(len, part)) != {width}:
            raise InvalidInput(f"each row must have {width} values")
        params = (*chain.from_iterable(part), *rest)
        yield filled_statement(template, width, len(part)), params


@lru_cache(maxsize=256)
def filled_statement(template: str, width: int, rows: int) -> str:
    """Return the template with placeholders for `rows` rows."""
    return template.format(rows=_placeholders(width, rows))


def _parts(rows: Sequence[tuple[Any, ...]], full: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    at, remaining = 0, len(rows)
    while remaining:
        size = full if remaining >= full else 1 << (remaining.bit_length() - 1)
        yield rows[at : at + size]
        at += size
        remaining -= size


def _rows_per_statement(width: int, shared: int = 0) -> int:
    """Return the number of rows of `width` values that fit beside `shared` parameters."""
    if not 0 < width + shared <= BULK_VARIABLES_MAX:
        raise InvalidInput(
            f"rows must have 1 to {BULK_VARIABLES_MAX} columns, got {width + shared}"
        )
    fitting = (BULK_VARIABLES_MAX - shared) // width
    return max(1, min(BULK_ROWS_PER_STATEMENT, fitting))


@lru_cache(maxsize=1024)
def values_statement(table: str, columns: tuple[str, ...], rows: int, verb: str = "INSERT") -> str:
    """Return an insert of `rows` rows by multi-row `VALUES`."""
    if verb not in _VERBS:
        raise InvalidInput(f"verb must be one of {', '.join(_VERBS)}, got {verb!r}")
    names = ", ".join(quoted(column) for column in columns)
    return f"{verb} INTO {quoted(table)} ({names}) VALUES {_placeholders(len(columns), rows)}"


def _placeholders(width: int, rows: int) -> str:
    return ",".join(["(" + ",".join("?" * width) + ")"] * rows)


def alike_statements(
    table: str,
    fixed: Mapping[str, Any],
    counted: Mapping[tuple[str, ...], int],
    varying: Mapping[str, Sequence[Any]],
    count: int,
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the statements, with their parameters, that insert `count` similar rows.

    Args:
        fixed: Columns with the same value in every row.
        counted: Groups of columns that count up from a first value.
        varying: Columns with one value per row.
    """
    if any(len(column) != count for column in varying.values()):
        raise InvalidInput(f"{table}: each varying column must have {count} values")
    columns = tuple(varying.values())
    names, groups, own = tuple(fixed), tuple(counted), tuple(varying)
    shared = tuple(fixed.values())
    full = _rows_per_statement(len(own) or 1, len(names) + len(groups))
    at = 0
    while at < count:
        remaining = count - at
        size = full if remaining >= full else 1 << (remaining.bit_length() - 1)
        part = [column[at : at + size] for column in columns]
        starts = tuple(start + at for start in counted.values())
        params = (*shared, *starts, *chain.from_iterable(zip(*part, strict=True)))
        yield alike_statement(table, names, groups, own, size), params
        at += size


@lru_cache(maxsize=1024)
def alike_statement(
    table: str,
    fixed: tuple[str, ...],
    counted: tuple[tuple[str, ...], ...],
    varying: tuple[str, ...],
    rows: int,
) -> str:
    """Return the statement of `alike_statements` for `rows` rows."""
    names = [*fixed, *chain.from_iterable(counted), *varying]
    same = [f"?{number}" for number in range(1, len(fixed) + 1)]
    first = len(fixed) + len(counted) + 1
    texts = []
    for row in range(rows):
        picks = list(same)
        for number, group in enumerate(counted, start=len(fixed) + 1):
            picks += [f"?{number}+{row}"] * len(group)
        start = first + row * len(varying)
        picks += [f"?{number}" for number in range(start, start + len(varying))]
        texts.append("(" + ",".join(picks) + ")")
    columns = ", ".join(quoted(name) for name in names)
    head = f"INSERT INTO {quoted(table)} ({columns})"
    return f"{head} VALUES {','.join(texts)}"


@lru_cache(maxsize=1024)
def series_statement(
    table: str, fixed: tuple[str, ...], counter: str, value: str, lengths: str | None
) -> str:
    """Return the insert of a series whose values are bound as an array."""
    names = [*fixed, counter, value]
    picks = [f"?{i + 1}" for i in range(len(fixed))]
    # The rowid of the array starts at 1.
    picks += [f"?{len(fixed) + 1} + rowid - 1", "value"]
    if lengths is not None:
        names.append(lengths)
        picks.append("octet_length(value)")
    columns = ", ".join(quoted(name) for name in names)
    array = f"carray(?{len(fixed) + 2})"
    source = f"{', '.join(picks)} FROM {array}"
    return f"INSERT INTO {quoted(table)} ({columns}) SELECT {source}"


def series_rows(
    table: str,
    fixed: Mapping[str, Any],
    counter: tuple[str, int],
    values: tuple[str, Sequence[bytes] | Sequence[str]],
    lengths: str | None,
) -> tuple[str, tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the table, columns and rows of a series whose values an array cannot hold."""
    columns = (*fixed, counter[0], values[0], *(() if lengths is None else (lengths,)))
    rows = []
    for number, value in enumerate(values[1], start=counter[1]):
        size = len(value.encode() if isinstance(value, str) else value)
        rows.append((*fixed.values(), number, value, *(() if lengths is None else (size,))))
    return table, columns, rows


def as_array(values: Sequence[bytes] | Sequence[str]) -> Any:
    """Return the values as an array for binding. All must be bytes, or all str.

    Return None if a text contains a NUL character, which would end it.
    """
    items = values if isinstance(values, tuple) else tuple(values)
    try:
        return carray(items)
    except (TypeError, ValueError) as error:
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and "\x00" in "".join(texts):
            return None
        raise InvalidInput("values of a series must be all bytes or all str") from error

"""Bulk inserts at the speed of C.

Two shapes, because two are fastest. Rows of mixed keys go in as multi-row `VALUES`, in chunks whose
SQL text is always the same, so that SQLite parses each only once. Rows of one key go in as a single
`INSERT ... SELECT ... FROM carray(?)`: the values are handed over as one array in memory and the
interpreter is not asked again until the last row is stored.

Rows of which most columns are the same, or only count up, go in as `VALUES` too, but each of those
columns is handed over once for a whole statement: a row then costs what is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel.driver import carray

_VERBS = ("INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE")


def quoted(name: str) -> str:
    """An identifier, safe inside SQL text."""
    if not name or "\x00" in name:
        raise InvalidInput(f"{name!r} cannot be the name of a table or column")
    return '"' + name.replace('"', '""') + '"'


def row_statements(
    table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]], verb: str = "INSERT"
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The statements, with their parameters, that insert `rows` in order.

    Full chunks share one text; the rest is cut into powers of two, so that a handful of texts
    serves every length.
    """
    width = len(columns)
    for part in _parts(rows, _rows_per_statement(width)):
        # Each row is looked at: two wrong widths can add up to the right number of values.
        if set(map(len, part)) != {width}:
            raise InvalidInput(f"{table}: each row must have {width} values: {', '.join(columns)}")
        yield values_statement(table, columns, len(part), verb), tuple(chain.from_iterable(part))


def filled_statements(
    template: str, rows: Sequence[tuple[Any, ...]], rest: tuple[Any, ...] = ()
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The statements, with their parameters, of a template with `{rows}` where it takes the values
    of many rows of one width; `rest` are the parameters behind them.
    """
    width = len(rows[0]) if rows else 1
    for part in _parts(rows, _rows_per_statement(width, len(rest))):
        if set(map(len, part)) != {width}:
            raise InvalidInput(f"each row must have {width} values")
        params = (*chain.from_iterable(part), *rest)
        yield filled_statement(template, width, len(part)), params


@lru_cache(maxsize=256)
def filled_statement(template: str, width: int, rows: int) -> str:
    return template.format(rows=_places(width, rows))


def _parts(rows: Sequence[tuple[Any, ...]], full: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    at, left = 0, len(rows)
    while left:
        size = full if left >= full else 1 << (left.bit_length() - 1)
        yield rows[at : at + size]
        at += size
        left -= size


def _rows_per_statement(width: int, shared: int = 0) -> int:
    """How many rows of `width` values fit beside those that they share."""
    if not 0 < width + shared <= limits.BULK_VARIABLES_MAX:
        raise InvalidInput(f"cannot insert rows of {width + shared} columns")
    fitting = (limits.BULK_VARIABLES_MAX - shared) // width
    return max(1, min(limits.BULK_ROWS_PER_STATEMENT, fitting))


@lru_cache(maxsize=1024)
def values_statement(table: str, columns: tuple[str, ...], rows: int, verb: str = "INSERT") -> str:
    if verb not in _VERBS:
        raise InvalidInput(f"{verb!r} is not one of {', '.join(_VERBS)}")
    names = ", ".join(quoted(column) for column in columns)
    return f"{verb} INTO {quoted(table)} ({names}) VALUES {_places(len(columns), rows)}"


def _places(width: int, rows: int) -> str:
    return ",".join(["(" + ",".join("?" * width) + ")"] * rows)


def alike_statements(
    table: str,
    fixed: Mapping[str, Any],
    counted: Mapping[tuple[str, ...], int],
    varying: Mapping[str, Sequence[Any]],
    count: int,
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The statements, with their parameters, that insert `count` rows which have the values of
    `fixed`, count up from those of `counted`, and differ in `varying`.
    """
    if any(len(column) != count for column in varying.values()):
        raise InvalidInput(f"{table}: each varying column must have {count} values")
    columns = tuple(varying.values())
    names, groups, own = tuple(fixed), tuple(counted), tuple(varying)
    shared = tuple(fixed.values())
    full = _rows_per_statement(len(own) or 1, len(names) + len(groups))
    at = 0
    while at < count:
        left = count - at
        size = full if left >= full else 1 << (left.bit_length() - 1)
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
    names = [*fixed, counter, value]
    picks = [f"?{i + 1}" for i in range(len(fixed))]
    # The array's own rowid starts at 1.
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
    """The rows of a series one by one, for values that an array cannot carry."""
    columns = (*fixed, counter[0], values[0], *(() if lengths is None else (lengths,)))
    rows = []
    for number, value in enumerate(values[1], start=counter[1]):
        size = len(value.encode() if isinstance(value, str) else value)
        rows.append((*fixed.values(), number, value, *(() if lengths is None else (size,))))
    return table, columns, rows


def as_array(values: Sequence[bytes] | Sequence[str]) -> Any:
    """The values as SQLite's array binding. All must be of one type: bytes or str.

    None when a text holds a NUL character, where the array's strings would end.
    """
    items = values if isinstance(values, tuple) else tuple(values)
    try:
        return carray(items)
    except (TypeError, ValueError) as error:
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and "\x00" in "".join(texts):
            return None
        raise InvalidInput("a series takes values that are all bytes or all str") from error

"""External merge sort of rows of archive tables, in bounded memory.

Tables are sorted into runs on disk, and runs are merged batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.table_versions import RowOrder

COMPACT_SORT_BYTES: Final = 64 * limits.MIB
"""Decoded rows that are sorted at once."""
COMPACT_RUNS_MAX: Final = 16
"""Runs that are merged at once."""
COMPACT_BATCH_ROWS: Final = 8_192

Place: TypeAlias = tuple[tuple[bool, Any], ...]
"""Values of a row in the columns of the order; nulls come last."""


def sort_table(table: Any, order: RowOrder) -> Any:
    """Return a table in order; rows that are equal in it stay in theirs."""
    pa, _ = arrow()
    keys = [(name, "ascending") for name in order.columns]
    return table.take(pa.compute.sort_indices(table, sort_keys=keys))


def merge_runs(runs: Sequence[Iterator[Any]], order: RowOrder) -> Iterator[Any]:
    """Merge sorted runs of tables into one; at equal places the earlier run comes first."""
    pa, _ = arrow()
    buffers: list[Any] = [next(run, None) for run in runs]
    while any(buffer is not None for buffer in buffers):
        open_ = [at for at, buffer in enumerate(buffers) if buffer is not None]
        bound = min(place_of(buffers[at], -1, order) for at in open_)
        parts = []
        for at in open_:
            end = _count_until(buffers[at], bound, order)
            parts.append(buffers[at].slice(0, end))
            buffers[at] = buffers[at].slice(end)
            if not buffers[at].num_rows:
                buffers[at] = next(runs[at], None)
        yield sort_table(pa.concat_tables(parts), order)


def place_of(table: Any, at: int, order: RowOrder) -> Place:
    """Return the place of a row in the order."""
    values = (table.column(name)[at].as_py() for name in order.columns)
    return tuple((value is None, value) for value in values)


def group_of(table: Any, at: int, order: RowOrder) -> Place:
    """Return the place of all versions of a row, with values that JSON can have."""
    # Hexadecimal digits have the order of the bytes.
    return tuple(
        (is_null, value.hex() if isinstance(value, bytes) else value)
        for is_null, value in place_of(table, at, order)[:-1]
    )


def _count_until(table: Any, bound: Place, order: RowOrder) -> int:
    """Return the number of rows of a sorted table that are not after a place."""
    low, high = 0, table.num_rows
    while low < high:
        middle = (low + high) // 2
        if place_of(table, middle, order) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


class OrderedRows:
    """Tables in order, read up to a place at a time."""

    def __init__(self, tables: Iterator[Any], order: RowOrder) -> None:
        self._tables = tables
        self._order = order
        self._next: Any = next(tables, None)

    def has_before(self, bound: Place | None) -> bool:
        """Return True if there is a row before the group of a place; None is after all."""
        return self._next is not None and self._count_before(bound, 1) > 0

    def until(self, bound: Place | None) -> Iterator[Any]:
        """Yield the rows before the group of a place."""
        while self.has_before(bound):
            table = self._next
            count = self._count_before(bound, table.num_rows)
            rest = table.slice(count)
            self._next = rest if rest.num_rows else next(self._tables, None)
            yield table.slice(0, count)

    def _count_before(self, bound: Place | None, high: int) -> int:
        """Return the number of rows before a place, of the first `high` ones."""
        low = high if bound is None else 0
        while bound is not None and low < high:
            middle = (low + high) // 2
            if group_of(self._next, middle, self._order) < bound:
                low = middle + 1
            else:
                high = middle
        return low


class RunSorter:
    """Sorts tables into runs in a folder, and merges them."""

    def __init__(self, folder: Path, order: RowOrder, schema: Any) -> None:
        self._folder = folder
        self._order = order
        self._schema = schema
        self._tables: list[Any] = []
        self._held = 0
        self._paths: list[Path] = []
        self._count = 0

    def add(self, table: Any) -> None:
        """Add rows in any order."""
        self._tables.append(table)
        self._held += table.nbytes
        if self._held >= COMPACT_SORT_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._tables:
            return
        pa, _ = arrow()
        table = sort_table(pa.concat_tables(self._tables), self._order)
        self._tables, self._held = [], 0
        self._paths.append(self._write(iter([table])))

    def _write(self, tables: Iterator[Any]) -> Path:
        pa, _ = arrow()
        self._count += 1
        path = self._folder / f"run-{self._count:06d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, self._schema) as writer:
            for table in tables:
                writer.write_table(table, max_chunksize=COMPACT_BATCH_ROWS)
        return path

    def merged(self) -> Iterator[Any]:
        """Yield all rows in order."""
        self._flush()
        while len(self._paths) > COMPACT_RUNS_MAX:
            some, self._paths = self._paths[:COMPACT_RUNS_MAX], self._paths[COMPACT_RUNS_MAX:]
            path = self._write(merge_runs([self._read(run) for run in some], self._order))
            for run in some:
                run.unlink()
            self._paths.append(path)
        yield from merge_runs([self._read(run) for run in self._paths], self._order)

    def _read(self, path: Path) -> Iterator[Any]:
        pa, _ = arrow()
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

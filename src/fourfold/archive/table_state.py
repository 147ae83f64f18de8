"""The state of a table of a database at a point, from rows of the archive: pure functions.

The catalog gives for each database and point an interval of points. Rows of the database outside of
it do not count: those before it belong to another history, those after it to later points. Of the
rows inside, the newest of each key is the state, unless it is a deletion. Of a table that is
published as a whole, the rows of the newest point are the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fourfold.archive.publication import Row
from fourfold.archive.table_layout import CLEAR


class PointInterval(NamedTuple):
    """Rows of a database that count: those of one file, from a first to a last point."""

    file_id: str
    base: int
    point: int

    def admits(self, file_id: str, point: int) -> bool:
        """Return True if a row counts."""
        return file_id == self.file_id and self.base <= point <= self.point


def newest_of_runs(
    batches: Iterable[list[Row]], key_of: Callable[[Row], Any]
) -> Iterator[list[Row]]:
    """Yield the last row of each run of rows with the same key.

    In a file, versions of a row are adjacent, oldest first. A run may span batches.
    """
    pending: Row | None = None
    for batch in batches:
        rows: list[Row] = []
        for row in batch:
            if pending is not None and key_of(pending) != key_of(row):
                rows.append(pending)
            pending = row
        if rows:
            yield rows
    if pending is not None:
        yield [pending]


class WholeTables:
    """The newest rows of tables that are published as a whole."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, list[Row]]] = {}

    def add(self, table: str, op: str, point: int, row: Row) -> None:
        """Add a row of a table; rows of an older point than the newest are dropped."""
        newest, rows = self._newest.get(table, (-1, []))
        if point < newest:
            return
        if point > newest:
            rows = []
            self._newest[table] = point, rows
        if op != CLEAR:
            rows.append(row)

    def point(self, table: str) -> int:
        """Return the newest point of a table; -1 without rows."""
        return self._newest.get(table, (-1, []))[0]

    def items(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the tables and their rows."""
        for table, (_, rows) in self._newest.items():
            yield table, rows

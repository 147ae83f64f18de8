"""Rows of a table in Parquet files: how they are written, checked and read.

A column holds text, integers, numbers or bytes, as the database declares it; a value of another
type is damage, and is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import Row, TableColumn
from fourfold.errors import CorruptData, FourfoldError

_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


class RowFile:
    """A file of rows, read one row group at a time.

    Reading adjacent parts decodes each row group once.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._what = what
        self._starts: list[int]
        self._decoded: tuple[int, list[str], list[Row]] | None = None
        with damage(what):
            pa, pq = arrow()
            self._file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            metadata = self._file.metadata
            counts = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
            self._starts = list(accumulate(counts, initial=0))

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    def rows(self, at: int = 0, count: int | None = None) -> Iterator[tuple[list[str], list[Row]]]:
        """Yield `count` rows starting at `at` as dicts."""
        end = self.count if count is None else at + count
        if end > self.count:
            raise CorruptData(f"{self._what}: expected {end} rows, found {self.count}")
        for group, (first, next_first) in enumerate(pairwise(self._starts)):
            if first < end and next_first > at:
                names, rows = self._group(group)
                yield names, rows[max(at - first, 0) : end - first]

    def _group(self, at: int) -> tuple[list[str], list[Row]]:
        if self._decoded is None or self._decoded[0] != at:
            with damage(self._what):
                table = self._file.read_row_group(at, use_threads=False)
                lists = [column.to_pylist() for column in table.columns]
                self._decoded = at, table.column_names, list(zip(*lists, strict=True))
        return self._decoded[1], self._decoded[2]


def read_rows(data: bytes, what: str) -> Iterator[tuple[list[str], list[Row]]]:
    """Yield the rows of a file as dicts, row group by row group."""
    return RowFile(data, what).rows()


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Raise CorruptData for a file that cannot be read as rows."""
    try:
        yield
    except FourfoldError:
        raise
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what} is not a file of rows: {error}") from error


def row_size(row: Row) -> int:
    """Return the approximate size of the values of a row."""
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)


def check_values(group: list[Row], columns: Sequence[TableColumn], what: str) -> None:
    """Raise CorruptData if a value is not of the type of its column."""
    # Rows of a table with large values have more values than columns.
    for column, values in zip(columns, zip(*group, strict=True), strict=False):
        strange = set(map(type, values)) - {_TYPES[column.kind], type(None)}
        if strange:
            raise CorruptData(
                f"{what}: column {column.name} must be {column.kind}, got "
                f"{', '.join(sorted(entry.__name__ for entry in strange))}"
            )


def write_options() -> dict[str, Any]:
    """Return the options of Parquet files of rows."""
    return {
        "compression": "zstd",
        "compression_level": limits.SEGMENT_ZSTD_LEVEL,
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": limits.SEGMENT_PAGE_BYTES,
    }

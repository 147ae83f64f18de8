"""Rows of a table as Parquet files, and back.

A column holds text, integers, numbers or bytes, as the database declares it; a value of another
type is damage, and is not written. Files are written like segments: in row groups of bounded size,
under a temporary name, with checksums, then synced.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import Row, TableColumn
from fourfold.archive.segment_writer import HashingFile, group_rows
from fourfold.archive.temporary_files import put_in_place, unfinished
from fourfold.errors import CorruptData, FourfoldError
from fourfold.kernel import failpoints

PUBLISH_SEGMENT_BYTES: Final = 64 * limits.MIB
"""Approximate size of one object of a table."""

_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


class WrittenFile(NamedTuple):
    """A file of rows that is complete and on disk."""

    path: Path
    rows: int
    size_bytes: int
    digest: str


def write_rows(
    rows: Iterable[Row],
    columns: Sequence[TableColumn],
    folder: Path,
    what: str,
    named: Callable[[str], str],
) -> Iterator[WrittenFile]:
    """Write rows as files of bounded size, and yield each once it is on disk.

    Yields none for no rows. `named` returns the name of a file for its digest.
    """
    groups = group_rows(rows, row_size)
    group = next(groups, None)
    while group is not None:
        temporary = folder / f".{os.getpid()}.partial"
        with unfinished(temporary, f"rows of {what}"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written, group = _write(group, groups, columns, temporary, what)
            if failpoints.armed:
                failpoints.hit("archive.segment.built")
            final = folder / named(written.digest)
            put_in_place(temporary, final)
        if failpoints.armed:
            failpoints.hit("archive.segment.renamed")
        yield written._replace(path=final)


def _write(
    group: list[Row] | None,
    groups: Iterator[list[Row]],
    columns: Sequence[TableColumn],
    path: Path,
    what: str,
) -> tuple[WrittenFile, list[Row] | None]:
    """Write one file; return it and the first row group of the next one."""
    pa, pq = arrow()
    schema = _schema(columns)
    count = held = 0
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        hashing = HashingFile(file)
        with pq.ParquetWriter(
            pa.PythonFile(hashing, mode="w"), schema, **write_options()
        ) as writer:
            while group is not None and held < PUBLISH_SEGMENT_BYTES:
                writer.write_batch(_batch(group, columns, schema, what), row_group_size=len(group))
                count += len(group)
                held += sum(map(row_size, group))
                group = next(groups, None)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return WrittenFile(path, count, size, hashing.digest.hexdigest()), group


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


def read_table(data: bytes, what: str) -> Any:
    """Read the rows of a file as an Arrow table."""
    with damage(what):
        pa, pq = arrow()
        return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(
            use_threads=False
        )


def write_table(table: Any, folder: Path, what: str, named: Callable[[str], str]) -> WrittenFile:
    """Write an Arrow table as one file, with row groups as in `write_rows`."""
    pa, pq = arrow()
    temporary = folder / f".{os.getpid()}-{threading.get_ident()}.partial"
    rows = min(limits.SEGMENT_GROUP_ROWS, _rows_of_a_group(table))
    with unfinished(temporary, f"rows of {what}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            hashing = HashingFile(file)
            sink = pa.PythonFile(hashing, mode="w")
            with pq.ParquetWriter(sink, table.schema, **write_options()) as writer:
                writer.write_table(table, row_group_size=rows)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        digest = hashing.digest.hexdigest()
        final = folder / named(digest)
        put_in_place(temporary, final)
    return WrittenFile(final, table.num_rows, size, digest)


def _rows_of_a_group(table: Any) -> int:
    """Return the number of rows that make a row group of the intended size."""
    each = max(1, table.nbytes // max(1, table.num_rows))
    return int(max(1, limits.SEGMENT_GROUP_BYTES // each))


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


def _batch(group: list[Row], columns: Sequence[TableColumn], schema: Any, what: str) -> Any:
    pa, _ = arrow()
    check_values(group, columns, what)
    arrays = [
        pa.array(values, type=field.type)
        for values, field in zip(zip(*group, strict=True), schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


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


def _schema(columns: Sequence[TableColumn]) -> Any:
    pa, _ = arrow()
    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    return pa.schema([pa.field(column.name, kinds[column.kind]) for column in columns])


def write_options() -> dict[str, Any]:
    """Return the options of Parquet files of rows."""
    return {
        "compression": "zstd",
        "compression_level": limits.SEGMENT_ZSTD_LEVEL,
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": limits.SEGMENT_PAGE_BYTES,
    }

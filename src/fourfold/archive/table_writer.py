"""Level-0 files of archive tables: one Parquet file per table and publication.

Rows of all databases of a publication are streamed into one open file per table, in row groups of
bounded size; the rows of a database are sorted by key within a row group. A table with very many
new rows gets several files. Memory is bounded by one row group per table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.delta_actions import AddFile
from fourfold.archive.delta_schema import file_statistics
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import GONE, PublicationTable, Row, TableColumn
from fourfold.archive.publication import PUT as SEALED_PUT
from fourfold.archive.row_files import check_values, row_size, write_options
from fourfold.archive.segment_writer import HashingFile, group_rows
from fourfold.archive.table_layout import (
    CLEAR,
    DELETE,
    PUT,
    WHOLE,
    ArchiveTable,
    archive_table,
    pack,
    schema_of,
    sorted_rows,
)
from fourfold.archive.temporary_files import unfinished
from fourfold.kernel import failpoints
from fourfold.kernel.pauses import Pauses

TABLE_FILE_BYTES: Final = 256 * limits.MIB
"""Approximate size of the values in one file of an archive table."""


class TableFile(NamedTuple):
    """A complete file of an archive table on this disk."""

    path: Path
    name: str
    rows: int
    size_bytes: int
    sha256: str
    stats: str

    def add(self, modified_ms: int) -> AddFile:
        """Return the action that adds the file to its table."""
        return AddFile(
            self.name,
            self.size_bytes,
            modified_ms,
            stats=self.stats,
            tags={"sha256": self.sha256},
        )


@dataclass(slots=True)
class TableFileWriter:
    """Writes the new files of one archive table."""

    table: ArchiveTable
    schema: Any
    files: list[TableFile] = field(default_factory=list)


class RowOrigin(NamedTuple):
    """The database that rows are from."""

    prefix: str
    id_column: str
    id: str
    file_id: str


class TableWriter:
    """The open files of one publication. Close it, or call `finish`.

    While other threads write to databases of the process, it pauses between rows.
    """

    def __init__(self, folder: Path, point: int) -> None:
        self._folder = folder
        self._point = point
        self.pauses = Pauses.for_process()
        self._open: dict[str, _OpenTable] = {}

    def sink(self, origin: RowOrigin) -> DatabaseSink:
        """Return the sink for the rows of one database."""
        return DatabaseSink(self, origin, self._point)

    def write(self, table: ArchiveTable, schema: Any, rows: list[Row]) -> None:
        """Append rows to the file of a table."""
        current = self._open.get(table.name)
        if current is None:
            files = TableFileWriter(table, schema)
            current = _OpenTable(self._folder, self._point, files, self.pauses)
            self._open[table.name] = current
        current.write(schema, rows)

    def finish(self) -> list[TableFileWriter]:
        """Complete all files and return them, by the name of their table."""
        finished = []
        for name in sorted(self._open):
            table = self._open[name]
            table.close_file()
            finished.append(table.files)
        self._open.clear()
        return finished

    def close(self) -> None:
        """Close open files without completing them."""
        for table in self._open.values():
            table.abandon()
        self._open.clear()


class DatabaseSink:
    """Writes the new rows of one database into archive tables."""

    def __init__(self, writer: TableWriter, origin: RowOrigin, point: int) -> None:
        self._writer = writer
        self._origin = origin
        self._point = point
        self.rows = 0
        self.bytes = 0
        self.tables: dict[str, tuple[str, Any]] = {}
        """Name in the database, and schema, of each archive table."""

    def write(
        self,
        table: PublicationTable,
        action: str,
        columns: tuple[TableColumn, ...],
        rows: Iterable[Row],
    ) -> None:
        """Write the rows of a table; see `sealer.Sink`."""
        origin = self._origin
        target = archive_table(origin.prefix, origin.id_column, table)
        schema = schema_of(target, columns)
        self.tables[target.name] = table.name, schema
        op = {GONE: DELETE, SEALED_PUT: PUT}.get(action, WHOLE)
        width = len(schema) - len(target.fixed)
        fixed: tuple[Any, ...] = (origin.id, origin.file_id)
        if target.shared:
            fixed = (*fixed, table.name)
        if op == WHOLE and not rows:
            self._flush(target, schema, [(*fixed, CLEAR, self._point, *([None] * width))])
            return
        names = [column.name for column in columns]
        key_at = [len(target.fixed) + names.index(name) for name in target.key]
        head = (*fixed, op, self._point)
        between = self._writer.pauses.between
        for group in group_rows(between(rows), row_size):
            if op == DELETE:
                values: Iterable[Row] = _only_keys(group, key_at, len(target.fixed), width)
            else:
                check_values(group, columns, table.name)
                values = (pack(columns, row) for row in group) if target.packed else group
            made = [(*head, *row, *([None] * (width - len(row)))) for row in between(values)]
            self._flush(target, schema, sorted_rows(made, key_at))

    def _flush(self, target: ArchiveTable, schema: Any, rows: list[Row]) -> None:
        self._writer.write(target, schema, rows)
        self.rows += len(rows)
        self.bytes += sum(map(row_size, rows))


def _only_keys(group: list[Row], key_at: list[int], fixed: int, width: int) -> Iterator[Row]:
    """Yield rows with the values of their keys alone."""
    for key in group:
        row: list[Any] = [None] * width
        for at, value in zip(key_at, key, strict=True):
            row[at - fixed] = value
        yield tuple(row)


class _OpenTable:
    """An archive table with an open file."""

    def __init__(self, folder: Path, point: int, files: TableFileWriter, pauses: Pauses) -> None:
        self._folder = folder
        self._point = point
        self.files = files
        self._pauses = pauses
        self._schema = files.schema
        self._rows: list[Row] = []
        self._held = 0
        self._file: Any = None
        self._writer: Any = None
        self._hashing: Any = None
        self._written = 0

    def write(self, schema: Any, rows: list[Row]) -> None:
        if schema != self._schema:
            # Databases of two versions: each file has one schema.
            self.close_file()
            self._schema = schema
            self.files.schema = _joined(self.files.schema, schema)
        for row in self._pauses.between(rows):
            size = row_size(row)
            if self._rows and (
                self._held + size > limits.SEGMENT_GROUP_BYTES
                or len(self._rows) >= limits.SEGMENT_GROUP_ROWS
            ):
                self._write_group()
            self._rows.append(row)
            self._held += size

    def _write_group(self) -> None:
        pa, pq = arrow()
        with unfinished(self._temporary, f"rows of {self.files.table.name}"):
            if self._writer is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = self._temporary.open("wb")
                os.fchmod(self._file.fileno(), 0o600)
                self._hashing = HashingFile(self._file)
                sink = pa.PythonFile(self._hashing, mode="w")
                self._writer = pq.ParquetWriter(sink, self._schema, **write_options())
            columns = zip(zip(*self._rows, strict=True), self._schema, strict=True)
            arrays = [
                pa.array(values, type=column.type)
                for values, column in self._pauses.between(columns)
            ]
            batch = pa.record_batch(arrays, schema=self._schema)
            self._writer.write_batch(batch, row_group_size=len(self._rows))
        self._written += self._held
        self._rows, self._held = [], 0
        if self._written >= TABLE_FILE_BYTES:
            self.close_file()

    def close_file(self) -> None:
        """Complete the open file, if there is one."""
        if self._rows:
            self._write_group()
        if self._writer is None:
            return
        _, pq = arrow()
        table, temporary = self.files.table, self._temporary
        with unfinished(temporary, f"rows of {table.name}"):
            self._writer.close()
            self._file.close()
            digest = self._hashing.digest.hexdigest()
            metadata = pq.read_metadata(temporary)
            name = f"{self._point:012d}-{digest[:32]}.parquet"
            path = self._folder / f"{table.name}-{name}"
            size = temporary.stat().st_size
            temporary.rename(path)
        columns = {column.name for column in self._schema if column.name in table.stated}
        stats = file_statistics(metadata, columns)
        self.files.files.append(TableFile(path, name, metadata.num_rows, size, digest, stats))
        self._writer = self._file = self._hashing = None
        self._written = 0
        if failpoints.armed:
            failpoints.hit("archive.segment.built")

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._temporary.unlink(missing_ok=True)

    @property
    def _temporary(self) -> Path:
        return self._folder / f".{self.files.table.name}.{os.getpid()}.partial"


def joined_files(
    some: Sequence[TableFileWriter], others: Sequence[TableFileWriter]
) -> list[TableFileWriter]:
    """Return the files of two writers, by the name of their table."""
    joined = {entry.table.name: entry for entry in some}
    for entry in others:
        known = joined.setdefault(entry.table.name, entry)
        if known is not entry:
            schema = _joined(known.schema, entry.schema)
            files = [*known.files, *entry.files]
            joined[entry.table.name] = TableFileWriter(entry.table, schema, files)
    return [joined[name] for name in sorted(joined)]


def _joined(known: Any, new: Any) -> Any:
    pa, _ = arrow()
    return pa.unify_schemas([known, new])

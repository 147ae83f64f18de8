"""Files of archive tables that maintenance reads and writes, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fourfold.archive.catalog_rows import digest_tag
from fourfold.archive.delta_actions import AddFile
from fourfold.archive.delta_schema import file_statistics
from fourfold.archive.parquet import arrow
from fourfold.archive.row_files import damage, write_options
from fourfold.archive.segment_writer import HashingFile
from fourfold.archive.table_layout import OP
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_versions import RowOrder
from fourfold.archive.uploads import download_checked, put_once, upload_of_file


def read_object(
    archive: TableArchive,
    key: str,
    digest: str | None,
    path: Path,
    columns: Sequence[str] | None = None,
) -> Iterator[Any]:
    """Yield the row groups of an object, by default with all of its columns.

    The object is at `path` meanwhile. Columns that it does not have are left out.
    """
    _, pq = arrow()
    archive.retries.run(lambda: download_checked(archive.objects, key, digest, path))
    try:
        with damage(key), pq.ParquetFile(path, page_checksum_verification=True) as opened:
            names = opened.schema_arrow.names
            chosen = None if columns is None else [name for name in columns if name in names]
            for number in range(opened.num_row_groups):
                yield opened.read_row_group(number, columns=chosen, use_threads=False)
    finally:
        path.unlink(missing_ok=True)


def read_file(
    archive: TableArchive,
    table: str,
    file: AddFile,
    folder: Path,
    columns: Sequence[str] | None = None,
) -> Iterator[Any]:
    """Yield the row groups of a file of a table."""
    key = archive.log(table).key(file.path)
    yield from read_object(archive, key, digest_tag(file, key), folder / file.path, columns)


class NewFile:
    """A file of a table that is being written."""

    def __init__(self, path: Path, schema: Any) -> None:
        pa, pq = arrow()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._schema = schema
        self._file = path.open("wb")
        self._hashing = HashingFile(self._file)
        sink = pa.PythonFile(self._hashing, mode="w")
        self._writer = pq.ParquetWriter(sink, schema, **write_options())

    def write(self, table: Any) -> None:
        """Write a row group."""
        self._writer.write_table(table, row_group_size=table.num_rows)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def upload(
        self,
        archive: TableArchive,
        table: str,
        order: RowOrder,
        *,
        point: int,
        now_ms: int,
        tags: Mapping[str, str | None],
    ) -> AddFile:
        """Complete the file and upload it; return the action that adds it to a table."""
        _, pq = arrow()
        self.close()
        digest, size = self._hashing.digest.hexdigest(), self._path.stat().st_size
        name = f"{point:012d}-{digest[:32]}.parquet"
        stated = {*order.columns, OP} & set(self._schema.names)
        stats = file_statistics(pq.read_metadata(self._path), stated)
        upload = upload_of_file(archive.log(table).key(name), self._path, size, digest)
        put_once(archive.objects, upload, archive.retries)
        self._path.unlink()
        every = {**tags, "sha256": digest}
        return AddFile(name, size, now_ms, data_change=False, stats=stats, tags=every)

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
        self._file.close()

"""Files of archive tables, read a row group at a time.

A file is downloaded once into a folder of bounded size, and its digest is checked. Row groups that
cannot have rows of the database are skipped by their statistics. The row group that was read last
is kept for each file, because databases are restored in the order in which their rows are stored.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.catalog_rows import digest_tag
from fourfold.archive.delta_actions import AddFile, Snapshot
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import Row
from fourfold.archive.row_files import damage
from fourfold.archive.table_layout import FILE_ID, POINT, table_prefix
from fourfold.archive.table_state import PointInterval
from fourfold.archive.uploads import download_checked
from fourfold.errors import CorruptData
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

RESTORE_CACHE_BYTES: Final = 4 * limits.GIB
"""Size of the folder with downloaded files while a store is restored."""
RESTORE_GROUPS: Final = 64
"""Row groups that are kept decoded."""


class RowBatch(NamedTuple):
    """Rows of one row group, without those that do not count."""

    columns: list[str]
    rows: list[Row]


class TableReader:
    """Reads archive tables at the versions that a commit of the catalog names."""

    def __init__(
        self, objects: ObjectStore, tables: dict[str, int], folder: Path, retries: Retries
    ) -> None:
        self._objects = objects
        self._tables = tables
        self._retries = retries
        self._snapshots: dict[str, Snapshot] = {}
        self._stats: dict[str, list[tuple[int, AddFile, FileStatistics]]] = {}
        self._files = _Files(objects, folder, retries)

    def __contains__(self, table: str) -> bool:
        return table in self._tables

    def snapshot(self, table: str) -> Snapshot:
        """Return the state of a table."""
        if table not in self._snapshots:
            log = DeltaLog(self._objects, table_prefix(table), self._retries)
            self._snapshots[table] = log.snapshot(self._tables[table])
        return self._snapshots[table]

    def files(self, table: str, column: str, key: str, interval: PointInterval) -> list[AddFile]:
        """Return the files that may have rows of a database, in the order of their points."""
        if table not in self._tables:
            return []
        if table not in self._stats:
            known = [
                (points_of(file)[0], file, FileStatistics.decode(file.stats))
                for file in self.snapshot(table).files.values()
            ]
            self._stats[table] = sorted(known, key=lambda entry: (entry[0], entry[1].path))
        return [
            file
            for _, file, stats in self._stats[table]
            if stats.admits(column, key)
            and stats.admits_range(POINT, interval.base, interval.point)
        ]

    def batches(
        self, table: str, file: AddFile, column: str, key: str, interval: PointInterval
    ) -> Iterator[RowBatch]:
        """Yield the rows of a file that count for a database."""
        for group in self._files.groups(table, file, column, key):
            batch = _counting(group, column, key, interval)
            if batch.num_rows:
                lists = [values.to_pylist() for values in batch.columns]
                yield RowBatch(batch.column_names, list(zip(*lists, strict=True)))

    def close(self) -> None:
        """Delete downloaded files."""
        self._files.close()


def points_of(file: AddFile) -> tuple[int, int]:
    """Return the least and the greatest point of the rows of a file."""
    stats = FileStatistics.decode(file.stats)
    least, greatest = stats.min_values.get(POINT), stats.max_values.get(POINT)
    if not isinstance(least, int) or not isinstance(greatest, int):
        raise CorruptData(f"file {file.path!r} has no statistics of {POINT}")
    return least, greatest


def _counting(group: Any, column: str, key: str, interval: PointInterval) -> Any:
    pa, _ = arrow()
    compute = pa.compute
    mask = compute.and_(
        compute.and_(
            compute.equal(group[column], key), compute.equal(group[FILE_ID], interval.file_id)
        ),
        compute.and_(
            compute.greater_equal(group[POINT], interval.base),
            compute.less_equal(group[POINT], interval.point),
        ),
    )
    return group.filter(mask)


class _Files:
    """Downloaded files, the least recently used ones deleted first."""

    def __init__(self, objects: ObjectStore, folder: Path, retries: Retries) -> None:
        self._objects = objects
        self._folder = folder
        self._retries = retries
        self._opened: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._held = 0
        self._decoded: OrderedDict[tuple[str, int], Any] = OrderedDict()

    def groups(self, table: str, file: AddFile, column: str, key: str) -> Iterator[Any]:
        """Yield the row groups that may have a value, as Arrow tables."""
        name = f"{table_prefix(table)}/{file.path}"
        with damage(name):
            opened = self._open(name, file)
            metadata = opened.metadata
            at = opened.schema_arrow.get_field_index(column)
            for number in range(metadata.num_row_groups):
                stats = metadata.row_group(number).column(at).statistics
                if stats is not None and stats.has_min_max and not stats.min <= key <= stats.max:
                    continue
                yield self._group(name, opened, number)

    def _group(self, name: str, opened: Any, number: int) -> Any:
        place = name, number
        if place not in self._decoded:
            self._decoded[place] = opened.read_row_group(number, use_threads=False)
            while len(self._decoded) > RESTORE_GROUPS:
                self._decoded.popitem(last=False)
        self._decoded.move_to_end(place)
        return self._decoded[place]

    def _open(self, name: str, file: AddFile) -> Any:
        if name in self._opened:
            self._opened.move_to_end(name)
            return self._opened[name][0]
        _, pq = arrow()
        path, digest = self._path(name), digest_tag(file, name)
        self._retries.run(lambda: download_checked(self._objects, name, digest, path))
        opened = pq.ParquetFile(path, page_checksum_verification=True)
        self._opened[name] = opened, file.size
        self._held += file.size
        while self._held > RESTORE_CACHE_BYTES and len(self._opened) > 1:
            old, (reader, size) = self._opened.popitem(last=False)
            reader.close()
            self._path(old).unlink(missing_ok=True)
            self._held -= size
        return opened

    def _path(self, name: str) -> Path:
        return self._folder / name.replace("/", "-")

    def close(self) -> None:
        for reader, _ in self._opened.values():
            reader.close()
        self._opened.clear()
        self._decoded.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

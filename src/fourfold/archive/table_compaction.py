"""Compaction of archive tables: many files of publications become few, sorted by key.

A publication adds one file per table (level 0). If a table has many of them, they are all merged
into level 1, whose files have disjoint ranges in the order

    <database> file_id [_table] <key> _point

and all versions of a row are in one file. A level-1 file without new rows in its range stays as it
is. Rows that no kept point needs are dropped. The rows of every kept point stay the same, so the
commit changes no data (`dataChange` is false).

Memory is bounded: row groups are sorted into runs on disk, and runs are merged batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import Action, AddFile, RemoveFile, Snapshot
from fourfold.archive.parquet import arrow
from fourfold.archive.table_files import NewFile, read_file
from fourfold.archive.table_layout import OP, PUT, STREAM_RECORDS, WHOLE, defaults_in
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_reader import points_of
from fourfold.archive.table_runs import (
    OrderedRows,
    Place,
    RunSorter,
    group_of,
    merge_runs,
    place_of,
)
from fourfold.archive.table_versions import (
    NeededRows,
    RowOrder,
    VersionFilter,
    order_of,
)
from fourfold.errors import CorruptData
from fourfold.kernel import failpoints

COMPACT_FILES_MAX: Final = 32
"""Level-0 files of a table at which it is compacted."""
COMPACT_FILE_BYTES: Final = 128 * limits.MIB
"""Size of a level-1 file, approximately."""
LEVEL: Final = "level"
FIRST: Final = "first"
"""Tags of a file: its level, and the place of its first row."""


def level_of(file: AddFile) -> int:
    """Return the level of a file."""
    return int((file.tags or {}).get(LEVEL) or 0)


def first_of(file: AddFile) -> Place:
    """Return the place of the first row of a level-1 file, without its point."""
    text = (file.tags or {}).get(FIRST)
    if text is None:
        raise CorruptData(f"file {file.path!r} has no first row in the log of its table")
    return tuple((value is None, value) for value in msgspec.json.decode(text)[:-1])


def files_of_level_0(snapshot: Snapshot) -> list[AddFile]:
    """Return the files of a table that no compaction has written."""
    return [file for file in snapshot.files.values() if level_of(file) == 0]


def may_shrink(file: AddFile, oldest: int | None) -> bool:
    """Return True if points before `oldest` are removed that alone may need rows of a file."""
    # A row after the oldest point is needed by the point that added it.
    return oldest is not None and points_of(file)[0] <= oldest


def is_due(snapshot: Snapshot, files_max: int, oldest: int | None = None) -> bool:
    """Return True if a table has many files of level 0, or rows that may be dropped."""
    if any(may_shrink(file, oldest) for file in snapshot.files.values()):
        return True
    return len(files_of_level_0(snapshot)) >= max(1, files_max)


class CompactedTable(NamedTuple):
    """A compaction of a table: the actions of its commit, and what it did."""

    table: str
    actions: list[Action]
    files: int
    """Number of files that were merged."""
    rows: int
    kept: int
    """Number of rows that kept points need."""

    @property
    def removed_files(self) -> int:
        """Number of files that are no longer in the table."""
        return sum(isinstance(action, RemoveFile) for action in self.actions)

    @property
    def added_files(self) -> int:
        """Number of new files."""
        return sum(isinstance(action, AddFile) for action in self.actions)


class Compactor:
    """Compacts one table, as the catalog names it when this is made.

    `pause` is called after each row group; if it raises, the compaction is given up.
    """

    def __init__(
        self,
        archive: TableArchive,
        table: str,
        folder: Path,
        needed: Mapping[str, NeededRows],
        *,
        oldest: int | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._archive = archive
        self._table = table
        self._log = archive.log(table)
        self._snapshot = archive.expected(table)
        self._schema = self._snapshot.schema
        self._defaults = defaults_in(self._snapshot.defined().configuration)
        self._order = order_of(self._snapshot)
        self._needed = needed
        self._oldest = oldest
        self._pause = pause
        self._folder = folder
        self._rows = 0

    def _may_shrink(self, file: AddFile) -> bool:
        return may_shrink(file, self._oldest)

    def run(self, point: int, now_ms: int) -> CompactedTable:
        """Write and upload the compacted files, and return the actions of the commit."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sorter = RunSorter(self._folder, self._order, self._schema)
        replaced = files_of_level_0(self._snapshot)
        for file in replaced:
            for table in self._read(file):
                sorter.add(table)
        rows = OrderedRows(sorter.merged(), self._order)
        writer = _LevelWriter(self, point, now_ms)
        for old, end in self._ranges():
            if old is not None and not (
                rows.has_before(end) or self._may_shrink(old) or writer.has_room_for(old)
            ):
                writer.close_file()
                continue
            parts = [rows.until(end)]
            if old is not None:
                parts = [self._read(old), *parts]
                replaced.append(old)
            self._merge(parts, writer)
        added = writer.finish()
        paths = {file.path for file in added}
        removed = [
            file.removed(now_ms, data_change=False) for file in replaced if file.path not in paths
        ]
        counts = len(replaced), self._rows, writer.rows
        return CompactedTable(self._table, [*removed, *added], *counts)

    def _ranges(self) -> Iterator[tuple[AddFile | None, Place | None]]:
        """Yield the level-1 files in order, each with the place after its range."""
        files = [file for file in self._snapshot.files.values() if level_of(file) > 0]
        if not files:
            yield None, None
            return
        files.sort(key=first_of)
        ends = [first_of(file) for file in files[1:]]
        yield from zip(files, [*ends, None], strict=True)

    def _merge(self, parts: Sequence[Iterator[Any]], writer: _LevelWriter) -> None:
        """Write the rows of one range; versions of a row are never in two of them."""
        versions = VersionFilter(self._order, self._needed)
        for table in merge_runs(parts, self._order):
            writer.write(versions.feed(table))
        rest = versions.finish()
        if rest is not None:
            writer.write(rest)

    def _read(self, file: AddFile) -> Iterator[Any]:
        """Yield the rows of a file, a row group at a time, with all columns of the table."""
        for group in read_file(self._archive, self._table, file, self._folder):
            self._rows += group.num_rows
            self._pause()
            yield with_schema(group, self._schema, self._defaults)

    def open_file(self, path: Path) -> NewFile:
        """Open a new level-1 file."""
        return NewFile(path, self._schema)

    def upload(self, file: NewFile, first: Place, point: int, now_ms: int) -> AddFile:
        """Upload a complete file and return its action."""
        text = msgspec.json.encode([value for _, value in first]).decode()
        return file.upload(
            self._archive,
            self._table,
            self._order,
            point=point,
            now_ms=now_ms,
            tags={LEVEL: "1", FIRST: text},
        )

    @property
    def order(self) -> RowOrder:
        """The order of the rows."""
        return self._order

    @property
    def folder(self) -> Path:
        """The folder of files in progress."""
        return self._folder


def with_schema(table: Any, schema: Any, defaults: Mapping[str, Any]) -> Any:
    """Return a table with all columns of a schema; missing ones have their default, or are null."""
    pa, _ = arrow()
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else _filled(table, field.type, defaults.get(field.name))
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _filled(table: Any, kind: Any, value: Any) -> Any:
    """Return a column with a value in each row that is not a deletion."""
    pa, _ = arrow()
    has_values = pa.compute.is_in(table.column(OP), value_set=pa.array([PUT, WHOLE]))
    return pa.compute.if_else(has_values, pa.scalar(value, kind), pa.scalar(None, kind))


class _LevelWriter:
    """Writes tables in order into level-1 files; all versions of a row are in one file."""

    def __init__(self, compactor: Compactor, point: int, now_ms: int) -> None:
        self._compactor = compactor
        self._point = point
        self._now_ms = now_ms
        self._pending: list[Any] = []
        self._held = self._count = 0
        self._file: NewFile | None = None
        self._first: Place = ()
        self._last: tuple[Any, ...] | None = None
        self._added: list[AddFile] = []
        self.rows = 0

    def write(self, table: Any) -> None:
        """Add rows after all others."""
        if not table.num_rows:
            return
        if self._file is not None and self._file.size >= COMPACT_FILE_BYTES:
            table = self._rotate(table)
        if table.num_rows:
            self._append(table)

    def _append(self, table: Any) -> None:
        order = self._compactor.order
        if self._file is None:
            self._count += 1
            path = self._compactor.folder / f"level-{self._count:06d}.parquet"
            self._file = self._compactor.open_file(path)
            self._first = (*group_of(table, 0, order), place_of(table, 0, order)[-1])
        self._pending.append(table)
        self._held += table.nbytes
        self.rows += table.num_rows
        self._last = place_of(table, -1, order)[:-1]
        rows = sum(part.num_rows for part in self._pending)
        if self._held >= limits.SEGMENT_GROUP_BYTES or rows >= limits.SEGMENT_GROUP_ROWS:
            self._flush()

    def _rotate(self, table: Any) -> Any:
        """Complete the file after the versions of its last row; return the rows after them."""
        order = self._compactor.order
        count = 0
        while count < table.num_rows and place_of(table, count, order)[:-1] == self._last:
            count += 1
        if count:
            self._append(table.slice(0, count))
        if count < table.num_rows:
            self.close_file()
        return table.slice(count)

    def has_room_for(self, file: AddFile) -> bool:
        """Return True if there is an open file, and the rows of another one fit into it."""
        return self._file is not None and self._file.size + file.size <= COMPACT_FILE_BYTES

    def _flush(self) -> None:
        pa, _ = arrow()
        if self._pending and self._file is not None:
            self._file.write(pa.concat_tables(self._pending))
            self._pending, self._held = [], 0

    def close_file(self) -> None:
        """Complete the open file: what follows has another range."""
        self._flush()
        if self._file is not None:
            added = self._compactor.upload(self._file, self._first, self._point, self._now_ms)
            self._added.append(added)
            self._file = None

    def finish(self) -> list[AddFile]:
        """Complete the last file; return the actions of all."""
        self.close_file()
        return self._added


def oldest_point(state: CatalogState) -> int:
    """Return the version of the oldest point; 0 without any."""
    oldest = state.oldest_point
    return 0 if oldest is None else oldest.version


def due_compaction(
    archive: TableArchive,
    folder: Path,
    files_max: int,
    pause: Callable[[], None],
    tables: Iterable[str] | None = None,
) -> Compactor | None:
    """Return the compaction of a table with many new files; None if there is none.

    Without `tables`, only those are checked whose state is in memory, such as those that were just
    published.
    """
    state = archive.catalog.state
    for name in archive.loaded() if tables is None else tables:
        if name == STREAM_RECORDS:
            continue
        if is_due(archive.expected(name), files_max):
            needed = archive.needed_rows(oldest_point(state))
            return Compactor(archive, name, folder, needed, pause=pause)
    return None


def compact_tables(
    archive: TableArchive,
    folder: Path,
    *,
    point: int,
    now_ms: int,
    oldest: int | None = None,
    files_max: int = COMPACT_FILES_MAX,
    tables: Iterable[str] | None = None,
) -> list[CompactedTable]:
    """Compact the tables with at least `files_max` new files; return what is to be committed.

    Args:
        point: The number of the commit of the catalog that will name the result.
        oldest: The oldest point that the commit keeps. Tables are then compacted if they may have
            rows that only older points need. By default all points are kept.
        tables: Names of the tables; by default all.
    """
    state = archive.catalog.state
    needed: Mapping[str, NeededRows] | None = None
    results: list[CompactedTable] = []
    for name in sorted(state.tables if tables is None else tables):
        if name == STREAM_RECORDS:
            # Streams compact their segments.
            continue
        if not is_due(archive.expected(name), files_max, oldest):
            continue
        if needed is None:
            needed = archive.needed_rows(oldest_point(state) if oldest is None else oldest)
        compactor = Compactor(archive, name, folder / name, needed, oldest=oldest)
        results.append(compactor.run(point, now_ms))
        if failpoints.armed:
            failpoints.hit("archive.tables.compacted")
    return results

"""Changes of a table of an archive, point by point: what a streaming read of it hands out.

A row of the archive has the point that published it. The rows of the points after one until another
are the same however often they are read, and whatever compaction does to the files meanwhile. So an
offset is one point, with the token of its commit:

    {"point": 41, "token": "9cbe58354a8746878f8658aba5c54341"}

A point that retention removed is `history_truncated`: rows that only it needed are gone. An archive
that has another commit at that version, or none yet, is another one: `sequence_regression`.

Rows count as they do in a restore of the last point that is read. So rows of a space that was
deleted since are left out, and a database that was published again as a whole, after a take-over or
a restore, appears again with another `_point`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_rows import CommitRow, DatabaseRow, digest_tag
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import AddFile, Snapshot
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.parquet import arrow
from fourfold.archive.row_files import damage
from fourfold.archive.table_layout import (
    FILE_ID,
    POINT,
    STREAM_RECORDS,
    defaults_in,
    table_prefix,
)
from fourfold.archive.table_reader import points_of
from fourfold.archive.uploads import download_checked
from fourfold.errors import HistoryTruncated, NotFound, SequenceRegression
from fourfold.objects import FolderStore, ObjectStore, open_objects
from fourfold.retry import Retries

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]
START: Final[Offset] = {"point": -1, "token": ""}
"""The offset before the first point."""
Interval = tuple[int, int]
"""First and last point of the rows of a database that count."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file with rows of a batch: what a worker needs to read it."""

    url: str
    key: str
    digest: str
    schema: pa.Schema
    """The columns that are read."""
    defaults: Mapping[str, Any]
    """Values of columns that the file may be older than."""
    after: int
    until: int
    intervals: Mapping[str, Interval]
    """Points of the rows that count, by the id of their database file."""


class ArchiveChanges:
    """The changes of one table. `freeze_end` fixes where the read ends."""

    def __init__(self, url: str, table: str) -> None:
        self.url = url
        self._table = table
        self._retries = Retries()
        if ":" not in url and not Path(url).is_dir():
            # It would be created.
            raise NotFound(f"{url}: folder does not exist")
        self._objects = open_objects(url)
        self._catalog = Catalog(self._objects, self._retries)
        self._snapshot: Snapshot | None = None
        self._final: int | None = None
        self._counts: dict[str, Mapping[int, int]] = {}

    def schema(self) -> pa.Schema:
        """Return the columns of the table; raise NotFound if the archive has no such table."""
        return self._files(self._refresh()).schema

    def newest_offset(self) -> Offset:
        """Return the newest point."""
        state = self._refresh()
        newest = state.newest_point
        return START if newest is None else _offset(newest)

    def freeze_end(self) -> None:
        """End the read at the newest point of now."""
        self._final = self.newest_offset()["point"]

    def end_offset(self, start: Offset, rows: int | None) -> Offset:
        """Return the end of a batch: as many points as have `rows` rows, but at least one."""
        state = self._refresh()
        _check(state, start, self.url)
        points = [
            point
            for point in state.points_after(start["point"])
            if (self._final or point.version) >= point.version
        ]
        if not points:
            return start
        if rows is None:
            return _offset(points[-1])
        counts = self._rows_by_point(state, start["point"])
        end, total = points[0], counts.get(points[0].version, 0)
        for point in points[1:]:
            total += counts.get(point.version, 0)
            if total > rows:
                break
            end = point
        return _offset(end)

    def files(self, start: Offset, end: Offset, columns: Sequence[str]) -> list[ChangedFile]:
        """Return the files with rows of the points after `start` until `end`."""
        after, until = start["point"], end["point"]
        intervals = {
            row.file_id: (row.base, row.point) for _, row in self.changed_databases(start, end)
        }
        snapshot = self._files(self._refresh())
        defaults = defaults_in(snapshot.defined().configuration)
        schema = arrow()[0].schema([snapshot.schema.field(name) for name in columns])
        found = []
        for file in snapshot.files.values():
            least, greatest = points_of(file)
            if greatest <= after or least > until:
                continue
            key = f"{table_prefix(self._table)}/{file.path}"
            digest = digest_tag(file, key)
            found.append(
                ChangedFile(self.url, key, digest, schema, defaults, after, until, intervals)
            )
        return found

    def changed_databases(self, start: Offset, end: Offset) -> Iterator[tuple[str, DatabaseRow]]:
        """Yield the names and rows of databases with points after `start` until `end`."""
        state = self._refresh()
        _check(state, start, self.url)
        _check(state, end, self.url)
        for name in state.names():
            row = state.find(name, end["point"])
            if row is not None and not row.absent and row.point > start["point"]:
                yield name, row

    def log_files(self) -> Iterable[AddFile]:
        """Return the files of the table."""
        return self._files(self._refresh()).files.values()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of all rows of a small table, whether or not they count."""
        version = self._refresh().tables.get(table)
        if version is None:
            return
        log = DeltaLog(self._objects, table_prefix(table), self._retries)
        for file in log.snapshot(version).files.values():
            key = f"{table_prefix(table)}/{file.path}"
            with opened_file(self._objects, key, digest_tag(file, key)) as opened:
                yield opened.read(columns=list(columns))

    def _refresh(self) -> CatalogState:
        state = self._catalog.refresh()
        if not state.snapshot.exists:
            raise NotFound(
                f"{self.url}: not an archive with tables",
                hint="Publish a store to it: `fourfold publish ROOT --objects URL`.",
            )
        return state

    def _files(self, state: CatalogState) -> Snapshot:
        """Return the files of the table at the version that the catalog names."""
        version = state.tables.get(self._table)
        if version is None or self._table == STREAM_RECORDS:
            names = ", ".join(sorted(set(state.tables) - {STREAM_RECORDS}))
            raise NotFound(
                f"{self.url}: unknown archive table {self._table!r}", hint=f"Tables: {names}."
            )
        if self._snapshot is None or self._snapshot.version != version:
            log = DeltaLog(self._objects, table_prefix(self._table), self._retries)
            self._snapshot = log.snapshot(version)
        return self._snapshot

    def _rows_by_point(self, state: CatalogState, after: int) -> dict[int, int]:
        """Return how many rows points after one have, whether or not they count."""
        counts: dict[int, int] = {}
        files = self._files(state).files.values()
        known = {file.path: self._counts_of(file) for file in files if points_of(file)[1] > after}
        self._counts = known
        for file_counts in known.values():
            for point, count in file_counts.items():
                counts[point] = counts.get(point, 0) + count
        return counts

    def _counts_of(self, file: AddFile) -> Mapping[int, int]:
        if file.path in self._counts:
            return self._counts[file.path]
        least, greatest = points_of(file)
        rows = FileStatistics.decode(file.stats).num_records
        if least == greatest and rows is not None:
            return {least: rows}
        key = f"{table_prefix(self._table)}/{file.path}"
        with opened_file(self._objects, key, digest_tag(file, key)) as opened:
            points = opened.read(columns=[POINT]).column(POINT).to_pylist()
        return Counter(points)


def read_changes(file: ChangedFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch that are in a file, one row group at a time."""
    with opened_file(open_objects(file.url), file.key, file.digest) as opened:
        at = opened.schema_arrow.get_field_index(POINT)
        names = {FILE_ID, POINT, *file.schema.names} & set(opened.schema_arrow.names)
        for group in range(opened.metadata.num_row_groups):
            stats = opened.metadata.row_group(group).column(at).statistics
            is_known = stats is not None and stats.has_min_max
            if is_known and (stats.max <= file.after or stats.min > file.until):
                continue
            rows = opened.read_row_group(group, columns=sorted(names), use_threads=False)
            yield from _counting(rows, file).to_batches()


def _counting(rows: pa.Table, file: ChangedFile) -> pa.Table:
    """Return the rows of the batch, with its columns."""
    pa, _ = arrow()
    nothing = (1, 0)
    pairs = zip(rows[FILE_ID].to_pylist(), rows[POINT].to_pylist(), strict=True)
    mask = []
    for file_id, point in pairs:
        base, last = file.intervals.get(file_id, nothing)
        mask.append(max(base, file.after + 1) <= point <= min(last, file.until))
    rows = rows.filter(pa.array(mask, pa.bool_()))
    columns = []
    for field in file.schema:
        if field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        else:
            default = pa.scalar(file.defaults.get(field.name), field.type)
            columns.append(pa.repeat(default, rows.num_rows))
    return pa.Table.from_arrays(columns, schema=file.schema)


@contextmanager
def opened_file(objects: ObjectStore, key: str, digest: str) -> Iterator[Any]:
    """Open a file of the archive: in a folder of objects, or downloaded and checked."""
    _, pq = arrow()
    with TemporaryDirectory(prefix="fourfold-") as folder, damage(key):
        if isinstance(objects, FolderStore):
            path = objects.path(key)
        else:
            path = Path(folder) / "file.parquet"
            Retries().run(lambda: download_checked(objects, key, digest, path))
        with pq.ParquetFile(path, page_checksum_verification=True) as opened:
            yield opened


def _offset(point: CommitRow) -> Offset:
    return {"point": point.version, "token": point.token}


def _check(state: CatalogState, offset: Offset, url: str) -> None:
    """Raise unless an offset is a point of the archive."""
    version = offset["point"]
    if version == START["point"]:
        return
    oldest = state.oldest_point
    if oldest is not None and version < oldest.version:
        raise HistoryTruncated(
            f"{url}: point {version} was removed, the oldest is {oldest.version}",
            hint="Start a new query with another checkpoint.",
        )
    known = state.commit_at(version)
    if known is None or known.token != offset["token"]:
        raise SequenceRegression(
            f"{url}: point {version} is not the one that the stream has read",
            hint="The archive is another one, or an older copy: start a new query.",
        )

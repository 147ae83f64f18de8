"""Files of the catalog: one per commit, which compaction divides and merges by size.

    000000000123-...parquet   the rows of one commit
    current-...parquet        rows of databases that were the newest of their names
    history-...parquet        rows of databases that a newer one had replaced
    points-...parquet         rows of commits

Every row of the catalog is in one file, so other readers of the table see the same rows. The newest
row of each database is in a file of a commit or in a current one, so the state of the newest point
is read without the history. Files are merged only with files of about their size, so the work of a
publication does not grow with the history.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any, Final, TypeAlias

import msgspec

from fourfold.archive.catalog_rows import catalog_schema, commits_in, databases_in, digest_tag
from fourfold.archive.delta_actions import AddFile
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import FileStatistics, file_statistics
from fourfold.archive.parquet import arrow
from fourfold.archive.row_files import write_options
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.cache import LruCache
from fourfold.errors import CorruptData
from fourfold.limits import MIB
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

Files: TypeAlias = Mapping[str, AddFile]
"""Files of the catalog by path."""
CURRENT, HISTORY, POINTS = "current", "history", "points"
CATALOG_MERGE_FILES: Final = 10
"""Files of about one size, of history or of points, that are merged."""
CATALOG_MERGE_ROWS: Final = 100_000
"""Rows of a file from which it is not merged any more."""
_CURRENT_RATIO: Final = 4
"""A current file is written again together with at least this fraction of its rows."""
_ROWS, _UNTIL = "fourfold.rows", "fourfold.until"
"""Tags of a file: which rows it has; the version from which no row of a history file is valid."""
_GROUP_ROWS: Final = 8_192
_CACHE_BYTES: Final = 32 * MIB


def kind_of(file: AddFile) -> str:
    """Return which rows a file has: `current`, `history`, `points`, or "" for those of commits."""
    return (file.tags or {}).get(_ROWS) or ""


def versions_of(file: AddFile) -> tuple[int, int]:
    """Return the least and greatest version of the rows of a file."""
    stats = FileStatistics.decode(file.stats)
    try:
        return int(stats.min_values["version"]), int(stats.max_values["version"])
    except KeyError:
        raise CorruptData(f"file {file.path!r} of the catalog has no statistics") from None


def valid_until(file: AddFile) -> int | None:
    """Return the version from which no row of a file is valid; None if some may be for ever."""
    text = (file.tags or {}).get(_UNTIL)
    return None if text is None else int(text)


def count_rows(file: AddFile) -> int:
    """Return the number of rows of a file."""
    return FileStatistics.decode(file.stats).num_records or 0


class CatalogFiles:
    """Reads and writes files of the catalog."""

    def __init__(self, objects: ObjectStore, log: DeltaLog, retries: Retries) -> None:
        self._objects = objects
        self._log = log
        self._retries = retries
        self._cache: LruCache[str, Any] = LruCache(_CACHE_BYTES, lambda table: table.nbytes)
        self._lock = threading.Lock()
        self.rows_read = 0
        self.rows_written = 0
        """Work of this process: rows of files that were read and written."""

    def read(self, file: AddFile, *, cached: bool = False) -> Any:
        """Return the rows of a file."""
        if cached:
            with self._lock:
                known = self._cache.get(file.path)
            if known is not None:
                return known
        key = self._log.key(file.path)
        data = get_checked(self._objects, key, digest_tag(file, key), self._retries)
        table = _decode(data, file.path)
        self.rows_read += table.num_rows
        if cached:
            with self._lock:
                self._cache.put(file.path, table)
        return table

    def upload(
        self, tables: Iterable[Any], name: str, tags: dict[str, str | None] | None = None
    ) -> AddFile:
        """Write rows as a file and upload it."""
        pa, pq = arrow()
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, catalog_schema(), **write_options()) as writer:
            for table in tables:
                # An empty row group would have no statistics, and so the whole file none.
                if table.num_rows:
                    writer.write_table(table, row_group_size=_GROUP_ROWS)
                    self.rows_written += table.num_rows
        data = sink.getvalue().to_pybytes()
        digest = hashlib.sha256(data).hexdigest()
        path = f"{name}-{digest[:32]}.parquet"
        put_once(self._objects, upload_of(self._log.key(path), data), self._retries)
        stats = file_statistics(pq.read_metadata(pa.BufferReader(data)), {"version", "name"})
        modified = time.time_ns() // 1_000_000
        return AddFile(
            path, len(data), modified, stats=stats, tags={"sha256": digest, **(tags or {})}
        )

    # Compaction

    def divide(
        self, files: Files, newest: Callable[[str], int | None], until: int
    ) -> dict[str, AddFile]:
        """Divide the files of commits, and merge the results with files of about their size.

        Returns the files that have the same rows.

        Args:
            files: All files by path.
            newest: Returns the version of the newest row of a name.
            until: The version of the commit, after all rows.
        """
        after = {path: file for path, file in files.items() if kind_of(file)}
        tables = [self.read(file) for path, file in files.items() if path not in after]
        current, history = _split(tables, newest)
        self._add_current(after, current, history, newest)
        self._add_tier(after, HISTORY, history, until)
        self._add_tier(after, POINTS, [commits_in(table) for table in tables], None)
        return after

    def _add_current(
        self,
        files: dict[str, AddFile],
        current: list[Any],
        history: list[Any],
        newest: Callable[[str], int | None],
    ) -> None:
        """Add a current file, with the rows of those that are not much larger."""
        total = sum(table.num_rows for table in current)
        for file in sorted(_of_kind(files, CURRENT), key=count_rows):
            if count_rows(file) > _CURRENT_RATIO * total:
                break
            kept, replaced = _split([self.read(file)], newest)
            current += kept
            history += replaced
            total += sum(table.num_rows for table in kept)
            del files[file.path]
        if total:
            _put(files, self._upload_kind(current, CURRENT))

    def _add_tier(
        self, files: dict[str, AddFile], kind: str, tables: list[Any], until: int | None
    ) -> None:
        """Add rows as a file, merged with others if there are many of about its size."""
        total = sum(table.num_rows for table in tables)
        if not total:
            return
        merged: list[AddFile] = []
        while total < CATALOG_MERGE_ROWS:
            size = _size_class(total)
            same = _mergeable(files, kind, size)
            if len(same) + 1 < CATALOG_MERGE_FILES:
                break
            merged += same
            total += sum(map(count_rows, same))
            for file in same:
                del files[file.path]
        merged.sort(key=versions_of)
        older = (self.read(file) for file in merged)
        _put(files, self._upload_kind(_chain(older, tables), kind, until))

    def _upload_kind(self, tables: Iterable[Any], kind: str, until: int | None = None) -> AddFile:
        tags: dict[str, str | None] = {_ROWS: kind}
        if until is not None:
            tags[_UNTIL] = str(until)
        ordered = tables
        if kind == CURRENT:
            pa, _ = arrow()
            ordered = [pa.concat_tables(list(tables)).sort_by("name")]
        file = self.upload(ordered, kind, tags)
        return msgspec.structs.replace(file, data_change=False)

    # Retention

    def forget(self, files: Files, oldest: int) -> dict[str, AddFile]:
        """Return the files without the rows that only points before a version need.

        All newer rows stay, and of each database the newest one up to the version, unless that
        says that it is absent. The files of commits are divided before.
        """
        after: dict[str, AddFile] = {}
        rewritten: list[AddFile] = []
        for path, file in files.items():
            until, (first, last) = valid_until(file), versions_of(file)
            if (until is not None and until <= oldest) or (
                kind_of(file) == POINTS and last < oldest
            ):
                continue
            after[path] = file
            if first <= oldest:
                rewritten.append(file)
        valid = self._valid_at((file for file in rewritten if kind_of(file) != POINTS), oldest)
        for kind in (CURRENT, HISTORY, POINTS):
            same = sorted((file for file in rewritten if kind_of(file) == kind), key=versions_of)
            changed = {file.path: file for file in same if self._is_changed(file, oldest, valid)}
            if not changed:
                continue
            for path in changed:
                del after[path]
            ends = [valid_until(file) or 0 for file in changed.values()]
            until = max(ends) if kind == HISTORY else None
            kept = (_kept(self.read(file), kind, oldest, valid) for file in changed.values())
            _put(after, self._upload_kind(kept, kind, until))
        return after

    def _valid_at(self, files: Iterable[AddFile], oldest: int) -> dict[str, int]:
        """Return the version of the row of each database that is valid at a version."""
        valid: dict[str, tuple[int, bool]] = {}
        for file in files:
            table = databases_in(self.read(file).select(["kind", "name", "version", "absent"]))
            columns = (table.column(name).to_pylist() for name in ("name", "version", "absent"))
            for name, version, absent in zip(*columns, strict=True):
                if version <= oldest and version > valid.get(name, (-1, False))[0]:
                    valid[name] = version, absent
        return {name: version for name, (version, absent) in valid.items() if not absent}

    def _is_changed(self, file: AddFile, oldest: int, valid: Mapping[str, int]) -> bool:
        kept = _kept(self.read(file), kind_of(file), oldest, valid)
        return bool(kept.num_rows != count_rows(file))


def _kept(table: Any, kind: str, oldest: int, valid: Mapping[str, int]) -> Any:
    """Return the rows of a file that points from a version on need."""
    pa, _ = arrow()
    if kind == POINTS:
        return table.filter(pa.compute.greater_equal(table.column("version"), oldest))
    names, versions = table.column("name").to_pylist(), table.column("version").to_pylist()
    mask = [
        version > oldest or valid.get(name) == version
        for name, version in zip(names, versions, strict=True)
    ]
    return table.filter(pa.array(mask, pa.bool_()))


def _of_kind(files: Files, kind: str) -> list[AddFile]:
    return [file for file in files.values() if kind_of(file) == kind]


def _mergeable(files: Files, kind: str, size: int) -> list[AddFile]:
    """Return the files of a kind that are at most of a size class.

    Points are merged with those just before them only, so their files have disjoint versions.
    """
    known = sorted(_of_kind(files, kind), key=versions_of, reverse=True)
    small = [_size_class(count_rows(file)) <= size for file in known]
    end = small.index(False) if kind == POINTS and False in small else len(known)
    return list(compress(known[:end], small))


def _put(files: dict[str, AddFile], file: AddFile) -> None:
    """Add a file, unless it has no rows."""
    if count_rows(file):
        files[file.path] = file


def _split(
    tables: Iterable[Any], newest: Callable[[str], int | None]
) -> tuple[list[Any], list[Any]]:
    """Return the rows of databases that are the newest of their names, and the others."""
    pa, _ = arrow()
    current, history = [], []
    for table in map(databases_in, tables):
        names, versions = table.column("name").to_pylist(), table.column("version").to_pylist()
        mask = pa.array(
            [newest(name) == version for name, version in zip(names, versions, strict=True)],
            pa.bool_(),
        )
        current.append(table.filter(mask))
        history.append(table.filter(pa.compute.invert(mask)))
    return current, history


def _chain(first: Iterable[Any], second: list[Any]) -> Iterator[Any]:
    """Yield the first tables, then the second ones joined and sorted by version."""
    pa, _ = arrow()
    yield from first
    yield pa.concat_tables(second).sort_by("version")


def _size_class(rows: int) -> int:
    """Return the number of digits of a count."""
    return len(str(rows))


def _decode(data: bytes, what: str) -> Any:
    pa, pq = arrow()
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return file.read(use_threads=False)
    except (OSError, ValueError) as error:
        raise CorruptData(f"{what} is not a file of the catalog: {error}") from error

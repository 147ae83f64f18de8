"""State of the catalog: the newest row of each database, and older rows that are read on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from fourfold.archive.catalog_files import POINTS, kind_of, valid_until, versions_of
from fourfold.archive.catalog_rows import (
    POINT_ROW,
    CommitRow,
    DatabaseRow,
    decode_commits,
    decode_databases,
)
from fourfold.archive.delta_actions import EMPTY, AddFile, Snapshot
from fourfold.archive.parquet import arrow

ReadFile = Callable[[AddFile], Any]


class _RowsAt(NamedTuple):
    """Rows of databases as of a version, of those that changed after it."""

    at: int
    rows: dict[str, DatabaseRow]


class CatalogState:
    """The catalog at its newest version.

    In memory are the newest row of each database, and the rows of the commits that no compaction
    has divided yet. Everything else is read when it is asked for, so memory does not grow with the
    history.
    """

    def __init__(self, snapshot: Snapshot = EMPTY, read: ReadFile | None = None) -> None:
        self.snapshot = snapshot
        self._read = read
        self._newest: dict[str, DatabaseRow] = {}
        self._older: dict[str, list[DatabaseRow]] = {}
        """Rows that newer ones in memory have replaced, oldest first."""
        self._commits: list[CommitRow] = []
        """Commits in memory: those after `_divided`."""
        self._divided = EMPTY.version
        """Version up to which files are divided by their rows."""
        self._oldest: CommitRow | None = None
        self._past: _RowsAt | None = None
        self._lock = threading.Lock()

    @property
    def head(self) -> CommitRow | None:
        """The newest commit."""
        return self._commits[-1] if self._commits else None

    @property
    def version(self) -> int:
        """Version of the catalog; -1 if there is none."""
        return self.snapshot.version

    @property
    def tables(self) -> dict[str, int]:
        """Version of every archive table."""
        return {} if self.head is None else self.head.tables

    # Commits

    @property
    def commits(self) -> list[CommitRow]:
        """All commits, oldest first."""
        return self.commits_after(EMPTY.version)

    @property
    def points(self) -> list[CommitRow]:
        """Commits that are points, oldest first."""
        return [commit for commit in self.commits if commit.kind == POINT_ROW]

    def commits_after(self, version: int) -> list[CommitRow]:
        """Return the commits after a version, oldest first."""
        older: list[CommitRow] = []
        if version < self._divided:
            for file in self._point_files():
                if versions_of(file)[1] > version:
                    older += self._decoded(file)
        return [commit for commit in (*older, *self._commits) if commit.version > version]

    def points_after(self, version: int) -> list[CommitRow]:
        """Return the points after a version, oldest first."""
        return [commit for commit in self.commits_after(version) if commit.kind == POINT_ROW]

    def commit_at(self, version: int) -> CommitRow | None:
        """Return the commit with a version, or None if there is none or it was removed."""
        if version > self._divided:
            return next((commit for commit in self._commits if commit.version == version), None)
        for file in self._point_files():
            first, last = versions_of(file)
            if first <= version <= last:
                for commit in self._decoded(file):
                    if commit.version == version:
                        return commit
        return None

    @property
    def newest_point(self) -> CommitRow | None:
        """The newest point."""
        for commits in (self._commits, *map(self._decoded, reversed(self._point_files()))):
            for commit in reversed(commits):
                if commit.kind == POINT_ROW:
                    return commit
        return None

    @property
    def oldest_point(self) -> CommitRow | None:
        """The oldest point."""
        if self._oldest is None:
            self._oldest = next(
                (
                    commit
                    for commits in (*map(self._decoded, self._point_files()), self._commits)
                    for commit in commits
                    if commit.kind == POINT_ROW
                ),
                None,
            )
        return self._oldest

    def _point_files(self) -> list[AddFile]:
        """Return the files with rows of commits, oldest first."""
        files = [file for file in self.snapshot.files.values() if kind_of(file) == POINTS]
        return sorted(files, key=versions_of)

    def _decoded(self, file: AddFile) -> list[CommitRow]:
        assert self._read is not None
        commits = decode_commits(self._read(file), file.path)
        return [msgspec.structs.replace(commit, tables={}) for commit in commits]

    # Databases

    def find(self, name: str, at: int | None = None) -> DatabaseRow | None:
        """Return the row of a database at a version, by default the newest."""
        newest = self._newest.get(name)
        if newest is None or at is None or newest.version <= at:
            return newest
        if at < self._divided:
            return self._rows_at(at).get(name)
        older = reversed(self._older.get(name, []))
        return next((row for row in older if row.version <= at), None)

    def names(self) -> list[str]:
        """Return the names of all databases, sorted."""
        return sorted(self._newest)

    def newest_rows(self) -> Iterable[DatabaseRow]:
        """Return the newest row of every database."""
        return list(self._newest.values())

    def rows_after(self, version: int, oldest: int) -> Iterator[DatabaseRow]:
        """Yield all rows after a version, in no order, some more than once.

        Rows that were replaced before `oldest` may be left out.
        """
        if version < self._divided:
            for file in self._row_files():
                until = valid_until(file)
                is_replaced = until is not None and until <= oldest
                if not is_replaced and versions_of(file)[1] > version:
                    assert self._read is not None
                    for row in decode_databases(self._read(file), file.path):
                        if row.version > version:
                            yield row
        for rows in (*self._older.values(), self._newest.values()):
            for row in rows:
                if row.version > version:
                    yield row

    def _rows_at(self, at: int) -> dict[str, DatabaseRow]:
        """Return the rows as of a version of the databases that changed after it."""
        with self._lock:
            if self._past is None or self._past.at != at:
                self._past = _RowsAt(at, self._read_at(at))
            return self._past.rows

    def _read_at(self, at: int) -> dict[str, DatabaseRow]:
        rows: dict[str, DatabaseRow] = {}
        for file in self._row_files():
            until = valid_until(file)
            if versions_of(file)[0] > at or (until is not None and until <= at):
                continue
            assert self._read is not None
            for row in decode_databases(_until(self._read(file), at), file.path):
                if self._newest[row.name].version <= at:
                    continue
                known = rows.get(row.name)
                if known is None or known.version < row.version:
                    rows[row.name] = row
        return rows

    def _row_files(self) -> list[AddFile]:
        return [file for file in self.snapshot.files.values() if kind_of(file) != POINTS]

    # Changes

    def add(self, commits: Iterable[CommitRow], rows: Iterable[DatabaseRow]) -> None:
        """Add rows of newer commits."""
        for commit in sorted(commits, key=lambda commit: commit.version):
            last = self.head
            if last is None or last.version < commit.version:
                if last is not None:
                    self._commits[-1] = msgspec.structs.replace(last, tables={})
                self._commits.append(commit)
        for row in sorted(rows, key=lambda row: row.version):
            known = self._newest.get(row.name)
            if known is None or known.version < row.version:
                if known is not None and row.version > self._divided:
                    self._older.setdefault(row.name, []).append(known)
                self._newest[row.name] = row

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Set the files, and drop from memory what compaction has divided since."""
        if any(path not in snapshot.files for path in self.snapshot.files):
            self._oldest = None
        self._past = None
        self.snapshot = snapshot
        divided = [versions_of(file)[1] for file in snapshot.files.values() if kind_of(file)]
        self._divided = max(divided, default=EMPTY.version)
        self._older = {
            name: rows
            for name, rows in self._older.items()
            if name in self._newest and self._newest[name].version > self._divided
        }
        self._commits = [
            commit
            for commit in self._commits
            if commit.version > self._divided or commit is self._commits[-1]
        ]

    def forget(self, oldest: int) -> None:
        """Drop what only points before a version need."""
        self._newest = {
            name: row
            for name, row in self._newest.items()
            if not (row.absent and row.version <= oldest)
        }
        self._oldest = self._past = None


def _until(table: Any, at: int) -> Any:
    pa, _ = arrow()
    return table.filter(pa.compute.less_equal(table.column("version"), at))

"""Purge of archive tables: purged rows disappear from every file, also from those of older points.

A model declares which rows a marked row purges, and tables whose deleted rows are erased. Of a
marked row, all versions become the marked one, so an older point restores to a state in which the
purge has happened. Each file with such rows is replaced by one without them. Other rows stay as
they are, and so does the range of a compacted file.

The log of each table with marks or deletions has the point up to which they were applied, as a
transaction of the application `fourfold.purge`. `purge_problems` finds rows that should be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold.archive.delta_actions import Action, AddFile, Txn
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.parquet import arrow
from fourfold.archive.publication import Description
from fourfold.archive.table_files import NewFile, read_file
from fourfold.archive.table_layout import DELETE, FILE_ID, OP, POINT, archive_table
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_reader import points_of
from fourfold.archive.table_state import PointInterval
from fourfold.archive.table_versions import order_of
from fourfold.kernel import failpoints

PURGE_APP: Final = "fourfold.purge"

Key = tuple[Any, ...]
"""Id of a file, and the values of some columns of a row."""


class PurgeRule(NamedTuple):
    """Rows of an archive table that are purged by rows of the same or of another one."""

    source: str
    """Archive table with the marks, or with the deletions."""
    mark: str | None
    """Column that is not 0 in a marked row; None if deletions purge."""
    key: tuple[str, ...]
    target: str
    column: tuple[str, ...]
    """Columns of the target with the key."""

    @property
    def is_replaced(self) -> bool:
        """True if rows of the target are marked themselves: all versions become the marked one."""
        return self.mark is not None and self.target == self.source

    @property
    def columns(self) -> list[str]:
        """Columns of the target that are needed to find the rows."""
        marks = [self.mark] if self.is_replaced and self.mark is not None else []
        return [FILE_ID, OP, *self.column, *marks]


class PurgedTable(NamedTuple):
    """A purge of a table: the actions of its commit, and what it did."""

    table: str
    actions: list[Action]
    files: int
    rows: int
    """Number of rows that were erased or replaced."""


def rules_of(prefix: str, id_column: str, description: Description) -> list[PurgeRule]:
    """Return the rules of the databases of a model."""
    tables = {table.name: table for table in description.tables}

    def name_of(name: str) -> str:
        return archive_table(prefix, id_column, tables[name]).name

    rules = [
        PurgeRule(name_of(table.name), None, table.key, name_of(table.name), table.key)
        for table in description.tables
        if table.erase
    ]
    for purge in description.purges:
        source, key = name_of(purge.table), tables[purge.table].key
        rules.append(PurgeRule(source, purge.mark, key, name_of(purge.rows), (purge.column,)))
        rules.append(PurgeRule(source, purge.mark, key, source, key))
    return rules


def purge_tables(
    archive: TableArchive, folder: Path, rules: Sequence[PurgeRule], *, point: int, now_ms: int
) -> list[PurgedTable]:
    """Rewrite the files with purged rows; return what is to be committed.

    Args:
        point: The number of the commit of the catalog that will name the result.
    """
    known = [rule for rule in rules if rule.source in archive.catalog.state.tables]
    marks = _Marks(archive, folder)
    checked = archive.purges_checked
    found = {
        rule: marks.find(rule, after=max(checked, _applied(archive, rule.source))) for rule in known
    }
    if not any(found.values()):
        archive.purges_checked = point - 1
        return []
    results: dict[str, PurgedTable] = {}
    for table in sorted({rule.target for rule in known} | {rule.source for rule in known}):
        if table in archive.catalog.state.tables:
            erased = [(rule, found[rule]) for rule in known if rule.target == table and found[rule]]
            results[table] = _Rewriter(archive, table, folder, erased).run(point, now_ms)
    for source in {rule.source for rule in known}:
        results[source].actions.append(Txn(PURGE_APP, point))
    if failpoints.armed:
        failpoints.hit("archive.tables.purged")
    return [entry for entry in results.values() if entry.actions]


def purge_problems(
    archive: TableArchive, folder: Path, rules: Sequence[PurgeRule], table: str
) -> Iterator[str]:
    """Yield the files of a table with rows that a purge should have erased.

    Only purges that were applied count: newer ones are applied by the next maintenance.
    """
    known = [rule for rule in rules if rule.source in archive.catalog.state.tables]
    marks = _Marks(archive, folder)
    for rule in known:
        found = marks.find(rule, until=_applied(archive, rule.source))
        if rule.target != table or not found:
            continue
        for file in archive.expected(table).files.values():
            groups = read_file(archive, table, file, folder, rule.columns)
            count = sum(_is_erased(rule, found, group).count(True) for group in groups)
            if count:
                yield f"object {archive.log(table).key(file.path)!r} has {count} purged rows"


def _applied(archive: TableArchive, table: str) -> int:
    """Return the point up to which the purges of a table were applied; -1 without any."""
    txn = archive.expected(table).txns.get(PURGE_APP)
    return -1 if txn is None else txn.version


def _may_delete(file: AddFile) -> bool:
    """Return False if no row of a file is a deletion."""
    return FileStatistics.decode(file.stats).admits(OP, DELETE)


def _keys(table: Any, columns: Iterable[str]) -> list[Key]:
    return list(zip(*(table.column(name).to_pylist() for name in (FILE_ID, *columns)), strict=True))


class _Marks:
    """Finds the keys of purged rows in the state of each database at the newest point."""

    def __init__(self, archive: TableArchive, folder: Path) -> None:
        self._archive = archive
        self._folder = folder
        self._intervals: dict[str, PointInterval] = {}
        state = archive.catalog.state
        for name in state.names():
            row = state.find(name)
            if row is not None and not row.absent:
                self._intervals[row.file_id] = row.interval
        self._found: dict[tuple[str, str | None, int, int | None], dict[Key, Any]] = {}

    def find(self, rule: PurgeRule, after: int = -1, until: int | None = None) -> dict[Key, Any]:
        """Return the keys that were marked or deleted at points after one, up to another.

        The values are the rows that are marked, or the deletions.
        """
        place = rule.source, rule.mark, after, until
        if place not in self._found:
            self._found[place] = self._read(rule, after, until)
        return self._found[place]

    def _read(self, rule: PurgeRule, after: int, until: int | None) -> dict[Key, Any]:
        newest: dict[Key, tuple[int, Any]] = {}
        columns = [FILE_ID, OP, POINT, *rule.key] if rule.mark is None else None
        files = self._archive.expected(rule.source).files.values()
        new = [file for file in files if points_of(file)[1] > after]
        if rule.mark is None and not any(map(_may_delete, new)):
            return {}
        for file in new:
            for group in read_file(self._archive, rule.source, file, self._folder, columns):
                for key, point, row in self._counting(rule, group):
                    if point >= newest.get(key, (-1, None))[0]:
                        newest[key] = point, row
        return {
            key: row
            for key, (point, row) in newest.items()
            if row is not None and point > after and (until is None or point <= until)
        }

    def _counting(self, rule: PurgeRule, group: Any) -> Iterator[tuple[Key, int, Any]]:
        """Yield the rows that count: key, point, and a purged row or None."""
        rows = group.to_pylist()
        for key, row in zip(_keys(group, rule.key), rows, strict=True):
            interval = self._intervals.get(row[FILE_ID])
            if interval is None or not interval.admits(row[FILE_ID], row[POINT]):
                continue
            is_purged = row[OP] == DELETE if rule.mark is None else bool(row.get(rule.mark))
            yield key, row[POINT], (row if is_purged else None)


def _is_erased(rule: PurgeRule, found: dict[Key, Any], table: Any) -> list[bool]:
    """Return for each row whether it is to be erased, or replaced by the marked one."""
    keys = _keys(table, rule.column)
    if rule.is_replaced:
        has_marks = rule.mark in table.column_names
        marks = table.column(rule.mark).to_pylist() if has_marks else [0] * len(keys)
        return [key in found and not mark for key, mark in zip(keys, marks, strict=True)]
    # A deletion has only the key, and proves that the row was purged.
    ops = table.column(OP).to_pylist()
    return [key in found and op != DELETE for key, op in zip(keys, ops, strict=True)]


class _Rewriter:
    """Rewrites the files of a table without some rows."""

    def __init__(
        self,
        archive: TableArchive,
        table: str,
        folder: Path,
        erased: Sequence[tuple[PurgeRule, dict[Key, Any]]],
    ) -> None:
        self._archive = archive
        self._table = table
        self._folder = folder
        self._erased = erased
        self._rows = 0

    def run(self, point: int, now_ms: int) -> PurgedTable:
        actions: list[Action] = []
        files = 0
        snapshot = self._archive.expected(self._table)
        for file in snapshot.files.values():
            if self._erased and self._has_some(file):
                files += 1
                actions.append(file.removed(now_ms))
                actions += self._rewritten(file, point, now_ms)
        return PurgedTable(self._table, actions, files, self._rows)

    def _has_some(self, file: AddFile) -> bool:
        columns = sorted({name for rule, _ in self._erased for name in rule.columns})
        groups = read_file(self._archive, self._table, file, self._folder, columns)
        # All of them are read, so that the downloaded file is deleted.
        return any([self._has_erased(group) for group in groups])  # noqa: C419

    def _has_erased(self, group: Any) -> bool:
        return any(any(_is_erased(rule, found, group)) for rule, found in self._erased)

    def _rewritten(self, file: AddFile, point: int, now_ms: int) -> list[AddFile]:
        """Write a file without the erased rows; return its action, or nothing for no rows."""
        new: NewFile | None = None
        for group in read_file(self._archive, self._table, file, self._folder):
            rest = self._without(group)
            if not rest.num_rows:
                continue
            if new is None:
                new = NewFile(self._folder / "purged.parquet", group.schema)
            new.write(rest)
        if new is None:
            return []
        order = order_of(self._archive.expected(self._table))
        options: dict[str, Any] = {"point": point, "now_ms": now_ms, "tags": file.tags or {}}
        added = new.upload(self._archive, self._table, order, **options)
        return [msgspec.structs.replace(added, data_change=True)]

    def _without(self, group: Any) -> Any:
        pa, _ = arrow()
        for rule, found in self._erased:
            erased = _is_erased(rule, found, group)
            self._rows += erased.count(True)
            if rule.is_replaced:
                group = _replaced(rule, found, group, erased)
            else:
                group = group.filter(pa.array([not flag for flag in erased], pa.bool_()))
        return group


def _replaced(rule: PurgeRule, found: dict[Key, Any], group: Any, erased: list[bool]) -> Any:
    """Return rows in which older versions of a marked row have its values."""
    pa, _ = arrow()
    own = {OP, POINT}
    rows = [
        {**found[key], **{name: row[name] for name in own}} if is_old else row
        for key, row, is_old in zip(
            _keys(group, rule.column), group.to_pylist(), erased, strict=True
        )
    ]
    return pa.Table.from_pylist(rows, schema=group.schema)

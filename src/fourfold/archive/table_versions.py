"""Versions of rows in compacted archive tables: which of them kept points need.

Pure functions over Arrow tables in the order of a compacted table:

    <database> file_id [_table] <key> _point

A version is needed if a kept point reads it: the newest one of its row up to the point. A deletion
without an older version is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fourfold.archive.catalog_rows import DatabaseRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import Snapshot
from fourfold.archive.parquet import arrow
from fourfold.archive.table_layout import DELETE, FILE_ID, OP, POINT, TABLE
from fourfold.errors import CorruptData

_NEVER: Final = (1 << 63) - 1


class NeededRows(NamedTuple):
    """Rows of a database file that kept points need: those from `base` on, and of older versions
    of a row only the newest up to `point`.
    """

    base: int
    point: int


class RowOrder(NamedTuple):
    """The order of the rows of a compacted table."""

    group: tuple[str, ...]
    """Columns that the versions of a row have in common."""
    whole: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the order."""
        return (*self.group, POINT)


def needed_rows(state: CatalogState, oldest: int) -> dict[str, NeededRows]:
    """Return for each database file the rows that points from `oldest` on need."""
    return NeededRowsOf(oldest).update(state)


class NeededRowsOf:
    """The rows that points from a version on need, kept up to date without reading them again."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest
        self._version = -1
        self._valid: dict[str, DatabaseRow] = {}
        """Row of each database as of the oldest point."""
        self._later: dict[str, NeededRows] = {}

    def update(self, state: CatalogState) -> dict[str, NeededRows]:
        """Return the needed rows of each database file, after reading newer rows of the catalog."""
        for row in state.rows_after(self._version, self.oldest):
            if row.version > self.oldest:
                _include(self._later, row)
            elif (known := self._valid.get(row.name)) is None or known.version < row.version:
                self._valid[row.name] = row
        self._version = state.version
        needed = dict(self._later)
        for row in self._valid.values():
            _include(needed, row)
        return needed


def _include(needed: dict[str, NeededRows], row: DatabaseRow) -> None:
    if not row.absent:
        known = needed.get(row.file_id, NeededRows(row.base, row.point))
        needed[row.file_id] = NeededRows(min(known.base, row.base), min(known.point, row.point))


def order_of(snapshot: Snapshot) -> RowOrder:
    """Return the order of a table, from its metadata."""
    options = snapshot.defined().configuration
    try:
        table = (TABLE,) if options["fourfold.table"] == "true" else ()
        key = tuple(name for name in options["fourfold.key"].split(",") if name)
        group = (options["fourfold.name"], FILE_ID, *table, *key)
        return RowOrder(group, options["fourfold.whole"] == "true")
    except KeyError as error:
        raise CorruptData(f"archive table has no option {error}") from error


class VersionFilter:
    """Drops row versions that no kept point needs, from tables in order."""

    def __init__(self, order: RowOrder, needed: Mapping[str, NeededRows]) -> None:
        self._order = order
        self._needed = needed
        self._held: Any = None
        self._kept_before = False
        """True if an older version of the held row was kept."""

    def feed(self, table: Any) -> Any:
        """Return the kept rows, except those whose next version may follow."""
        pa, _ = arrow()
        joined = table if self._held is None else pa.concat_tables([self._held, table])
        if not joined.num_rows:
            return joined
        return self._filter(joined, joined.num_rows - self._count_held(joined))

    def finish(self) -> Any:
        """Return the kept rows of those that were held back."""
        held = self._held
        return None if held is None else self._filter(held, held.num_rows)

    def _count_held(self, table: Any) -> int:
        """Return the number of rows at the end whose next version is not known yet."""
        if not self._order.whole:
            return 1
        same = _same_as_next(table, self._order.columns).to_pylist()
        return next((n for n in range(1, len(same)) if not same[-1 - n]), len(same))

    def _filter(self, table: Any, count: int) -> Any:
        pa, _ = arrow()
        compute = pa.compute
        follows = _same_as_next(table, self._order.group)
        points = table.column(POINT).combine_chunks()
        following = self._following(table, points, follows)
        base, point = self._bounds(table.column(FILE_ID).combine_chunks())
        keep = compute.and_(compute.greater_equal(points, base), compute.greater(following, point))
        if not self._order.whole:
            keep = self._without_deletes(table, keep, follows, count)
        result = table.slice(0, count).filter(keep.slice(0, count))
        self._held = table.slice(count) if count < table.num_rows else None
        return result

    def _following(self, table: Any, points: Any, follows: Any) -> Any:
        """Return the point of the next version of each row; the maximum if there is none."""
        pa, _ = arrow()
        never = pa.array([_NEVER], pa.int64())
        if not self._order.whole:
            shifted = pa.concat_arrays([points.slice(1), never])
            return pa.compute.if_else(follows, shifted, _NEVER)
        # Several rows have the same point.
        following: list[int] = [_NEVER] * table.num_rows
        numbers, flags = points.to_pylist(), follows.to_pylist()
        for at in range(table.num_rows - 2, -1, -1):
            if flags[at]:
                is_same = numbers[at] == numbers[at + 1]
                following[at] = following[at + 1] if is_same else numbers[at + 1]
        return pa.array(following, pa.int64())

    def _bounds(self, file_ids: Any) -> tuple[Any, Any]:
        pa, _ = arrow()
        encoded = file_ids.dictionary_encode()
        missing = NeededRows(_NEVER, _NEVER)
        entries = [self._needed.get(name, missing) for name in encoded.dictionary.to_pylist()]
        base = pa.array([entry.base for entry in entries], pa.int64())
        point = pa.array([entry.point for entry in entries], pa.int64())
        return base.take(encoded.indices), point.take(encoded.indices)

    def _without_deletes(self, table: Any, keep: Any, follows: Any, count: int) -> Any:
        """Return the rows to keep without deletions that have nothing to delete."""
        pa, _ = arrow()
        compute, size = pa.compute, table.num_rows
        deletes = compute.equal(table.column(OP).combine_chunks(), DELETE)
        puts = compute.and_(keep, compute.invert(deletes)).cast(pa.int64())
        total = compute.cumulative_sum(puts)
        before = compute.subtract(total, puts)
        first = pa.concat_arrays([pa.array([True]), compute.invert(follows.slice(0, size - 1))])
        # Kept versions before the group of a row: that of the nearest start of a group.
        starts = compute.cumulative_max(compute.if_else(first, before, 0))
        older = compute.greater(before, starts)
        if self._kept_before:
            in_first = compute.equal(compute.cumulative_sum(first.cast(pa.int64())), 1)
            older = compute.or_(older, in_first)
        keep = compute.and_(keep, compute.or_(compute.invert(deletes), older))
        if count < size:
            # The held row is the last one.
            self._kept_before = bool(older[size - 1].as_py())
        return keep


def _same_as_next(table: Any, columns: Sequence[str]) -> Any:
    """Return for each row whether the next one has the same values; False for the last."""
    pa, _ = arrow()
    compute, size = pa.compute, table.num_rows
    last = pa.array([False])
    same = pa.array([True] * (size - 1), pa.bool_())
    for name in columns:
        values = table.column(name).combine_chunks()
        one, other = values.slice(0, size - 1), values.slice(1)
        equal = compute.fill_null(compute.equal(one, other), False)
        nulls = compute.and_(compute.is_null(one), compute.is_null(other))
        same = compute.and_(same, compute.or_(equal, nulls))
    return pa.concat_arrays([same, last])

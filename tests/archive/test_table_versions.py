"""Which versions of rows a compaction keeps, compared with a table that is read as a whole."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fourfold.archive import table_runs
from fourfold.archive.catalog_rows import DatabaseRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.table_layout import CLEAR, DELETE, PUT, WHOLE
from fourfold.archive.table_runs import (
    OrderedRows,
    RunSorter,
    group_of,
    merge_runs,
    sort_table,
)
from fourfold.archive.table_versions import NeededRows, RowOrder, VersionFilter, needed_rows

SCHEMA = pa.schema(
    [
        ("space", pa.string()),
        ("file_id", pa.string()),
        ("_op", pa.string()),
        ("_point", pa.int64()),
        ("id", pa.int64()),
        ("value", pa.int64()),
    ]
)
LOG = RowOrder(("space", "file_id", "id"), whole=False)
WHOLE_TABLE = RowOrder(("space", "file_id"), whole=True)
POINTS = 8

CHANGES = st.lists(
    st.tuples(st.integers(0, POINTS), st.integers(0, 3), st.none() | st.integers(0, 99)),
    max_size=14,
    unique_by=lambda change: change[:2],
)
FILES = st.dictionaries(st.sampled_from(["a", "b", "c"]), CHANGES, max_size=3)
INTERVALS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.tuples(st.integers(0, POINTS), st.integers(0, POINTS)), min_size=1, max_size=3),
)


def table_of(rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def state(rows, file_id, base, point):
    """The state of a log by its definition: the newest version of each key that counts."""
    newest = {}
    for _, name, op, at, key, value in rows:
        known = newest.get(key, (-1,))
        if name == file_id and base <= at <= point and at > known[0]:
            newest[key] = at, op, value
    return {key: value for key, (_, op, value) in newest.items() if op == PUT}


def whole_state(rows, file_id, base, point):
    """The state of a table that is published as a whole; None if it never was."""
    counted = [row for row in rows if row[1] == file_id and base <= row[3] <= point]
    newest = max((row[3] for row in counted), default=None)
    if newest is None:
        return None
    return sorted(row[5] for row in counted if row[3] == newest and row[2] != CLEAR)


def filtered(rows, order, needed, cuts):
    """The rows that a filter keeps, fed in pieces."""
    table = sort_table(table_of(rows), order)
    versions = VersionFilter(order, needed)
    ends = sorted({0, *(cut % (table.num_rows + 1) for cut in cuts), table.num_rows})
    parts = [
        versions.feed(table.slice(start, end - start)) for start, end in itertools.pairwise(ends)
    ]
    parts.append(versions.finish())
    kept = pa.concat_tables([part for part in parts if part is not None] or [table_of([])])
    return [tuple(row.values()) for row in kept.to_pylist()]


def needed_of(intervals):
    return {
        name: NeededRows(min(base for base, _ in some), min(point for _, point in some))
        for name, some in intervals.items()
    }


@given(FILES, INTERVALS, st.lists(st.integers(0, 50), max_size=5))
def test_kept_versions_have_the_state_of_every_kept_point(files, intervals, cuts):
    rows = [
        ("s", name, DELETE if value is None else PUT, point, key, value)
        for name, changes in files.items()
        for point, key, value in changes
    ]
    kept = filtered(rows, LOG, needed_of(intervals), cuts)
    assert set(kept) <= set(rows)
    assert len(kept) == len(set(kept))
    for name, some in intervals.items():
        for base, point in some:
            for later in range(point, POINTS + 1):
                assert state(kept, name, base, later) == state(rows, name, base, later)
    assert not [row for row in kept if row[1] not in intervals]


@given(CHANGES, st.lists(st.integers(0, 50), max_size=5))
def test_only_the_newest_versions_are_kept_without_older_points(changes, cuts):
    rows = [("s", "a", DELETE if v is None else PUT, p, key, v) for p, key, v in changes]
    kept = filtered(rows, LOG, {"a": NeededRows(0, POINTS)}, cuts)
    newest = state(rows, "a", 0, POINTS)
    assert {row[4]: row[5] for row in kept} == newest
    assert len(kept) == len(newest)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, POINTS)),
        st.lists(st.integers(0, 9), max_size=3),
        max_size=8,
    ),
    INTERVALS,
    st.lists(st.integers(0, 50), max_size=5),
)
def test_whole_tables_have_the_state_of_every_kept_point(contents, intervals, cuts):
    rows = []
    for (name, point), values in contents.items():
        rows += [("s", name, WHOLE, point, None, value) for value in values]
        if not values:
            rows.append(("s", name, CLEAR, point, None, None))
    kept = filtered(rows, WHOLE_TABLE, needed_of(intervals), cuts)
    for name, some in intervals.items():
        for base, point in some:
            for later in range(point, POINTS + 1):
                before = whole_state(rows, name, base, later)
                assert whole_state(kept, name, base, later) == before
    for name, some in needed_of(intervals).items():
        points = {row[3] for row in kept if row[1] == name}
        assert len([point for point in points if point <= some.point]) <= 1


def database(version, file_id="a", base=0, point=None, **options):
    return DatabaseRow(
        version, "x", "m", file_id, base, version if point is None else point, "t", **options
    )


def test_needed_rows_are_those_of_rows_that_kept_points_read():
    state_ = CatalogState()
    taken_over = database(9, "a", 0, 3)
    rows = [database(1), database(4), database(6, "b", 6), taken_over, database(12, "a", 12)]
    state_.add([], rows)
    assert needed_rows(state_, 1) == {"a": NeededRows(0, 1), "b": NeededRows(6, 6)}
    assert needed_rows(state_, 3) == {"a": NeededRows(0, 1), "b": NeededRows(6, 6)}
    assert needed_rows(state_, 4) == {"a": NeededRows(0, 3), "b": NeededRows(6, 6)}
    assert needed_rows(state_, 9) == {"a": NeededRows(0, 3)}
    assert needed_rows(state_, 12) == {"a": NeededRows(12, 12)}
    gone = CatalogState()
    gone.add([], [database(1), database(4, absent=True)])
    assert needed_rows(gone, 4) == {}
    assert needed_rows(gone, 3) == {"a": NeededRows(0, 1)}


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "é", "\uffff", "\U00010000"]),
        st.sampled_from(["f", "g"]),
        st.just(PUT),
        st.integers(0, 3),
        st.none() | st.integers(-2, 2),
        st.integers(0, 9),
    ),
    max_size=12,
)


def in_order(rows):
    def place(row):
        return (row[0], row[1], row[4] is None, row[4] or 0, row[3])

    return sorted(rows, key=place)


@given(st.lists(ROWS, max_size=5), st.integers(1, 4))
def test_merged_runs_are_in_order(runs, size):
    def batches(rows):
        table = sort_table(table_of(rows), LOG)
        return (table.slice(at, size) for at in range(0, table.num_rows, size))

    merged = [
        tuple(row.values())
        for table in merge_runs([batches(rows) for rows in runs], LOG)
        for row in table.to_pylist()
    ]
    everything = [row for rows in runs for row in rows]
    assert sorted(merged, key=repr) == sorted(everything, key=repr)
    assert [row[:5] for row in merged] == [row[:5] for row in in_order(everything)]


def test_sorter_merges_more_runs_than_it_may_open(tmp_path, monkeypatch):
    monkeypatch.setattr(table_runs, "COMPACT_SORT_BYTES", 1)
    monkeypatch.setattr(table_runs, "COMPACT_RUNS_MAX", 3)
    monkeypatch.setattr(table_runs, "COMPACT_BATCH_ROWS", 2)
    sorter = RunSorter(tmp_path, LOG, SCHEMA)
    rows = [("s", "f", PUT, n * 7 % 20, n % 3, n) for n in range(40)]
    for at in range(0, len(rows), 2):
        sorter.add(table_of(rows[at : at + 2]))
    merged = list(sorter.merged())
    assert len(list(tmp_path.iterdir())) <= 3
    assert [tuple(row.values())[:5] for table in merged for row in table.to_pylist()] == [
        row[:5] for row in in_order(rows)
    ]


@given(ROWS, ROWS, st.integers(1, 4))
def test_ordered_rows_end_before_the_group_of_a_place(rows, others, size):
    table = sort_table(table_of(rows), LOG)
    bounds = sorted({group_of(table_of([row]), 0, LOG) for row in others})
    parts = OrderedRows((table.slice(at, size) for at in range(0, table.num_rows, size)), LOG)
    after = None
    read = []
    for bound in (*bounds, None):
        has_rows = parts.has_before(bound)
        part = [tuple(row.values()) for some in parts.until(bound) for row in some.to_pylist()]
        assert has_rows == bool(part)
        for row in part:
            group = group_of(table_of([row]), 0, LOG)
            assert after is None or after <= group
            assert bound is None or group < bound
        after = bound
        read += part
    assert read == [tuple(row.values()) for row in table.to_pylist()]

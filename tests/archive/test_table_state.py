"""The state of a table at a point, compared with a table that is changed step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fourfold.archive.table_layout import CLEAR, DELETE, PUT, WHOLE
from fourfold.archive.table_state import PointInterval, WholeTables, newest_of_runs

KEYS = st.integers(0, 4)
STEPS = st.lists(
    st.dictionaries(KEYS, st.none() | st.integers(0, 9), max_size=4), min_size=1, max_size=8
)
"""Changes of each point, by key; None deletes the row."""


@given(STEPS, st.data())
def test_newest_version_of_each_key_is_the_state(steps, data):
    """Versions of all points in one file, sorted by key and point, as a compaction writes them."""
    rows = sorted(
        (key, point, DELETE if value is None else PUT, value)
        for point, changes in enumerate(steps)
        for key, value in changes.items()
    )
    base = data.draw(st.integers(0, len(steps) - 1))
    last = data.draw(st.integers(base, len(steps) - 1))
    interval = PointInterval("file", base, last)
    counted = [row for row in rows if interval.admits("file", row[1])]
    cut = data.draw(st.integers(0, len(counted)))
    batches = [counted[:cut], counted[cut:]]
    newest = [row for batch in newest_of_runs(batches, lambda row: row[0]) for row in batch]
    state = {row[0]: row[3] for row in newest if row[2] == PUT}
    expected = {}
    for changes in steps[base : last + 1]:
        expected |= changes
    assert state == {key: value for key, value in expected.items() if value is not None}
    assert len(newest) == len({row[0] for row in newest})


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(), max_size=3)),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_rows_of_newest_point_are_state_of_whole_table(steps, random):
    rows = []
    for point, (table, values) in enumerate(steps):
        ops = [(table, WHOLE, point, (value,)) for value in values]
        rows.append(ops or [(table, CLEAR, point, (None,))])
    # Files are read in any order.
    random.shuffle(rows)
    tables = WholeTables()
    for file in rows:
        for row in file:
            tables.add(*row)
    expected = {table: [(value,) for value in values] for table, values in steps}
    assert dict(tables.items()) == expected


def test_rows_of_other_files_or_intervals_do_not_count():
    interval = PointInterval("file", 2, 4)
    assert [point for point in range(7) if interval.admits("file", point)] == [2, 3, 4]
    assert not interval.admits("other", 3)

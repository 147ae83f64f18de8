"""A list of streams reads what it returns, whatever the number of other streams."""

from __future__ import annotations

import sqlite3

import pytest

import fourfold
from fourfold.kernel import load_queries

SQL = load_queries("fourfold.models.streams")
COUNT = 2_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    root = tmp_path_factory.mktemp("list") / "store"
    with fourfold.open(root) as store:
        for number in range(0, COUNT, 100):
            with store.streams.database.write():
                for name in range(number, number + 100):
                    store.streams.create(f"events/{name:04}", "text/plain")
    return root / "streams" / "wal.sqlite"


@pytest.mark.parametrize(
    ("after", "prefix", "first"),
    [
        ("", "", "events/0000"),
        ("events/1500", "", "events/1501"),
        ("", "events/19", "events/1900"),
        ("events/1950", "events/19", "events/1951"),
        ("events/0100", "events/19", "events/1900"),
        ("events/1999", "events/19", None),
    ],
)
def test_list_starts_at_the_later_of_its_bounds(path, after, prefix, first):
    steps = []
    with sqlite3.connect(path) as connection:
        connection.set_progress_handler(lambda: steps.append(1), 100)
        end = f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}" if prefix else None
        rows = connection.execute(SQL.streams_after, (after, prefix, end, 10)).fetchall()
    assert [row[1] for row in rows[:1]] == ([] if first is None else [first])
    # A row takes about 30 steps: all streams would take 600 times 100.
    assert len(steps) < 20

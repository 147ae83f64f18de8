"""SQL over as many spaces as can be attached, and over one more: opened in turn."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import fourfold
from fourfold.kernel.query_connection import ATTACHED_MAX, QueryConnection

SPACES = [f"did:web:s{number:03}.example" for number in range(ATTACHED_MAX + 1)]
"""One more than can be attached."""


def fill(store, number):
    space = store.space(SPACES[number], "facts" if number % 10 == 3 else "revisions")
    space.set("item", {"n": number})
    space.patch("item", [{"op": "increment", "path": "/n", "by": 1000}])


@pytest.fixture(scope="module")
def stores():
    """Two stores: all spaces can be attached, and one too many. Nothing writes them later."""
    with fourfold.open(":memory:") as most, fourfold.open(":memory:") as more:
        for number in range(ATTACHED_MAX):
            fill(most, number)
        for number in range(ATTACHED_MAX + 1):
            fill(more, number)
        stream = more.streams.create("orders", "application/json")
        stream.append([{"space": SPACES[number], "paid": number} for number in (7, 99, 100)])
        yield most, more


@pytest.fixture
def opened_files(monkeypatch):
    """The files that queries open, in order."""
    files = []
    attach = QueryConnection.attach

    def record(connection, path):
        files.append(path.stem)
        return attach(connection, path)

    monkeypatch.setattr(QueryConnection, "attach", record)
    return files


@pytest.mark.parametrize("extra", [0, 1])
def test_every_space_is_read_once(stores, extra):
    count, store = ATTACHED_MAX + extra, stores[extra]
    folded = store.sql("select space, document ->> 'n' from documents_state order by 1")
    assert folded.rows == [(SPACES[n], 1000 + n) for n in range(count)]
    raw = store.sql("select space, seq from documents_commits order by 1, 2")
    assert raw.rows == [(SPACES[n], seq) for n in range(count) for seq in (1, 2)]
    assert set(raw.cut.values()) == {2}
    assert len(raw.cut) == count


@pytest.mark.parametrize("table", ["documents_state", "documents_commits"])
def test_condition_on_space_opens_one_file(stores, opened_files, table):
    rows = stores[1].sql(f"select distinct space from {table} where space = ?", [SPACES[50]]).rows
    assert rows == [(SPACES[50],)]
    assert opened_files == [SPACES[50]]


def test_join_with_another_model_and_with_itself(stores):
    rows = (
        stores[1]
        .sql(
            "select r.text ->> 'paid', s.document ->> 'n' from streams_records r"
            " join documents_state s on s.space = r.text ->> 'space' order by 1"
        )
        .rows
    )
    assert rows == [(7, 1007), (99, 1099), (100, 1100)]
    rows = (
        stores[1]
        .sql(
            "with s as materialized (select space, document ->> 'n' as n from documents_state),"
            " c as materialized (select space, max(seq) as seq from documents_commits group by 1)"
            " select count(*), sum(s.n), sum(c.seq) from s join c using (space)"
        )
        .rows
    )
    total = len(SPACES)
    assert rows == [(total, 1000 * total + sum(range(total)), 2 * total)]


def test_past_time_is_that_of_every_space(stores):
    store = stores[1]
    times = store.sql("select space, seq, time from documents_commits order by 1, 2").rows
    firsts = {space: time for space, seq, time in times if seq == 1}
    seconds = {space: time for space, seq, time in times if seq == 2}
    at = firsts[SPACES[60]]
    expected = [
        (space, number + (1000 if seconds[space] <= at else 0))
        for number, space in enumerate(SPACES)
        if firsts[space] <= at
    ]
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    result = store.sql("select space, document ->> 'n' from documents_state order by 1", at=moment)
    assert result.rows == expected
    assert 60 <= len(expected) <= len(SPACES)

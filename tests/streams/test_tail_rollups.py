"""Rollups of records in the log: aggregates read what is new, and equal the naive ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_streams import JSON

import fourfold
from fourfold.models.streams.search import engine, tail
from support import naive_search as naive
from support.properties import examples

BY, EVERY = ["service"], "1s"
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(naive.MESSAGES, min_size=1, max_size=5)),
    st.tuples(st.just("append raw"), st.lists(naive.RAW, min_size=1, max_size=4)),
    st.tuples(st.just("append in turns"), st.lists(naive.MESSAGES, min_size=2, max_size=4)),
    st.tuples(st.just("roll back"), st.lists(naive.MESSAGES, min_size=1, max_size=3)),
    st.tuples(st.just("recreate"), st.just([])),
    st.tuples(st.just("trim"), st.just([])),
    st.tuples(st.just("aggregate"), st.just([])),
)


class _RolledBackError(Exception):
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with fourfold.open(tmp_path_factory.mktemp("tail") / "store") as store:
        yield store


@pytest.fixture
def logs(opened):
    stream = opened.streams.create("logs", JSON)
    stream.set_schema(search=naive.DECLARATION)
    stream.append([{"service": f"s{n % 3}", "time": 1_000 * n, "ms": n} for n in range(10)])
    return stream


def scanned(stream):
    """Compare an aggregate with the naive one, and return how many records it read."""
    result = stream.aggregate(by=BY, every=EVERY, measures=naive.MEASURES)
    assert result.coverage.complete
    expected = naive.naive_groups(stream, BY, 1_000, naive.MEASURES, "", {}, None, None)
    assert naive.same_groups(naive.groups_of(result, BY, naive.MEASURES), expected)
    return result.coverage.scanned_records


def test_second_aggregate_reads_only_new_records(logs, monkeypatch):
    monkeypatch.setattr(tail, "PIECE_RECORDS", 4)
    assert [scanned(logs), scanned(logs)] == [10, 0]
    logs.append([{"service": "new"}])
    assert scanned(logs) == 1
    naive.check_groups(logs, "", {}, (None, None), BY, EVERY)


def test_first_aggregate_decodes_records_of_one_append_at_once(logs, monkeypatch):
    def refuse(*_args, **_options):
        pytest.fail("records were read one by one")

    monkeypatch.setattr(engine.Walk, "_blocks", refuse)
    assert stream_counts(logs) == {"s0": 4, "s1": 3, "s2": 3}


def test_aggregate_without_rollups_does_not_load_pyarrow(opened, monkeypatch):
    stream = opened.streams.create("plain", JSON)
    stream.append([{"service": "s"}, {"service": "t"}])
    monkeypatch.setattr(engine, "has_arrow", lambda: pytest.fail("pyarrow was loaded"))
    assert stream_counts(stream) == {"s": 1, "t": 1}


def test_first_aggregate_of_records_written_in_turns(opened, logs):
    other = opened.streams.create("other", JSON)
    for n in range(5):
        logs.append([{"service": f"s{n % 3}", "time": 0}])
        other.append([{"service": "other", "time": 0}])
    assert stream_counts(logs) == {"s0": 6, "s1": 5, "s2": 4}
    naive.check_groups(logs, "", {}, (None, None), BY, EVERY)


def stream_counts(stream):
    return {row["service"]: row["count"] for row in stream.aggregate(by=BY, measures=["count"])}


def test_changed_declaration_is_not_answered_by_old_rollups(logs):
    scanned(logs)
    logs.set_schema(search={**naive.DECLARATION, "timestamp": None})
    assert scanned(logs) == 10
    naive.check_groups(logs, "", {}, (None, None), BY, EVERY)


def test_memory_of_rollups_is_bounded(opened, logs, monkeypatch):
    monkeypatch.setattr(tail, "PIECE_RECORDS", 2)
    tails = opened.streams._tails.rollups
    monkeypatch.setattr(tails._pieces, "_max_weight", 6)
    assert scanned(logs) == 10
    assert tails._pieces.weight <= 6
    naive.check_groups(logs, "", {}, (None, None), BY, EVERY)


def run_step(store, kind, messages):
    stream = store.streams.open("s")
    if kind == "append":
        stream.append(messages)
    elif kind == "append raw":
        for payload in messages:
            naive.append_raw(stream, payload)
    elif kind == "append in turns":
        for message in messages:
            stream.append([message])
            store.streams.open("other").append([{"service": "other"}])
    elif kind == "roll back":
        with suppress(_RolledBackError), store.streams.database.write():
            stream.append(messages)
            naive.check_groups(stream, "", {}, (None, None), BY, EVERY)
            raise _RolledBackError
    elif kind == "recreate":
        store.streams.delete("s")
        create(store)
    elif kind == "trim":
        stream.configure(retention_bytes=40)
        store.streams.sweep()
    else:
        naive.check_groups(stream, "", {}, (None, None), BY, EVERY)
        naive.check_groups(stream, "", {"service": "a"}, (None, None), BY, EVERY)
        naive.check_search(stream, "duration:>10 service:auth", None, (None, None), 3)


def create(store):
    store.streams.create("other", JSON)
    store.streams.create("s", JSON).set_schema(search=naive.DECLARATION)


@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(STEPS, min_size=2, max_size=10), span=naive.SPANS)
def test_aggregates_of_a_growing_tail_equal_naive_ones(store, steps, span):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "PIECE_RECORDS", 3)
        create(store)
        try:
            for kind, messages in steps:
                run_step(store, kind, messages)
                naive.check_groups(store.streams.open("s"), "", {}, span, [], EVERY)
        finally:
            store.streams.delete("s")

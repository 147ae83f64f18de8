"""Payloads of the log in memory: repeated searches use them, and equal the naive ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_streams import JSON
from test_tail_rollups import STEPS, create, run_step

import fourfold
from fourfold.models.streams.search import engine, tail
from support import naive_search as naive
from support.properties import examples

QUERIES = ["slow", "plan duration:>10", "service:auth", '"slow plan"', "note.text:retry", "zoe"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with fourfold.open(tmp_path_factory.mktemp("texts") / "store") as store:
        yield store


@pytest.fixture
def logs(opened):
    stream = opened.streams.create("logs", JSON)
    stream.set_schema(search=naive.DECLARATION)
    stream.append([{"message": f"word{n}", "time": 1_000 * n, "ms": n} for n in range(20)])
    return stream


@pytest.fixture
def reads(monkeypatch):
    """Names of the ways in which records were read."""
    calls = []

    def watch(name, read):
        def watched(self, *args, **options):
            calls.append(name)
            return read(self, *args, **options)

        monkeypatch.setattr(engine.Walk, name, watched)

    for name in ("_blocks", "_rows_of_text"):
        watch(name, getattr(engine.Walk, name))
    return calls


def found(stream, query):
    return [hit.value["ms"] for hit in stream.search(query, total=True)]


def test_third_search_reads_payloads_in_memory(logs, reads):
    assert [found(logs, "word7"), found(logs, "word7")] == [[7], [7]]
    del reads[:]
    assert found(logs, "word8") == [8]
    assert reads == ["_rows_of_text"]
    logs.append({"message": "word8 again", "ms": 99})
    assert found(logs, "word8") == [99, 8]
    assert "_blocks" not in reads


@pytest.mark.parametrize("message", ["Zoë word8", 'a "quoted" word8', "WORD8", "x\nword8,word8"])
def test_messages_that_are_written_otherwise_are_found(logs, message):
    for _ in range(3):
        assert found(logs, "word8") == [8]
    logs.append({"message": message, "ms": 50})
    for _ in range(3):
        assert found(logs, "word8") == [50, 8]
        assert logs.search("zoe", total=True).total.value == message.startswith("Zo")


def test_uncommitted_messages_are_not_in_memory(opened, logs):
    for _ in range(3):
        found(logs, "word8")
    with suppress(ZeroDivisionError), opened.streams.database.write():
        logs.append({"message": "word8", "ms": 70})
        assert found(logs, "word8") == [70, 8]
        raise ZeroDivisionError
    assert found(logs, "word8") == [8]
    logs.append({"message": "other", "ms": 71})
    assert found(logs, "word8") == [8]


def test_memory_of_payloads_is_bounded(opened, logs, monkeypatch):
    monkeypatch.setattr(tail, "PIECE_RECORDS", 4)
    monkeypatch.setattr(opened.streams._tails.texts._pieces, "_max_weight", 700)
    for _ in range(4):
        assert found(logs, "word8") == [8]
        assert opened.streams._tails.texts._pieces.weight <= 700


def test_large_pieces_are_read_from_the_log(opened, logs, monkeypatch, reads):
    monkeypatch.setattr(engine, "PIECE_BYTES_MAX", 100)
    monkeypatch.setattr(tail, "PIECE_RECORDS", 1)
    logs.append({"message": "word8" + "x" * 200, "ms": 9})
    for _ in range(4):
        assert found(logs, "word8") == [8]
        assert found(logs, "word8x*") == [9]
    assert "_blocks" in reads


@settings(max_examples=examples(40), deadline=None)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=8),
    span=naive.SPANS,
    query=st.one_of(st.sampled_from(QUERIES), naive.QUERIES),
)
def test_repeated_searches_of_a_growing_tail_equal_naive_ones(store, steps, span, query):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "PIECE_RECORDS", 3)
        patch.setattr(engine, "FEW_RECORDS", 1)
        create(store)
        try:
            for kind, messages in steps:
                run_step(store, kind, messages)
                for _ in range(2):
                    naive.check_search(store.streams.open("s"), query, None, span, 2)
        finally:
            store.streams.delete("s")

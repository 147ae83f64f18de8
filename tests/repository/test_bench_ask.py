"""The benchmarks of asking: every figure is measured, on a little data, and again on the same."""

from __future__ import annotations

import pytest
from bench import machine
from bench.ask import __main__ as questions
from bench.ask import find, streams
from bench.ask.stream_peers import RANGE, RARE, ROLLUP, Peers

MESSAGES = 3_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    place = tmp_path_factory.mktemp("ask")
    facts = streams.fill(place / "store", MESSAGES, place / "logs.ndjson")
    assert facts["companions"] == 1
    assert facts["ndjson_bytes"] == (place / "logs.ndjson").stat().st_size
    return place


def test_searches_are_measured_twice_on_the_same_folder(filled, tmp_path):
    runs = [
        streams.measure(filled / "store", tmp_path / name, MESSAGES, 1, Peers())
        for name in ("one", "two")
    ]
    names = [[figure.name for figure in figures] for figures in runs]
    assert names[0] == names[1]
    for name in (RARE, RANGE, ROLLUP):
        assert {name, f"tail not read before, {name}: more", f"tail read before, {name}: more"} <= (
            set(names[0])
        )
    [tail] = {figures[-1].value for figures in runs}
    assert tail > 1_000
    isolated = streams.isolate(tmp_path / "one", 0.1, 0.1)
    assert [figure.goal for figure in isolated] == [None, 50.0, None]
    assert isolated[2].value >= 1


def test_peers_of_searches_answer_or_are_stated(filled, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    peers = streams.measure_peers(
        filled / "store", filled / "work", filled / "logs.ndjson", MESSAGES, 1
    )
    for name in (RARE, RANGE, ROLLUP):
        assert set(peers.figures[name]) == {"DuckDB on the segments", "SQLite directly"}
    assert set(peers.unmeasured) == {"ripgrep on NDJSON", "Prisma Streams over HTTP"}
    facts = machine.describe(filled)
    path = streams.BUILD / "newest-streamsearch.json"
    result = streams.Result("2026-01-01T00:00:00+00:00", 1, 1, facts, [], peers.unmeasured)
    assert "Not measured: ripgrep on NDJSON (rg is not installed)." in streams.table(result, path)


def test_questions_to_a_store_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "LOOKUPS", 500)
    questions.fill(tmp_path / "store", 1_000)
    figures = questions.measure(tmp_path / "store", 1_000, 1)
    assert [figure.name for figure in figures] == [
        "first row, 21 spaces",
        "command line",
        "raw scan, of SQLite directly",
        "state, half patched",
        "lookup in a join",
    ]
    assert all(figure.value > 0 for figure in figures)


def test_pages_and_commits_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "COMMITS", 40)
    figures = questions.measure_find(tmp_path, 30_000, 1)
    assert len(figures) == 7
    assert all(figure.value > 0 for figure in figures)

"""The benchmark of streams: what it concludes from figures, and what it keeps of earlier runs."""

from __future__ import annotations

import pytest
from bench import commands, machine
from bench.streams import load, report, results
from bench.streams.results import Cell, Record, Result

CELL = Cell("A", "1 stream, 16 connections", 1, 16)


def result(*records, tmp_path):
    facts = machine.describe(tmp_path)
    return Result("2026-01-01T00:00:00+00:00", facts, {}, {}, list(records))


def record(server, rate, p99=1.0, *, cell=CELL, foreign=0.0, number=1):
    figures = {"per_s": rate, "p50_ms": p99 / 2, "p99_ms": p99}
    return Record(number, cell, server, figures, foreign, 100.0)


def verdicts(found):
    return {(each.target.against, each.target.figure): each.verdict for each in found.outcomes()}


def test_a_target_is_judged_by_medians(tmp_path):
    ours = [record("fourfold", rate, number=n) for n, rate in enumerate((1500, 90, 1400), 1)]
    theirs = [record("prisma-tuned", rate, 2.0, number=n) for n, rate in enumerate((1000,) * 3, 1)]
    found = verdicts(result(*ours, *theirs, tmp_path=tmp_path))
    assert found == {("prisma-tuned", "per_s"): "pass", ("prisma-tuned", "p99_ms"): "pass"}


def test_worse_figure_fails_and_disturbed_round_is_inconclusive(tmp_path):
    found = result(record("fourfold", 1399), record("prisma-tuned", 1000, 0.5), tmp_path=tmp_path)
    assert set(verdicts(found).values()) == {"FAIL"}
    disturbed = record("fourfold", 1399, foreign=0.5)
    found = result(disturbed, record("prisma-tuned", 1000, 0.5), tmp_path=tmp_path)
    assert set(verdicts(found).values()) == {"FAIL *"}
    assert "it is inconclusive" in report.markdown(found, "somewhere")


def test_disturbed_rounds_are_left_out_where_there_are_others(tmp_path):
    rounds = [record("fourfold", 1400), record("fourfold", 10, foreign=0.5, number=2)]
    found = result(*rounds, record("prisma-tuned", 1000, 2.0), tmp_path=tmp_path)
    assert found.figure(CELL, "fourfold", "per_s").median == 1400


def test_a_later_run_replaces_its_workloads_only(tmp_path):
    other = Cell("B", "batches")
    old = result(record("fourfold", 1), record("fourfold", 2, cell=other), tmp_path=tmp_path)
    new = result(record("fourfold", 3), tmp_path=tmp_path)
    rates = [each.figures["per_s"] for each in results.merged(old, new).records]
    assert rates == [3, 2]


def test_a_result_is_kept_whole(tmp_path):
    made = result(record("fourfold", 1), tmp_path=tmp_path)
    commands.save(made, tmp_path / "kept.json")
    assert commands.load(tmp_path / "kept.json", Result) == made


@pytest.mark.parametrize(("text", "wanted"), [("388.00us", 0.388), ("1.06ms", 1.06), ("2s", 2000)])
def test_times_are_read_as_wrk_writes_them(text, wanted):
    assert load._milliseconds(text) == pytest.approx(wanted)

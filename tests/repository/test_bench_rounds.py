"""Rounds of a benchmark: which of them count, and in which order runs come."""

from __future__ import annotations

from typing import NamedTuple

import click
import pytest
from bench import place, rounds


class Kept(NamedTuple):
    round: int
    run: str
    sync_us: float = 100.0
    foreign: bool = False

    def disturbed(self, quiet_sync_us):
        return self.foreign or self.sync_us > 2 * quiet_sync_us


def test_round_counts_when_all_runs_took_part_undisturbed():
    records = [
        *(Kept(number, run) for number in (0, 1, 2, 3) for run in "ab"),
        Kept(4, "a"),
        Kept(5, "a"),
        Kept(5, "b", foreign=True),
        Kept(6, "a", sync_us=201.0),
        Kept(6, "b"),
        Kept(7, "c", foreign=True),
    ]
    assert rounds.partition_rounds(records, "ab") == ([1, 2, 3], [5, 6])
    assert rounds.used(records, "ab", 3) == ([1, 2, 3], True)
    assert rounds.used(records, "ab", 4) == ([1, 2, 3, 5, 6], False)
    assert rounds.of(records, "a", [4, 5]) == [Kept(4, "a"), Kept(5, "a")]


@pytest.mark.parametrize("bad", [0, 2])
def test_rounds_are_repeated_until_enough_of_each_group_are_undisturbed(bad):
    records, seen = [], []

    def execute(number, run):
        seen.append((number, run))
        records.append(Kept(number, run, foreign=run == "x" and 0 < number <= bad))

    groups = [["limit", "subject"], ["x"]]
    rounds.repeat(groups, records, execute, rounds=2, patience=9, is_limit=lambda r: r == "limit")
    assert max(number for number, run in seen if run == "x") == 2 + bad
    assert max(number for number, run in seen if run == "subject") == 2
    warm_up = [run for number, run in seen if number == 0 and run != "x"]
    assert warm_up == ["subject", "limit"]


def test_rounds_end_when_patience_does():
    records = []

    def execute(number, run):
        records.append(Kept(number, run, foreign=True))

    rounds.repeat([["x"]], records, execute, rounds=2, patience=3, is_limit=lambda _: False)
    assert [each.round for each in records] == [0, 1, 2, 3]
    assert rounds.used(records, "x", 2) == ([1, 2, 3], False)


def test_a_child_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"it: .*No module named"):
        rounds.in_child("bench.nothing_of_that_name", {}, "it", dict)


def test_newest_result_is_not_one_of_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "RESULTS", tmp_path)
    for name in ("streams-2026-11-15", "streams-2026-11-16", "streams-rules-2026-11-16"):
        (tmp_path / f"{name}.json").touch()
    assert place.newest_result("streams").name == "streams-2026-11-16.json"
    assert place.newest_result("streams-rules").name == "streams-rules-2026-11-16.json"
    with pytest.raises(click.ClickException):
        place.newest_result("graphs")

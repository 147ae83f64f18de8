"""What benchmarks in parts leave: parts put together, ratios round by round."""

from __future__ import annotations

import pytest
from bench import parts
from bench.measurement import Spread
from bench.parts import Figure, Part


def part(title, *figures):
    return Part(title=title, rows=10, figures=list(figures))


def test_the_parts_of_a_day_are_put_together_in_one_file(tmp_path):
    path = tmp_path / "pipeline.json"
    parts.save(part("old"), "scan", path)
    parts.save(part("start"), "start", path)
    parts.save(part("new"), "scan", path)
    found = parts.load(path).parts
    assert {name: each.title for name, each in found.items()} == {"scan": "new", "start": "start"}


def test_a_ratio_is_taken_between_neighbours_in_time():
    seconds = {"ours": [1.0, 4.0, 2.0], "theirs": [2.0, 2.0, 2.0]}
    shares = {"ours": [0.0, 0.0, 0.0], "theirs": [0.0, 0.0, 0.0]}
    found = parts.ratio("x", seconds, shares, "ours", "theirs", 0.9)
    assert found.value == Spread(1.0, 0.5, 2.0)
    assert found.verdict == "pass"


@pytest.mark.parametrize(
    ("median", "target", "at_most", "verdict"),
    [(2.0, 1.0, False, "pass"), (2.0, 3.0, False, "FAIL"), (2.0, 1.0, True, "FAIL")],
)
def test_a_figure_is_judged_by_its_target(median, target, at_most, verdict):
    value = Spread(median, median, median)
    assert Figure("x", value, "", target, at_most).verdict == verdict
    assert Figure("x", value, "", target, at_most, clean=False).verdict == f"{verdict} *"
    assert Figure("x", value).verdict == "-"


def test_rounds_in_which_others_worked_do_not_count_as_quiet():
    shares = {"ours": [0.5, 0.5, 0.0], "theirs": [0.0, 0.0, 0.0]}
    seconds = {"ours": [1.0, 1.0, 1.0], "theirs": [1.0, 1.0, 1.0]}
    assert not parts.ratio("x", seconds, shares, "ours", "theirs", 0.9).clean
    assert parts.ratio("x", seconds, shares, "theirs", "theirs", 0.9).clean

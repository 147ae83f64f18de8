"""What benchmarks in parts leave: parts put together, ratios round by round."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench import parts
from bench.measurement import Spread
from bench.parts import Figure, Part

# A process that leaves an orphan, which works until it has used half a second.
ORPHANED = """
import subprocess, sys, time
from bench import processes
busy = "import time\\nwhile time.process_time() < 0.5: pass"
start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}])"
def used():
    return processes._tree_seconds() - time.process_time()

with processes.foreign():
    before = used()
    subprocess.run([sys.executable, "-c", start], check=True)
    end = time.monotonic() + 20
    while used() - before < 0.45 and time.monotonic() < end:
        time.sleep(0.1)
print(used() - before)
"""


def part(title, *figures):
    return Part(title=title, rows=10, figures=list(figures))


def test_parts_of_day_are_put_together_in_one_file(tmp_path):
    path = tmp_path / "pipeline.json"
    parts.save(part("old"), "scan", path)
    parts.save(part("start"), "start", path)
    parts.save(part("new"), "scan", path)
    found = parts.load(path).parts
    assert {name: each.title for name, each in found.items()} == {"scan": "new", "start": "start"}


def test_run_of_some_parts_on_another_day_keeps_others(tmp_path):
    first = parts.file_of_day(tmp_path, "pipeline", "2026-01-31")
    parts.save(part("old"), "scan", first)
    parts.save(part("start"), "start", first)
    parts.save(part("another benchmark"), "x", tmp_path / "pipeline-million-2026-01-31.json")
    parts.save(part("later"), "scan", tmp_path / "pipeline-2026-02-02.json")
    second = parts.file_of_day(tmp_path, "pipeline", "2026-02-01")
    parts.save(part("new"), "scan", second)
    assert parts.file_of_day(tmp_path, "pipeline", "2026-02-01") == second
    found = parts.load(second).parts
    assert {name: each.title for name, each in found.items()} == {"scan": "new", "start": "start"}
    assert parts.load(first).parts["scan"].title == "old"


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are seen in /proc")
def test_cpu_of_an_orphan_is_not_foreign():
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", ORPHANED]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    assert float(done.stdout) >= 0.45

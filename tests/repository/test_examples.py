"""Every example runs, as a newcomer would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
TEAM = "agent_team.py"
"""Has a test of what it prints."""


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.name != TEAM], ids=lambda path: path.name
)
def test_the_example_runs_and_says_something(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_killed_worker_of_the_team_is_replaced(tmp_path):
    path = next(path for path in EXAMPLES if path.name == TEAM)
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("monday: 3 workers, 1 of them killed")
    assert lines[1] == "the turn of grace: final, with 2 calls"
    # The answer is by the killed worker, which another one did not ask for again.
    [answer] = [line for line in lines if "-> noted" in line]
    [end] = [line for line in lines if "assistant: remembered" in line]
    assert answer.rpartition("(")[2] != end.rpartition("(")[2]
    assert "  what does ada get for lunch? -> ada eats no nuts" in lines
    assert lines[-3:] == ["  invoke_agent waiter", "    chat", "    execute_tool remember"]

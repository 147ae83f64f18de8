"""docs/architecture.md is true: its tree, its import law, and its walks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import markdown_pages as markdown
import pytest
import repository_files as tree

sys.path.insert(0, str(tree.ROOT / "docs"))
import generate

PAGE = generate.ARCHITECTURE.read_text(encoding="utf-8")
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.<>]+)`", re.MULTILINE)
WALKS = {
    "append": "### Append over HTTP",
    "commit": "### Commit of a document",
    "past_read": "### Read of the past",
    "materialize": "### Materialize",
    "restore": "### Restore",
}
SPARK = {"materialize": pytest.mark.spark}


def missing_steps(steps, calls):
    """Return the steps that are not among the calls after the steps before them."""
    missing, rest = [], iter(calls)
    for step in steps:
        remaining = list(rest)
        if step in remaining:
            rest = iter(remaining[remaining.index(step) + 1 :])
        else:
            missing.append(step)
            rest = iter(remaining)
    return missing


def without_summaries(page):
    """Return the page with the names of its tree alone: a summary may be older than a docstring."""
    return re.sub(r"^( *[\w.]+/?) {2,}.*$", r"\1", page, flags=re.MULTILINE)


def test_the_tree_and_the_import_law_are_up_to_date():
    expected = without_summaries(generate.with_architecture(PAGE))
    assert without_summaries(PAGE) == expected, "run: python docs/generate.py"


@pytest.mark.parametrize("walk", [pytest.param(walk, marks=SPARK.get(walk, ())) for walk in WALKS])
def test_a_real_call_takes_the_steps_of_its_walk(walk, tmp_path):
    steps = STEP.findall(markdown.section(PAGE, WALKS[walk]))
    assert len(steps) >= 5
    program = Path(__file__).with_name("trace_walk.py")
    done = subprocess.run(
        [sys.executable, program, walk, tmp_path / "store", tmp_path / "calls.json"],
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [tuple(call) for call in json.loads((tmp_path / "calls.json").read_text())]
    assert not missing_steps(steps, calls)


def test_a_walk_in_another_order_is_noticed():
    calls = [("a.py", "f"), ("b.py", "g"), ("a.py", "h")]
    assert not missing_steps([("a.py", "f"), ("a.py", "h")], calls)
    assert missing_steps([("a.py", "h"), ("b.py", "g")], calls) == [("b.py", "g")]
    assert missing_steps([("a.py", "k")], calls) == [("a.py", "k")]

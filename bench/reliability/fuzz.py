"""Fuzz tests with many cases, and the counts of what came of them.

The tests are those of `make test`, with FUZZ_EXAMPLES cases each. Hypothesis keeps the cases that
failed in `.hypothesis`, and begins the next run with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench import machine, tables
from bench.machine import Machine
from bench.place import ROOT

TESTS = {
    "tests/server/test_http_grammar.py": 20,
    "tests/server/test_stateful_api.py": 1,
    "tests/reliability/test_damaged_files.py": 4,
}
"""Test files, and how many cases of each are run for one of the slowest."""


class Result(msgspec.Struct, frozen=True):
    """One run."""

    finished_at: str
    machine: Machine
    seconds: float
    targets: dict[str, dict[str, int]]
    """Outcomes of the cases of each target."""
    failures: list[str]
    """Tests that failed."""


def run(folder: Path, examples: int) -> Result:
    """Run the fuzz tests."""
    started, targets, failures = time.monotonic(), dict[str, Counter[str]](), list[str]()
    for test, times in TESTS.items():
        with TemporaryDirectory(dir=folder) as figures:
            environment = {
                **os.environ,
                "FUZZ_EXAMPLES": str(examples * times),
                "FUZZ_FIGURES": figures,
            }
            command = [sys.executable, "-m", "pytest", "-q", "--timeout", "3600", test]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            failures += [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
            if done.returncode not in {0, 1}:
                failures.append(f"{test}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            for path in Path(figures).iterdir():
                for name, outcomes in json.loads(path.read_bytes()).items():
                    targets.setdefault(name, Counter()).update(outcomes)
    return Result(
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.describe(folder),
        seconds=round(time.monotonic() - started, 1),
        targets={name: dict(outcomes.most_common()) for name, outcomes in targets.items()},
        failures=failures,
    )


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""
    rows = [
        (name, f"{sum(outcomes.values()):,}", _outcomes(outcomes))
        for name, outcomes in result.targets.items()
    ]
    failed = f"{len(result.failures)} tests failed" if result.failures else "No test failed"
    return "\n\n".join(
        [
            tables.markdown(("target", "cases", "outcomes"), rows),
            f"{failed}, in {result.seconds:.0f} s. From `bench/results/{path.name}`.",
        ]
    )


def _outcomes(outcomes: Mapping[str, int]) -> str:
    """Return the most frequent outcomes, and the number of others."""
    ordered = sorted(outcomes.items(), key=lambda outcome: -outcome[1])
    shown = ", ".join(f"{name}: {number:,}" for name, number in ordered[:4])
    return f"{shown}, and {len(ordered) - 4} more" if len(ordered) > 4 else shown

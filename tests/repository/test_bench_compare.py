"""The comparison of two versions: the blocks that it times, and the table that it makes."""

from __future__ import annotations

import json
import subprocess
import sys

import repository_files as tree
from bench.compare import __main__ as compare
from bench.compare import child
from bench.machine import Machine


def machine():
    facts = {name: "x" for name, kind in Machine.__annotations__.items() if kind == "str"}
    return Machine(**facts, cores=2, memory_gib=1.0, sync_p50_us=1.0, sync_p99_us=1.0)


def test_least_divides_all_items_into_blocks_of_one_size():
    blocks = []
    assert child.least(range(8 * 5 + 3), blocks.append) >= 0
    assert [list(block) for block in blocks] == [list(range(n, n + 5)) for n in range(0, 40, 5)]


def test_table_compares_the_best_rounds():
    lines = [
        compare.Line("documents D", "D read", "us", [2.0, 1.0], [1.04, 3.0]),
        compare.Line("sessions A", "A one by one", "us", [10.0], [12.0]),
        compare.Line("streams A B C", "C 30 MB", "ms", [40.0], [20.0]),
    ]
    result = compare.Result("2026-03-01T00:00:00Z", "0123456789", machine(), lines)
    text = compare.markdown(result, "results.json")
    assert "| documents D read | 1 us | 1.04 us | 1.04 | equal |" in text
    assert "| sessions A one by one | 10 us | 12 us | 1.20 | slower |" in text
    assert "| streams C 30 MB | 40 ms | 20 ms | 0.50 | faster |" in text


def test_child_runs_with_this_version(tmp_path):
    command = [sys.executable, "-m", "bench.compare.child", "kernel A C", str(tmp_path / "db")]
    done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert set(figures) == {"A bulk", "C 64 coroutines"}
    assert all(value > 0 for value in figures.values())

"""Workers exclude loaded objects from garbage collection; other processes do not."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from fourfold.pipeline import scan
from fourfold.pipeline.spark import DAEMON

_IN_A_WORKER = """
import gc, importlib.machinery, sys, __main__
__main__.__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
from fourfold.pipeline import scan
frozen = [gc.get_freeze_count()]
for _ in range(3):
    kept = [[number] for number in range(1000)], *frozen
    frozen.append(kept)
    scan.freeze_garbage()
    frozen[-1] = gc.get_freeze_count()
    frozen.append(kept)
print(*[each for each in frozen if isinstance(each, int)])
"""


@pytest.mark.parametrize("daemon", ["pyspark.daemon", DAEMON])
def test_worker_freezes_garbage_twice(daemon):
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_WORKER, daemon], capture_output=True, check=True, text=True
    )
    before, first, second, third = map(int, done.stdout.split())
    assert before == 0
    assert first > 1000
    assert second >= first + 1000
    assert third <= second


def test_freeze_garbage_does_nothing_outside_worker():
    before = gc.get_freeze_count()
    scan.freeze_garbage()
    assert gc.get_freeze_count() == before

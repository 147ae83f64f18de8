"""Workers exclude loaded objects from garbage collection; other processes do not."""

from __future__ import annotations

import gc
import subprocess
import sys

from fourfold.pipeline import scan

_IN_A_WORKER = """
import gc, importlib.machinery, __main__
__main__.__spec__ = importlib.machinery.ModuleSpec("pyspark.daemon", None)
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


def test_worker_freezes_garbage_twice():
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_WORKER], capture_output=True, check=True, text=True
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

"""A writer that is killed in the middle of its work loses nothing that it reported as stored."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from fourfold.blobs import FolderBlobs
from fourfold.content import content_id
from support.forked_process import ForkedProcess

WRITER = Path(__file__).with_name("blob_writer.py")
STEPPER = Path(__file__).with_name("blob_stepper.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
WHOLE = content_id(b"blob")


def run_until_killed(root: Path, seed: int) -> tuple[set[str], set[str]]:
    """Start a writer, kill it after some reports; what it tried, and what it reported as done."""
    rng = random.Random(seed)
    tried: set[str] = set()
    done: set[str] = set()
    with (
        ForkedProcess([WRITER, root, seed], env=ENVIRONMENT, stdout=subprocess.PIPE) as child,
        io.TextIOWrapper(io.BufferedReader(child.stdout)) as lines,
    ):
        # After an odd number of lines the writer is inside a put, and a moment later still is.
        for _ in range(rng.randrange(3, 30) | 1):
            state, _, blob_id = lines.readline().strip().partition(" ")
            (done if state == "done" else tried).add(blob_id)
        time.sleep(rng.uniform(0, 0.015))
        child.send_signal(signal.SIGKILL)
        for line in lines:
            state, _, blob_id = line.strip().partition(" ")
            (done if state == "done" else tried).add(blob_id)
    assert child.returncode == -signal.SIGKILL
    return tried, done


def check_after_kills(root: Path, seeds: range) -> None:
    store = FolderBlobs(root)
    tried: set[str] = set()
    done: set[str] = set()
    for seed in seeds:
        now_tried, now_done = run_until_killed(root, seed)
        tried |= now_tried
        done |= now_done
        for blob_id in done:
            store.get(blob_id)
        for path in root.rglob("*.blob"):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name[:64], path
    stored = set(store.ids())
    assert done
    assert done <= stored <= tried
    leftovers = list(root.rglob("*.tmp"))
    for path in leftovers:
        os.utime(path, (0, 0))
    assert store.sweep() == len(leftovers)
    assert list(root.rglob("*.tmp")) == []
    assert set(store.ids()) == stored


def killed_at(root: Path, how: str, step: int) -> bool:
    """Run a writer and kill it at this step; False if it came to its end before."""
    arguments = [STEPPER, root, how, step]
    with ForkedProcess(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE) as child:
        state, *blob_id = child.stdout.readline().decode().split()
        if state == "done":
            assert blob_id == [WHOLE]
            return False
        assert state == "stuck"
        child.send_signal(signal.SIGKILL)
    return True


@pytest.mark.parametrize("how", ["put", "stream"])
def test_writer_killed_at_any_step_leaves_whole_blob_or_none(tmp_path, how):
    whole = 0
    for step in count(1):
        root = tmp_path / str(step)
        root.mkdir()
        killed = killed_at(root, how, step)
        store = FolderBlobs(root)
        assert store.usage().count == len(list(root.rglob("*.blob")))
        if store.has(WHOLE):
            whole += 1
            assert store.get(WHOLE) == b"blob"
        store.sweep(0)
        assert list(root.rglob("*.tmp")) == []
        assert store.get(store.put(b"blob")) == b"blob"
        if not killed:
            break
    # The last steps come after the renaming; the blob was not reported yet, and is there already.
    assert 2 < whole < step


def test_killed_writer_loses_no_reported_blob_and_tears_none(tmp_path):
    check_after_kills(tmp_path, range(5))


@pytest.mark.slow
def test_many_killed_writers_lose_no_blob_and_tear_none(tmp_path):
    check_after_kills(tmp_path, range(100, 150))

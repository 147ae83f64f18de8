"""The local folder between real processes: one winner per race, and no half object after a kill."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fourfold.objects import FolderStore

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("folder_process.py")
BLOCK = 65_536


def start(job: str, root: Path, *arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, SCRIPT, job, root, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def run_together(processes: list[subprocess.Popen[str]]) -> list[str]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def test_two_processes_that_create_the_same_objects_share_them_out(tmp_path: Path) -> None:
    keys = 80
    outputs = run_together([start("create", tmp_path, me, keys) for me in range(2)])
    wins = Counter(int(line) for output in outputs for line in output.split())
    assert wins == Counter(range(keys))
    with FolderStore(tmp_path) as store:
        for me, output in enumerate(outputs):
            for number in output.split():
                assert store.get(f"dir/{number}").data == str(me).encode()
        assert len(list(store.list())) == keys
        assert list(store.temp_folder.iterdir()) == []


def test_two_processes_that_count_together_lose_no_update(tmp_path: Path) -> None:
    steps = 40
    with FolderStore(tmp_path) as store:
        store.put("counter", b"0")
        run_together([start("count", tmp_path, me, steps) for me in range(2)])
        assert store.get("counter").data == str(2 * steps).encode()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[FolderStore]:
    with FolderStore(tmp_path) as store:
        store.put("k", b"old")
        yield store


@pytest.mark.parametrize("last_line", ["0", "1", "15", "done", "done+0", "done+15", "done+done"])
def test_kill_in_mid_upload_leaves_old_object_or_new_one(old: FolderStore, last_line: str) -> None:
    blocks = 16
    process = start("upload", old.root, "n", blocks)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        for awaited in last_line.split("+"):
            while process.stdout.readline().strip() != awaited:
                pass
        process.kill()
    new = b"n" * BLOCK * blocks
    found = old.get("k")
    assert found.data in ({b"old", new} if last_line in {"0", "1", "15"} else {new})
    assert [(info.key, info.size) for info in old.list()] == [("k", len(found.data))]
    # What the dead process left is not visible, and a sweep takes it away.
    leftovers = len(list(old.temp_folder.iterdir()))
    assert leftovers <= 1
    assert old.sweep(older_than_s=0) == leftovers
    assert list(old.temp_folder.iterdir()) == []
    assert old.put("k", b"next", if_version=found.info.version).size == 4

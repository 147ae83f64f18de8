"""Responses that clients of all models received hold, whatever happens to the server."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from bench.reliability import faults, kills, rounds
from bench.reliability.models import MODELS

from support.properties import repeats

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="faults are loaded with LD_PRELOAD"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="faults are compiled with cc"),
]


def run(folder, count, seed=1):
    *_, result = kills.run(folder, seed, count, 25, None)
    assert result.kills == count
    assert result.violations == []
    assert result.problems == []
    return result


def test_clients_keep_what_was_acknowledged_when_the_server_is_killed(tmp_path):
    result = run(tmp_path, 3)
    assert {model.name for model in MODELS} == result.operations.keys()
    assert all(outcomes["acknowledged"] for outcomes in result.operations.values())
    text = kills.table(result, tmp_path / "kills.json")
    assert "3 kills by SIGKILL in 1 rounds of new stores" in text


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills_with_faults_break_no_promise(tmp_path):
    result = run(tmp_path, max(50, repeats(50)), seed=100)
    assert result.faults.keys() == set(rounds.FAULTS)
    assert result.failed_calls


SCRIPT = """
import os, time
print(time.time(), time.clock_gettime(time.CLOCK_REALTIME), time.monotonic(), flush=True)
for path in ("store/file", "objects/file", "other"):
    for call in (lambda fd: os.write(fd, b"x"), os.fsync):
        with open(path, "ab", 0) as file:
            try:
                call(file.fileno())
            except OSError as error:
                print(path, call is os.fsync, error.errno, flush=True)
"""


@pytest.mark.parametrize(
    ("fault", "failures"),
    [
        ("store_full", ["store/file False 28"]),
        ("store_failing", ["store/file True 5"]),
        ("objects_failing", ["objects/file False 5", "objects/file True 5"]),
    ],
)
def test_faults_concern_their_folder_only(tmp_path, fault, failures):
    for name in ("store", "objects"):
        (tmp_path / name).mkdir()
    state = faults.Faults(faults.build(tmp_path), tmp_path / "store", tmp_path / "objects")

    def lines():
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            command,
            env=state.environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        times, *rest = done.stdout.splitlines()
        return [float(word) for word in times.split()], rest

    (before, _, steady), failed = lines()
    assert failed == []
    state.start(fault)
    state.step_clock(-7200)
    (after, other, later), failed = lines()
    assert failed == failures
    assert state.hits == len(failures)
    assert after < before - 3600
    assert other < before - 3600
    assert later > steady
    state.stop(fault)
    state.step_clock(0)
    (again, _, _), failed = lines()
    assert failed == []
    assert again > before
    state.close()

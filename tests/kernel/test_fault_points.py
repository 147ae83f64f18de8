"""Fault points: each one is really met, does what it was armed for, and costs nothing unarmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import ledger
import pytest

from fourfold.errors import DiskFull, InvalidConfig, StorageError
from fourfold.kernel import Migration, failpoints, inspection

SOURCE = Path(__file__).parents[2] / "src"


def everything(folder):
    """Meets every fault point of the kernel at least once."""
    path = folder / "ledger.db"
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
        with db.write(), db.write() as step:
            ledger.put("y")(step)
        with pytest.raises(ZeroDivisionError):
            db.transact(lambda txn: [ledger.put("z")(txn), 1 / 0])
        with db.write() as txn:
            txn.execute_many("UPDATE entry SET body = ?", [("x",)])
        db.checkpoint()
        db.backup(folder / "copy.db")
    inspection.restore(folder / "copy.db", path)
    ledger.open_ledger(path, migrations=[ledger.SCHEMA, Migration(2, "two", "")]).close()


def test_every_listed_failpoint_is_hit(tmp_path):
    met = set()
    for point in failpoints.POINTS:
        failpoints.arm(point, met.add, repeat=True)
    everything(tmp_path)
    assert met == set(failpoints.POINTS)


def test_unarmed_point_does_nothing(tmp_path):
    failpoints.arm("kernel.begin.before", "raise")
    failpoints.disarm()
    assert not failpoints.armed
    everything(tmp_path)


def test_point_acts_only_at_requested_hit():
    failpoints.arm("kernel.commit.before", "raise", at=3)
    for _ in range(2):
        failpoints.hit("kernel.commit.before")
        failpoints.hit("kernel.commit.after")
    with pytest.raises(StorageError, match=r"injected at kernel\.commit\.before"):
        failpoints.hit("kernel.commit.before")
    failpoints.hit("kernel.commit.before")


def test_point_acts_at_every_later_hit_with_repeat():
    failpoints.arm("kernel.commit.before", "full", at=2, repeat=True)
    failpoints.hit("kernel.commit.before")
    for _ in range(3):
        with pytest.raises(DiskFull):
            failpoints.hit("kernel.commit.before")


@pytest.mark.parametrize(
    ("point", "action"), [("kernel.nowhere", "raise"), ("kernel.commit.before", "explode")]
)
def test_unknown_point_or_action_is_refused(point, action):
    with pytest.raises(InvalidConfig, match="unknown failpoint"):
        failpoints.arm(point, action)
    assert not failpoints.armed


@pytest.mark.parametrize("text", ["nowhere", "kernel.commit.before=raise@x", "kernel=kill"])
def test_invalid_environment_is_refused(text):
    with pytest.raises(InvalidConfig):
        failpoints.arm_from_environment(text)


@pytest.mark.parametrize("text", [None, "", " , ,"])
def test_empty_environment_arms_nothing(text):
    failpoints.arm_from_environment(text)
    assert not failpoints.armed


def test_environment_arms_a_process_from_its_start():
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "FOURFOLD_FAULTS": "kernel.begin.before=raise, kernel.commit.before=kill@2",
    }
    script = (
        "from fourfold.kernel import failpoints\n"
        "try:\n"
        "    failpoints.hit('kernel.begin.before')\n"
        "except Exception as error:\n"
        "    print(error, flush=True)\n"
        "failpoints.hit('kernel.commit.before')\n"
        "print('alive', flush=True)\n"
        "failpoints.hit('kernel.commit.before')\n"
        "print('never', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["fault injected at kernel.begin.before", "alive"]
    assert done.returncode == -signal.SIGKILL

"""Files survive a power failure: a full sync where the platform has one, `fsync` elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from fourfold import durability
from fourfold.kernel import Database, profiles

FULL_SYNC = 51


@pytest.fixture
def synced(monkeypatch):
    """Return a list of the syncs that are made, each by its name."""
    made = []
    monkeypatch.setattr(os, "fsync", lambda fd: made.append("fsync"))
    return made


def pretend_macos(monkeypatch, synced, error=None):
    def full_sync(fd, command):
        assert command == FULL_SYNC
        if error is not None:
            raise OSError(error, os.strerror(error))
        synced.append("full")

    monkeypatch.setattr(durability, "_FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)


def test_a_file_is_synced_fully_where_the_platform_can(monkeypatch, synced):
    pretend_macos(monkeypatch, synced)
    durability.sync_file(0)
    assert synced == ["full"]


def test_file_system_without_full_sync_is_synced_by_fsync(monkeypatch, synced):
    pretend_macos(monkeypatch, synced, errno.ENOTSUP)
    durability.sync_file(0)
    assert synced == ["fsync"]


def test_a_failed_full_sync_is_an_error(monkeypatch, synced):
    pretend_macos(monkeypatch, synced, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        durability.sync_file(0)
    assert synced == []


def test_a_platform_without_a_full_sync_uses_fsync(monkeypatch, synced, tmp_path):
    monkeypatch.setattr(durability, "_FULL_SYNC", None)
    durability.sync_folder(tmp_path)
    assert synced == ["fsync"]


def test_sqlite_syncs_databases_and_checkpoints_fully(tmp_path):
    with Database.open(tmp_path / "a.sqlite", profile=profiles.PLAIN) as database:
        for pragma in ("fullfsync", "checkpoint_fullfsync"):
            assert database.transact(lambda txn, name=pragma: txn.value(f"PRAGMA {name}")) == 1


def test_windows_is_refused_in_one_sentence():
    code = "import sys; sys.platform = 'win32'; import fourfold"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        "ImportError: Fourfold runs on Linux and macOS; on Windows, install it inside WSL 2."
    )

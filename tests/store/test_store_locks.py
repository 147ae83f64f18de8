"""Looking at a store must not loosen SQLite's locks on databases that this process has open.

POSIX drops all locks of a process on a file as soon as the process closes any descriptor of it. So
one plain `open` and `close` of a database file would leave the writer unprotected, and nothing
would tell.
"""

from __future__ import annotations

import subprocess
import sys

import fourfold

# SQLite's shared lock is on the bytes after the first gigabyte; who could take them exclusively,
# could break in.
_PROBE = """
import fcntl, struct, sys
with open(sys.argv[1], "r+b") as file:
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0x40000002, 510, 0)
    answer = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
    print("free" if answer[0] == fcntl.F_UNLCK else "locked")
"""


def lock_state(path) -> str:
    out = subprocess.run(
        [sys.executable, "-c", _PROBE, str(path)], capture_output=True, text=True, check=True
    )
    return out.stdout.strip()


def test_the_probe_can_tell(root, open_log):
    with fourfold.open(root) as store:
        path = open_log(store).database.path
        assert lock_state(path) == "locked"
    assert lock_state(path) == "free"


def test_verify_and_backup_keep_the_locks(root, open_log, tmp_path):
    with fourfold.open(root) as store:
        log = open_log(store)
        log.add("a")
        path = log.database.path
        store.verify()
        assert lock_state(path) == "locked"
        store.backup(tmp_path / "copy")
        assert lock_state(path) == "locked"
        log.database.make_durable()
        log.database.integrity_check()
        log.database.backup(tmp_path / "one.sqlite")
        log.database.metrics()
        assert lock_state(path) == "locked"


def test_a_reading_store_in_the_same_process_keeps_the_locks(root, open_log):
    with fourfold.open(root) as store:
        log = open_log(store)
        log.add("a")
        with fourfold.open(root, mode="r") as reader:
            open_log(reader).entries()
            reader.verify()
        assert lock_state(log.database.path) == "locked"

"""The single-writer lock: one process at a time writes a database, and a second one is told who.

The lock is an `flock` on `<database>.lock`, held for as long as the database is open for writing.
The kernel releases it when the process ends, however it ends, so a lock left behind by a crash
never needs cleaning. The file's text (process id, host, time) is only there to be read by people;
the lock itself decides.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path

from fourfold import limits
from fourfold.errors import ReadOnly, StorageError, WriterLocked

_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """Held from construction until `release`. Raises WriterLocked, naming the holder, when it is
    taken.
    """

    def __init__(self, database: Path) -> None:
        self.path = lock_path(database)
        self._fd: int | None = _open(self.path)
        try:
            _take(self._fd, database)
        except BaseException:
            os.close(self._fd)
            self._fd = None
            raise
        self._write_owner()
        _held.add(self)

    def _write_owner(self) -> None:
        assert self._fd is not None
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(owner).encode() + b"\n", 0)

    def release(self) -> None:
        if self._fd is None:
            return
        # The text goes first: a free lock must not name an owner.
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = None
        _held.discard(self)

    def forget(self) -> None:
        """In a forked child: drop the inherited descriptor, which would keep the parent's lock
        alive.
        """
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _take(fd: int, database: Path) -> None:
    for _ in range(limits.LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = holder(database)
            if owner is not None:
                raise WriterLocked(f"{database}: {_describe(owner)}") from None
            # Somebody was only looking who holds it, as `holder` does, and is gone already.
            time.sleep(limits.LOCK_LOOK_S)
        except OSError as error:
            raise StorageError(f"{lock_path(database)}: {error.strerror}") from error
        else:
            return
    raise WriterLocked(f"{database}: {_describe(None)}")


def lock_path(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def holder(database: Path) -> dict[str, object] | None:
    """Who holds the writer lock of `database`, as far as its lock file says; None when it is
    free.
    """
    path = lock_path(database)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError:
        return {}
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(fd, 4096, 0)
        else:
            return None
    finally:
        os.close(fd)
    try:
        owner = json.loads(text)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _describe(owner: dict[str, object] | None) -> str:
    if not owner:
        return "another process has it open for writing"
    who = "this process" if owner.get("pid") == os.getpid() else f"process {owner.get('pid')}"
    return f"{who} on {owner.get('host')} has it open for writing since {owner.get('since')}"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise ReadOnly(f"{path}: no permission to write the lock file") from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnly(f"{path}: the file system is read-only") from error
        raise StorageError(f"{path}: cannot be opened: {error.strerror}") from error


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.forget()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

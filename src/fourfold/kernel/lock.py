"""Single-writer lock; the error names the process that holds it.

The lock is an `flock` on `<database>.lock`, held while the database is open for writing. The
operating system releases it when the process ends, so a crash leaves no stale lock. The text in the
file (process id, host, time) is only for people; the lock itself decides.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.errors import ReadOnly, StorageError, WriterLocked
from fourfold.retry import Retries

LOCK_TRIES: Final = 50
"""Attempts to lock while another process reads who holds the lock."""

_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """The lock of a writer, held from construction until `release`.

    Raises:
        WriterLocked: Another process, or this one, holds it.
    """

    def __init__(self, database: Path) -> None:
        self.path = lock_path(database)
        self._fd: int | None = _open(self.path)
        try:
            _acquire(self._fd, database)
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
        """Release the lock. Idempotent."""
        if self._fd is None:
            return
        # Clear the text first: a free lock must not name an owner.
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = None
        _held.discard(self)

    def abandon(self) -> None:
        """Close the inherited descriptor in a forked child; it would extend the parent's lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _acquire(fd: int, database: Path) -> None:
    def lock() -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = holder(database)
            if owner is not None:
                raise WriterLocked(f"{database}: {_describe(owner)}") from None
            # Another process only called `holder`, which holds the lock for an instant.
            raise

    retries = Retries.every(limits.LOCK_LOOK_S, on=BlockingIOError, most=LOCK_TRIES)
    try:
        retries.run(lock)
    except BlockingIOError:
        raise WriterLocked(f"{database}: {_describe(None)}") from None
    except OSError as error:
        raise StorageError(f"{lock_path(database)}: {error.strerror}") from error


def lock_path(database: Path) -> Path:
    """Return the path of the lock file of `database`."""
    return database.with_name(database.name + ".lock")


def holder(database: Path) -> dict[str, object] | None:
    """Return the owner in the lock file of `database`, or None if the lock is free.

    The result is empty if the lock is held but its owner cannot be read.
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
        return "another process has the database open for writing"
    process = "this process" if owner.get("pid") == os.getpid() else f"process {owner.get('pid')}"
    since = owner.get("since")
    return f"{process} on {owner.get('host')} has the database open for writing since {since}"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise ReadOnly(f"{path}: no permission to write the lock file") from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnly(f"{path}: the file system is read-only") from error
        raise StorageError(f"{path}: cannot open the lock file: {error.strerror}") from error


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.abandon()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

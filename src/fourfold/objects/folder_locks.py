"""Locks between processes and threads for a folder of objects, and the stamps that make versions.

A key belongs to one of 64 shards; each shard is a lock file, held with flock while an object is
checked and replaced. A killed process holds no lock. The lock file also remembers the newest stamp
handed out: a stamp is the time in microseconds, moved forward where needed so that no shard hands
out one twice, also when the clock is set back. (The number is not synced: it takes a power cut and
a clock that comes back earlier than it was to repeat one.)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.errors import LockTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STAMP: Final = struct.Struct("<q")
_STAMP_BOUND: Final = 1 << 62


class ShardLock:
    """A held lock on one shard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def next_stamp(self, above: int) -> int:
        """A stamp in microseconds that was never handed out by this shard, greater than `above`."""
        raw = os.pread(self._fd, _STAMP.size, 0)
        newest = _STAMP.unpack(raw)[0] if len(raw) == _STAMP.size else 0
        if not 0 <= newest < _STAMP_BOUND:
            # A power cut may leave anything in a file that is never synced; the clock has moved on
            # since.
            newest = 0
        stamp = max(time.time_ns() // 1000, newest + 1, above + 1)
        os.pwrite(self._fd, _STAMP.pack(stamp), 0)
        return stamp


class FolderLocks:
    """The lock files of one folder of objects."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Threads wait for each other here; only the first of them polls for the lock between
        # processes.
        self._turns = tuple(threading.Lock() for _ in range(limits.OBJECT_FOLDER_LOCKS))

    @contextmanager
    def hold(self, key: str) -> Iterator[ShardLock]:
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        shard = int.from_bytes(digest, "big") % limits.OBJECT_FOLDER_LOCKS
        deadline = time.monotonic() + limits.OBJECT_LOCK_WAIT_S
        if not self._turns[shard].acquire(timeout=limits.OBJECT_LOCK_WAIT_S):
            raise self._timed_out(shard)
        try:
            path = self._folder / f"{shard:02x}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self._acquire(fd, shard, deadline)
                yield ShardLock(fd)
            finally:
                os.close(fd)
        finally:
            self._turns[shard].release()

    def _acquire(self, fd: int, shard: int, deadline: float) -> None:
        pause = limits.OBJECT_LOCK_POLL_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._timed_out(shard) from None
            else:
                return
            time.sleep(pause)
            pause = min(pause * 2, limits.OBJECT_LOCK_POLL_S_MAX)

    def _timed_out(self, shard: int) -> LockTimeout:
        return LockTimeout(
            f"lock {self._folder / f'{shard:02x}'} was held for {limits.OBJECT_LOCK_WAIT_S:g} s",
            hint=f"See which process holds it: `fuser {self._folder / f'{shard:02x}'}`.",
        )

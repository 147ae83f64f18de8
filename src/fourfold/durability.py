"""Durable files: what is synced here survives a power failure.

On macOS `fsync` leaves the data in the cache of the drive; only `F_FULLFSYNC` writes it out. SQLite
does the same for the files of databases (`fullfsync`, see `fourfold.kernel.profiles`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
# Network file systems and some external drives have no full sync: there `fsync` has to do.
_WITHOUT_FULL_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY})


def sync_file(fd: int) -> None:
    """Write an open file to the disk, including what the drive has cached."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _WITHOUT_FULL_SYNC:
                raise
        else:
            return
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that new and renamed files in it survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)

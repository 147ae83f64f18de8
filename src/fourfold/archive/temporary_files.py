"""Files that get their name when they are complete.

Until then they have a temporary name; if writing fails, no file remains. Files left under a
temporary name by a crash are deleted by the next process that opens the folder. A file that is
`held` is being written, perhaps by another process, and is skipped.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fourfold.errors import DiskFull, StorageError
from fourfold.kernel import sync_folder

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def unfinished(temporary: Path, what: str) -> Iterator[None]:
    """Clean up after an error while a file is written and named.

    An operating system error becomes a StorageError that names `what`.
    """
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise (DiskFull if error.errno in _FULL else StorageError)(
                f"cannot write {what} to {temporary}: {error}"
            ) from error
        raise


def put_in_place(temporary: Path, final: Path, *, durable: bool = True) -> None:
    """Rename a complete file to its final name."""
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary.rename(final)
    if durable:
        sync_folder(final.parent)


@contextmanager
def held(temporary: Path) -> Iterator[BinaryIO]:
    """Open a new file to be written and renamed inside the block.

    The lock on it is released with its writer, however that ends.
    """
    temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # A sweep may have been faster than the lock.
            if _is_at(file.fileno(), temporary):
                yield file
                return


def sweep(temporary: Path) -> None:
    """Delete a temporary file that no process is writing."""
    try:
        with temporary.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        return


def _is_at(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False

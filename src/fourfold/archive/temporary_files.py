"""Files that get their name when they are whole: until then they have a temporary one, and when
writing fails there is neither.

What a crash left under a temporary name is swept by whoever opens the folder next. A file that is
`held` is being written, perhaps by another process, and is left alone.
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
    """Around all that writes and names a file: an error leaves none behind, and one of the
    operating system says that `what` cannot be written.
    """
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise (DiskFull if error.errno in _FULL else StorageError)(
                f"{temporary}: {what} cannot be written: {error}"
            ) from error
        raise


def put_in_place(temporary: Path, final: Path, *, durable: bool = True) -> None:
    """Give a whole file its name."""
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary.rename(final)
    if durable:
        sync_folder(final.parent)


@contextmanager
def held(temporary: Path) -> Iterator[BinaryIO]:
    """A new file, to be written and named before this ends. The lock on it goes with its writer,
    however that ends.
    """
    temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # One who swept may have been quicker than the lock.
            if _is_at(file.fileno(), temporary):
                yield file
                return


def sweep(temporary: Path) -> None:
    """Remove a file that nobody writes any more."""
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

"""Files that get their name when they are whole: until then they have a temporary one, and when
writing fails there is neither.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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

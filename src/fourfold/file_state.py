"""State of SQLite files on disk, decided without opening them."""

from __future__ import annotations

import os
import stat


def is_immutable(path: str) -> bool:
    """Return True if no process can write the file: read-only folder, no WAL.

    Only such a file may be read without shared memory. If a process could write it, an immutable
    connection would eventually read a torn state.
    """
    folder = os.path.dirname(path)  # noqa: PTH120 - it runs for every file in a worker
    closed = not stat.S_IMODE(os.stat(folder).st_mode) & 0o222  # noqa: PTH116
    frozen = closed or bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return frozen and not os.path.exists(f"{path}-wal")  # noqa: PTH110


def is_closed(path: str) -> bool:
    """Return True if the file has no WAL content and can be written by this process."""
    try:
        has_log = os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116
    except FileNotFoundError:
        # One call: another reader that closes the file may delete an empty log at any time.
        has_log = False
    return not has_log and os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)  # noqa: PTH120

"""Listening on a Unix socket: a file that only its owner and its group may connect to.

The file appears complete, with its permissions, and replaces that of a server that has crashed. A
socket on which another process listens is never replaced.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fourfold.errors import InvalidInput, Refused

UNIX_SOCKET_MODE: Final = 0o660
"""Permissions of the file: its owner and its group may connect."""


@contextmanager
def listen(path: Path, backlog: int) -> Iterator[socket.socket]:
    """Listen on a Unix socket, and remove its file at the end.

    Raises:
        InvalidInput: the path is too long, or cannot be created.
        Refused: another process listens there, or the file is not a socket.
    """
    _check_unused(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # It is renamed once it has its permissions.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            listener.bind(str(temporary))
            temporary.chmod(UNIX_SOCKET_MODE)
            listener.listen(backlog)
            temporary.replace(path)
        except OSError as error:
            raise InvalidInput(
                f"{path}: cannot listen on a Unix socket: {error.strerror or error}",
                hint="Use a short path in a folder that this process may write.",
            ) from None
        inode = path.stat().st_ino
        try:
            yield listener
        finally:
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()
    finally:
        temporary.unlink(missing_ok=True)
        listener.close()


def _check_unused(path: Path) -> None:
    """Raise Refused unless a path is free, or the socket of a process that has ended."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"{path}: is not a socket", hint="Choose a path that does not exist.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise Refused(f"{path}: is in use: {error.strerror}") from None
    raise Refused(f"{path}: another process listens there", hint="Choose another path.")

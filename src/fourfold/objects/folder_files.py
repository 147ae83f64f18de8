"""Files and folders that survive a power cut, and the operating system's errors in our tree."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.errors import DiskFull, FourfoldError, ReadOnly, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def storage_errors(what: str, *, writing: bool) -> Iterator[None]:
    """Turn an OSError into the error that says what the user does next."""
    try:
        yield
    except FourfoldError:
        raise
    except OSError as exc:
        reason = f"cannot {what}: {exc.strerror or exc}"
        if exc.errno in _FULL:
            raise DiskFull(reason) from exc
        if exc.errno in _DENIED and writing:
            raise ReadOnly(reason) from exc
        if exc.errno == errno.ENAMETOOLONG:
            raise StorageError(
                reason, hint="Move the store to a folder with a shorter path."
            ) from exc
        raise StorageError(reason) from exc


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class DurableFolders:
    """Creates folders below a root so that they are still there after a power cut.

    A folder that exists may have been made a moment ago by a process that has not synced it yet.
    So the first use in this process syncs it into the one above, and later uses remember that.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: set[tuple[str, ...]] = set()

    def ensure_root(self) -> None:
        missing = []
        path = self._root
        while not path.exists():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            sync_folder(folder.parent)

    def ensure(self, names: tuple[str, ...]) -> Path:
        path = self._root.joinpath(*names)
        if names in self._known:
            return path
        try:
            self._make(names)
        except FileNotFoundError:
            # One above it is gone that was there.
            self.forget()
            self._make(names)
        return path

    def _make(self, names: tuple[str, ...]) -> None:
        for depth in range(1, len(names) + 1):
            if names[:depth] in self._known:
                continue
            made = self._root.joinpath(*names[:depth])
            with suppress(FileExistsError):
                made.mkdir(mode=0o700)
            sync_folder(made.parent)
            if len(self._known) >= limits.OBJECT_FOLDERS_KNOWN_MAX:
                self._known.clear()
            self._known.add(names[:depth])

    def forget(self) -> None:
        """Somebody removed a folder: trust no memory of any."""
        self._known.clear()


class TempFile:
    """A file that is being written under a name that no key has."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / uuid.uuid4().hex
        self.size = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(self.path, flags, 0o600)
        # The lock tells a sweep that the writer is alive; it goes when the process does.
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.discard()
            raise

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.fd, rest) :]
        self.size += len(data)

    def seal(self, stamp_us: int) -> None:
        """Stamp the file and bring it to the disk."""
        stamp_ns = stamp_us * 1000
        os.utime(self.fd, ns=(stamp_ns, stamp_ns))
        if os.fstat(self.fd).st_mtime_ns != stamp_ns:
            raise StorageError(
                f"the file system of {self.path.parent} does not keep times to the microsecond",
                hint="Versions of objects need them: put the store on another file system.",
            )
        os.fsync(self.fd)

    def discard(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self.fd)


@contextmanager
def temp_file(folder: Path, chunks: Iterable[bytes | memoryview], key: str) -> Iterator[TempFile]:
    """The chunks in a temp file that is gone afterwards, unless it was renamed."""
    with storage_errors(f"create a temp file for object {key!r}", writing=True):
        temp = TempFile(folder)
    try:
        # An error of the caller's own stream passes unchanged; only the writing is ours.
        for chunk in chunks:
            with storage_errors(f"write object {key!r}", writing=True):
                temp.write(chunk)
        yield temp
    finally:
        temp.discard()


def sweep_temp_files(folder: Path, older_than_s: float) -> int:
    """Remove the temp files that dead writers left; how many."""
    removed = 0
    oldest_kept = time.time() - older_than_s
    try:
        found = list(os.scandir(folder))
    except FileNotFoundError:
        return 0
    for entry in found:
        with suppress(FileNotFoundError, BlockingIOError):
            if entry.stat(follow_symlinks=False).st_mtime > oldest_kept:
                continue
            fd = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / entry.name).unlink()
                removed += 1
            finally:
                os.close(fd)
    return removed

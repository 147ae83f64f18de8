"""Objects as files in a local folder: a file holds the bytes of its object and nothing else.

A write goes to a temp file, which is synced, then moved into place in one step, then the folder is
synced: a crash leaves the old object or the new one, and at worst a temp file that `sweep()`
removes. Conditions hold between processes: put-if-absent is a hard link, and a replace is checked
and done under the lock of its shard.

The version of an object is its modification time, to the microsecond, and its size. The time is
stamped by the store, never twice for one key, so that a version changes with every write and
outlives the process.

    ROOT/streams+/ab12+/0001.parquet     objects; `folder_names` says how a key becomes a path
    ROOT/.fourfold/tmp/                  writes in progress
    ROOT/.fourfold/locks/                64 lock files
"""

from __future__ import annotations

import errno
import math
import os
import stat
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    InvalidConfig,
    InvalidInput,
    NotFound,
    PreconditionFailed,
)
from fourfold.objects.arguments import (
    check_chunk_bytes,
    check_conditions,
    check_data,
    check_range,
    checked_chunks,
)
from fourfold.objects.folder_files import (
    DurableFolders,
    TempFile,
    storage_errors,
    sweep_temp_files,
    sync_folder,
    temp_file,
)
from fourfold.objects.folder_locks import FolderLocks
from fourfold.objects.folder_names import Entry, decode_entry, folder_names, path_names
from fourfold.objects.handle import Handle
from fourfold.objects.keys import check_key, check_prefix, is_key
from fourfold.objects.protocol import Object, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fourfold.objects.protocol import Data

_OWN: Final = ".fourfold"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class FolderStore(Handle):
    """An ObjectStore in a local folder, which is created when it is missing."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.fspath(root)).absolute()
        super().__init__(str(self._root))
        self._folders = DurableFolders(self._root)
        self._locks = FolderLocks(self._root / _OWN / "locks")
        if self._root.exists() and not self._root.is_dir():
            raise InvalidConfig(
                f"{self._root} is a file, not a folder for objects", hint="Name a folder."
            )
        with storage_errors(f"create folder {self._root}", writing=True):
            self._folders.ensure_root()

    @property
    def root(self) -> Path:
        return self._root

    @property
    def temp_folder(self) -> Path:
        return self._root / _OWN / "tmp"

    def path(self, key: str) -> Path:
        """Where the bytes of a key are, or would be: for programs that read files."""
        return self._root.joinpath(*path_names(check_key(key)))

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        self._check_open()
        check_key(key)
        check_conditions(if_absent=if_absent, if_version=if_version)
        chunks = (check_data(data),)
        return self._write(key, chunks, if_absent=if_absent, if_version=if_version)

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        self._check_open()
        check_key(key)
        return self._write(key, checked_chunks(chunks), if_absent=if_absent, if_version=None)

    def _write(
        self,
        key: str,
        chunks: Iterable[bytes | memoryview],
        *,
        if_absent: bool,
        if_version: str | None,
    ) -> ObjectInfo:
        target = self.path(key)
        # What is refused already need not be written first; the check that counts comes under the
        # lock.
        _refuse(self._look(key, target), key, if_absent=if_absent, if_version=if_version)
        with storage_errors(f"prepare folder {self._root}", writing=True):
            self._folders.ensure((_OWN, "tmp"))
            self._folders.ensure((_OWN, "locks"))
        with temp_file(self.temp_folder, chunks, key) as temp:
            with storage_errors(f"write object {key!r}", writing=True):
                with self._locks.hold(key) as lock:
                    current = _stat(target)
                    above = 0 if current is None else current.st_mtime_ns // 1000
                    stamp = lock.next_stamp(above)
                temp.seal(stamp)
                self._place(key, temp, target, if_absent=if_absent, if_version=if_version)
                sync_folder(target.parent)
            return _info(key, os.fstat(temp.fd))

    def _place(
        self, key: str, temp: TempFile, target: Path, *, if_absent: bool, if_version: str | None
    ) -> None:
        for last_try in (False, True):
            self._folders.ensure(target.parent.relative_to(self._root).parts)
            try:
                with self._locks.hold(key):
                    current = _found(key, _stat(target))
                    _refuse(current, key, if_absent=if_absent, if_version=if_version)
                    if if_absent:
                        os.link(temp.path, target)
                    else:
                        temp.path.rename(target)
            except FileExistsError as exc:
                raise AlreadyExists(f"object {key!r} exists") from exc
            except FileNotFoundError:
                if last_try:
                    raise
                self._folders.forget()
            else:
                return

    def get(self, key: str) -> Object:
        with self._opened(key) as (fd, info):
            return Object(_pread(fd, 0, info.size), info)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        start, length = check_range(start, length)
        with self._opened(key) as (fd, info):
            return _pread(fd, start, min(length, info.size - start))

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        self._check_open()
        check_key(key)
        return self._pieces(key, check_chunk_bytes(chunk_bytes))

    def _pieces(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        with self._opened(key) as (fd, info):
            for at in range(0, info.size, chunk_bytes):
                yield _pread(fd, at, min(chunk_bytes, info.size - at))

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, ObjectInfo]]:
        self._check_open()
        path = self.path(key)
        with storage_errors(f"read object {key!r}", writing=False):
            try:
                fd = os.open(path, _READ)
            except OSError as exc:
                # A symbolic link (ELOOP) is not an object either: the store never makes one.
                if exc.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    raise
                raise NotFound(f"object {key!r} does not exist") from None
        try:
            info = _found(key, os.fstat(fd))
            if info is None:
                raise NotFound(f"object {key!r} does not exist: {path} is not a file")
            # A file is never written to again once it has its name, so an open one is one version.
            yield fd, info
        finally:
            os.close(fd)

    def head(self, key: str) -> ObjectInfo | None:
        self._check_open()
        return self._look(key, self.path(key))

    def _look(self, key: str, path: Path) -> ObjectInfo | None:
        with storage_errors(f"look at object {key!r}", writing=False):
            return _found(key, _stat(path))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._check_open()
        check_prefix(prefix)
        if start_after is not None:
            check_prefix(start_after, "start_after")
        return self._walk(prefix.encode(), b"" if start_after is None else start_after.encode())

    def _walk(self, prefix: bytes, after: bytes) -> Iterator[ObjectInfo]:
        # The names of one folder at a time are held and sorted; a stack, since keys nest up to 512
        # deep.
        segments = prefix.split(b"/")[:-1]
        top = self._root.joinpath(*folder_names(segments))
        start = b"".join(segment + b"/" for segment in segments)
        stack = [(top, _entries(top, start, prefix, after))]
        while stack:
            folder, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
            elif entry.is_folder:
                below = folder / entry.name
                stack.append((below, _entries(below, entry.start, prefix, after)))
            elif key := _key(entry.start):
                info = self._look(key, folder / entry.name)
                if info is not None:
                    yield info

    def delete(self, key: str) -> bool:
        self._check_open()
        path = self.path(key)
        if not self._unlink(key, path):
            return False
        with storage_errors(f"delete object {key!r}", writing=True):
            sync_folder(path.parent)
        return True

    def delete_many(self, keys: Iterable[str]) -> None:
        self._check_open()
        paths = {key: self.path(key) for key in keys}
        touched = {path.parent for key, path in paths.items() if self._unlink(key, path)}
        with storage_errors("make deletions durable", writing=True):
            for folder in touched:
                sync_folder(folder)

    def _unlink(self, key: str, path: Path) -> bool:
        if self._look(key, path) is None:
            return False
        with storage_errors(f"delete object {key!r}", writing=True):
            self._folders.ensure((_OWN, "locks"))
            with self._locks.hold(key):
                try:
                    path.unlink()
                except (FileNotFoundError, NotADirectoryError):
                    return False
        return True

    def sweep(self, older_than_s: float = limits.OBJECT_SWEEP_AGE_S) -> int:
        """Remove temp files of dead writers that are older than this; how many.

        The temp file of a living writer is never removed, however old it is.
        """
        self._check_open()
        if not (math.isfinite(older_than_s) and older_than_s >= 0):
            raise InvalidInput(f"older_than_s is {older_than_s!r}, not a number of seconds")
        with storage_errors(f"sweep {self.temp_folder}", writing=True):
            return sweep_temp_files(self.temp_folder, older_than_s)


def _entries(folder: Path, start: bytes, prefix: bytes, after: bytes) -> Iterator[Entry]:
    """The entries of one folder below which there may be keys that are asked for, in key order."""
    found: list[Entry] = []
    with storage_errors(f"list folder {folder}", writing=False):
        try:
            with os.scandir(folder) as scan:
                for item in scan:
                    is_folder = item.is_dir(follow_symlinks=False)
                    if not is_folder and not item.is_file(follow_symlinks=False):
                        continue
                    entry = decode_entry(start, item.name, is_folder=is_folder)
                    if entry is not None and _wanted(entry, prefix, after):
                        found.append(entry)
        except (FileNotFoundError, NotADirectoryError):
            return iter(())
    found.sort(key=lambda entry: entry.start)
    return iter(found)


def _wanted(entry: Entry, prefix: bytes, after: bytes) -> bool:
    start = entry.start
    if not entry.is_folder:
        return start.startswith(prefix) and start > after
    if not (start.startswith(prefix) or prefix.startswith(start)):
        return False
    return start > after or after.startswith(start)


def _key(name: bytes) -> str | None:
    """The key, or None for the file of another program whose name only looks like ours."""
    try:
        key = name.decode()
    except UnicodeDecodeError:
        return None
    return key if is_key(key) else None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _found(key: str, status: os.stat_result | None) -> ObjectInfo | None:
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return _info(key, status)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size=status.st_size,
        version=f"{status.st_mtime_ns:x}-{status.st_size:x}",
        modified=_EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000),
    )


def _refuse(
    current: ObjectInfo | None, key: str, *, if_absent: bool, if_version: str | None
) -> None:
    if if_absent and current is not None:
        raise AlreadyExists(f"object {key!r} exists")
    if if_version is not None and (current is None or current.version != if_version):
        raise PreconditionFailed(
            f"object {key!r} is not at version {if_version!r}"
            + (": it is gone" if current is None else "")
        )


def _pread(fd: int, start: int, length: int) -> bytes:
    parts: list[bytes] = []
    with storage_errors("read from the file of an object", writing=False):
        while length > 0 and (part := os.pread(fd, length, start)):
            parts.append(part)
            start += len(part)
            length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

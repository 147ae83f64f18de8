"""Objects as files in a local folder: a file contains the bytes of its object and nothing else.

A write goes to a temporary file, which is synced, then moved into place atomically, then the folder
is synced: a crash leaves the old object or the new one, and at worst a temporary file that
`sweep()` deletes. Conditions hold between processes: put-if-absent is a hard link, and a replace is
checked and done under the lock of its shard.

The version of an object is its modification time, to the microsecond, and its size. The store sets
the time, never twice the same for one key, so that a version changes with every write and outlives
the process.

    ROOT/streams+/ab12+/0001.parquet     objects; see below for the path of a key
    ROOT/.fourfold/tmp/                  writes in progress
    ROOT/.fourfold/locks/                64 lock files

A key belongs to one of 64 shards; each shard is a lock file, held with flock while an object is
checked and replaced. A killed process holds no lock. The lock file also stores the newest stamp: a
stamp is the time in microseconds, moved forward if necessary so that a shard never assigns one
twice, even if the clock is set back. (It is not synced: only a power failure together with a clock
that is set back could repeat a stamp.)

In the path of a key, a segment is percent-encoded except for `a-z 0-9 - _ . = , @`, and a leading
dot is encoded too. The name of a folder ends with "+", that of a file does not:

    streams/ab12/0001.parquet    ->  streams+/ab12+/0001.parquet
    README                       ->  %52%45%41%44%4d%45

So the object "a" (file `a`) and the object "a/b" (file `a+/b`) never collide. One folder has no
"+", so that readers of Delta tables find it: `_delta_log`; a file of that name is `%5fdelta_log`.
Two keys never share a file on a file system that folds case or normalises Unicode, since capital
letters and non-ASCII bytes are encoded. No key maps to a name that starts with a dot, which is
reserved for the store.

A segment of 80 bytes or more would not fit a file name once encoded. Its first 80 bytes become a
folder whose name ends with "%", and the rest is treated likewise inside; if no rest is left, the
file is called "%". All keys that share those 80 bytes are in that folder, so walking the folders in
order yields the keys in order.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import re
import stat
import struct
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold.cache import LruCache
from fourfold.durability import sync_file, sync_folder
from fourfold.errors import (
    AlreadyExists,
    DiskFull,
    FourfoldError,
    InvalidConfig,
    InvalidInput,
    LockTimeout,
    NotFound,
    PreconditionFailed,
    ReadOnly,
    StorageError,
)
from fourfold.objects.protocol import Handle, Object, ObjectInfo
from fourfold.objects.validation import (
    check_chunk_bytes,
    check_conditions,
    check_data,
    check_key,
    check_prefix,
    check_range,
    checked_chunks,
    is_key,
)
from fourfold.retry import Retries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fourfold.objects.protocol import Data

OBJECT_FOLDER_PIECE_BYTES: Final = 80
"""A longer part of a key is spread over nested folders: 80 bytes, each escaped, fit a
file name.
"""
OBJECT_FOLDER_LOCKS: Final = 64
"""Lock files; keys share them by hash."""
OBJECT_LOCK_WAIT_S: Final = 60.0
"""Maximum wait for the lock of a key."""
OBJECT_LOCK_POLL_S: Final = 0.001
OBJECT_LOCK_POLL_S_MAX: Final = 0.05
"""First and longest pause between two attempts to lock."""
OBJECT_FOLDERS_KNOWN_MAX: Final = 65_536
"""Folders that this process has synced and does not sync again."""
OBJECT_SWEEP_AGE_S: Final = 3_600.0
"""Temporary files younger than this may belong to a running writer."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def storage_errors(what: str, *, writing: bool) -> Iterator[None]:
    """Translate an OSError; `what` completes the message "cannot ..."."""
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


class DurableFolders:
    """Creates folders below a root so that they survive a power failure.

    An existing folder may just have been created by a process that has not synced it yet. So the
    first use in this process syncs its parent, and later uses skip that.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: LruCache[tuple[str, ...], bool] = LruCache(OBJECT_FOLDERS_KNOWN_MAX)

    def ensure_root(self) -> None:
        """Create the root and its missing parents."""
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
        """Create the folder `names` below the root; return its path."""
        path = self._root.joinpath(*names)
        if self._known.get(names):
            return path
        try:
            self._create(names)
        except FileNotFoundError:
            # A parent that was known has been deleted.
            self.clear()
            self._create(names)
        return path

    def _create(self, names: tuple[str, ...]) -> None:
        for depth in range(1, len(names) + 1):
            if self._known.get(names[:depth]):
                continue
            folder = self._root.joinpath(*names[:depth])
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            sync_folder(folder.parent)
            self._known.put(names[:depth], True)

    def clear(self) -> None:
        """Forget which folders exist, since one was deleted by another process."""
        self._known.clear()


class TempFile:
    """A file being written; a sweep deletes it once its writer is dead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(self.path, flags, 0o600)
        # The lock shows a sweep that the writer is alive; it ends with the process.
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.discard()
            raise

    def write(self, data: bytes | memoryview) -> None:
        """Append data to the file."""
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(self.fd, remaining) :]
        self.size += len(data)

    def seal(self, stamp_us: int) -> None:
        """Set the modification time of the file, and sync it to disk."""
        stamp_ns = stamp_us * 1000
        os.utime(self.fd, ns=(stamp_ns, stamp_ns))
        if os.fstat(self.fd).st_mtime_ns != stamp_ns:
            raise StorageError(
                f"{self.path.parent}: the file system does not store times to the microsecond",
                hint="Use another file system: versions of objects need exact times.",
            )
        sync_file(self.fd)

    def discard(self) -> None:
        """Close the file, and delete it unless it was renamed."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self.fd)


@contextmanager
def temp_file(folder: Path, chunks: Iterable[bytes | memoryview], key: str) -> Iterator[TempFile]:
    """Write the chunks to a temporary file that is deleted afterwards, unless it was renamed."""
    with storage_errors(f"create a temporary file for object {key!r}", writing=True):
        # No key maps to this name.
        temp = TempFile(folder / uuid.uuid4().hex)
    try:
        # Errors of the caller's iterator pass unchanged.
        for chunk in chunks:
            with storage_errors(f"write object {key!r}", writing=True):
                temp.write(chunk)
        yield temp
    finally:
        temp.discard()


def sweep_temp_files(folder: Path, older_than_s: float) -> int:
    """Delete temporary files of dead writers; return their number."""
    removed = 0
    newest = time.time() - older_than_s
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return 0
    for entry in entries:
        removed += remove_if_dead(folder / entry.name, newest)
    return removed


def remove_if_dead(path: Path, newest: float) -> bool:
    """Delete a temporary file that is old enough and whose writer is dead."""
    with suppress(FileNotFoundError, BlockingIOError):
        if path.lstat().st_mtime > newest:
            return False
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(fd)
        return True
    return False


_STAMP: Final = struct.Struct("<q")
_STAMP_BOUND: Final = 1 << 62


class ShardLock:
    """A held lock on one shard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def next_stamp(self, above: int) -> int:
        """Return a new stamp of this shard in microseconds, greater than `above`."""
        raw = os.pread(self._fd, _STAMP.size, 0)
        newest = _STAMP.unpack(raw)[0] if len(raw) == _STAMP.size else 0
        if not 0 <= newest < _STAMP_BOUND:
            # A power failure may leave anything in a file that is never synced; the clock has
            # advanced since.
            newest = 0
        stamp = max(time.time_ns() // 1000, newest + 1, above + 1)
        os.pwrite(self._fd, _STAMP.pack(stamp), 0)
        return stamp


class FolderLocks:
    """The lock files of a folder of objects."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Threads wait for each other here; only one of them polls for the lock between processes.
        self._thread_locks = tuple(threading.Lock() for _ in range(OBJECT_FOLDER_LOCKS))

    @contextmanager
    def hold(self, key: str) -> Iterator[ShardLock]:
        """Hold the lock of the shard of `key`; raise LockTimeout if it is not released in time."""
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        shard = int.from_bytes(digest, "big") % OBJECT_FOLDER_LOCKS
        deadline = time.monotonic() + OBJECT_LOCK_WAIT_S
        if not self._thread_locks[shard].acquire(timeout=OBJECT_LOCK_WAIT_S):
            raise self._timeout_error(shard)
        try:
            path = self._folder / f"{shard:02x}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self._acquire(fd, shard, deadline)
                yield ShardLock(fd)
            finally:
                os.close(fd)
        finally:
            self._thread_locks[shard].release()

    def _acquire(self, fd: int, shard: int, deadline: float) -> None:
        retries = Retries(
            most=None,
            pause_s=OBJECT_LOCK_POLL_S,
            pause_max_s=OBJECT_LOCK_POLL_S_MAX,
            within_s=deadline - time.monotonic(),
            on=BlockingIOError,
        )
        try:
            retries.run(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            raise self._timeout_error(shard) from None

    def _timeout_error(self, shard: int) -> LockTimeout:
        return LockTimeout(
            f"lock {self._folder / f'{shard:02x}'}: held for {OBJECT_LOCK_WAIT_S:g} s",
            hint=f"Find the process that holds it: `fuser {self._folder / f'{shard:02x}'}`.",
        )


_FOLDER: Final = "+"
_CUT: Final = "%"
_DELTA_LOG: Final = "_delta_log"
_DELTA_LOG_FILE: Final = "%5fdelta_log"
_PIECE: Final = OBJECT_FOLDER_PIECE_BYTES
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.=,@")
_ENCODED: Final = tuple(chr(b) if b in _SAFE else f"%{b:02x}" for b in range(256))
_ESCAPE: Final = re.compile(rb"%([0-9a-f]{2})")


def path_names(key: str) -> list[str]:
    """Return the names of the folders from the root, then that of the file."""
    *folders, last = key.encode().split(b"/")
    names = folder_names(folders)
    rest = _split(last, names)
    names.append(_file_name(rest) if rest else _CUT)
    return names


def folder_names(segments: list[bytes]) -> list[str]:
    """Return the names of the folders of all keys that start with these segments."""
    names: list[str] = []
    for segment in segments:
        rest = _split(segment, names)
        names.append(_folder_name(rest))
    return names


def _file_name(piece: bytes) -> str:
    name = _encode(piece)
    return _DELTA_LOG_FILE if name == _DELTA_LOG else name


def _folder_name(piece: bytes) -> str:
    name = _encode(piece)
    return name if name == _DELTA_LOG else name + _FOLDER


def _split(segment: bytes, names: list[str]) -> bytes:
    while len(segment) >= _PIECE:
        names.append(_encode(segment[:_PIECE]) + _CUT)
        segment = segment[_PIECE:]
    return segment


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A folder entry and the common start of the keys below it; for a file, the whole key."""

    name: str
    start: bytes
    is_folder: bool


def decode_entry(above: bytes, name: str, *, is_folder: bool) -> FolderEntry | None:
    """Return the key of the file `name` in the folder of the prefix `above`.

    Return None if no key maps to it: files of other programs are not objects.
    """
    piece: bytes | None
    if name in {_DELTA_LOG, _DELTA_LOG_FILE, _DELTA_LOG + _FOLDER}:
        expected = _DELTA_LOG if is_folder else _DELTA_LOG_FILE
        piece, tail = _DELTA_LOG.encode() if name == expected else None, b"/" if is_folder else b""
    elif is_folder and name.endswith(_FOLDER):
        piece, tail = _decode(name[:-1]), b"/"
    elif is_folder and name.endswith(_CUT):
        piece, tail = _decode(name[:-1]), b""
        if piece is not None and len(piece) != _PIECE:
            return None
        return None if piece is None else FolderEntry(name, above + piece, is_folder)
    elif is_folder:
        return None
    else:
        piece, tail = b"" if name == _CUT else _decode(name), b""
    if piece is None or len(piece) >= _PIECE:
        return None
    # Only the rest of a cut segment may be empty: no key has an empty segment.
    if not piece and (not above or above.endswith(b"/")):
        return None
    return FolderEntry(name, above + piece + tail, is_folder)


def _encode(piece: bytes) -> str:
    name = "".join(_ENCODED[b] for b in piece)
    return f"%2e{name[1:]}" if name.startswith(".") else name


def _decode(name: str) -> bytes | None:
    try:
        piece = _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), name.encode("ascii"))
    except UnicodeEncodeError:
        return None
    return piece if _encode(piece) == name else None


_OWN: Final = ".fourfold"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class FolderStore(Handle):
    """An ObjectStore in a local folder, which is created if it is missing."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.fspath(root)).absolute()
        super().__init__(str(self._root))
        self._folders = DurableFolders(self._root)
        self._locks = FolderLocks(self._root / _OWN / "locks")
        if self._root.exists() and not self._root.is_dir():
            raise InvalidConfig(
                f"{self._root}: expected a folder for objects, found a file", hint="Use a folder."
            )
        with storage_errors(f"create folder {self._root}", writing=True):
            self._folders.ensure_root()

    @property
    def root(self) -> Path:
        """The folder of the store."""
        return self._root

    @property
    def temp_folder(self) -> Path:
        """The folder of writes in progress."""
        return self._root / _OWN / "tmp"

    def path(self, key: str) -> Path:
        """Return the path of the file of a key, whether or not it exists."""
        return self._root.joinpath(*path_names(check_key(key)))

    def file_path(self, key: str) -> str:
        """Return the path of the file of a key, relative to the root."""
        return "/".join(path_names(check_key(key)))

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object."""
        self._check_open()
        check_key(key)
        check_conditions(if_absent=if_absent, if_version=if_version)
        chunks = (check_data(data),)
        return self._write(key, chunks, if_absent=if_absent, if_version=if_version)

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from chunks; if the iterable raises, nothing is written."""
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
        # An early check saves the write; the decisive check is made under the lock.
        _check_condition(
            self._stat_object(key, target), key, if_absent=if_absent, if_version=if_version
        )
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
                    current = _file_info(key, _stat(target))
                    _check_condition(current, key, if_absent=if_absent, if_version=if_version)
                    if if_absent:
                        os.link(temp.path, target)
                    else:
                        temp.path.rename(target)
            except FileExistsError as exc:
                raise AlreadyExists(f"object {key!r} already exists") from exc
            except FileNotFoundError:
                if last_try:
                    raise
                self._folders.clear()
            else:
                return

    def get(self, key: str) -> Object:
        """Return the object; raise NotFound if it does not exist."""
        with self._opened(key) as (fd, info):
            return Object(_pread(fd, 0, info.size), info)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        start, length = check_range(start, length)
        with self._opened(key) as (fd, info):
            return _pread(fd, start, min(length, info.size - start))

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one version in chunks. The first step raises NotFound."""
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
                # A symbolic link (ELOOP) is not an object: the store never creates one.
                if exc.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    raise
                raise NotFound(f"object {key!r} does not exist") from None
        try:
            info = _file_info(key, os.fstat(fd))
            if info is None:
                raise NotFound(f"object {key!r} does not exist: {path} is not a file")
            # A file never changes once it has its name, so an open file is one version.
            yield fd, info
        finally:
            os.close(fd)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of the object, or None if it does not exist."""
        self._check_open()
        return self._stat_object(key, self.path(key))

    def _stat_object(self, key: str, path: Path) -> ObjectInfo | None:
        with storage_errors(f"read the metadata of object {key!r}", writing=False):
            return _file_info(key, _stat(path))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is after `start_after`, in order."""
        self._check_open()
        check_prefix(prefix)
        if start_after is not None:
            check_prefix(start_after, "start_after")
        return self._walk(prefix.encode(), b"" if start_after is None else start_after.encode())

    def _walk(self, prefix: bytes, after: bytes) -> Iterator[ObjectInfo]:
        # Sort the names of one folder at a time; use a stack, since keys nest up to 512 deep.
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
                info = self._stat_object(key, folder / entry.name)
                if info is not None:
                    yield info

    def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        self._check_open()
        path = self.path(key)
        if not self._unlink(key, path):
            return False
        with storage_errors(f"delete object {key!r}", writing=True):
            sync_folder(path.parent)
        return True

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are not an error."""
        self._check_open()
        paths = {key: self.path(key) for key in keys}
        touched = {path.parent for key, path in paths.items() if self._unlink(key, path)}
        with storage_errors("make deletions durable", writing=True):
            for folder in touched:
                sync_folder(folder)

    def _unlink(self, key: str, path: Path) -> bool:
        if self._stat_object(key, path) is None:
            return False
        with storage_errors(f"delete object {key!r}", writing=True):
            self._folders.ensure((_OWN, "locks"))
            with self._locks.hold(key):
                try:
                    path.unlink()
                except (FileNotFoundError, NotADirectoryError):
                    return False
        return True

    def sweep(self, older_than_s: float = OBJECT_SWEEP_AGE_S) -> int:
        """Delete temporary files of dead writers that are older than this; return their number.

        The temporary file of a live writer is never deleted.
        """
        self._check_open()
        if not (math.isfinite(older_than_s) and older_than_s >= 0):
            raise InvalidInput(f"older_than_s must be a number of seconds, got {older_than_s!r}")
        with storage_errors(f"sweep {self.temp_folder}", writing=True):
            return sweep_temp_files(self.temp_folder, older_than_s)


def _entries(folder: Path, start: bytes, prefix: bytes, after: bytes) -> Iterator[FolderEntry]:
    """Return the entries of one folder that may contain matching keys, in key order."""
    entries: list[FolderEntry] = []
    with storage_errors(f"list folder {folder}", writing=False):
        try:
            with os.scandir(folder) as scan:
                for item in scan:
                    is_folder = item.is_dir(follow_symlinks=False)
                    if not is_folder and not item.is_file(follow_symlinks=False):
                        continue
                    entry = decode_entry(start, item.name, is_folder=is_folder)
                    if entry is not None and _matches(entry, prefix, after):
                        entries.append(entry)
        except (FileNotFoundError, NotADirectoryError):
            return iter(())
    entries.sort(key=lambda entry: entry.start)
    return iter(entries)


def _matches(entry: FolderEntry, prefix: bytes, after: bytes) -> bool:
    start = entry.start
    if not entry.is_folder:
        return start.startswith(prefix) and start > after
    if not (start.startswith(prefix) or prefix.startswith(start)):
        return False
    return start > after or after.startswith(start)


def _key(name: bytes) -> str | None:
    """Return the key, or None for a file of another program."""
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


def _file_info(key: str, status: os.stat_result | None) -> ObjectInfo | None:
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


def _check_condition(
    current: ObjectInfo | None, key: str, *, if_absent: bool, if_version: str | None
) -> None:
    if if_absent and current is not None:
        raise AlreadyExists(f"object {key!r} already exists")
    if if_version is not None and (current is None or current.version != if_version):
        raise PreconditionFailed(
            f"object {key!r} is not at version {if_version!r}"
            + (": it does not exist" if current is None else "")
        )


def _pread(fd: int, start: int, length: int) -> bytes:
    parts: list[bytes] = []
    with storage_errors("read from the file of an object", writing=False):
        while length > 0 and (part := os.pread(fd, length, start)):
            parts.append(part)
            start += len(part)
            length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

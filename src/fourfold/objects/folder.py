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

Files and folders that survive a power cut, and the operating system's errors in our tree.

Locks between processes and threads for a folder of objects, and the stamps that make versions.

A key belongs to one of 64 shards; each shard is a lock file, held with flock while an object is
checked and replaced. A killed process holds no lock. The lock file also remembers the newest stamp
handed out: a stamp is the time in microseconds, moved forward where needed so that no shard hands
out one twice, also when the clock is set back. (The number is not synced: it takes a power cut and
a clock that comes back earlier than it was to repeat one.)

How a key becomes a path inside a local folder, and back.

A segment is percent-encoded but for `a-z 0-9 - _ . = , @`, and a leading dot is encoded too. A
folder's name ends with "+", a file's does not:

    streams/ab12/0001.parquet    ->  streams+/ab12+/0001.parquet
    README                       ->  %52%45%41%44%4d%45

So the object "a" (file `a`) and the object "a/b" (file `a+/b`) never collide; two keys never share
a file on a file system that folds case or normalises Unicode, since capital letters and non-ASCII
bytes are encoded; and no key reaches a name that starts with a dot, which is where a store keeps
its own files.

A segment of 80 bytes or more would not fit a file name once encoded. Its first 80 bytes become a
folder whose name ends with "%", and the rest is treated likewise inside; when no rest is left, the
file is called "%". Every key that shares those 80 bytes lies in that folder, so walking the
folders in order still gives the keys in order.
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

from fourfold import limits
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fourfold.objects.protocol import Data


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


_FOLDER: Final = "+"
_CUT: Final = "%"
_PIECE: Final = limits.OBJECT_FOLDER_PIECE_BYTES
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.=,@")
_ENCODED: Final = tuple(chr(b) if b in _SAFE else f"%{b:02x}" for b in range(256))
_ESCAPE: Final = re.compile(rb"%([0-9a-f]{2})")


def path_names(key: str) -> list[str]:
    """The names of the folders from the root, then that of the file."""
    *folders, last = key.encode().split(b"/")
    names = folder_names(folders)
    rest = _cut(last, names)
    names.append(_encode(rest) if rest else _CUT)
    return names


def folder_names(segments: list[bytes]) -> list[str]:
    """The names of the folders that hold every key that starts with these whole segments."""
    names: list[str] = []
    for segment in segments:
        rest = _cut(segment, names)
        names.append(_encode(rest) + _FOLDER)
    return names


def _cut(segment: bytes, names: list[str]) -> bytes:
    while len(segment) >= _PIECE:
        names.append(_encode(segment[:_PIECE]) + _CUT)
        segment = segment[_PIECE:]
    return segment


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry and the start of every key below it: for a file, the whole key."""

    name: str
    start: bytes
    is_folder: bool


def decode_entry(above: bytes, name: str, *, is_folder: bool) -> Entry | None:
    """The entry called `name` in the folder of all keys that start with `above`.

    None when no key maps to it: other programs' files are not objects.
    """
    if is_folder and name.endswith(_FOLDER):
        piece, tail = _decode(name[:-1]), b"/"
    elif is_folder and name.endswith(_CUT):
        piece, tail = _decode(name[:-1]), b""
        if piece is not None and len(piece) != _PIECE:
            return None
        return None if piece is None else Entry(name, above + piece, is_folder)
    elif is_folder:
        return None
    else:
        piece, tail = b"" if name == _CUT else _decode(name), b""
    if piece is None or len(piece) >= _PIECE:
        return None
    # Only the rest of a cut segment may be empty: no key has an empty segment.
    if not piece and (not above or above.endswith(b"/")):
        return None
    return Entry(name, above + piece + tail, is_folder)


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

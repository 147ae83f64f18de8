"""Simulate under SQLite what a power cut leaves of a database.

A kill never loses what a process has written, because the operating system holds it; a power cut
loses everything that was not synced. `simulated_disk` registers a VFS that passes everything on to
the real file system and records, for each file in one folder, what was durable and what was written
since. A `Cut` is that record at one instant; `Cut.leave` writes into another folder what a machine
might find after the cut, and a database is opened on it with the normal VFS.

    with simulated_disk(folder) as disk:
        db = Database.open(folder / "x.db", vfs=disk.vfs)
        disk.observer = lambda operation: ...      called before each change of the disk
        cut = disk.cut()
    cut.leave(elsewhere, Random(1), "sectors")

Simulated:
- a sync (SQLite's, or `os.fsync` of the file by Python code) makes all earlier writes and
  truncations of that file durable, and nothing else does;
- writes that were not synced are lost, kept, kept up to some point that may be inside a write, or
  kept and lost sector by sector (512 or 4096 bytes) in any order; the file may have grown to its
  new length with zeros in place of what was lost;
- names: a file that was created or deleted is so only after its folder was synced (by `os.fsync`
  of the folder, or by SQLite, which syncs it with the first sync of a new log or journal); changes
  that were not synced survive as a prefix, as in a journalling file system;
- the shared memory file is lost, or contains random bytes.

Not simulated: bytes outside a write in flight are never damaged (SQLite relies on that too), a sync
that returned is always true, and files that SQLite does not open (backups, sidecars, locks) are not
tracked. No sync reaches the real disk, so the simulation is fast.
"""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import apsw

Damage = Literal["lost", "kept", "prefix", "sectors"]
DAMAGES: tuple[Damage, ...] = ("lost", "kept", "prefix", "sectors")
_SECTOR_BYTES = (512, 4096)
_SHARED_MEMORY_BYTES = 32_768
_SYNCS_FOLDER = (
    apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        end = self.offset + len(self.data)
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : end] = self.data

    def sectors(self, size: int) -> Iterator[_Write]:
        """Yield the write as pieces that a disk stores atomically."""
        start = self.offset
        end = start + len(self.data)
        while start < end:
            stop = min(end, (start // size + 1) * size)
            yield _Write(start, self.data[start - self.offset : stop - self.offset])
            start = stop


@dataclass(frozen=True, slots=True)
class _Truncation:
    length: int

    def apply(self, content: bytearray) -> None:
        if len(content) > self.length:
            del content[self.length :]
        else:
            content.extend(bytes(self.length - len(content)))

    def sectors(self, _size: int) -> Iterator[_Truncation]:
        yield self


@dataclass(slots=True)
class _File:
    """Contents of one file: durable bytes, and changes since."""

    durable: bytearray
    pending: list[_Write | _Truncation] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def copy(self) -> _File:
        return _File(bytearray(self.durable), list(self.pending))

    def read_after_cut(self, random: Random, damage: Damage) -> bytes:
        """Return the contents after the power cut."""
        content = bytearray(self.durable)
        if damage == "lost":
            return bytes(content)
        size = random.choice(_SECTOR_BYTES)
        if damage == "sectors":
            self._keep_some(content, random, size)
            return bytes(content)
        until = len(self.pending) if damage == "kept" else random.randint(0, len(self.pending))
        for change in self.pending[:until]:
            change.apply(content)
        for change in self.pending[until : until + 1]:
            pieces: list[_Write | _Truncation] = list(change.sectors(size))
            for piece in pieces[: random.randint(0, len(pieces) - 1)]:
                piece.apply(content)
        return bytes(content)

    def _keep_some(self, content: bytearray, random: Random, size: int) -> None:
        chance = random.choice((0.2, 0.5, 0.9))
        longest = len(content)
        for change in self.pending:
            for piece in change.sectors(size):
                if random.random() < chance:
                    piece.apply(content)
                if isinstance(piece, _Write):
                    longest = max(longest, piece.offset + len(piece.data))
        if random.random() < 0.5 and longest > len(content):
            content.extend(bytes(longest - len(content)))


@dataclass(frozen=True, slots=True)
class Cut:
    """The state of the disk at one instant."""

    operation: int
    durable_names: dict[str, _File]
    pending_names: tuple[tuple[str, _File | None], ...]

    def leave(self, folder: Path, random: Random, damage: Damage) -> None:
        """Write into `folder` what might be found after the power cut."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in self._names(random, damage).items():
            (folder / name).write_bytes(file.read_after_cut(random, damage))
            if name.endswith("-wal") and random.random() < 0.5:
                rubbish = folder / f"{name.removesuffix('-wal')}-shm"
                rubbish.write_bytes(random.randbytes(_SHARED_MEMORY_BYTES))

    def _names(self, random: Random, damage: Damage) -> dict[str, _File]:
        count = len(self.pending_names)
        until = {"lost": 0, "kept": count}.get(damage, random.randint(0, count))
        names = dict(self.durable_names)
        for name, file in self.pending_names[:until]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        return names


class Disk:
    """State of the simulated disk of one folder; created by `simulated_disk`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vfs = f"fourfold-power-cut-{next(_numbers)}"
        self.operations = 0
        self.observer: Callable[[int], None] | None = None
        """Called with the number of each operation before it, while the disk is locked."""
        self._lock = threading.RLock()
        self._existing_names = _names_in(folder)
        """Names that existed, or were synced, before SQLite opened them."""
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._pending_names: list[tuple[str, _File | None]] = []

    def cut(self) -> Cut:
        """Return the state of a power cut now; the database may continue."""
        with self._lock:
            copies = {
                id(file): file.copy()
                for file in (
                    *self._durable_names.values(),
                    *(file for _, file in self._pending_names if file is not None),
                )
            }
            return Cut(
                self.operations,
                {name: copies[id(file)] for name, file in self._durable_names.items()},
                tuple(
                    (name, None if file is None else copies[id(file)])
                    for name, file in self._pending_names
                ),
            )

    @contextmanager
    def operation(self) -> Iterator[None]:
        """One change of the disk, which nothing else interrupts."""
        with self._lock:
            self.operations += 1
            if self.observer is not None:
                self.observer(self.operations)
            yield

    def open_file(self, name: str, *, existed: bool) -> _File:
        """Return the tracked file of a name."""
        with self._lock:
            file = self._names.get(name)
            if file is None:
                file = self._names[name] = _File(bytearray((self.folder / name).read_bytes()))
                if existed and name in self._existing_names:
                    self._durable_names[name] = file
                else:
                    self._pending_names.append((name, file))
            return file

    def delete_name(self, name: str) -> None:
        """Record the deletion of a file."""
        with self._lock:
            self._names.pop(name, None)
            self._existing_names.discard(name)
            self._pending_names.append((name, None))

    def sync_names(self) -> None:
        """Make creations and deletions of files durable."""
        with self._lock:
            self._existing_names |= _names_in(self.folder)
            for name, file in self._pending_names:
                if file is None:
                    self._durable_names.pop(name, None)
                else:
                    self._durable_names[name] = file
            self._pending_names.clear()

    def handle_fsync(self, descriptor: int) -> bool:
        """Handle `os.fsync`; return True if it concerned a file or folder of this disk."""
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            if not os.path.samestat(status, self.folder.stat()):
                return False
            with self.operation():
                self.sync_names()
            return True
        with self._lock:
            for name, file in self._names.items():
                path = self.folder / name
                if path.exists() and os.path.samestat(status, path.stat()):
                    with self.operation():
                        file.sync()
                    return True
        return False


def _names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class _TrackedFile(apsw.VFSFile):
    """A file of SQLite whose changes the disk records."""

    def __init__(self, disk: Disk, filename: str | apsw.URIFilename, flags: list[int]) -> None:
        path = Path(filename if isinstance(filename, str) else filename.filename())
        existed = path.exists()
        super().__init__("", filename, flags)
        self._disk = disk
        self._file = disk.open_file(path.name, existed=existed)
        open_flags = flags[0]
        self._syncs_folder = bool(
            open_flags & apsw.SQLITE_OPEN_CREATE and open_flags & _SYNCS_FOLDER
        )

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.operation():
            super().xWrite(data, offset)
            self._file.pending.append(_Write(offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._disk.operation():
            super().xTruncate(newsize)
            self._file.pending.append(_Truncation(newsize))

    def xSync(self, _flags: int) -> None:  # noqa: N802
        with self._disk.operation():
            self._file.sync()
            if self._syncs_folder:
                self._syncs_folder = False
                self._disk.sync_names()


class _TrackingVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.vfs, "")
        self._disk = disk

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile("", name, flags)
        return _TrackedFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self._disk.operation():
            super().xDelete(filename, syncdir)
            self._disk.delete_name(Path(filename).name)
            if syncdir:
                self._disk.sync_names()


@contextmanager
def simulated_disk(folder: Path) -> Iterator[Disk]:
    """Simulate a disk under `folder`; open databases with its `vfs` within the block.

    `os.fsync` is intercepted, because the kernel also syncs the log itself.
    """
    disk = Disk(folder)
    vfs = _TrackingVFS(disk)
    real_fsync = os.fsync

    def intercepted_fsync(descriptor: int) -> None:
        if not disk.handle_fsync(descriptor):
            real_fsync(descriptor)

    os.fsync = intercepted_fsync  # type: ignore[assignment]
    try:
        yield disk
    finally:
        os.fsync = real_fsync
        vfs.unregister()

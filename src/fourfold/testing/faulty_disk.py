"""A disk that fails on command: a layer between SQLite and the file system of the machine.

    with FaultyDisk() as disk:
        db = Database.open(path, vfs=disk.name)
        disk.fail("sync", "-wal")                 every fsync of a write-ahead log fails from now on
        disk.fail("write", "-wal", how="full", after=3)        the fourth write finds no space left
        disk.mend()

Operations are `write`, `sync` and `truncate`; files are chosen by how their names end. What the
layer does not fail it hands on, so the bytes on disk are those that SQLite wrote. It counts every
operation, which lets a test say that an fsync took place.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Self, get_args

import apsw

from fourfold.errors import InvalidInput

Operation = Literal["write", "sync", "truncate"]
How = Literal["full", "io"]

_IO_CODES: dict[str, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}
_numbers = count(1)


@dataclass(slots=True)
class _Trouble:
    operation: str
    suffix: str
    how: str
    after: int
    times: int | None


class FaultyDisk:
    """Registered with SQLite under `name` until it is closed."""

    def __init__(self) -> None:
        self.name = f"fourfold-faulty-{next(_numbers)}"
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each operation reached each file, by (operation, file name)."""
        self._troubles: list[_Trouble] = []
        self._lock = threading.Lock()
        self._layer = _Layer(self)

    def fail(
        self,
        operation: Operation,
        suffix: str = "",
        *,
        how: How = "io",
        after: int = 0,
        times: int | None = None,
    ) -> None:
        """Let `operation` on files whose names end in `suffix` fail: first `after` more succeed,
        then the next `times` (or all) do not.
        """
        if operation not in get_args(Operation) or how not in get_args(How):
            raise InvalidInput(f"a disk cannot fail {operation!r} with {how!r}")
        with self._lock:
            self._troubles.append(_Trouble(operation, suffix, how, after, times))

    def mend(self) -> None:
        """Back to a disk that works."""
        with self._lock:
            self._troubles.clear()

    def count(self, operation: Operation, suffix: str = "") -> int:
        """How many times `operation` was asked of files whose names end in `suffix`."""
        with self._lock:
            return sum(
                times
                for (asked, name), times in self.calls.items()
                if asked == operation and name.endswith(suffix)
            )

    def close(self) -> None:
        self._layer.unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meet(self, operation: str, name: str) -> None:
        """Called by a file before it does `operation`; raises what SQLite is to see."""
        with self._lock:
            self.calls[operation, name] += 1
            for trouble in self._troubles:
                if trouble.operation != operation or not name.endswith(trouble.suffix):
                    continue
                if trouble.after:
                    trouble.after -= 1
                    continue
                if trouble.times is not None:
                    if not trouble.times:
                        continue
                    trouble.times -= 1
                raise _error(operation, trouble.how, name)


class _Layer(apsw.VFS):
    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(  # noqa: N802  (the name is SQLite's)
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _File(self._disk, name, flags)


class _File(apsw.VFSFile):
    def __init__(
        self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.meet("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.meet("sync", self._name)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.meet("truncate", self._name)
        super().xTruncate(newsize)


def _error(operation: str, how: str, name: str) -> apsw.Error:
    if how == "full":
        return apsw.FullError(f"the disk is full: {operation} of {name}")
    error = apsw.IOError(f"the disk failed: {operation} of {name}")
    # The stubs of apsw leave this attribute out.
    error.extendedresult = _IO_CODES[operation]  # type: ignore[attr-defined]
    return error

"""A disk that fails on command: a layer between SQLite and the file system.

    with FaultyDisk() as disk:
        db = Database.open(path, vfs=disk.name)
        disk.fail("sync", "-wal")                 every fsync of a write-ahead log fails from now on
        disk.fail("write", "-wal", how="full", after=3)        the fourth write finds no space left
        disk.repair()

Operations are `write`, `sync` and `truncate`; files are selected by the suffix of their names. The
layer passes on what it does not fail, so the bytes on disk are those that SQLite wrote. It counts
every operation, so that a test can assert that an fsync took place.
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
class _Fault:
    operation: str
    suffix: str
    how: str
    after: int
    times: int | None


class FaultyDisk:
    """A SQLite VFS, registered under `name` until it is closed."""

    def __init__(self) -> None:
        self.name = f"fourfold-faulty-{next(_numbers)}"
        self.calls: Counter[tuple[str, str]] = Counter()
        """Number of calls by (operation, file name)."""
        self._faults: list[_Fault] = []
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
        """Make `operation` fail on files whose names end in `suffix`.

        The next `after` operations succeed, then the next `times` (default: all) fail.
        """
        if operation not in get_args(Operation) or how not in get_args(How):
            raise InvalidInput(
                f"fault: unknown operation or failure, got {operation!r} and {how!r}"
            )
        with self._lock:
            self._faults.append(_Fault(operation, suffix, how, after, times))

    def repair(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def count(self, operation: Operation, suffix: str = "") -> int:
        """Count the calls of `operation` on files whose names end in `suffix`."""
        with self._lock:
            return sum(
                times
                for (called, name), times in self.calls.items()
                if called == operation and name.endswith(suffix)
            )

    def close(self) -> None:
        """Unregister the VFS."""
        self._layer.unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_fault(self, operation: str, name: str) -> None:
        """Raise the error that SQLite is to see, if `operation` on a file fails."""
        with self._lock:
            self.calls[operation, name] += 1
            for fault in self._faults:
                if fault.operation != operation or not name.endswith(fault.suffix):
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                if fault.times is not None:
                    if not fault.times:
                        continue
                    fault.times -= 1
                raise _error(operation, fault.how, name)


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
        self._disk.check_fault("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.check_fault("sync", self._name)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.check_fault("truncate", self._name)
        super().xTruncate(newsize)


def _error(operation: str, how: str, name: str) -> apsw.Error:
    if how == "full":
        return apsw.FullError(f"the disk is full: {operation} of {name}")
    error = apsw.IOError(f"the disk failed: {operation} of {name}")
    # The stubs of apsw leave this attribute out.
    error.extendedresult = _IO_CODES[operation]  # type: ignore[attr-defined]
    return error

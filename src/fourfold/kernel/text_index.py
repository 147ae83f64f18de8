"""Full-text indexes in files of their own: written once with FTS5, and then only read.

An index is read in place, as a part of another file or of an object: SQLite gets its pages from a
function. The texts are not in the index, only which rows contain which words.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from fourfold.errors import CorruptData
from fourfold.kernel.driver import connect, translate

ReadPages = Callable[[int, int], bytes]
"""Called with an offset and a number of bytes; returns fewer at the end."""
_VFS: Final = "fourfold-text-index"
_BATCH_ROWS: Final = 1_000


def write_text_index(
    path: Path, columns: int, rows: Iterable[Sequence[str | None]], tokenizer: str
) -> None:
    """Write an index of texts into a new file; the first row is number 0."""
    path.touch(exist_ok=False)
    try:
        connection = connect(path, readonly=False)
        try:
            _write(connection, columns, rows, tokenizer)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, str(path)) from error


def _write(
    connection: apsw.Connection,
    columns: int,
    rows: Iterable[Sequence[str | None]],
    tokenizer: str,
) -> None:
    names = ", ".join(f"c{column}" for column in range(columns))
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        f"CREATE VIRTUAL TABLE texts USING fts5({names}, content = '', columnsize = 0,"
        f" detail = full, tokenize = '{tokenizer}')"
    )
    insert = f"INSERT INTO texts (rowid, {names}) VALUES (?{', ?' * columns})"  # noqa: S608
    numbered = ((number, *row) for number, row in enumerate(rows))
    for batch in iter(lambda: list(itertools.islice(numbered, _BATCH_ROWS)), []):
        with connection:
            connection.executemany(insert, batch)
    connection.execute("INSERT INTO texts (texts) VALUES ('optimize')")
    connection.execute("VACUUM")


class TextIndex:
    """An open index. Threads may share it: they take turns."""

    def __init__(self, read: ReadPages, size: int) -> None:
        self._lock = threading.Lock()
        self._name = _SOURCES.add(read, size)
        # Indexes in a cache are not closed one by one.
        weakref.finalize(self, _SOURCES.drop, self._name)
        try:
            self._connection = apsw.Connection(
                f"file:{self._name}?immutable=1",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
                vfs=_VFS,
            )
        except apsw.Error as error:
            raise CorruptData(f"cannot open a text index: {error}") from error

    def find(self, column: int, expression: str, limit: int | None = None) -> list[int]:
        """Return the rows whose text in a column matches an expression of FTS5, the last first."""
        sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?"
        params = (f"c{column} : ({expression})", -1 if limit is None else limit)
        with self._lock:
            try:
                return [row[0] for row in self._connection.execute(sql, params)]
            except apsw.Error as error:
                raise CorruptData(f"cannot read a text index: {error}") from error

    def digest(self) -> str:
        """Return a digest of every word, with its rows, columns, and places there."""
        hashing = hashlib.sha256()
        with self._lock:
            try:
                self._connection.execute(
                    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words"
                    " USING fts5vocab(main, texts, instance)"
                )
                for row in self._connection.execute("SELECT term, doc, col, offset FROM words"):
                    hashing.update(repr(row).encode())
            except apsw.Error as error:
                raise CorruptData(f"cannot read a text index: {error}") from error
        return hashing.hexdigest()

    def close(self) -> None:
        """Close the index."""
        with self._lock:
            self._connection.close()
            _SOURCES.drop(self._name)


class _Sources(apsw.VFS):
    """The VFS of all indexes of this process."""

    def __init__(self) -> None:
        super().__init__(_VFS, "")
        self._numbers = itertools.count()
        self._sources: dict[str, tuple[ReadPages, int]] = {}

    def add(self, read: ReadPages, size: int) -> str:
        """Register an index; return the name under which SQLite opens it."""
        name = f"text-index-{next(self._numbers)}"
        self._sources[name] = (read, size)
        return name

    def drop(self, name: str) -> None:
        """Remove an index."""
        self._sources.pop(name, None)

    def xFullPathname(self, name: str) -> str:  # noqa: N802 - the name in SQLite
        return name

    def xAccess(self, _pathname: str, _flags: int) -> bool:  # noqa: N802
        return False

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        flags[1] = apsw.SQLITE_OPEN_READONLY
        return _Pages(*self._sources[filename])


class _Pages:
    """The pages of one index, as a file of SQLite that is never written."""

    def __init__(self, read: ReadPages, size: int) -> None:
        self._read = read
        self._size = size

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return self._read(offset, max(0, min(amount, self._size - offset)))

    def xFileSize(self) -> int:  # noqa: N802
        return self._size

    def xClose(self) -> None:  # noqa: N802
        pass

    def xLock(self, _level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, _level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, _operation: int, _pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return int(apsw.SQLITE_IOCAP_IMMUTABLE)


_SOURCES: Final = _Sources()

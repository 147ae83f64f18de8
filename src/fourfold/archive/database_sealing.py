"""Sealing of the databases of a publication: in this thread, or in a child process.

A child opens the database by itself, for reading, and writes the files of the publication; large
values it sends to this process, which uploads them. Triggers and the publish status of a database
are written by its own process only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fourfold.archive import capture
from fourfold.archive.capture import CaptureState
from fourfold.archive.child_process import ChildProcess, ParentProcess
from fourfold.archive.sealer import SealResult, ValueTarget, seal_into, seal_watched
from fourfold.archive.subject import Reopen, Subject
from fourfold.archive.table_writer import DatabaseSink, RowOrigin, TableFileWriter, TableWriter
from fourfold.errors import StorageError


class SealedDatabase(NamedTuple):
    """A database whose new rows are in the files of a publication."""

    result: SealResult
    rows: int
    bytes: int
    tables: dict[str, tuple[str, Any]]
    """Name in the database, and schema, of each archive table."""


def seal_here(
    sink: DatabaseSink, subject: Subject, state: CaptureState, values: ValueTarget
) -> SealedDatabase:
    """Write the new rows of a database in this thread."""
    result = seal_into(sink, subject.database, subject.description, state, values)
    return _sealed(sink, result)


def _sealed(sink: DatabaseSink, result: SealResult) -> SealedDatabase:
    return SealedDatabase(result, sink.rows, sink.bytes, sink.tables)


class SealingProcess:
    """Writes rows of databases in a child process.

    After an error, what it has written must be given up.

    Args:
        folder: Folder for the files.
        stop: Returns True if the caller must stop; then ChildStopped is raised.
    """

    def __init__(self, folder: Path, point: int, stop: Callable[[], bool]) -> None:
        self._values: ValueTarget | None = None
        self._process: ChildProcess[_Sealing] = ChildProcess(
            partial(_Sealing, folder, point),
            {"carry": self._carry, "carry_file": self._carry_file},
            stop,
        )

    def seal(
        self, subject: Subject, origin: RowOrigin, state: CaptureState, values: ValueTarget
    ) -> SealedDatabase:
        """Write the new rows of a database that has `reopen`."""
        reopen = subject.reopen
        assert reopen is not None
        self._values = values
        while True:
            watched = capture.watch(subject.database, subject.description)
            has_files = values.contents is not None
            sealed = self._process.run(
                _Sealing.seal, reopen, origin, state, watched, has_files=has_files
            )
            if sealed is not None:
                return sealed

    def finish(self) -> list[TableFileWriter]:
        """Complete the files and return them, by the name of their table."""
        return self._process.run(_Sealing.finish)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _carry(self, digest: str, data: bytes) -> None:
        assert self._values is not None
        self._values.carry(digest, lambda: iter((data,)), len(data))

    def _carry_file(self, digest: str) -> None:
        assert self._values is not None
        contents = self._values.contents
        assert contents is not None
        self._values.carry(digest, lambda: contents(digest), None)


class _Sealing:
    """The files of a publication, in the child."""

    def __init__(self, folder: Path, point: int, parent: ParentProcess) -> None:
        self._parent = parent
        self._writer = TableWriter(folder, point)

    def seal(
        self,
        reopen: Reopen,
        origin: RowOrigin,
        state: CaptureState,
        watched: frozenset[str],
        *,
        has_files: bool,
    ) -> SealedDatabase | None:
        database, description = reopen()
        with database:
            if database.identity() != origin.file_id:
                raise StorageError(f"the database {origin.id!r} was replaced meanwhile")
            sink = self._writer.sink(origin)
            values = ValueTarget(self._carry, _no_chunks if has_files else None)
            result = seal_watched(sink, database, description, state, values, watched=watched)
        return None if result is None else _sealed(sink, result)

    def finish(self) -> list[TableFileWriter]:
        return self._writer.finish()

    def _carry(self, digest: str, chunks: Callable[[], Iterator[bytes]], size: int | None) -> None:
        if size is None:
            self._parent.ask("carry_file", digest)
        else:
            self._parent.ask("carry", digest, b"".join(chunks()))


def _no_chunks(_digest: str) -> Iterator[bytes]:
    """Return nothing: the parent reads the files next to the database."""
    return iter(())

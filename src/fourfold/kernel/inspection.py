"""Inspection, check, backup and restore of a database file without its model.

Except for `restore`, nothing here writes, migrates or takes the writer lock, so it works beside a
running writer and on a file whose model is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fourfold.errors import ForeignFile, FourfoldError, WriterLocked
from fourfold.kernel import backup, files, maintenance, sequences
from fourfold.kernel.driver import Connection, DriverError, translate
from fourfold.kernel.files import APPLICATION_ID, DatabasePlan
from fourfold.kernel.lock import holder
from fourfold.kernel.migrations import applied_version
from fourfold.kernel.profiles import PLAIN
from fourfold.kernel.sequences import Sequence as Counter
from fourfold.kernel.transaction import SQL, ReadTransaction


@dataclass(frozen=True, slots=True)
class Inspection:
    """The facts of a database file."""

    path: Path
    model: str
    database_id: str
    created_at: str
    schema_version: int
    page_size: int
    sequences: dict[str, int]
    size_bytes: int
    wal_size_bytes: int


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return backup.checksum(path)


def inspect(path: Path, counters: Sequence[Counter] | None = None) -> Inspection:
    """Return the facts of the database at `path`.

    `counters` defaults to those in the kernel's own table.
    """
    connection = connect(path)
    try:
        snapshot = ReadTransaction(connection, str(path))
        known = _counters(snapshot) if counters is None else tuple(counters)
        return Inspection(
            path=path,
            model=snapshot.value(SQL.meta_get, ("model",)),
            database_id=snapshot.value(SQL.meta_get, ("database_id",)),
            created_at=snapshot.value(SQL.meta_get, ("created_at",)),
            schema_version=applied_version(snapshot),
            page_size=int(connection.pragma("page_size")),
            sequences={
                counter.name: sequences.current(counter, snapshot, str(path)) for counter in known
            },
            size_bytes=maintenance.size_of(path),
            wal_size_bytes=maintenance.size_of(maintenance.log_path(path)),
        )
    except DriverError as error:
        raise translate(error, str(path)) from error
    finally:
        connection.close()


def model_of(path: Path) -> str:
    """Return the name of the model of the database at `path`."""
    connection = connect(path)
    try:
        return str(ReadTransaction(connection, str(path)).value(SQL.meta_get, ("model",)))
    finally:
        connection.close()


def check(path: Path, counters: Sequence[Counter] | None = None) -> list[str]:
    """Return the problems of the database at `path`."""
    try:
        connection = connect(path)
    except FourfoldError as error:
        return [error.message]
    try:
        problems = maintenance.integrity_problems(connection, str(path))
        snapshot = ReadTransaction(connection, str(path))
        known = _counters(snapshot) if counters is None else tuple(counters)
        for counter in known:
            sequences.check(counter, snapshot, str(path))
    except FourfoldError as error:
        problems.append(error.message)
    finally:
        connection.close()
    return problems


def back_up(
    path: Path,
    destination: Path,
    counters: Sequence[Counter] | None = None,
    progress: backup.Progress | None = None,
) -> backup.Sidecar:
    """Create a verified backup of the newest committed state of the database at `path`."""
    connection = connect(path)
    try:
        return back_up_from(connection, path, destination, counters, progress)
    finally:
        connection.close()


def back_up_from(
    connection: Connection,
    path: Path,
    destination: Path,
    counters: Sequence[Counter] | None,
    progress: backup.Progress | None,
) -> backup.Sidecar:
    """Create a verified backup of the state that a connection reads; see `back_up`."""
    known = (
        _counters(ReadTransaction(connection, str(path))) if counters is None else tuple(counters)
    )
    return backup.create(connection, destination, known, progress)


def check_restore(
    copy: Path,
    target: Path,
    counters: Sequence[Counter] | None = None,
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> None:
    """Raise the error that `restore` would raise, without any change."""
    owner = holder(target)
    if owner is not None:
        raise WriterLocked(
            f"{target}: process {owner.get('pid')} has the database open for writing"
        )
    sidecar = backup.read_sidecar(copy)
    backup.sequences_ahead(
        sidecar,
        target,
        _counters_in(sidecar) if counters is None else tuple(counters),
        advance=advance,
        replace_unreadable=replace_unreadable,
    )


def restore(
    copy: Path,
    target: Path,
    counters: Sequence[Counter] | None = None,
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> backup.Sidecar:
    """Replace `target` by the backup `copy`; see `backup.restore`."""
    if counters is None:
        counters = _counters_in(backup.read_sidecar(copy))
    return backup.restore(
        copy, target, tuple(counters), advance=advance, replace_unreadable=replace_unreadable
    )


def connect(path: Path) -> Connection:
    """Open a database for reading.

    Only through SQLite: closing a plain file descriptor would release every lock that this process,
    and so SQLite, holds on the file.
    """
    files.check_exists(path)
    connection = files.connect_reader(DatabasePlan(path, PLAIN, (), ()))
    try:
        application_id = connection.pragma("application_id")
    except DriverError as error:
        connection.close()
        raise translate(error, str(path)) from error
    if application_id != APPLICATION_ID:
        connection.close()
        raise ForeignFile(f"{path}: not a Fourfold database, or its header is damaged")
    return connection


def _counters_in(sidecar: backup.Sidecar) -> tuple[Counter, ...]:
    return tuple(Counter.named(name) for name in sidecar.sequences)


def _counters(snapshot: ReadTransaction) -> tuple[Counter, ...]:
    return tuple(Counter.named(row[0]) for row in snapshot.all(SQL.sequence_names))

"""Looking at a database file without knowing its model: what it is, whether it is sound, a copy of
it.

Nothing here writes, migrates or takes the writer's lock, so it works beside a running writer and on
a file whose model is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fourfold.errors import ForeignFile, FourfoldError, WriterLocked
from fourfold.kernel import backup, files, maintenance, sequences
from fourfold.kernel.driver import Connection, DriverError, translate
from fourfold.kernel.files import APPLICATION_ID, Plan
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
    """The SHA-256 of a file, in hex."""
    return backup.checksum(path)


def inspect(path: Path, counters: Sequence[Counter] | None = None) -> Inspection:
    """The facts of the database at `path`. Without `counters`, those of the kernel's own table are
    read.
    """
    connection = _connect(path)
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
            sequences={each.name: sequences.current(each, snapshot, str(path)) for each in known},
            size_bytes=maintenance.size_of(path),
            wal_size_bytes=maintenance.size_of(maintenance.log_path(path)),
        )
    except DriverError as error:
        raise translate(error, str(path)) from error
    finally:
        connection.close()


def model_of(path: Path) -> str:
    """Which model's data the database at `path` holds."""
    connection = _connect(path)
    try:
        return str(ReadTransaction(connection, str(path)).value(SQL.meta_get, ("model",)))
    finally:
        connection.close()


def check(path: Path, counters: Sequence[Counter] | None = None) -> list[str]:
    """What is wrong with the database at `path`, in sentences; empty when it is sound."""
    try:
        connection = _connect(path)
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
    """A verified copy of the newest committed state of the database at `path`."""
    connection = _connect(path)
    try:
        known = (
            _counters(ReadTransaction(connection, str(path)))
            if counters is None
            else tuple(counters)
        )
        return backup.take(connection, destination, known, progress)
    finally:
        connection.close()


def refuse_restore(
    copy: Path,
    target: Path,
    counters: Sequence[Counter] | None = None,
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> None:
    """Raise what `restore` would raise, and touch nothing: several are restored, or none."""
    owner = holder(target)
    if owner is not None:
        raise WriterLocked(f"{target}: process {owner.get('pid')} has it open for writing")
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
    """Put the backup `copy` in the place of `target`; see `backup.restore`."""
    if counters is None:
        counters = _counters_in(backup.read_sidecar(copy))
    return backup.restore(
        copy, target, tuple(counters), advance=advance, replace_unreadable=replace_unreadable
    )


def _connect(path: Path) -> Connection:
    """Only SQLite opens the file: closing a plain descriptor of it would drop every lock that this
    process, and so the SQLite in it, holds on it.
    """
    files.must_exist(path)
    connection = files.connect_reader(Plan(path, PLAIN, (), ()))
    try:
        mark = connection.pragma("application_id")
    except DriverError as error:
        connection.close()
        raise translate(error, str(path)) from error
    if mark != APPLICATION_ID:
        connection.close()
        raise ForeignFile(f"{path}: is not one of Fourfold's databases, or its header is damaged")
    return connection


def _counters_in(sidecar: backup.Sidecar) -> tuple[Counter, ...]:
    return tuple(Counter.named(name) for name in sidecar.sequences)


def _counters(snapshot: ReadTransaction) -> tuple[Counter, ...]:
    return tuple(Counter.named(row[0]) for row in snapshot.all(SQL.sequence_names))

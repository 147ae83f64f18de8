"""Online backup and restore, both verified, neither able to leave something half done.

A backup is two files: a standalone copy of the database, and beside it a sidecar (`<name>.json`)
with the identity, the schema version, every sequence, the size and the SHA-256 of the copy. The
copy is taken from one snapshot while writers go on. The sidecar is renamed into place last: a copy
without one was never finished.

A restore checks all of that before it touches the target, and never lowers a sequence: numbers that
were handed out once are not handed out again. The replaced file is kept beside the new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fourfold import limits
from fourfold._version import __version__
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    ForeignFile,
    FutureFormat,
    InvalidInput,
    LockTimeout,
    NotFound,
    SequenceRegression,
    StorageError,
)
from fourfold.kernel import failpoints
from fourfold.kernel.driver import (
    CHECKPOINT_MODES,
    Connection,
    DriverError,
    connect,
    sqlite_version,
    translate,
)
from fourfold.kernel.files import APPLICATION_ID, FILE_MODE, holds_nothing, make_folder, sync_folder
from fourfold.kernel.lock import WriterLock
from fourfold.kernel.migrations import applied_version
from fourfold.kernel.sequences import Sequence, current
from fourfold.kernel.transaction import SQL, ReadTransaction

SIDECAR_FORMAT = 1
_SIDES = ("-wal", "-shm", "-journal")
Progress = Callable[[int, int], None]
"""Called with pages done and pages in all."""


class Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a backup says about itself."""

    format: int
    file: str
    database_id: str
    model: str
    schema_version: int
    sequences: dict[str, int]
    size: int
    sha256: str
    created_at: str
    sqlite_version: str
    fourfold_version: str


class _Format(msgspec.Struct):
    format: int


def sidecar_path(copy: Path) -> Path:
    return copy.with_name(copy.name + ".json")


def take(
    source: Connection,
    destination: Path,
    sequences: tuple[Sequence, ...],
    progress: Progress | None = None,
) -> Sidecar:
    """Copy the snapshot that `source` (a reading connection) sees to `destination`."""
    if destination.exists():
        raise AlreadyExists(
            f"{destination}: there is a file already", hint="Back up to a new name."
        )
    make_folder(destination.parent)
    partial = destination.with_name(f".{destination.name}.partial")
    note = sidecar_path(destination)
    partial_note = note.with_name(f".{note.name}.partial")
    try:
        _create_private(partial)
        _copy(source, partial, progress)
        if failpoints.armed:
            failpoints.hit("kernel.backup.copied")
        sidecar = _inspect(partial, destination.name, sequences)
        _write_durably(partial_note, msgspec.json.format(msgspec.json.encode(sidecar)) + b"\n")
        partial.rename(destination)
        try:
            if failpoints.armed:
                failpoints.hit("kernel.backup.renamed")
            partial_note.rename(note)
        except BaseException:
            destination.unlink()
            raise
        sync_folder(destination.parent)
    except DriverError as error:
        raise translate(error, str(destination)) from error
    except OSError as error:
        raise StorageError(f"{destination}: cannot be written: {error.strerror}") from error
    finally:
        _discard(partial)
        partial_note.unlink(missing_ok=True)
    return sidecar


def read_sidecar(copy: Path) -> Sidecar:
    path = sidecar_path(copy)
    try:
        text = path.read_bytes()
        # The format first: a later one may have fields that this version does not know.
        found = msgspec.json.decode(text, type=_Format).format
        if found > SIDECAR_FORMAT:
            raise FutureFormat(f"{path}: has format {found}, this Fourfold knows {SIDECAR_FORMAT}")
        return msgspec.json.decode(text, type=Sidecar)
    except FileNotFoundError:
        raise NotFound(
            f"{copy}: has no sidecar {path.name}, so the backup was never finished",
            hint="Use another backup; this one proves nothing.",
        ) from None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{path}: is not a backup's sidecar: {error}") from error


def verify(copy: Path) -> Sidecar:
    """Prove that a backup is whole: size, checksum, SQLite's own check, and the facts of the
    sidecar.
    """
    sidecar = read_sidecar(copy)
    if not copy.exists():
        raise NotFound(f"{copy}: the sidecar is there, the copy is not")
    size = copy.stat().st_size
    if size != sidecar.size:
        raise CorruptData(f"{copy}: has {size} bytes, its sidecar says {sidecar.size}")
    digest = checksum(copy)
    if digest != sidecar.sha256:
        raise CorruptData(f"{copy}: its SHA-256 is {digest}, its sidecar says {sidecar.sha256}")
    try:
        connection = connect(copy, readonly=True)
        try:
            problems = integrity_problems(connection)
            if problems:
                raise CorruptData(f"{copy}: {problems[0]}")
            _compare(sidecar, connection, copy)
        finally:
            connection.close()
    except DriverError as error:
        raise translate(error, str(copy)) from error
    return sidecar


def _compare(sidecar: Sidecar, connection: Connection, copy: Path) -> None:
    """The sidecar says nothing about the copy that the copy does not say itself."""
    snapshot = ReadTransaction(connection, str(copy))
    if connection.pragma("application_id") != APPLICATION_ID:
        raise ForeignFile(f"{copy}: is not a copy of one of Fourfold's databases")
    facts: dict[str, tuple[object, object]] = {
        "schema version": (applied_version(snapshot), sidecar.schema_version),
        "identity": (snapshot.value(SQL.meta_get, ("database_id",)), sidecar.database_id),
        "model": (snapshot.value(SQL.meta_get, ("model",)), sidecar.model),
    }
    # Counters in tables of the model are for the model to know.
    for (name,) in snapshot.all(SQL.sequence_names):
        if name in sidecar.sequences:
            newest = current(Sequence.named(name), snapshot, str(copy))
            facts[f"sequence {name!r}"] = (newest, sidecar.sequences[name])
    for fact, (found, said) in facts.items():
        if found != said:
            raise CorruptData(f"{copy}: its {fact} is {found!r}, its sidecar says {said!r}")


def restore(
    copy: Path,
    target: Path,
    sequences: tuple[Sequence, ...],
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> Sidecar:
    """Put a verified backup in the place of `target`.

    A target whose sequences are ahead of the backup is refused; with `advance` the restored
    database continues above them instead. A target that cannot be read is refused too, unless
    `replace_unreadable` says that its sequences are known to be lost.
    """
    sidecar = verify(copy)
    make_folder(target.parent)
    lock = WriterLock(target)
    partial = target.with_name(f".{target.name}.restoring")
    try:
        lower = sequences_ahead(
            sidecar, target, sequences, advance=advance, replace_unreadable=replace_unreadable
        )
        if target.exists():
            _settle_log(target, tolerant=replace_unreadable)
        _create_private(partial)
        _duplicate(copy, partial)
        if lower:
            _lift(partial, lower, sequences)
        if failpoints.armed:
            failpoints.hit("kernel.restore.copied")
        _swap(partial, target)
    except DriverError as error:
        raise translate(error, str(target)) from error
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        _discard(partial)
        lock.release()
    return sidecar


def sequences_ahead(
    sidecar: Sidecar,
    target: Path,
    sequences: tuple[Sequence, ...],
    *,
    advance: bool,
    replace_unreadable: bool,
) -> dict[str, int]:
    """The sequences of `target` ahead of the backup; SequenceRegression unless `advance`."""
    floors = _floors(target, sidecar, sequences, replace_unreadable=replace_unreadable)
    ahead = {name: at for name, at in floors.items() if at > sidecar.sequences.get(name, 0)}
    if ahead and not advance:
        name, at = next(iter(ahead.items()))
        raise SequenceRegression(
            f"{target}: sequence {name!r} is at {at}, "
            f"the backup at {sidecar.sequences.get(name, 0)}",
            hint="Restore into an empty folder, or use --advance to go on above those numbers.",
        )
    return ahead


def integrity_problems(connection: Connection, limit: int = 10) -> list[str]:
    """What SQLite's own check finds wrong; empty when all is well."""
    found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({limit})")]
    return [] if found == ["ok"] else found


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Connection, partial: Path, progress: Progress | None) -> None:
    target = connect(partial, readonly=False)
    try:
        # An open read transaction pins the snapshot, so that writers do not make the copy start
        # over.
        source.execute(SQL.begin_read)
        source.execute(SQL.fix_snapshot).fetchall()
        try:
            with target.backup("main", source, "main") as job:
                while not job.done:
                    job.step(limits.BACKUP_PAGES_PER_STEP)
                    if progress is not None:
                        progress(job.page_count - job.remaining, job.page_count)
        finally:
            source.execute(SQL.rollback)
        # Standalone: readable from read-only media, without a write-ahead log beside it.
        target.pragma("journal_mode", "DELETE")
    finally:
        target.close()
    _sync_file(partial)


def _inspect(partial: Path, name: str, sequences: tuple[Sequence, ...]) -> Sidecar:
    connection = connect(partial, readonly=True)
    try:
        problems = integrity_problems(connection)
        if problems:
            raise CorruptData(
                f"{name}: the copy fails SQLite's check, and so does its source: {problems[0]}"
            )
        snapshot = ReadTransaction(connection, name)
        return Sidecar(
            format=SIDECAR_FORMAT,
            file=name,
            database_id=snapshot.value(SQL.meta_get, ("database_id",)),
            model=snapshot.value(SQL.meta_get, ("model",)),
            schema_version=applied_version(snapshot),
            sequences={sequence.name: current(sequence, snapshot, name) for sequence in sequences},
            size=partial.stat().st_size,
            sha256=checksum(partial),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            sqlite_version=sqlite_version(),
            fourfold_version=__version__,
        )
    finally:
        connection.close()


def _floors(
    target: Path, sidecar: Sidecar, sequences: tuple[Sequence, ...], *, replace_unreadable: bool
) -> dict[str, int]:
    """How far the sequences of the database to be replaced have come."""
    if not target.exists() or not target.stat().st_size:
        return {}
    try:
        connection = connect(target, readonly=True)
        try:
            mark = connection.pragma("application_id")
            if mark in {0, APPLICATION_ID} and holds_nothing(connection):
                return {}
            if mark != APPLICATION_ID:
                raise ForeignFile(
                    f"{target}: is not one of Fourfold's databases, so it is left alone"
                )
            snapshot = ReadTransaction(connection, str(target))
            identity = snapshot.value(SQL.meta_get, ("database_id",))
            if identity != sidecar.database_id:
                raise ForeignFile(
                    f"{target}: is another database than the one that was backed up",
                    hint="Move it away first, or restore to another path.",
                )
            floors = {each.name: current(each, snapshot, str(target)) for each in sequences}
        finally:
            connection.close()
    except (DriverError, CorruptData, InvalidInput) as error:
        reason = translate(error, str(target)) if isinstance(error, DriverError) else error
        if isinstance(reason, LockTimeout):
            raise reason from error
        if replace_unreadable:
            return {}
        raise CorruptData(
            f"{reason.message}; how far its sequences had come cannot be read",
            hint="Use --replace-unreadable to restore all the same; "
            "numbers after the backup may be used again.",
        ) from error
    return floors


def _lift(partial: Path, floors: dict[str, int], sequences: tuple[Sequence, ...]) -> None:
    connection = connect(partial, readonly=False)
    try:
        for sequence in sequences:
            if sequence.name in floors:
                connection.execute(sequence.advance, (floors[sequence.name],))
    finally:
        connection.close()
    _sync_file(partial)


def _settle_log(target: Path, *, tolerant: bool) -> None:
    """Fold the log into the file that is about to be replaced, so that the file alone is the whole.

    A reader that needs the log stops the restore. A file that is broken keeps its log beside it, if
    the caller was `tolerant` enough to give the file up.
    """
    connection = connect(target, readonly=False)
    try:
        connection.set_busy_timeout(limits.BUSY_TIMEOUT_MS)
        # A connection that has read nothing yet does not know of the log, and would leave it alone.
        connection.execute(SQL.fix_snapshot).fetchall()
        connection.wal_checkpoint(mode=CHECKPOINT_MODES["TRUNCATE"])
    except DriverError as error:
        if not tolerant or isinstance(translate(error, str(target)), LockTimeout):
            raise
    finally:
        connection.close()


def _swap(partial: Path, target: Path) -> None:
    """Exchange the files. The old one is kept, and a log of the old one must never be replayed into
    the new one.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    kept = target.with_name(f"{target.name}.replaced-{stamp}")
    if target.exists():
        os.link(target, kept)
    # Also where the file itself is gone: its log may have been left behind.
    for suffix in _SIDES:
        side = Path(f"{target}{suffix}")
        if side.exists():
            side.rename(f"{kept}{suffix}")
    if failpoints.armed:
        failpoints.hit("kernel.restore.kept")
    partial.rename(target)
    if failpoints.armed:
        failpoints.hit("kernel.restore.renamed")
    sync_folder(target.parent)


def _duplicate(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("r+b") as writing:
        while chunk := reading.read(limits.BLOB_CHUNK_BYTES):
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())


def _discard(path: Path) -> None:
    """Remove a partial file, and the journal of one that was cut short: SQLite would play it back
    into the next file of that name.
    """
    for suffix in ("", *_SIDES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _create_private(path: Path) -> None:
    _discard(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def _write_durably(path: Path, data: bytes) -> None:
    _create_private(path)
    path.write_bytes(data)
    _sync_file(path)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

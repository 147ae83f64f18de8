"""Online backup and restore, both verified and atomic.

A backup is two files: a standalone copy of the database, and a sidecar (`<name>.json`) with the
identity, the schema version, every sequence, the size and the SHA-256 of the copy. The copy is made
in one read transaction while writers continue. The sidecar is renamed into place last: a copy
without one is incomplete.

A restore checks all of that before it changes the target, and never lowers a sequence: numbers are
not assigned twice. The replaced file is kept beside the new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from fourfold import limits
from fourfold._version import __version__
from fourfold.durability import sync_file, sync_folder
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
from fourfold.kernel.files import APPLICATION_ID, FILE_MODE, is_empty, make_folder
from fourfold.kernel.lock import WriterLock
from fourfold.kernel.migrations import applied_version
from fourfold.kernel.sequences import Sequence, current
from fourfold.kernel.transaction import SQL, ReadTransaction

BACKUP_PAGES_PER_STEP: Final = 4_096

SIDECAR_FORMAT = 1
_SIDES = ("-wal", "-shm", "-journal")
Progress = Callable[[int, int], None]
"""Called with the number of pages copied and the total."""


class Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Description of a backup, stored as JSON beside the copy."""

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
    """Return the path of the sidecar of a backup."""
    return copy.with_name(copy.name + ".json")


def create(
    source: Connection,
    destination: Path,
    sequences: tuple[Sequence, ...],
    progress: Progress | None = None,
) -> Sidecar:
    """Back up the database of `source`, a read-only connection, to `destination`."""
    if destination.exists():
        raise AlreadyExists(
            f"{destination}: the file already exists", hint="Back up to a new name."
        )
    make_folder(destination.parent)
    partial = destination.with_name(f".{destination.name}.partial")
    sidecar_file = sidecar_path(destination)
    partial_sidecar = sidecar_file.with_name(f".{sidecar_file.name}.partial")
    try:
        _create_private(partial)
        _copy(source, partial, progress)
        if failpoints.armed:
            failpoints.hit("kernel.backup.copied")
        sidecar = _inspect(partial, destination.name, sequences)
        _write_durably(partial_sidecar, msgspec.json.format(msgspec.json.encode(sidecar)) + b"\n")
        partial.rename(destination)
        try:
            if failpoints.armed:
                failpoints.hit("kernel.backup.renamed")
            partial_sidecar.rename(sidecar_file)
        except BaseException:
            destination.unlink()
            raise
        sync_folder(destination.parent)
    except DriverError as error:
        raise translate(error, str(destination)) from error
    except OSError as error:
        raise StorageError(f"{destination}: cannot write the file: {error.strerror}") from error
    finally:
        _discard(partial)
        partial_sidecar.unlink(missing_ok=True)
    return sidecar


def read_sidecar(copy: Path) -> Sidecar:
    """Read the sidecar of a backup; raise NotFound if the backup is incomplete."""
    path = sidecar_path(copy)
    try:
        text = path.read_bytes()
        # The format first: a newer one may have unknown fields.
        version = msgspec.json.decode(text, type=_Format).format
        if version > SIDECAR_FORMAT:
            raise FutureFormat(
                f"{path}: expected at most format {SIDECAR_FORMAT}, found format {version}"
            )
        return msgspec.json.decode(text, type=Sidecar)
    except FileNotFoundError:
        raise NotFound(
            f"{copy}: the backup is incomplete: it has no sidecar {path.name}",
            hint="Use another backup.",
        ) from None
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{path}: not a valid sidecar of a backup: {error}") from error


def verify(copy: Path) -> Sidecar:
    """Check a backup: size, checksum, integrity, and the facts in its sidecar."""
    sidecar = read_sidecar(copy)
    if not copy.exists():
        raise NotFound(f"{copy}: the copy is missing, only its sidecar exists")
    size = copy.stat().st_size
    if size != sidecar.size:
        raise CorruptData(f"{copy}: expected {sidecar.size} bytes, found {size}")
    digest = checksum(copy)
    if digest != sidecar.sha256:
        raise CorruptData(f"{copy}: expected SHA-256 {sidecar.sha256}, found {digest}")
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
    """Raise CorruptData if the facts in the sidecar differ from those in the copy."""
    snapshot = ReadTransaction(connection, str(copy))
    if connection.pragma("application_id") != APPLICATION_ID:
        raise ForeignFile(f"{copy}: not a copy of a Fourfold database")
    facts: dict[str, tuple[object, object]] = {
        "schema version": (applied_version(snapshot), sidecar.schema_version),
        "identity": (snapshot.value(SQL.meta_get, ("database_id",)), sidecar.database_id),
        "model": (snapshot.value(SQL.meta_get, ("model",)), sidecar.model),
    }
    # Counters in tables of a model are known to the model only.
    for (name,) in snapshot.all(SQL.sequence_names):
        if name in sidecar.sequences:
            newest = current(Sequence.named(name), snapshot, str(copy))
            facts[f"sequence {name!r}"] = (newest, sidecar.sequences[name])
    for fact, (found, expected) in facts.items():
        if found != expected:
            raise CorruptData(f"{copy}: expected {fact} {expected!r}, found {found!r}")


def restore(
    copy: Path,
    target: Path,
    sequences: tuple[Sequence, ...],
    *,
    advance: bool = False,
    replace_unreadable: bool = False,
) -> Sidecar:
    """Replace `target` by a verified backup.

    Args:
        advance: If sequences of the target are ahead of the backup, continue above them instead of
            raising SequenceRegression.
        replace_unreadable: Replace a target that cannot be read; its sequences are lost.
    """
    sidecar = verify(copy)
    make_folder(target.parent)
    lock = WriterLock(target)
    partial = target.with_name(f".{target.name}.restoring")
    try:
        ahead = sequences_ahead(
            sidecar, target, sequences, advance=advance, replace_unreadable=replace_unreadable
        )
        if target.exists():
            _checkpoint_log(target, tolerant=replace_unreadable)
        _create_private(partial)
        _duplicate(copy, partial)
        if ahead:
            _advance(partial, ahead, sequences)
        if failpoints.armed:
            failpoints.hit("kernel.restore.copied")
        _swap(partial, target)
    except DriverError as error:
        raise translate(error, str(target)) from error
    except OSError as error:
        raise StorageError(f"{target}: cannot write the file: {error.strerror}") from error
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
    """Return the sequences of `target` ahead of the backup.

    Raise SequenceRegression if there are any, unless `advance`.
    """
    floors = _floors(target, sidecar, sequences, replace_unreadable=replace_unreadable)
    ahead = {name: at for name, at in floors.items() if at > sidecar.sequences.get(name, 0)}
    if ahead and not advance:
        name, at = next(iter(ahead.items()))
        raise SequenceRegression(
            f"{target}: sequence {name!r} is at {at}, "
            f"the backup at {sidecar.sequences.get(name, 0)}",
            hint="Restore into an empty folder, or use --advance to continue above those numbers.",
        )
    return ahead


def integrity_problems(connection: Connection, limit: int = 10) -> list[str]:
    """Return the problems that PRAGMA integrity_check finds."""
    problems = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({limit})")]
    return [] if problems == ["ok"] else problems


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Connection, partial: Path, progress: Progress | None) -> None:
    target = connect(partial, readonly=False)
    try:
        # An open read transaction fixes the state; otherwise each commit would restart the copy.
        if not source.in_transaction:
            source.execute(SQL.begin_read)
            source.execute(SQL.fix_snapshot).fetchall()
        try:
            with target.backup("main", source, "main") as job:
                while not job.done:
                    job.step(BACKUP_PAGES_PER_STEP)
                    if progress is not None:
                        progress(job.page_count - job.remaining, job.page_count)
        finally:
            source.execute(SQL.rollback)
        # Standalone: readable from read-only media, without a write-ahead log.
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
                f"{name}: the copy, and so its source, fails the integrity check: {problems[0]}"
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
    """Return the newest numbers of the sequences of the database to be replaced."""
    if not target.exists() or not target.stat().st_size:
        return {}
    try:
        connection = connect(target, readonly=True)
        try:
            application_id = connection.pragma("application_id")
            if application_id in {0, APPLICATION_ID} and is_empty(connection):
                return {}
            if application_id != APPLICATION_ID:
                raise ForeignFile(f"{target}: not a Fourfold database, so it is not replaced")
            snapshot = ReadTransaction(connection, str(target))
            identity = snapshot.value(SQL.meta_get, ("database_id",))
            if identity != sidecar.database_id:
                raise ForeignFile(
                    f"{target}: the backup is of another database",
                    hint="Move it away first, or restore to another path.",
                )
            floors = {
                sequence.name: current(sequence, snapshot, str(target)) for sequence in sequences
            }
        finally:
            connection.close()
    except (DriverError, CorruptData, InvalidInput) as error:
        reason = translate(error, str(target)) if isinstance(error, DriverError) else error
        if isinstance(reason, LockTimeout):
            raise reason from error
        if replace_unreadable:
            return {}
        raise CorruptData(
            f"{reason.message}; its sequences cannot be read",
            hint="Use --replace-unreadable to restore anyway; "
            "numbers after the backup may be assigned again.",
        ) from error
    return floors


def _advance(partial: Path, floors: dict[str, int], sequences: tuple[Sequence, ...]) -> None:
    connection = connect(partial, readonly=False)
    try:
        for sequence in sequences:
            if sequence.name in floors:
                connection.execute(sequence.advance, (floors[sequence.name],))
    finally:
        connection.close()
    _sync_file(partial)


def replace(staged: Path, target: Path) -> None:
    """Replace the database `target` by the complete and closed one in `staged`, durably.

    Readers that have the old file open continue to read it.

    Raises:
        LockTimeout: A reader needs the log of the old file for too long.
    """
    make_folder(target.parent)
    lock = WriterLock(target)
    try:
        _sync_file(staged)
        if target.exists():
            _checkpoint_log(target, tolerant=False)
        for suffix in _SIDES:
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        staged.rename(target)
        sync_folder(target.parent)
    except DriverError as error:
        raise translate(error, str(target)) from error
    except OSError as error:
        raise StorageError(f"{target}: cannot be replaced: {error.strerror}") from error
    finally:
        lock.release()


def _checkpoint_log(target: Path, *, tolerant: bool) -> None:
    """Checkpoint the file that will be replaced, so that it is complete without its log.

    A reader that needs the log makes the restore fail. If `tolerant`, a damaged file keeps its log
    beside it.
    """
    connection = connect(target, readonly=False)
    try:
        connection.set_busy_timeout(limits.BUSY_TIMEOUT_MS)
        # A connection ignores the log until its first read.
        connection.execute(SQL.fix_snapshot).fetchall()
        connection.wal_checkpoint(mode=CHECKPOINT_MODES["TRUNCATE"])
    except DriverError as error:
        if not tolerant or isinstance(translate(error, str(target)), LockTimeout):
            raise
    finally:
        connection.close()


def _swap(partial: Path, target: Path) -> None:
    """Replace `target` by `partial`. The old file and its log are renamed: the log must never be
    replayed into the new file.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    replaced = target.with_name(f"{target.name}.replaced-{stamp}")
    if target.exists():
        os.link(target, replaced)
    # Even if the file is missing: its log may remain.
    for suffix in _SIDES:
        side = Path(f"{target}{suffix}")
        if side.exists():
            side.rename(f"{replaced}{suffix}")
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
        sync_file(writing.fileno())


def _discard(path: Path) -> None:
    """Delete a partial file and its journal, which SQLite would replay into the next file of that
    name.
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
        sync_file(fd)
    finally:
        os.close(fd)

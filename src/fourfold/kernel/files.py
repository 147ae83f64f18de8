"""Opening a database file, completely or not at all.

    folder ──> lock ──> file ──> connection ──> pragmas ──> one transaction (kernel tables,
    migrations, sequences) ──> checks

If a step raises, the lock is released, the connection closed, and a file created by this call is
deleted. There is no half-open database.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fourfold.durability import sync_folder
from fourfold.errors import (
    ForeignFile,
    FormatError,
    FourfoldError,
    FutureFormat,
    NotFound,
    ReadOnly,
    StorageError,
)
from fourfold.file_state import is_immutable
from fourfold.kernel import migrations as steps
from fourfold.kernel import profiles, sequences
from fourfold.kernel.driver import (
    CHECKPOINT_MODES,
    Connection,
    DriverError,
    connect,
    translate,
)
from fourfold.kernel.lock import WriterLock
from fourfold.kernel.migrations import Migration
from fourfold.kernel.named_queries import read_sql
from fourfold.kernel.profiles import Profile
from fourfold.kernel.sequences import Sequence as Counter
from fourfold.kernel.transaction import SQL, ReadTransaction, Transaction

APPLICATION_ID = 0x46344C44
"""'F4LD' in the header of every file: marks it as a Fourfold database."""

FILE_MODE = 0o600
FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """The path, profile, migrations and sequences of a database to open."""

    path: Path
    profile: Profile
    migrations: tuple[Migration, ...]
    sequences: tuple[Counter, ...]
    vfs: str | None = None
    backups: Path | None = None
    """Folder for backups before migrations; None means `backups/migrations` beside the file."""

    @property
    def subject(self) -> str:
        """The path, as used in error messages."""
        return str(self.path)


def open_for_writing(
    plan: DatabasePlan, before_migrations: Callable[[Connection, DatabasePlan], None]
) -> tuple[WriterLock, Connection]:
    """Return the writer lock and a prepared connection.

    `before_migrations` is called on an existing file, before any change to it.
    """
    make_folder(plan.path.parent)
    lock = WriterLock(plan.path)
    created = False
    connection: Connection | None = None
    try:
        created = _create_file(plan.path)
        connection = connect_writer(plan)
        new_file = is_empty(connection)
        _check_model(connection, plan, new_file=new_file)
        if new_file:
            # Before the file has a log: tools identify a database by its header alone.
            profiles.set_page_size(connection, plan.profile)
            connection.pragma("application_id", APPLICATION_ID)
        profiles.apply_to_writer(connection, plan.profile)
        if not new_file:
            before_migrations(connection, plan)
        _prepare(connection, plan, new_file=new_file)
        if new_file:
            # From now on the file is a valid database even without its log.
            connection.wal_checkpoint("main", CHECKPOINT_MODES["TRUNCATE"])
    except BaseException as error:
        if connection is not None:
            connection.close()
        if created:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{plan.path}{suffix}").unlink(missing_ok=True)
        lock.release()
        if isinstance(error, DriverError):
            raise translate(error, plan.subject) from error
        raise
    return lock, connection


def connect_writer(plan: DatabasePlan) -> Connection:
    """Open a writable connection that waits for locks, without its other pragmas.

    A new file has no log yet: its first change waits for every reader that inspects it.
    """
    try:
        connection = connect(plan.path, readonly=False, vfs=plan.vfs)
    except DriverError as error:
        raise translate(error, plan.subject) from error
    connection.set_busy_timeout(plan.profile.busy_timeout_ms)
    return connection


def connect_reader(plan: DatabasePlan) -> Connection:
    """Open a read-only connection to an existing database."""
    folder = plan.path.parent
    try:
        # SQLite stores shared memory beside a database with a log. In a folder that no user can
        # write, this is impossible and nothing can change, so the file is opened as immutable. If
        # other users can write, it could be read in an inconsistent state, so it is not.
        immutable = is_immutable(str(plan.path))
        connection = connect(plan.path, readonly=True, vfs=plan.vfs, immutable=immutable)
        profiles.apply_to_reader(connection, plan.profile)
        connection.execute(SQL.fix_snapshot).fetchall()
    except DriverError as error:
        if not os.access(folder, os.W_OK):
            raise ReadOnly(
                f"{plan.subject}: no write permission for its folder, which readers need",
                hint="Give this user write permission for the folder, or read a backup.",
            ) from error
        raise translate(error, plan.subject) from error
    return connection


def check_for_reading(connection: Connection, plan: DatabasePlan) -> None:
    """Raise if the file is foreign, of a newer format, or has pending migrations.

    All checks run in one read transaction, because a concurrent writer could otherwise change a
    counter between them. An open transaction of the caller is used.
    """
    begins = not connection.in_transaction
    try:
        if begins:
            connection.execute(SQL.begin_read)
            connection.execute(SQL.fix_snapshot).fetchall()
        check_initialized(connection, plan.subject)
        _check_model(connection, plan, new_file=False)
        snapshot = ReadTransaction(connection, plan.subject)
        pending = steps.pending(snapshot, plan.migrations, plan.subject)
        if pending:
            raise FormatError(
                f"{plan.subject}: {len(pending)} migrations are pending",
                hint="Open it once for writing, which runs them.",
            )
        for sequence in plan.sequences:
            sequences.check(sequence, snapshot, plan.subject)
    except DriverError as error:
        raise translate(error, plan.subject) from error
    finally:
        if begins and connection.in_transaction:
            connection.execute(SQL.rollback)


def is_empty(connection: Connection) -> bool:
    """Return True if the file has no tables: it is new, or its creation was interrupted."""
    return not connection.pragma("page_count") or not connection.execute(SQL.user_tables).get


def check_initialized(connection: Connection, subject: str) -> None:
    """Raise FormatError if a crash interrupted the creation of the file."""
    if is_empty(connection) and connection.pragma("application_id") in {0, APPLICATION_ID}:
        raise FormatError(
            f"{subject}: the database is empty, because its creation was interrupted",
            hint="Open it once for writing, which completes it.",
        )


def make_folder(folder: Path) -> None:
    """Create and sync `folder` and its missing parents, private to this user."""
    if folder.is_dir():
        return
    try:
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for new_folder in reversed(missing):
            new_folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(new_folder.parent)
    except NotADirectoryError as error:
        raise StorageError(f"{folder}: a parent is not a folder") from error
    except FileExistsError as error:
        raise StorageError(f"{folder}: not a folder") from error
    except PermissionError as error:
        raise ReadOnly(f"{folder}: no permission to create the folder") from error
    except OSError as error:
        raise StorageError(f"{folder}: cannot create the folder: {error.strerror}") from error


def check_exists(path: Path) -> None:
    """Raise NotFound if there is no file at `path`."""
    if not path.exists():
        raise NotFound(
            f"{path}: the database does not exist", hint="Check the path, or open it for writing."
        )


def _create_file(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StorageError(f"{path}: not a regular file") from None
        for needed in (path, path.parent):
            # The folder too: the log and its shared memory are created beside the file.
            if not os.access(needed, os.W_OK):
                raise ReadOnly(f"{path}: no permission to write {needed}") from None
        return False
    except PermissionError as error:
        raise ReadOnly(f"{path}: no permission to create the file") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot create the file: {error.strerror}") from error
    os.close(fd)
    sync_folder(path.parent)
    return True


def _check_model(connection: Connection, plan: DatabasePlan, *, new_file: bool) -> None:
    application_id = connection.pragma("application_id")
    if new_file and application_id in {0, APPLICATION_ID}:
        return
    if application_id != APPLICATION_ID:
        raise ForeignFile(f"{plan.subject}: an SQLite database, but not of Fourfold")
    snapshot = ReadTransaction(connection, plan.subject)
    model = snapshot.value(SQL.meta_get, ("model",))
    if model != plan.profile.name:
        raise ForeignFile(
            f"{plan.subject}: expected a database of {plan.profile.name!r}, found {model!r}",
            hint="Open it with the model that wrote it.",
        )
    for name, known in plan.profile.rules:
        _check_rules_version(snapshot, plan, name, known)


def _check_rules_version(
    snapshot: ReadTransaction, plan: DatabasePlan, name: str, known: int
) -> None:
    """Raise FutureFormat if the data follows newer rules.

    Files that are older than the versioning have no version; the next writer sets it.
    """
    version = snapshot.value(SQL.meta_get, (name,))
    if version is None:
        return
    if not version.isdecimal():
        raise FormatError(f"{plan.subject}: {name} must be a version, found {version!r}")
    if int(version) > known:
        raise FutureFormat(
            f"{plan.subject}: this Fourfold reads versions up to {known} of {name}, found {version}"
        )


def _prepare(connection: Connection, plan: DatabasePlan, *, new_file: bool) -> None:
    """Create tables, run migrations and seed sequences in one transaction."""
    connection.execute(SQL.begin)
    txn = Transaction(connection, plan.subject)
    try:
        if new_file:
            txn.execute(read_sql("fourfold.kernel", "schema.sql"))
            _describe(txn, plan)
        steps.migrate(txn, plan.migrations, plan.subject)
        for name, number in plan.profile.rules:
            txn.execute(SQL.meta_seed, (name, str(number)))
        _seed_new_sequences(txn, plan)
        for sequence in plan.sequences:
            sequences.check(sequence, txn, plan.subject)
        connection.execute(SQL.commit)
    except BaseException as error:
        if connection.in_transaction:
            connection.execute(SQL.rollback)
        if isinstance(error, FourfoldError | DriverError) or not isinstance(error, Exception):
            raise
        raise StorageError(f"{plan.subject}: cannot prepare the database: {error!r}") from error


def _describe(txn: Transaction, plan: DatabasePlan) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    for key, value in (
        ("database_id", uuid.uuid4().hex),
        ("model", plan.profile.name),
        ("created_at", now),
        ("content_encoding", "c1"),
        ("sequences", ""),
    ):
        txn.execute(SQL.meta_seed, (key, value))


def _seed_new_sequences(txn: Transaction, plan: DatabasePlan) -> None:
    """Insert the row of each new sequence. An existing one is never seeded again: the check that
    follows must detect a missing row.
    """
    known = (txn.value(SQL.meta_get, ("sequences",)) or "").split()
    new = [sequence for sequence in plan.sequences if sequence.name not in known]
    for sequence in new:
        txn.execute(sequence.seed)
    if new:
        names = [*known, *(sequence.name for sequence in new)]
        txn.execute(SQL.meta_set, ("sequences", " ".join(names)))

"""Opening a database file: all or nothing.

    folder ──> lock ──> file ──> connection ──> pragmas ──> one transaction (kernel tables,
    migrations, sequences) ──> checks

Every step either succeeds or raises a typed error, after which the lock is free, the connection
closed, and a file that did not exist before does not exist now. There is no half-open database.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fourfold.errors import (
    ForeignFile,
    FormatError,
    FourfoldError,
    FutureFormat,
    NotFound,
    ReadOnly,
    StorageError,
)
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
"""'F4LD' in the header of every file, so that `file` and we can tell ours from others."""

FILE_MODE = 0o600
FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Plan:
    """What a database must be like when it is open."""

    path: Path
    profile: Profile
    migrations: tuple[Migration, ...]
    sequences: tuple[Counter, ...]
    vfs: str | None = None
    backups: Path | None = None
    """The folder for backups before migrations; `backups/migrations` beside the file if None."""

    @property
    def subject(self) -> str:
        return str(self.path)


def open_for_writing(
    plan: Plan, before_migrations: Callable[[Connection, Plan], None]
) -> tuple[WriterLock, Connection]:
    """The lock and the prepared writing connection, or an error and no trace.

    `before_migrations` is called on a file that exists, before anything in it is changed.
    """
    make_folder(plan.path.parent)
    lock = WriterLock(plan.path)
    created = False
    connection: Connection | None = None
    try:
        created = _create_file(plan.path)
        connection = connect_writer(plan)
        new_file = holds_nothing(connection)
        _refuse_foreign(connection, plan, new_file=new_file)
        if new_file:
            # Before the file has a log: tools tell a database by its header, and must not need the
            # log for it.
            profiles.shape_new_file(connection, plan.profile)
            connection.pragma("application_id", APPLICATION_ID)
        profiles.apply_to_writer(connection, plan.profile)
        if not new_file:
            before_migrations(connection, plan)
        _prepare(connection, plan, new_file=new_file)
        if new_file:
            # From now on the file alone, without its log, is a database that knows its sequences.
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


def connect_writer(plan: Plan) -> Connection:
    try:
        return connect(plan.path, readonly=False, vfs=plan.vfs)
    except DriverError as error:
        raise translate(error, plan.subject) from error


def connect_reader(plan: Plan) -> Connection:
    """A read-only connection to a database that exists."""
    folder = plan.path.parent
    try:
        # SQLite keeps shared memory beside a database that has a log. Where nobody at all can
        # write, there is no place for it and nothing can change, so the file is read as it stands.
        # Where only others can write, that would show a torn state one day, so it is not done.
        still = _is_frozen(folder) and not Path(f"{plan.path}-wal").exists()
        connection = connect(plan.path, readonly=True, vfs=plan.vfs, immutable=still)
        profiles.apply_to_reader(connection, plan.profile)
        connection.execute(SQL.fix_snapshot).fetchall()
    except DriverError as error:
        if not os.access(folder, os.W_OK):
            raise ReadOnly(
                f"{plan.subject}: reading beside writers needs permission to write its folder",
                hint="Give this user permission to write the folder, or read a backup of it.",
            ) from error
        raise translate(error, plan.subject) from error
    return connection


def _is_frozen(folder: Path) -> bool:
    """Whether nobody can create a file in `folder`."""
    nobody = not stat.S_IMODE(folder.stat().st_mode) & 0o222
    return nobody or bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def check_for_reading(connection: Connection, plan: Plan) -> None:
    """Refuse a file that is foreign, from the future, or not yet brought up to date by a writer.

    All of it is asked of one committed state: beside a busy writer a counter and its log would
    otherwise seem to contradict each other. Inside a transaction of the caller's it is that one's.
    """
    own = not connection.in_transaction
    try:
        if own:
            connection.execute(SQL.begin_read)
            connection.execute(SQL.fix_snapshot).fetchall()
        refuse_unfinished(connection, plan.subject)
        _refuse_foreign(connection, plan, new_file=False)
        snapshot = ReadTransaction(connection, plan.subject)
        waiting = steps.pending(snapshot, plan.migrations, plan.subject)
        if waiting:
            raise FormatError(
                f"{plan.subject}: {len(waiting)} migrations have not run yet",
                hint="Open it once for writing, which brings it up to date.",
            )
        for sequence in plan.sequences:
            sequences.check(sequence, snapshot, plan.subject)
    except DriverError as error:
        raise translate(error, plan.subject) from error
    finally:
        if own and connection.in_transaction:
            connection.execute(SQL.rollback)


def holds_nothing(connection: Connection) -> bool:
    """Whether the file is new, or its creation was cut short before its one transaction."""
    return not connection.pragma("page_count") or not connection.execute(SQL.user_tables).get


def refuse_unfinished(connection: Connection, subject: str) -> None:
    """Refuse to read a file of ours that a crash left before it held anything."""
    if holds_nothing(connection) and connection.pragma("application_id") in {0, APPLICATION_ID}:
        raise FormatError(
            f"{subject}: holds nothing yet; its creation was never finished",
            hint="Open it once for writing, which finishes it.",
        )


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, private to this user, and durable."""
    if folder.is_dir():
        return
    try:
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for each in reversed(missing):
            each.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(each.parent)
    except NotADirectoryError as error:
        raise StorageError(f"{folder}: a parent of it is not a folder") from error
    except FileExistsError as error:
        raise StorageError(f"{folder}: is a file, not a folder") from error
    except PermissionError as error:
        raise ReadOnly(f"{folder}: no permission to create it") from error
    except OSError as error:
        raise StorageError(f"{folder}: cannot be created: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a file whose name is lost is lost."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def must_exist(path: Path) -> None:
    if not path.exists():
        raise NotFound(f"{path}: no such database", hint="Check the path, or open it for writing.")


def _create_file(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StorageError(f"{path}: is not a regular file") from None
        for needed in (path, path.parent):
            # The folder too: the log and its shared memory come and go beside the file.
            if not os.access(needed, os.W_OK):
                raise ReadOnly(f"{path}: no permission to write {needed}") from None
        return False
    except PermissionError as error:
        raise ReadOnly(f"{path}: no permission to create it in its folder") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot be created: {error.strerror}") from error
    os.close(fd)
    sync_folder(path.parent)
    return True


def _refuse_foreign(connection: Connection, plan: Plan, *, new_file: bool) -> None:
    found = connection.pragma("application_id")
    if new_file and found in {0, APPLICATION_ID}:
        return
    if found != APPLICATION_ID:
        raise ForeignFile(f"{plan.subject}: is an SQLite database, but not one of Fourfold's")
    snapshot = ReadTransaction(connection, plan.subject)
    model = snapshot.value(SQL.meta_get, ("model",))
    if model != plan.profile.name:
        raise ForeignFile(
            f"{plan.subject}: holds {model!r} data, not {plan.profile.name!r}",
            hint="Open it with the part of Fourfold that wrote it.",
        )
    for name, known in plan.profile.rules:
        _refuse_later_rules(snapshot, plan, name, known)


def _refuse_later_rules(snapshot: ReadTransaction, plan: Plan, name: str, known: int) -> None:
    """Refuse data that another Fourfold reads otherwise. A file from before there was a number has
    none, and gets the first from its next writer.
    """
    found = snapshot.value(SQL.meta_get, (name,))
    if found is None:
        return
    if not found.isdecimal():
        raise FormatError(f"{plan.subject}: {name} is {found!r}, which is no version")
    if int(found) > known:
        raise FutureFormat(
            f"{plan.subject}: was written under version {found} of {name}; "
            f"this Fourfold knows up to {known}"
        )


def _prepare(connection: Connection, plan: Plan, *, new_file: bool) -> None:
    """The bootstrap transaction: when it commits, the database is ready; when it does not, nothing
    happened.
    """
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
        raise StorageError(f"{plan.subject}: could not be prepared: {error!r}") from error


def _describe(txn: Transaction, plan: Plan) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for key, value in (
        ("database_id", uuid.uuid4().hex),
        ("model", plan.profile.name),
        ("created_at", now),
        ("content_encoding", "c1"),
        ("sequences", ""),
    ):
        txn.execute(SQL.meta_seed, (key, value))


def _seed_new_sequences(txn: Transaction, plan: Plan) -> None:
    """Give each sequence that this database never had its row. One that it had is never seeded
    again: if its row is gone, the check that follows must notice."""
    known = (txn.value(SQL.meta_get, ("sequences",)) or "").split()
    fresh = [sequence for sequence in plan.sequences if sequence.name not in known]
    for sequence in fresh:
        txn.execute(sequence.seed)
    if fresh:
        names = [*known, *(sequence.name for sequence in fresh)]
        txn.execute(SQL.meta_set, ("sequences", " ".join(names)))

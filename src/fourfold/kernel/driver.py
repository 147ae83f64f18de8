"""The only module that imports the SQLite driver.

Every connection in the process uses the same copy of SQLite, because two copies on one file defeat
each other's locks. No driver exception leaves the kernel: each is translated to an error of
Fourfold that names the database.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import apsw

from fourfold import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STATEMENT_CACHE: Final = 256
"""Prepared statements cached per connection."""

Connection: TypeAlias = apsw.Connection
Cursor: TypeAlias = apsw.Cursor
LogFile: TypeAlias = apsw.VFSFile
DriverError = apsw.Error
TooBig = apsw.TooBigError
LENGTH_LIMIT = apsw.SQLITE_LIMIT_LENGTH
carray = apsw.carray

SQLITE_VERSION_MIN = (3, 51, 3)
"""Older versions may corrupt a WAL database if two connections write or checkpoint concurrently."""

READ_WRITE = apsw.SQLITE_OPEN_READWRITE
READ_ONLY = apsw.SQLITE_OPEN_READONLY

_WITH_VECTORS: Final[WeakSet[Connection]] = WeakSet()
"""Connections with the functions of sqlite-vec."""

CHECKPOINT_MODES = {
    "PASSIVE": apsw.SQLITE_CHECKPOINT_PASSIVE,
    "FULL": apsw.SQLITE_CHECKPOINT_FULL,
    "RESTART": apsw.SQLITE_CHECKPOINT_RESTART,
    "TRUNCATE": apsw.SQLITE_CHECKPOINT_TRUNCATE,
}


def sqlite_version() -> str:
    """Return the version of the SQLite library that Fourfold uses."""
    return apsw.sqlite_lib_version()


def connect(
    path: Path, *, readonly: bool, vfs: str | None = None, immutable: bool = False
) -> Connection:
    """Open a connection with the safety options of every Fourfold connection.

    `immutable` declares that no process writes the file; it can then be read in a read-only folder.
    """
    flags = READ_ONLY if readonly else READ_WRITE
    name = str(path)
    if immutable:
        name = f"{path.absolute().as_uri()}?immutable=1"
        flags |= apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(name, flags=flags, vfs=vfs, statementcachesize=STATEMENT_CACHE)
    # A misspelled column in double quotes must be an error, not a string.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    # A hostile or damaged schema must not run functions or write shadow tables.
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return connection


@contextmanager
def writable_schema(connection: Connection) -> Iterator[None]:
    """Allow the block to change rows of `sqlite_schema`; the schema is read again after it."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        connection.execute("PRAGMA writable_schema = ON")
        try:
            yield
        finally:
            connection.execute("PRAGMA writable_schema = RESET")
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


def load_vector_functions(connection: Connection) -> None:
    """Load the functions of sqlite-vec into a connection, unless it has them.

    Raises:
        MissingDependency: The package sqlite-vec is not installed.
    """
    if connection in _WITH_VECTORS:
        return
    # The package itself is not imported: it would load Python's own copy of SQLite.
    package = find_spec("sqlite_vec")
    if package is None or package.origin is None:
        raise errors.MissingDependency(
            "search by vector requires sqlite-vec, which is not installed",
            hint="Install it: `pip install 'fourfold[vectors]'`.",
        )
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(package.origin).with_name("vec0")))
    except apsw.ExtensionLoadingError as error:
        raise errors.MissingDependency(
            f"search by vector: sqlite-vec cannot be loaded: {error}",
            hint="Install it again: `pip install --force-reinstall sqlite-vec`.",
        ) from error
    finally:
        connection.enable_load_extension(False)
    _WITH_VECTORS.add(connection)


@contextmanager
def log_file(path: Path, vfs: str | None) -> Iterator[LogFile]:
    """Open a write-ahead log through `vfs`, as SQLite does."""
    file = apsw.VFSFile(vfs or "", str(path), [READ_WRITE | apsw.SQLITE_OPEN_WAL, 0])
    try:
        yield file
    finally:
        file.xClose()


class Confinement:
    """An authorizer that restricts foreign SQL to some tables.

    It allows reads of the tables that `reads` accepts, changes of those that `changes` accepts, and
    indexes on the former. Everything else is denied, in particular transaction control.
    """

    def __init__(self, reads: Callable[[str], bool], changes: Callable[[str], bool]) -> None:
        self._reads = reads
        self._changes = changes
        self.denied: str | None = None
        """Description of the last denied action."""

    @contextmanager
    def apply_to(self, connection: Connection) -> Iterator[Confinement]:
        """Restrict the statements of a connection for the duration of the block."""
        connection.authorizer = self
        try:
            yield self
        finally:
            connection.authorizer = None

    def __call__(
        self, action: int, first: str | None, second: str | None, _base: str | None, _by: str | None
    ) -> int:
        name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_")
        if self._is_allowed(name, first or "", second or ""):
            return apsw.SQLITE_OK
        words = [name.replace("_", " ")]
        # Here the first argument is the database, not the table.
        words += (
            [second or ""] if action == apsw.SQLITE_ALTER_TABLE else [first or "", second or ""]
        )
        self.denied = " ".join(word for word in words if word)
        return apsw.SQLITE_DENY

    def _is_allowed(self, action: str, first: str, second: str) -> bool:
        reads, changes = self._reads, self._changes
        match action:
            case "SELECT" | "FUNCTION" | "RECURSIVE":
                allowed = True
            case "READ":
                allowed = reads(first) or first in _SCHEMA_TABLES or first in _JSON_TABLES
            case "INSERT" | "UPDATE" | "DELETE":
                allowed = changes(first) or first in _SCHEMA_TABLES
            case "CREATE_TABLE" | "DROP_TABLE":
                allowed = changes(first)
            case "ALTER_TABLE":
                allowed = changes(second)
            case "CREATE_INDEX":
                allowed = reads(first.removeprefix("sqlite_autoindex_")) and reads(second)
            case "DROP_INDEX" | "REINDEX":
                allowed = reads(first)
            case _:
                allowed = False
        return allowed


_SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_temp_master", "sqlite_sequence"})
"""Tables that DDL statements change. SQLite itself protects the first two against other changes; a
caller compares the third if necessary.
"""
_JSON_TABLES = frozenset({"json_each", "json_tree"})


def translate(error: apsw.Error, subject: str) -> errors.FourfoldError:
    """Translate an error of the driver; `subject` names the database or file in the message."""
    for classes, error_class in _TRANSLATIONS:
        if isinstance(error, classes):
            return error_class(f"{subject}: {_message(error)}")
    return errors.StorageError(f"{subject}: {type(error).__name__}: {_message(error)}")


def _message(error: apsw.Error) -> str:
    text = str(error).removeprefix(f"{type(error).__name__}: ")
    return text or type(error).__name__


_TRANSLATIONS: tuple[tuple[tuple[type[Any], ...], type[errors.FourfoldError]], ...] = (
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), errors.LockTimeout),
    ((apsw.InterruptError,), errors.DeadlineExceeded),
    ((apsw.ConstraintError,), errors.Conflict),
    ((apsw.FullError,), errors.DiskFull),
    ((apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError), errors.ReadOnly),
    ((apsw.CorruptError,), errors.CorruptData),
    ((apsw.NotADBError, apsw.FormatError), errors.ForeignFile),
    (
        (apsw.SQLError, apsw.BindingsError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError),
        errors.InvalidInput,
    ),
    ((apsw.ConnectionClosedError, apsw.CursorClosedError), errors.Closed),
)

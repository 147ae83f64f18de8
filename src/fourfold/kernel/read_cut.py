"""Read transactions on several databases that see one point in time.

Each database is read again until two passes over all of them see the same states: every state then
was the current one when the second pass began. Databases that are written in between are locked
while the passes are repeated, so their writers wait for some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fourfold.errors import LockTimeout
from fourfold.kernel import backup, files, inspection
from fourfold.kernel.driver import Connection, DriverError, translate
from fourfold.kernel.files import DatabasePlan
from fourfold.kernel.profiles import PLAIN
from fourfold.kernel.sequences import Sequence as Counter
from fourfold.kernel.transaction import SQL

UNLOCKED_PASSES: Final = 3
"""Passes without a lock, before databases that were written in between are locked."""
LOCK_ROUNDS_MAX: Final = 20
LOCK_WAIT_MS: Final = 250
"""Time to wait for one lock: writers of those that are locked already wait as well."""


class ReadCut:
    """Read transactions on databases, all as of the time `at`.

    Args:
        find: Returns the paths of the databases. It is called again at the end, so that the cut
            has those that were created in the meantime.

    Raises:
        LockTimeout: A transaction of a writer lasts too long.
    """

    def __init__(self, find: Callable[[], Sequence[Path]]) -> None:
        self._find = find
        self._connections: dict[Path, Connection] = {}
        self._versions: dict[Path, int] = {}
        self.at = ""
        try:
            self._fix()
        except DriverError as error:
            self.close()
            raise translate(error, "databases") from error
        except BaseException:
            self.close()
            raise

    @property
    def paths(self) -> list[Path]:
        """The databases of the cut, sorted."""
        return sorted(self._connections)

    def back_up(
        self,
        path: Path,
        destination: Path,
        counters: Sequence[Counter] | None = None,
        progress: backup.Progress | None = None,
    ) -> backup.Sidecar:
        """Back up one database as of the cut, and end its read transaction."""
        connection = self._connections.pop(path)
        try:
            return inspection.back_up_from(connection, path, destination, counters, progress)
        finally:
            connection.close()

    def close(self) -> None:
        """End the remaining read transactions."""
        while self._connections:
            self._connections.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _fix(self) -> None:
        self._connect()
        self._read_all()
        written: set[Path] = set()
        for _ in range(UNLOCKED_PASSES):
            written = self._read_all()
            if not written and not self._connect():
                return
        for number in range(LOCK_ROUNDS_MAX):
            if number > LOCK_ROUNDS_MAX // 2:
                written |= set(self._connections)
            try:
                with _locked(sorted(written & set(self._connections))):
                    self._read_all()
                    changed = self._read_all()
            except LockTimeout:
                continue
            if not changed and not self._connect():
                return
            written |= changed
        raise LockTimeout(
            "cannot read all databases at one point in time: transactions of writers last too long",
            hint="Run it again.",
        )

    def _connect(self) -> bool:
        """Connect to databases that appeared, drop those that vanished; True if any did."""
        paths = set(self._find())
        for path in self._connections.keys() - paths:
            self._connections.pop(path).close()
            del self._versions[path]
        appeared = paths - self._connections.keys()
        for path in sorted(appeared):
            self._connections[path] = inspection.connect(path)
            self._versions[path] = -1
        return bool(appeared)

    def _read_all(self) -> set[Path]:
        """Begin every read transaction again; return the databases that changed since the last."""
        self.at = datetime.now(UTC).isoformat(timespec="milliseconds")
        connections = self._connections.items()
        return {path for path, connection in connections if self._read(path, connection)}

    def _read(self, path: Path, connection: Connection) -> bool:
        """Begin one read transaction again; return True if the database changed since the last."""
        if connection.in_transaction:
            connection.execute(SQL.rollback)
        connection.execute(SQL.begin_read)
        connection.execute(SQL.fix_snapshot).fetchall()
        before, version = self._versions[path], int(connection.pragma("data_version"))
        self._versions[path] = version
        return version != before


@contextmanager
def _locked(paths: Sequence[Path]) -> Iterator[None]:
    """Hold the write locks of databases, taken in the order of their paths."""
    with ExitStack() as stack:
        for path in paths:
            connection = files.connect_writer(DatabasePlan(path, PLAIN, (), ()))
            stack.callback(connection.close)
            connection.set_busy_timeout(LOCK_WAIT_MS)
            try:
                connection.execute(SQL.begin)
            except DriverError as error:
                raise translate(error, str(path)) from error
            stack.callback(connection.execute, SQL.rollback)
        yield

"""Handles for reading and writing: ReadTransaction, and Transaction, which can also write.

A ReadTransaction sees one committed state. A Transaction exists between BEGIN IMMEDIATE and COMMIT;
after that its handle raises Closed. Neither exposes the connection. Errors of the driver are
translated to errors of Fourfold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from fourfold.errors import (
    Closed,
    CorruptData,
    FourfoldError,
    InvalidInput,
    Refused,
    SequenceCorrupt,
)
from fourfold.kernel import bulk_insert, failpoints
from fourfold.kernel.driver import (
    LENGTH_LIMIT,
    Confinement,
    Connection,
    Cursor,
    DriverError,
    TooBig,
    load_vector_functions,
    translate,
    writable_schema,
)
from fourfold.kernel.failpoints import armed
from fourfold.kernel.named_queries import load_queries
from fourfold.kernel.pauses import Pauses

if TYPE_CHECKING:
    from fourfold.kernel.sequences import Sequence as Counter

Params = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]
T = TypeVar("T")

SQL = load_queries("fourfold.kernel")

_DRIVER_ERRORS = (DriverError, TypeError, OverflowError, UnicodeError)
"""Errors of the driver: of SQLite, for a value that SQLite cannot store, or for damaged text."""


_ONCE = "kernel.once"
"""Key in the scratch of the hooks registered by `after_commit_once`."""


def _ended_error() -> Closed:
    return Closed(
        "the transaction has ended",
        hint="Use the handle inside the `with` block or the function that received it.",
    )


class _EndedConnection:
    """Replaces the connection of a handle whose transaction has ended."""

    def __getattr__(self, name: str) -> Any:
        raise _ended_error()


_ENDED: Any = _EndedConnection()


class ReadTransaction:
    """Reads of one consistent committed state."""

    __slots__ = ("_connection", "_open_cursors", "_subject")

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection: Connection = connection
        self._subject = subject
        self._open_cursors: list[Cursor] | None = None

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        """Return all rows."""
        try:
            return self._connection.execute(sql, params).fetchall()
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    def one(self, sql: str, params: Params = ()) -> Row | None:
        """Return the first row, or None."""
        try:
            return self._connection.execute(sql, params).fetchone()
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    def value(self, sql: str, params: Params = ()) -> Any:
        """Return the first column of the first row, or None."""
        row = self.one(sql, params)
        return None if row is None else row[0]

    def one_within(self, bytes_max: int, sql: str, params: Params = ()) -> Row | None:
        """Return the first row, or None if a value exceeds `bytes_max`; SQLite then stops early."""
        connection = self._connection
        previous = connection.limit(LENGTH_LIMIT, bytes_max)
        try:
            return connection.execute(sql, params).fetchone()
        except TooBig:
            return None
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error
        finally:
            connection.limit(LENGTH_LIMIT, previous)

    def rows(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Yield rows in bounded memory; read them before the transaction ends."""
        if self._open_cursors is None:
            self._open_cursors = []
        cursors = self._open_cursors
        try:
            cursor = self._connection.execute(sql, params)
            cursors.append(cursor)
            try:
                yield from cursor
            finally:
                cursors.remove(cursor)
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    def parts_as(
        self, make: Callable[[Row], T], count: int, sql: str, params: Params = ()
    ) -> Iterator[list[T]]:
        """Yield the results of `make` for every row, in lists of up to `count`.

        Read them before the transaction ends. Rows are not collected in a list first, which saves
        work for the garbage collector.
        """
        if self._open_cursors is None:
            self._open_cursors = []
        cursors = self._open_cursors
        try:
            cursor = self._connection.execute(sql, params)
            cursors.append(cursor)
            try:
                while part := list(map(make, islice(cursor, count))):
                    yield part
            finally:
                cursors.remove(cursor)
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    def pause(self) -> None:
        """Give way to other threads that write, between steps of long work.

        Only a read in the background pauses.
        """

    def load_vector_functions(self) -> None:
        """Load the functions of sqlite-vec; only this statement loads an extension.

        Raises:
            MissingDependency: The package sqlite-vec is not installed.
        """
        load_vector_functions(self._connection)

    def _translate(self, error: Exception) -> FourfoldError:
        """Translate an error of the driver."""
        if self._connection is _ENDED:
            return _ended_error()
        if isinstance(error, DriverError):
            return translate(error, self._subject)
        if isinstance(error, UnicodeDecodeError):
            return CorruptData(f"{self._subject}: stored text is damaged: {error}")
        return InvalidInput(f"{self._subject}: cannot store a value: {error}")

    def _end(self) -> None:
        # An unfinished result would keep this state open for the next user of the connection.
        for cursor in self._open_cursors or ():
            cursor.close(True)
        self._open_cursors = None
        self._connection = _ENDED


class BackgroundReadTransaction(ReadTransaction):
    """Reads of long work, which pauses between them while other threads write."""

    __slots__ = ("_pauses",)

    def __init__(self, connection: Connection, subject: str, pauses: Pauses) -> None:
        super().__init__(connection, subject)
        self._pauses = pauses

    def pause(self) -> None:
        """Pause if the step of this thread was long enough and other threads write."""
        self._pauses.pause()

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        """Return all rows."""
        self._pauses.pause()
        return super().all(sql, params)

    def one(self, sql: str, params: Params = ()) -> Row | None:
        """Return the first row, or None."""
        self._pauses.pause()
        return super().one(sql, params)

    def rows(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Yield rows in bounded memory; read them before the transaction ends."""
        pause = self._pauses.pause
        for row in super().rows(sql, params):
            pause()
            yield row


class Transaction(ReadTransaction):
    """Writes that become visible together or not at all."""

    __slots__ = (
        "_acknowledged",
        "_after_commit",
        "_cursor",
        "_rollback_error",
        "_touched",
        "scratch",
    )

    def __init__(
        self,
        connection: Connection,
        subject: str,
        acknowledged: list[Callable[[], None]] | None = None,
    ) -> None:
        super().__init__(connection, subject)
        self._cursor = connection.cursor()
        self._acknowledged = [] if acknowledged is None else acknowledged
        """Hooks of the writer to call after the callers of a commit have their results."""
        self._after_commit: list[Callable[[], None]] | None = None
        self._touched = False
        self.scratch: dict[str, Any] = {}
        """Notes shared by the requests of one transaction. They are lost when it ends or is rolled
        back. A request must change them last, when it cannot fail any more.
        """
        self._rollback_error: FourfoldError | None = None
        """The error with which SQLite rolled back the transaction, if it did."""

    def execute(self, sql: str, params: Params = ()) -> None:
        """Execute one statement."""
        self._touched = True
        if armed:
            failpoints.hit("kernel.statement.before")
        try:
            self._cursor.execute(sql, params)
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error
        if armed:
            failpoints.hit("kernel.statement.after")

    def execute_many(self, sql: str, params: Iterable[Params]) -> None:
        """Execute one statement for each set of parameters."""
        self._touched = True
        if failpoints.armed:
            failpoints.hit("kernel.statement.before")
        try:
            self._cursor.executemany(sql, params)
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error
        if failpoints.armed:
            failpoints.hit("kernel.statement.after")

    def execute_rows(self, template: str, rows: Sequence[Row], rest: Row = ()) -> None:
        """Execute a statement with the values of `rows` in place of `{rows}`, in several parts if
        necessary; `rest` are the parameters after them.
        """
        for sql, params in bulk_insert.filled_statements(template, rows, rest):
            self.execute(sql, params)

    def insert_many(
        self, table: str, columns: tuple[str, ...], rows: Sequence[Row], *, verb: str = "INSERT"
    ) -> None:
        """Insert rows, many per statement."""
        for sql, params in bulk_insert.row_statements(table, columns, rows, verb):
            self.execute(sql, params)

    def insert_series(
        self,
        table: str,
        *,
        fixed: Mapping[str, Any],
        counter: tuple[str, int],
        values: tuple[str, Sequence[bytes] | Sequence[str]],
        lengths: str | None = None,
    ) -> None:
        """Insert rows of one key in one statement, with the values bound as an array.

        Args:
            fixed: Columns with the same value in every row.
            counter: A column and its first value; it increases by one per row.
            values: A column and its values, one per row.
            lengths: A column for the length of each value.
        """
        if not values[1]:
            return
        array = bulk_insert.as_array(values[1])
        if array is None:
            self.insert_many(*bulk_insert.series_rows(table, fixed, counter, values, lengths))
            return
        statement = bulk_insert.series_statement(
            table, tuple(fixed), counter[0], values[0], lengths
        )
        self.execute(statement, (*fixed.values(), counter[1], array))

    def insert_alike(
        self,
        table: str,
        count: int,
        *,
        fixed: Mapping[str, Any],
        counted: Mapping[tuple[str, ...], int],
        varying: Mapping[str, Sequence[Any]],
    ) -> None:
        """Insert `count` similar rows.

        Args:
            fixed: Columns with the same value in every row.
            counted: Groups of columns with their first value; it increases by one per row.
            varying: Columns with one value per row.
        """
        for sql, params in bulk_insert.alike_statements(table, fixed, counted, varying, count):
            self.execute(sql, params)

    @contextmanager
    def writable_schema(self) -> Iterator[None]:
        """Allow the block to change rows of `sqlite_schema`. Only `index_build` needs it."""
        try:
            with writable_schema(self._connection):
                yield
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    @property
    def changes(self) -> int:
        """Number of rows that the last statement changed."""
        return self._connection.changes()

    @property
    def total_changes(self) -> int:
        """Number of rows ever changed on this connection, including changes rolled back."""
        return self._connection.total_changes()

    @property
    def is_over(self) -> bool:
        """True if an error rolled back the transaction, which then cannot be used any more."""
        return self._rollback_error is not None

    def claim(self, sequence: Counter, count: int = 1) -> int:
        """Claim the next `count` numbers of `sequence`; return the first."""
        if count < 1:
            raise InvalidInput(f"sequence {sequence.name!r}: count must be at least 1, got {count}")
        self._touched = True
        rows = self.all(sequence.claim, (count,))
        if len(rows) != 1:
            raise SequenceCorrupt(
                f"{self._subject}: sequence {sequence.name!r}: expected 1 row, found {len(rows)}"
            )
        return int(rows[0][0]) - count + 1

    @contextmanager
    def savepoint(self) -> Iterator[Transaction]:
        """Open a savepoint: an exception rolls back the block, but not the transaction."""
        hooks = len(self._after_commit or ())
        self._savepoint_begin()
        try:
            yield self
        except BaseException:
            if self._after_commit is not None and len(self._after_commit) > hooks:
                # A completed part of the block may have left notes in the scratch.
                del self._after_commit[hooks:]
                self.scratch.clear()
            self._savepoint_rollback()
            raise
        self._savepoint_release()

    @contextmanager
    def confined(
        self, *, reads: Callable[[str], bool], changes: Callable[[str], bool]
    ) -> Iterator[None]:
        """Restrict the statements of the block to some tables, for foreign SQL.

        Tables that `reads` accepts may be read; of these, those that `changes` accepts may be
        changed.

        Raises:
            Refused: A statement uses another table, or is not a query or a change of tables and
                indexes: for example COMMIT, ATTACH or PRAGMA.
        """
        with Confinement(reads, changes).apply_to(self._connection) as confinement:
            try:
                yield
            except FourfoldError as error:
                if confinement.denied is None:
                    raise
                raise Refused(f"{confinement.denied} is not allowed here") from error

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call `hook` after the commit, before the caller returns. It must not raise."""
        if self._after_commit is None:
            self._after_commit = []
        self._after_commit.append(hook)

    def after_commit_once(self, hook: Callable[[], None]) -> None:
        """Call `hook` after the commit, once for all requests that share the transaction.

        Like a change of the scratch, this must come last in a request.
        """
        hooks: list[Callable[[], None]] = self.scratch.setdefault(_ONCE, [])
        if hook not in hooks:
            hooks.append(hook)
            self.after_commit(hook)

    def after_acknowledge(self, hook: Callable[[], None]) -> None:
        """Call `hook` after all callers of the commit have their results.

        It must not raise; an error is logged.
        """
        self.after_commit(partial(self._acknowledged.append, hook))

    def _check_not_rolled_back(self) -> None:
        if self._rollback_error is not None:
            raise self._rollback_error

    def _savepoint_begin(self) -> None:
        self._run(SQL.savepoint)

    def _savepoint_release(self) -> None:
        if failpoints.armed:
            failpoints.hit("kernel.savepoint.release")
        self._run(SQL.release)

    def _savepoint_rollback(self) -> None:
        # A full disk or an interrupt may have rolled back the whole transaction.
        if self._rollback_error is None:
            self._run(SQL.rollback_to)
            self._run(SQL.release)

    def _run(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except _DRIVER_ERRORS as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> FourfoldError:
        """Translate an error of the driver.

        If SQLite rolled back the transaction, end the handle: further statements would be committed
        one by one.
        """
        ended = self._connection is _ENDED
        translated = super()._translate(error)
        if not ended and not self._connection.in_transaction:
            self._rollback_error = translated
            self._end()
        return translated

    def _end(self) -> None:
        if self._open_cursors is not None:
            super()._end()
        self._connection = self._cursor = _ENDED

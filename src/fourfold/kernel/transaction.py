"""What callers hold while they read or write: a Snapshot, or a Transaction, which is a Snapshot
that can also write.

A Snapshot sees one committed state and never a half-done one. A Transaction exists only between
BEGIN IMMEDIATE and COMMIT; once that is over its handle is dead and says so. Neither gives away the
connection. Driver errors leave as errors of Fourfold's tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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
    translate,
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

_REFUSALS = (DriverError, TypeError, OverflowError, UnicodeError)
"""How the driver says no: an error of SQLite's, a value that SQLite has no place for, or stored
text that is no text any more.
"""


_ONCE = "kernel.once"
"""Where a transaction keeps which hooks were asked for already."""


def _over() -> Closed:
    return Closed(
        "the transaction is over; its handle cannot be used any more",
        hint="Use the handle inside the `with` block or the function that received it.",
    )


class _Ended:
    """Stands in for the connection of a handle whose transaction is over."""

    def __getattr__(self, name: str) -> Any:
        raise _over()


_ENDED: Any = _Ended()


class ReadTransaction:
    """Reads of one consistent state."""

    __slots__ = ("_connection", "_half_read", "_subject")

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection: Connection = connection
        self._subject = subject
        self._half_read: list[Cursor] | None = None

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        """Every row of the result, at once."""
        try:
            return self._connection.execute(sql, params).fetchall()
        except _REFUSALS as error:
            raise self._failed(error) from error

    def all_as(self, make: Callable[[Row], T], sql: str, params: Params = ()) -> list[T]:
        """What `make` makes of every row of the result. A row is gone before the next one comes, so
        many of them are no work for the garbage collector.
        """
        try:
            return list(map(make, self._connection.execute(sql, params)))
        except _REFUSALS as error:
            raise self._failed(error) from error

    def one(self, sql: str, params: Params = ()) -> Row | None:
        """The first row, or None."""
        try:
            return self._connection.execute(sql, params).fetchone()
        except _REFUSALS as error:
            raise self._failed(error) from error

    def value(self, sql: str, params: Params = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, params)
        return None if row is None else row[0]

    def one_within(self, bytes_max: int, sql: str, params: Params = ()) -> Row | None:
        """The first row, or None when a value on the way to it has more than so many bytes: SQLite
        gives up as soon as it has.
        """
        connection = self._connection
        allowed = connection.limit(LENGTH_LIMIT, bytes_max)
        try:
            return connection.execute(sql, params).fetchone()
        except TooBig:
            return None
        except _REFUSALS as error:
            raise self._failed(error) from error
        finally:
            connection.limit(LENGTH_LIMIT, allowed)

    def rows(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Rows one by one, in bounded memory; read them before the snapshot ends."""
        if self._half_read is None:
            self._half_read = []
        cursors = self._half_read
        try:
            cursor = self._connection.execute(sql, params)
            cursors.append(cursor)
            try:
                yield from cursor
            finally:
                cursors.remove(cursor)
        except _REFUSALS as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FourfoldError:
        """The error that the caller sees."""
        if self._connection is _ENDED:
            return _over()
        if isinstance(error, DriverError):
            return translate(error, self._subject)
        if isinstance(error, UnicodeDecodeError):
            return CorruptData(f"{self._subject}: stored text is damaged: {error}")
        return InvalidInput(f"{self._subject}: a value cannot be stored: {error}")

    def _end(self) -> None:
        # A result that was not read to its end would hold on to this state, and show it to whoever
        # uses the connection next.
        for cursor in self._half_read or ():
            cursor.close(True)
        self._half_read = None
        self._connection = _ENDED


class BackgroundReadTransaction(ReadTransaction):
    """Reads of long work, which pauses between them while others write."""

    __slots__ = ("_pauses",)

    def __init__(self, connection: Connection, subject: str, pauses: Pauses) -> None:
        super().__init__(connection, subject)
        self._pauses = pauses

    def all(self, sql: str, params: Params = ()) -> list[Row]:
        """Every row of the result, at once."""
        self._pauses.pause()
        return super().all(sql, params)

    def one(self, sql: str, params: Params = ()) -> Row | None:
        """The first row, or None."""
        self._pauses.pause()
        return super().one(sql, params)

    def rows(self, sql: str, params: Params = ()) -> Iterator[Row]:
        """Rows one by one, in bounded memory; read them before the snapshot ends."""
        pause = self._pauses.pause
        for row in super().rows(sql, params):
            pause()
            yield row


class Transaction(ReadTransaction):
    """Writes that become visible together, or not at all."""

    __slots__ = ("_acknowledged", "_after_commit", "_cursor", "_touched", "_undone", "scratch")

    def __init__(
        self,
        connection: Connection,
        subject: str,
        acknowledged: list[Callable[[], None]] | None = None,
    ) -> None:
        super().__init__(connection, subject)
        self._cursor = connection.cursor()
        self._acknowledged = [] if acknowledged is None else acknowledged
        """The writer's hooks for when the callers of a commit have their results."""
        self._after_commit: list[Callable[[], None]] | None = None
        self._touched = False
        self.scratch: dict[str, Any] = {}
        """What requests that share a transaction know of each other's writes. It is gone when the
        transaction ends or is undone; a request changes it last, when nothing of its own can fail.
        """
        self._undone: FourfoldError | None = None
        """Why SQLite undid the transaction before its end, if it did."""

    def execute(self, sql: str, params: Params = ()) -> None:
        """Run one statement for its effect."""
        self._touched = True
        if armed:
            failpoints.hit("kernel.statement.before")
        try:
            self._cursor.execute(sql, params)
        except _REFUSALS as error:
            raise self._failed(error) from error
        if armed:
            failpoints.hit("kernel.statement.after")

    def execute_many(self, sql: str, params: Iterable[Params]) -> None:
        """Run one statement once for each set of parameters."""
        self._touched = True
        if failpoints.armed:
            failpoints.hit("kernel.statement.before")
        try:
            self._cursor.executemany(sql, params)
        except _REFUSALS as error:
            raise self._failed(error) from error
        if failpoints.armed:
            failpoints.hit("kernel.statement.after")

    def execute_rows(self, template: str, rows: Sequence[Row], rest: Row = ()) -> None:
        """Run a statement that takes the values of many rows where it says `{rows}`, and the
        parameters `rest` behind them; for very many rows it is run several times.
        """
        for sql, params in bulk_insert.filled_statements(template, rows, rest):
            self.execute(sql, params)

    def insert_many(
        self, table: str, columns: tuple[str, ...], rows: Sequence[Row], *, verb: str = "INSERT"
    ) -> None:
        """Insert rows of any mix of keys, several to a statement: near the speed of C."""
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
        """Insert rows of one key: the same `fixed` columns, a counter that goes up by one, one
        value each.

        The whole batch is one statement over an array in memory: the speed of C. `lengths` names a
        column that receives the length of each value.
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
        """Insert `count` rows that share the values of `fixed`. The columns of each group in
        `counted` go up by one from row to row; those of `varying` have a value for each row.
        """
        for sql, params in bulk_insert.alike_statements(table, fixed, counted, varying, count):
            self.execute(sql, params)

    @property
    def changes(self) -> int:
        """Rows that the last statement changed."""
        return self._connection.changes()

    @property
    def total_changes(self) -> int:
        """Rows that were ever changed through this database, also by transactions that were undone:
        the same number twice means that nothing was written between.
        """
        return self._connection.total_changes()

    @property
    def is_over(self) -> bool:
        """Whether an error undid the transaction, so that nothing more can be done in it."""
        return self._undone is not None

    def claim(self, sequence: Counter, count: int = 1) -> int:
        """Take the next `count` numbers of `sequence`; the first of them."""
        if count < 1:
            raise InvalidInput(f"cannot claim {count} numbers of sequence {sequence.name!r}")
        self._touched = True
        rows = self.all(sequence.claim, (count,))
        if len(rows) != 1:
            raise SequenceCorrupt(
                f"{self._subject}: sequence {sequence.name!r} has {len(rows)} rows instead of one"
            )
        return int(rows[0][0]) - count + 1

    @contextmanager
    def savepoint(self) -> Iterator[Transaction]:
        """A step that can fail on its own: an exception undoes the step and leaves the rest of the
        transaction.
        """
        hooks = len(self._after_commit or ())
        self._savepoint_begin()
        try:
            yield self
        except BaseException:
            if self._after_commit is not None and len(self._after_commit) > hooks:
                # Something in the step was through already, and may have left word in the scratch.
                del self._after_commit[hooks:]
                self.scratch.clear()
            self._savepoint_undo()
            raise
        self._savepoint_release()

    @contextmanager
    def confined(
        self, *, reads: Callable[[str], bool], changes: Callable[[str], bool]
    ) -> Iterator[None]:
        """Keep the statements of the block to some tables, for SQL that is not our own: those that
        `reads` accepts, and of these only what `changes` accepts may be changed.

        Raises:
            Refused: a statement touches another table, or does more than read and change tables
                and indexes, such as COMMIT, ATTACH or PRAGMA.
        """
        with Confinement(reads, changes).apply_to(self._connection) as confinement:
            try:
                yield
            except FourfoldError as error:
                if confinement.denied is None:
                    raise
                raise Refused(f"{confinement.denied} is not allowed here") from error

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call `hook` once the transaction is committed, before its caller hears of it. It must not
        raise.
        """
        if self._after_commit is None:
            self._after_commit = []
        self._after_commit.append(hook)

    def after_commit_once(self, hook: Callable[[], None]) -> None:
        """The same, and once however many of those who share the transaction ask for it. Like the
        scratch, it is for the end of a request's work.
        """
        asked: list[Callable[[], None]] = self.scratch.setdefault(_ONCE, [])
        if hook not in asked:
            asked.append(hook)
            self.after_commit(hook)

    def after_acknowledge(self, hook: Callable[[], None]) -> None:
        """Call `hook` after the commit, once everyone who shares it has a result. It must not
        raise; an error is logged.
        """
        self.after_commit(partial(self._acknowledged.append, hook))

    def _refuse_if_undone(self) -> None:
        if self._undone is not None:
            raise self._undone

    def _savepoint_begin(self) -> None:
        self._run(SQL.savepoint)

    def _savepoint_release(self) -> None:
        if failpoints.armed:
            failpoints.hit("kernel.savepoint.release")
        self._run(SQL.release)

    def _savepoint_undo(self) -> None:
        # A full disk or an interrupt may have undone the whole transaction already.
        if self._undone is None:
            self._run(SQL.rollback_to)
            self._run(SQL.release)

    def _run(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except _REFUSALS as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FourfoldError:
        """The error that the caller sees. When SQLite answered it by undoing the transaction, the
        handle is dead: what came after would be written on its own, statement by statement.
        """
        ended = self._connection is _ENDED
        translated = super()._failed(error)
        if not ended and not self._connection.in_transaction:
            self._undone = translated
            self._end()
        return translated

    def _end(self) -> None:
        super()._end()
        self._cursor = _ENDED

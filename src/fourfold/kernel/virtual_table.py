"""Virtual tables of SQLite: tables whose rows are computed in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import apsw

_ROWS_PER_CHECK: Final = 256
"""Rows between two checks of the deadline."""


class VirtualTable:
    """A table whose rows are computed in Python.

    `columns` are (name, SQL type) pairs; `arguments` are hidden columns after them, the parameters
    of the table as a function; `hidden` are columns that `*` does not include. `rows` is called for
    each scan with the values of the columns that are compared with `=`, by name, and the set of
    column indexes that the query uses. It yields sequences of values; a callable value is called if
    the query reads it. The query applies all conditions again, except those on arguments.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, str]],
        rows: Callable[[Mapping[str, Any], frozenset[int]], Iterator[Sequence[Any]]],
        *,
        arguments: Sequence[str] = (),
        hidden: Sequence[tuple[str, str]] = (),
        keys: Sequence[str] = (),
        size: int = 1_000_000,
    ) -> None:
        self.columns = tuple(columns)
        self.arguments = tuple(arguments)
        self.hidden = tuple(hidden)
        self.keys = tuple(keys)
        """Columns by which rows are found without a scan, the most selective first."""
        self.size = size
        """Rough number of rows, for the planner."""
        self.rows = rows

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns: visible ones, arguments, hidden ones."""
        visible, hidden = (tuple(name for name, _ in part) for part in (self.columns, self.hidden))
        return (*visible, *self.arguments, *hidden)


class Module:
    """The driver's interface for a virtual table: one table, which exists without being created."""

    def __init__(self, table: VirtualTable, check: Callable[[], None]) -> None:
        self._table = table
        self._check = check

    def Connect(self, *_: Any) -> tuple[str, _Table]:  # noqa: N802 - the driver's name
        """Declare the columns to SQLite, and return the table."""
        table = self._table
        columns = [f'"{name}" {kind}' for name, kind in table.columns]
        columns += [f'"{name}" HIDDEN' for name in table.arguments]
        columns += [f'"{name}" {kind} HIDDEN' for name, kind in table.hidden]
        return f"CREATE TABLE x({', '.join(columns)})", _Table(table, self._check)

    Create = Connect


class _Table:
    def __init__(self, table: VirtualTable, check: Callable[[], None]) -> None:
        self._table = table
        self._check = check
        self._names = table.names
        first = len(table.columns)
        self._arguments = range(first, first + len(table.arguments))

    def BestIndexObject(self, index: Any) -> bool:  # noqa: N802 - the driver's name
        """Accept equality with keys and arguments; an argument must be usable."""
        used: list[str] = []
        for at in range(index.nConstraint):
            if index.get_aConstraint_op(at) != apsw.SQLITE_INDEX_CONSTRAINT_EQ:
                continue
            column = index.get_aConstraint_iColumn(at)
            if column < 0:
                continue
            name = self._names[column]
            is_argument = column in self._arguments
            if not is_argument and name not in self._table.keys:
                continue
            if not index.get_aConstraint_usable(at):
                if is_argument:
                    return False
                continue
            if name in used:
                continue
            used.append(name)
            index.set_aConstraintUsage_argvIndex(at, len(used))
            index.set_aConstraintUsage_omit(at, is_argument)
        rows = self._table.size
        for name in used:
            if name in self._table.keys:
                rows = 1 + rows // (1000 if name == self._table.keys[0] else 20)
        index.estimatedRows = rows
        # Each scan has a cost of its own, so that a join does not repeat one without need.
        index.estimatedCost = 1_000.0 + 10.0 * rows
        index.idxStr = f"{','.join(used)}|{','.join(map(str, index.colUsed))}"
        return True

    def Open(self) -> _Cursor:  # noqa: N802 - the driver's name
        return _Cursor(self._table, self._check)

    def Disconnect(self) -> None:  # noqa: N802 - the driver's name
        """Do nothing: a table holds nothing."""

    Destroy = Disconnect


_END: Final[Any] = object()


class _Cursor:
    __slots__ = ("_arguments", "_check", "_count", "_names", "_row", "_rows", "_table", "_width")

    def __init__(self, table: VirtualTable, check: Callable[[], None]) -> None:
        self._table = table
        self._check = check
        self._names = table.names
        self._width = len(table.columns)
        self._rows: Iterator[Sequence[Any]] = iter(())
        self._row: Any = _END
        self._arguments: dict[str, Any] = {}
        self._count = 0

    def Filter(self, _number: int, text: str, values: tuple[Any, ...]) -> None:  # noqa: N802
        names, _, columns = text.partition("|")
        arguments = dict(zip(names.split(",") if names else (), values, strict=True))
        self._arguments = {name: arguments.get(name) for name in self._table.arguments}
        used = frozenset(map(int, columns.split(","))) if columns else frozenset()
        self._rows = iter(self._table.rows(arguments, used))
        self._count = 0
        self._row = next(self._rows, _END)

    def Eof(self) -> bool:  # noqa: N802 - the driver's name
        return self._row is _END

    def Next(self) -> None:  # noqa: N802 - the driver's name
        self._count += 1
        if not self._count % _ROWS_PER_CHECK:
            self._check()
        self._row = next(self._rows, _END)

    def Column(self, number: int) -> Any:  # noqa: N802 - the driver's name
        if number < 0:
            return self._count
        if number >= self._width:
            number -= len(self._arguments)
            if number < self._width:
                return self._arguments[self._names[number + len(self._arguments)]]
        value = self._row[number]
        return value() if callable(value) else value

    def Rowid(self) -> int:  # noqa: N802 - the driver's name
        return self._count

    def Close(self) -> None:  # noqa: N802 - the driver's name
        self._rows = iter(())

"""Verification that every column has a value of its declared type.

A text that became bytes reads the same, but no key finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from fourfold.kernel.transaction import SQL
from fourfold.models.documents.history import HistoryReader, Row
from fourfold.models.documents.problems import KeyRange, OpenView, make_problem, text
from fourfold.models.problem import Problem

_TYPES: Final = {"TEXT": "text", "INTEGER": "integer", "BLOB": "blob"}


class _Column(NamedTuple):
    name: str
    declared: str
    needed: bool
    place: int
    """Place in the primary key, from 1; 0 if it is not part of it."""

    @property
    def condition(self) -> str:
        """SQL that is true for a value of another type."""
        allowed = f"'{_TYPES[self.declared]}'" + ("" if self.needed else ", 'null'")
        return f'typeof("{self.name}") NOT IN ({allowed})'


class _KeyedTable:
    """A table, and the key by which it is read in slices."""

    def __init__(self, name: str, columns: list[_Column], *, has_rowid: bool) -> None:
        self._name = name
        self._columns = columns
        key = sorted((column for column in columns if column.place), key=lambda c: c.place)
        self._key = [column.name for column in key]
        self._order = [_Column("rowid", "INTEGER", needed=True, place=1)] if has_rowid else key

    def is_there(self, view: HistoryReader) -> bool:
        """Return False if the table was dropped meanwhile, like that of an index may be."""
        return bool(view.value(SQL.has_table, (self._name,)))

    def find_bound(self, view: HistoryReader, after: Row, rows: int) -> Row:
        """Return the key `rows` rows after a key; an empty one if the table ends before that.

        A damaged key is not returned: it may sort before the keys that it follows.
        """
        sql = SQL.key_after.format(
            table=self._name,
            key=", ".join(f'typeof("{c.name}"), CAST("{c.name}" AS BLOB)' for c in self._order),
            condition=self._after(after),
            order=self._names,
        )
        row = view.one(sql, (*after, rows))
        if row is None:
            return ()
        try:
            bound = tuple(map(_read_key, row[::2], row[1::2]))
        except ValueError:
            return ()
        types = [_TYPES.get(column.declared) for column in self._order]
        return bound if list(row[::2]) == types else ()

    def iter_problems(
        self, view: HistoryReader, after: Row = (), until: Row = ()
    ) -> Iterator[Problem]:
        """Yield the rows after a key, and up to another one, with a value of another type."""
        if not self._key:
            # The table of a full-text index: it is not stored as rows.
            return
        conditions = [column.condition for column in self._columns if column.declared in _TYPES]
        sql = SQL.rows_of_other_types.format(
            table=self._name,
            key=", ".join(f'CAST("{name}" AS BLOB)' for name in self._key),
            conditions=" OR ".join(conditions) or "0",
            condition=f"{self._after(after)} AND {self._until(until)}",
        )
        for row in view.rows(sql, (*after, *until)):
            named = dict(zip(self._key, row, strict=True))
            shown = ", ".join(repr(text(value)) for value in row)
            sentence = f"{self._name} {shown}: a column holds another kind of value than it should"
            yield make_problem(sentence, self._name, named)

    @property
    def is_stored(self) -> bool:
        """False for a virtual table."""
        return bool(self._key)

    @property
    def _names(self) -> str:
        return ", ".join(f'"{column.name}"' for column in self._order)

    def _after(self, after: Row) -> str:
        return f"({self._names}) > ({', '.join('?' * len(after))})" if after else "1"

    def _until(self, until: Row) -> str:
        return f"({self._names}) <= ({', '.join('?' * len(until))})" if until else "1"


def _read_key(kind: str, value: bytes) -> Any:
    if kind == "text":
        return value.decode()
    return int(value) if kind == "integer" else value


def check(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    """Check every table."""
    del part
    for table in _tables(view):
        yield from table.iter_problems(view)


def check_in_slices(open_view: OpenView, rows: int) -> Iterator[Problem]:
    """Check like `check`, in a read transaction for every `rows` rows of a table."""
    with open_view() as view:
        tables = _tables(view)
    for table in tables:
        after: Row = ()
        while table.is_stored:
            with open_view() as view:
                if not table.is_there(view):
                    break
                until = table.find_bound(view, after, rows)
                yield from table.iter_problems(view, after, until)
            if not until:
                break
            after = until


def _tables(view: HistoryReader) -> list[_KeyedTable]:
    columns: dict[tuple[str, bool], list[_Column]] = {}
    for table, has_rowid, name, declared, needed, place in view.rows(SQL.table_columns):
        column = _Column(name, declared, bool(needed), place)
        columns.setdefault((table, bool(has_rowid)), []).append(column)
    return [_KeyedTable(name, own, has_rowid=rowid) for (name, rowid), own in columns.items()]

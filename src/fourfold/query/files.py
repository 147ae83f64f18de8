"""The files of a store that a query reads: attached to its connection, each at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fourfold.errors import ForeignFile, FormatError, InvalidInput
from fourfold.kernel import ReadTransaction
from fourfold.kernel import migrations as steps
from fourfold.kernel.files import APPLICATION_ID
from fourfold.kernel.query_connection import FileReadTransaction
from fourfold.kernel.sequences import current
from fourfold.kernel.transaction import SQL
from fourfold.query.tables import Kind, ModelTables

Point = int | datetime | Mapping[str, int] | None
"""A point in history: a position, a time, positions by the name of the database, or None (now)."""


@dataclass(frozen=True, slots=True)
class QueryFile:
    """A file and the position up to which it is read."""

    name: str
    """Name of the database in its store, such as `spaces/<did>`."""
    space: str
    path: Path
    root: Path
    kind_name: str
    kind: Kind
    snapshot: FileReadTransaction
    newest: int
    seq: int
    prefixes: tuple[str, ...] = ()
    """Prefixes of the names in the file that may be read; empty for all."""

    def may_read(self, name: str) -> bool:
        """Return True if the rows of a stream, session or app may be read."""
        return not self.prefixes or name.startswith(self.prefixes)

    def prefix_condition(self, column: str) -> str:
        """Return the condition that the name in `column` may be read, as SQL."""
        # Bytes, because a prefix may contain characters that SQL text cannot.
        tests = (
            f"substr(CAST({column} AS BLOB), 1, {len(data)}) = x'{data.hex()}'"
            for data in (prefix.encode() for prefix in self.prefixes)
        )
        return f"({' OR '.join(tests)})" if self.prefixes else "1"

    def at(self, point: Point) -> QueryFile:
        """Return the file as of `point`, which is at or before its position."""
        if point is None:
            return self
        if isinstance(point, datetime):
            if point.tzinfo is None:
                raise InvalidInput(f"at must have a time zone, got {point.isoformat()}")
            seq = self.kind.position_at(self.snapshot, point)
        elif isinstance(point, int):
            seq = point
        else:
            # A database that a restore point does not contain had nothing.
            seq = point.get(self.name, 0)
        return replace(self, seq=max(0, min(self.seq, seq)))

    @property
    def is_past(self) -> bool:
        """True if the file has rows after the position."""
        return self.seq < self.newest


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table that is folded in process.

    `rows` yields the rows of one file, for the values of columns that a query compares with `=` and
    of the arguments; a value may be a function that computes it when it is read.
    """

    rows: Callable[[QueryFile, Mapping[str, Any]], Iterator[Sequence[Any]]]
    arguments: tuple[str, ...] = ("at",)
    keys: tuple[str, ...] = ()


def open_file(  # noqa: PLR0917 - the fields of a file
    name: str,
    space: str,
    path: Path,
    root: Path,
    snapshot: FileReadTransaction,
    tables: ModelTables,
) -> QueryFile:
    """Check an attached file, and return it at its newest position.

    Raises:
        ForeignFile: It is not a database of the model.
        FormatError: It has pending migrations.
    """
    if snapshot.application_id != APPLICATION_ID:
        raise ForeignFile(f"{path}: not a Fourfold database")
    kind_name = snapshot.value(SQL.meta_get, ("model",))
    kind = tables.kinds.get(str(kind_name))
    if kind is None:
        raise ForeignFile(
            f"{path}: expected {tables.model}, found {kind_name!r}",
            hint="Open it with the model that wrote it.",
        )
    pending = steps.pending(snapshot, kind.migrations, str(path))
    if pending:
        raise FormatError(
            f"{path}: {len(pending)} migrations are pending",
            hint="Open it once for writing, which runs them.",
        )
    newest = current(kind.position, snapshot, str(path))
    return QueryFile(name, space, path, root, str(kind_name), kind, snapshot, newest, newest)


def read_all(snapshot: ReadTransaction, sql: str, params: Sequence[Any] = ()) -> Iterator[Any]:
    """Yield the rows of a query whose first row is a sample, without it."""
    rows = snapshot.rows(sql, params)
    next(rows, None)
    return rows

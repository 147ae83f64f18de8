"""The folded table of sessions in process: `view`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from fourfold.query.files import FoldedTable, QueryFile, read_all
from fourfold.query.sessions.tables import SQL, TABLES
from fourfold.query.sessions.view_fold import INPUT, fold_view

_LAST: Final = 2**62
_NAMES: Final = tuple(column.name for column in TABLES.table("view").select_columns())


def view_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the state of every session."""
    params: list[Any] = [0, _LAST]
    conditions = file.prefix_condition("s.session_id")
    if constraints.get("session") is not None:
        params.append(constraints["session"])
        conditions += " AND s.session_id = ?3"
    names = ", ".join(f'"{name}"' for name in INPUT)
    sql = SQL.tail.format(
        samples=", ".join("NULL" for _ in INPUT),
        columns=names,
        cut=file.seq,
        event=int(constraints.get("event") or _LAST),
        conditions=conditions,
    )
    for session, rows in groupby(read_all(file.snapshot, sql, params), itemgetter(0)):
        view = fold_view(session, iter(rows))
        yield [view[name] for name in _NAMES]


FOLDED: Final = {"view": FoldedTable(view_rows, ("at", "event"), ("session",))}

"""The folded table of graphs in process: `current`; and the queries over the tables of all apps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from fourfold.models.graphs.records import KINDS
from fourfold.query.files import FoldedTable, QueryFile
from fourfold.query.graphs import shapes
from fourfold.query.graphs.current import current_query, select_current
from fourfold.query.graphs.tables import SQL

_LAST: Final = 2**62
_OUTPUT: Final = tuple(column.name for column in shapes.of_all())
_EXTRA: Final = ("target", "wanted", "via", "judged_owner")
_Version = NamedTuple("_Version", [(name, Any) for name in (*_OUTPUT, *_EXTRA)])  # type: ignore[misc]
_about = attrgetter("target")
_VISIBLE: Final = tuple(column.name for column in shapes.of_all() if not column.hidden)
_HIDDEN: Final = tuple(column.name for column in shapes.of_all() if column.hidden)


def expand(file: QueryFile, table: str, query: str) -> list[str]:
    """Return the queries of a table on the tables of all apps of a file."""
    if "{n}" not in query:
        return [query]
    kinds = KINDS if table == "changes" else (shapes.TABLES.get(table),)
    texts = []
    for app_id, slug in file.snapshot.all(SQL.all_apps):
        if file.may_read(slug):
            texts += [shapes.filled(query, app_id, kind) for kind in kinds]
    return texts


def current_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the newest version of every object, without suppressed ones."""
    node = str(file.snapshot.value(SQL.node))
    trusted = frozenset(json.loads(constraints.get("trusted") or "[]"))
    suppressed = bool(constraints.get("suppressed"))
    names = ", ".join((*_OUTPUT, *_EXTRA))
    for app_id, slug in file.snapshot.all(SQL.all_apps):
        if constraints.get("app") not in {None, slug} or constraints.get("app_id") not in {
            None,
            app_id,
        }:
            continue
        if not file.may_read(slug):
            continue
        for kind in KINDS:
            if constraints.get("kind") not in {None, kind}:
                continue
            parts = current_query(app_id, cast("Any", kind), file.seq)
            sql = SQL.by_object.format(columns=names, parts=parts)
            rows = map(_Version._make, file.snapshot.rows(sql, (0, _LAST)))
            for _, group in groupby(rows, _about):
                for row in select_current(list(group), node, trusted, suppressed=suppressed):
                    yield [getattr(row, name) for name in (*_VISIBLE, *_HIDDEN)]


FOLDED: Final = {
    "current": FoldedTable(current_rows, ("at", "trusted", "suppressed"), ("app", "kind", "app_id"))
}

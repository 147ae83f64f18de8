"""The fold of current objects: the newest version of each object, unless it is hidden.

Its input are the versions of an object, and the ratings that may suppress it or its targets, in any
order. It applies the functions of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from fourfold.models.graphs import fold
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.statements import REFERENCES, fill, rows_pointing_at
from fourfold.query.graphs import shapes
from fourfold.query.graphs.tables import SQL

_JUDGEMENT: Final = "judgement"
_HIDDEN_BY: Final[dict[Kind, tuple[tuple[str, Kind], ...]]] = {
    "parent": (("object_id", "parent"),),
    "attr": (("object_id", "attr"),),
    "edge": REFERENCES["edge"],
    "rating": REFERENCES["rating"],
}
"""The columns and kinds through which a row is hidden. An attribute is also hidden with its parent,
and hides what points at it.
"""


V = TypeVar("V", bound=Any)


def select_current(
    rows: Sequence[V], node: str, trusted: frozenset[int], *, suppressed: bool
) -> Iterator[V]:
    """Yield the newest version of an object; nothing if it is hidden and not `suppressed`."""
    versions = [row for row in rows if row.kind == row.wanted]
    for row in fold.current(versions, node).values():
        about = [
            judgement
            for judgement in rows
            if judgement.kind == _JUDGEMENT and judgement.via == row.via
        ]
        if suppressed or not _is_hidden(fold.current(about, node).values(), trusted):
            yield row


def _is_hidden(judgements: Iterable[Any], trusted: frozenset[int]) -> bool:
    """Return True if one of the current ratings hides the row."""
    return any(
        fold.is_hidden(by, judgement.judged_owner, trusted)
        for judgement in judgements
        for suppressions in fold.suppressions([judgement], {judgement.type_id})
        for by in suppressions.values()
    )


def current_query(app_id: int, kind: Kind, cut: int) -> str:
    """Return the query for the versions and ratings of the objects of one kind of one app."""
    parts = [
        _filled(query, app_id, kind, kind, cut) for query in (SQL.versions, SQL.later_versions)
    ]
    for column, target in _HIDDEN_BY[kind]:
        queries = [SQL.judgements] + [SQL.judgements_of_parents] * (target == "attr")
        for query in queries:
            judged_id = f"r.target_{target}_id" if query is SQL.judgements else "a.id"
            pointing = rows_pointing_at(app_id, kind, column, judged_id)
            judged = query.replace("{column}", column).replace("{target}", target)
            judged = judged.replace("{pointing}", pointing)
            parts.append(_filled(judged, app_id, "rating", kind, cut))
    return " UNION ALL ".join(parts)


def _filled(query: str, app_id: int, table: Kind, kind: Kind, cut: int) -> str:
    text = fill(query, app_id, kind)
    return text.replace("{columns}", shapes.selected(table)).replace("{cut}", str(cut))

"""The query for the rows that a fold of documents needs.

For `state` the rows of an entity begin at the newest whole document at that point in history: a
snapshot, a set or a delete. For `history` they begin there as seen from the seq after `since`, or
with the first row. With `since`, entities without changes after it are left out. SQLite finds all
this by its keys, so superseded rows are never read.

In a line of several branches each is pruned separately. Rows of an ancestor below a set of its
child are read, and the fold drops them undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from fourfold.kernel import Queries, load_queries

_SQL: Final = load_queries("fourfold.query.documents", "fold_query.sql")
COLUMNS: Final = (
    ("id", "TEXT", "''"),
    ("seq", "INTEGER", "0"),
    ("op_index", "INTEGER", "0"),
    ("op", "TEXT", "''"),
    ("data", "TEXT", "''"),
)
"""Name, type, and a sample value of the type."""

Conditions = Callable[[int], tuple[list[str], list[Any]]]
"""Conditions on `id`, whose values are bound starting at a parameter number."""


def build_query(
    queries: Queries,
    links: Sequence[tuple[str, int]],
    *,
    versions: bool = False,
    since: int = 0,
    conditions: Conditions | None = None,
    typed: bool = True,
) -> tuple[str, list[Any]]:
    """Return the query for the line of `links` (branch and cap, nearest first) and its parameters.

    With `versions` it selects the input of `history`, else that of `state`. If `typed`, the first
    row is a sample that fixes the types of the columns.
    """
    bound: list[Any] = []

    def bind(value: Any) -> str:
        bound.append(value)
        return f"?{len(bound)}"

    texts: list[str] = []
    if conditions is not None:
        more, values = conditions(1)
        bound.extend(values)
        texts += [text.replace('"id"', "h.id") for text in more]
    numbered = [(bind(branch), bind(cap), cap) for branch, cap in links]
    if since:
        number = bind(since)
        changed = [
            _SQL.changed.format(branch=branch, since=number, cap=cap) for branch, cap, _ in numbered
        ]
        texts.append(f"h.id IN ({' UNION '.join(changed)})")
    extra = "".join(f" AND {text}" for text in texts)
    parts: list[str] = []
    for branch, cap, upto in numbered:
        if versions and not since:
            parts.append(_SQL.whole_log.format(branch=branch, cap=cap, conditions=extra))
            continue
        # The first requested version may be the first one after gc.
        base = bind(min(upto, since + 1)) if versions else cap
        parts += [
            _SQL.log.format(branch=branch, cap=cap, base=base, conditions=extra),
            _SQL.wholes.format(
                branch=branch, base=base, snapshots=queries.snapshots, conditions=extra
            ),
        ]
    if not typed:
        return _SQL.plain_line.format(parts=" UNION ALL ".join(parts)), bound
    sql = _SQL.line.format(
        samples=", ".join(f'{sample} AS "{name}"' for name, _, sample in COLUMNS),
        columns=", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind, _ in COLUMNS),
        parts=" UNION ALL ".join(parts),
    )
    return sql, bound

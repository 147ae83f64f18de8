"""The parts of the folded tables of documents, and the query for the rows that a fold needs.

For `state` the rows of an entity begin at the newest whole document at that point in history: a
snapshot, a set or a delete. For `history` they begin there as seen from the seq after `since`, or
with the first row. With `since`, entities without changes after it are left out. SQLite finds all
this by its keys, so superseded rows are never read.

In a line of several branches each is pruned separately. Rows of an ancestor below a set of its
child are read, and the fold drops them undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from fourfold.kernel import Queries, load_queries
from fourfold.pipeline import plan
from fourfold.pipeline.conditions import Condition, as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents.lines import Line, lines
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece
from fourfold.pipeline.tables import ROOT, SPACE

_SQL: Final = load_queries("fourfold.pipeline.documents", "fold_query.sql")
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


def folded_parts(bounds: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield, for every selected line of history, the rows that its readers see, in fold order."""
    branches = options.conditions.on("branch")
    for bound, file_lines in lines(bounds, options):
        for line in file_lines:
            if all(condition.holds(line.branch) for condition in branches):
                for part, share in _folded_ranges(bound, options):
                    yield bound.bytes // share, build_folded_piece(bound, options, line, part)


def _folded_ranges(
    bound: FileBound, options: ReadOptions
) -> Iterator[tuple[tuple[str | None, str | None], int]]:
    count = plan.count_parts(bound.bytes, plan.task_bytes(options))
    if count <= 1 or options.conditions.on("id"):
        yield (None, None), 1
        return
    queries = options.tables.kinds[bound.kind].queries
    ids = sorted({key[1] for key in plan.split_keys(bound, queries, count)})
    for after, upto in zip([None, *ids], [*ids, None], strict=True):
        yield (after, upto), len(ids) + 1


def build_folded_piece(
    bound: FileBound,
    options: ReadOptions,
    line: Line,
    part: tuple[str | None, str | None] = (None, None),
) -> Piece:
    """Return the query for the rows of one line that the fold needs, by entity, in log order."""
    conditions = [
        Condition("id", sign, (key,))
        for sign, key in ((">", part[0]), ("<=", part[1]))
        if key is not None
    ]
    conditions += options.conditions.on("id")
    sql, parameters = build_query(
        options.tables.kinds[bound.kind].queries,
        line.links,
        versions=options.table_name == "history",
        since=max(bound.since, line.since),
        conditions=lambda first: as_sql(conditions, first),
    )
    return Piece(
        bound.path,
        sql,
        tuple(parameters),
        ((SPACE, bound.space), (ROOT, bound.root), ("branch", line.branch)),
        max(bound.since, line.since),
        _guard(bound, options, line),
    )


def _guard(bound: FileBound, options: ReadOptions, line: Line) -> Guard:
    """Return the check that gc has not removed the state, nor the versions before it."""
    queries = options.tables.kinds[bound.kind].queries
    if options.table_name == "history":
        return Guard(
            queries.whole_after,
            (line.since + 1,),
            f"gc removed versions after seq {line.since}",
        )
    branch = f"branch {line.branch!r}" if line.branch else "the default branch"
    return Guard(
        queries.readable,
        (line.branch, bound.seq),
        f"gc removed the state of {branch} at seq {bound.seq}",
    )


def build_query(
    queries: Queries,
    links: Sequence[tuple[str, int]],
    *,
    versions: bool = False,
    since: int = 0,
    conditions: Conditions | None = None,
) -> tuple[str, list[Any]]:
    """Return the query for the line of `links` (branch and cap, nearest first) and its parameters.

    With `versions` it selects the input of `history`, else that of `state`.
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
    sql = _SQL.line.format(
        samples=", ".join(f'{sample} AS "{name}"' for name, _, sample in COLUMNS),
        columns=", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind, _ in COLUMNS),
        parts=" UNION ALL ".join(parts),
    )
    return sql, bound

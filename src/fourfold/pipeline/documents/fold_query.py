"""The parts of the folded tables of documents: files, lines of history, ranges of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fourfold.pipeline import plan
from fourfold.pipeline.conditions import Condition, as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents.lines import lines
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece
from fourfold.query.documents.fold_query import build_query
from fourfold.query.documents.lines import BranchLine
from fourfold.query.tables import ROOT, SPACE


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
    line: BranchLine,
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


def _guard(bound: FileBound, options: ReadOptions, line: BranchLine) -> Guard:
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

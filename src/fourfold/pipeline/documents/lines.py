"""The lines of a space: which commits of which branches a read covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fourfold.errors import HistoryTruncated, NotFound
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.query.documents.lines import BranchLine, LineLink, select_lines


def lines(
    bounds: Sequence[FileBound], options: ReadOptions
) -> Iterator[tuple[FileBound, list[BranchLine]]]:
    """Yield the selected lines of each file: one branch, or every branch that existed.

    A file without the branch has no line; if no file has it, NotFound is raised.
    """
    known = not bounds
    for bound in bounds:
        default = [BranchLine("", (LineLink("", bound.seq),))]
        selected = file_lines(bound, options) if options.branch else default
        known = known or bool(selected)
        if options.table_name == "history":
            since = first_complete_seq(bound, options)
            selected = [line._replace(since=since) for line in selected]
        yield bound, selected
    if not known:
        raise _unknown_branch(options)


def check_branch(bounds: Sequence[FileBound], options: ReadOptions) -> None:
    """Raise NotFound if no file has the branch; files after the first match are not opened."""
    if options.branch and bounds and not any(file_lines(bound, options) for bound in bounds):
        raise _unknown_branch(options)


def _unknown_branch(options: ReadOptions) -> NotFound:
    return NotFound(
        f"{options.location}: unknown branch {options.branch!r} at that point",
        hint="Run `fourfold space branch list` to list the branches of a space.",
    )


def first_complete_seq(bound: FileBound, options: ReadOptions) -> int:
    """Return the seq after which a file has every version; raise if `since` is earlier."""
    if not bound.path:
        # It is in an archive, and gc has not collected it.
        return bound.since
    [(horizon,)] = cuts.fetch_rows(bound, options.tables.kinds[bound.kind].queries.horizon)
    lowest = max(int(horizon) - 1, 0)
    if options.since is not None and bound.since < lowest:
        raise HistoryTruncated(
            f"{bound.path}: history begins at seq {horizon}, got since {bound.since}",
            details={"horizon": horizon, "path": bound.path},
        )
    return max(bound.since, lowest)


def file_lines(bound: FileBound, options: ReadOptions) -> list[BranchLine]:
    """Return the selected lines of one file."""
    rows = cuts.fetch_rows(
        bound, options.tables.kinds[bound.kind].queries.branch_lines, (bound.seq,)
    )
    return select_lines(rows, options.branch, bound.seq, bound.path)

"""Lines of history: which branches a reader of a branch sees, and how far into each.

The rule is that of `models.documents.chain`: nearest first, and the caps only ever shrink. Here it
is worked out for many files, at the cut of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fourfold import limits
from fourfold.errors import CorruptData, HistoryTruncated, NotFound
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import Mark
from fourfold.pipeline.options import ALL_BRANCHES, ReadOptions


class Link(NamedTuple):
    """A branch, and the newest seq of it that is visible."""

    branch: str
    cap: int


class Line(NamedTuple):
    """What is visible on `branch`: nearest first. Versions begin beyond the seq `since`."""

    branch: str
    links: tuple[Link, ...]
    since: int = 0


def lines(marks: Sequence[Mark], options: ReadOptions) -> Iterator[tuple[Mark, list[Line]]]:
    """For each file the lines that are wanted of it: one branch, or every branch that existed.

    A file without the branch has none; when no file has it, the name is wrong.
    """
    known = not marks
    for mark in marks:
        default = [Line("", (Link("", mark.seq),))]
        found = of_file(mark, options) if options.branch else default
        known = known or bool(found)
        if options.table_name == "history":
            since = beginning(mark, options)
            found = [line._replace(since=since) for line in found]
        yield mark, found
    if not known:
        raise _unknown_branch(options)


def check_branch(marks: Sequence[Mark], options: ReadOptions) -> None:
    """Refuse a branch that no file has; files after the first that has it are not opened."""
    if marks and not any(of_file(mark, options) for mark in marks):
        raise _unknown_branch(options)


def _unknown_branch(options: ReadOptions) -> NotFound:
    return NotFound(
        f"no space of {options.location} has a branch {options.branch!r} at that point",
        hint="`fourfold space branch list` names the branches of a space.",
    )


def beginning(mark: Mark, options: ReadOptions) -> int:
    """The seq beyond which a file has every version. Who asks for more is refused."""
    [(horizon,)] = cuts.rows(mark, options.tables.kinds[mark.kind].queries.horizon)
    least = max(int(horizon) - 1, 0)
    if options.since is not None and mark.since < least:
        raise HistoryTruncated(
            f"{mark.path}: versions beyond seq {mark.since} were given up: "
            f"a collection keeps the history of this space from seq {horizon} on",
            details={"horizon": horizon, "path": mark.path},
        )
    return max(mark.since, least)


def of_file(mark: Mark, options: ReadOptions) -> list[Line]:
    rows = cuts.rows(mark, options.tables.kinds[mark.kind].queries.branch_lines, (mark.seq,))
    parents = {name: (parent, fork) for name, parent, fork in rows}
    if options.branch != ALL_BRANCHES:
        parents_wanted = [options.branch] if options.branch in parents else []
    else:
        parents_wanted = sorted(parents)
    found = []
    for branch in parents_wanted:
        links = [Link(branch, mark.seq)]
        parent, fork = parents[branch]
        while parent is not None and fork is not None:
            links.append(Link(parent, min(links[-1].cap, fork)))
            if parent not in parents or len(links) > limits.BRANCH_DEPTH_MAX + 1:
                raise CorruptData(f"{mark.path}: the branch {branch!r} has no beginning")
            parent, fork = parents[parent]
        found.append(Line(branch, tuple(links)))
    return found

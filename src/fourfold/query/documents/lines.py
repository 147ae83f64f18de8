"""The lines of a space: which commits of which branches a reader of a branch sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.errors import CorruptData

ALL_BRANCHES: Final = "*"


class LineLink(NamedTuple):
    """A branch and the newest seq of it that is visible."""

    branch: str
    cap: int


class BranchLine(NamedTuple):
    """The branches visible on `branch`, nearest first. Versions begin after the seq `since`."""

    branch: str
    links: tuple[LineLink, ...]
    since: int = 0


def select_lines(
    rows: Iterable[tuple[Any, ...]], selected_branch: str, seq: int, path: str
) -> list[BranchLine]:
    """Return the line of a branch at a seq, or of every branch for "*"; none if it is unknown.

    `rows` are the branches that existed: name, parent and fork seq.
    """
    parents = {name: (parent, fork) for name, parent, fork in rows}
    if selected_branch != ALL_BRANCHES:
        selected = [selected_branch] if selected_branch in parents else []
    else:
        selected = sorted(parents)
    result = []
    for branch in selected:
        links = [LineLink(branch, seq)]
        parent, fork = parents[branch]
        while parent is not None and fork is not None:
            links.append(LineLink(parent, min(links[-1].cap, fork)))
            if parent not in parents or len(links) > limits.BRANCH_DEPTH_MAX + 1:
                raise CorruptData(f"{path}: branch {branch!r} has no root")
            parent, fork = parents[parent]
        result.append(BranchLine(branch, tuple(links)))
    return result

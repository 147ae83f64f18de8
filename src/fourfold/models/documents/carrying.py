"""Carrying a space over into a new space with the other history, and proving that nothing was lost.

    carrying.carry_over(space, store.space("did:key:z6Mk...", history="facts"))

Everything keeps its place: seqs, branches, sessions, requests, times, blobs. Both logs are then
read side by side: the same operations with the same texts, under the same seqs, on branches that
fork where they forked, give the same state of every entity at every seq of every branch. What each
history adds of its own (digests, facts, hashes, snapshots) is checked by verifying the new space.

A carry-over that was stopped can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.documents import exchange
from fourfold.models.documents.exchange import Exported, Progress
from fourfold.models.documents.gc.horizon import check_after
from fourfold.models.documents.space import Space

Row = tuple[Any, ...]


def carry_over(source: Space, target: Space, progress: Progress | None = None) -> Exported:
    """Bring the whole of `source` into `target`, which is new, or was begun so before."""
    if not isinstance(source, Space) or not isinstance(target, Space):
        raise InvalidInput("only a space is carried over, and only into a space")
    if source.database is target.database:
        raise InvalidInput(
            f"{source.did} cannot be carried over into itself", hint="Choose another DID."
        )
    carried = exchange.replay(target, exchange.export(source), progress)
    found = difference(source, target, carried.seq)
    problems = target.verify() if found is None else [found]
    if problems:
        raise CorruptData(
            f"{target.did} is not what {source.did} was: {problems[0]}",
            hint=f"Do not use {target.did}. Verify {source.did}, and carry it over anew.",
        )
    return carried


def difference(one: Space, other: Space, until: int) -> str | None:
    """The first thing up to a seq that two spaces do not have in common; None if there is none."""
    pairs = (
        ("branch", _branches(one, until), _branches(other, until)),
        ("log", _log(one, until), _log(other, until)),
    )
    for what, mine, theirs in pairs:
        for row, counterpart in zip_longest(mine, theirs):
            if row != counterpart:
                return f"its {what} has {_shown(counterpart)} and not {_shown(row)}"
    return None


def _shown(row: Row | None) -> str:
    return "nothing" if row is None else f"{row!r:.120}"


def _branches(space: Space, until: int) -> list[Row]:
    with space.view() as view:
        found = view.all(view.sql.branches)
    return [
        (name, parent, fork_seq, created_seq, created_at if parent is not None else None)
        for name, parent, fork_seq, created_seq, _, _, created_at in found
        if created_seq <= until
    ]


def _log(space: Space, until: int) -> Iterator[Row]:
    """Every commit, each followed by its operations, page by page."""
    after = 0
    while after < until:
        with space.view() as view:
            check_after(view, after, "a comparison")
            commits = view.all(view.sql.commits, (after, until, limits.EXPORT_PAGE_COMMITS))
            page = [
                # What was decided is each history's own affair, and not compared.
                (commit[:6], view.all(view.sql.revisions_of_commit, (commit[0],)))
                for commit in commits
            ]
        for commit, operations in page:
            yield commit
            yield from operations
        if not commits:
            return
        after = commits[-1][0]

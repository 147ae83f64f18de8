"""Which branches a reader sees, and how far into each: one function, used by every read, conflict
check, diff and merge.

    chain(b, target) = [(b, target), (parent of b, min(target, fork of b)), ...]

Nearest first. An entity's state is what the *first* branch with a word on it says, not the newest
word of all: a child that deleted an entity hides what its parent wrote. The caps only ever shrink
along the chain, so a grandparent's later writes cannot slip in through a parent.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput, NotFound
from fourfold.models.documents import moments
from fourfold.models.documents.gc.horizon import check_point
from fourfold.models.documents.history import View
from fourfold.models.documents.names import check_known_branch
from fourfold.models.documents.records import Branch

At = int | datetime | None
"""A point in history: a seq, a moment, or now."""


class Link(NamedTuple):
    """A branch, and the newest seq of it that is visible."""

    branch: str
    cap: int


def branch_named(view: View, name: str) -> Branch:
    check_known_branch(name)
    row = view.one(view.sql.branch, (name,))
    if row is None:
        raise no_such_branch(name)
    return Branch(*row)


def no_such_branch(name: str) -> NotFound:
    return NotFound(
        f"there is no branch {name!r}", hint="`fourfold space branch list` names them all."
    )


def last_seq(view: View) -> int:
    return int(view.value(view.sql.last_seq))


def target_of(view: View, branch: str, at: At) -> int:
    """The seq that `at` means on `branch`.

    A moment means the newest commit at or before it. A seq beyond the newest is refused: nobody can
    know that state yet. A seq before the branch existed is refused too; ask its parent. So is one
    that a collection gave up.
    """
    check_known_branch(branch)
    newest = last_seq(view)
    if at is None:
        return newest
    if isinstance(at, datetime):
        seq = moments.seq_at(view, at)
    elif type(at) is int:
        seq = at
    else:
        raise InvalidInput(f"{at!r:.100} is neither a seq nor a moment")
    if not 0 <= seq <= newest:
        raise InvalidInput(
            f"seq {seq} is not in this space's history, which goes from 0 to {newest}"
        )
    if branch:
        created = branch_named(view, branch).created_seq
        if seq < created:
            raise NotFound(
                f"the branch {branch!r} did not exist at seq {seq}; it was made at {created}",
                hint="Read its parent at that point.",
            )
    check_point(view, branch, seq)
    return seq


def chain(view: View, branch: str, target: int) -> list[Link]:
    """What is visible on `branch` at `target`, nearest branch first."""
    links = [Link(branch, target)]
    name, cap = branch, target
    while name:
        found = branch_named(view, name)
        if found.parent is None or found.fork_seq is None:
            break
        name, cap = found.parent, min(cap, found.fork_seq)
        links.append(Link(name, cap))
        if len(links) > limits.BRANCH_DEPTH_MAX + 1:
            raise CorruptData(f"the branch {branch!r} is nested deeper than any can be made")
    return links

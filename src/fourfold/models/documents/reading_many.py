"""Reading many entities at one point, in a number of statements that does not depend on how many.

Branch by branch along the chain, two questions are asked for all entities at once: what is there of
each since the last whole document, and, where that is a snapshot, what it says. An entity whose
patches on a child have no whole document below them stays open, and takes its base from the next
branch of the chain. The result is what single reads of the same chain give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fourfold.errors import CorruptData
from fourfold.models.documents import fold
from fourfold.models.documents.chain import Link
from fourfold.models.documents.encoding import stored, trusted
from fourfold.models.documents.history import View
from fourfold.models.documents.records import Document, State

Rows = list[fold.Row]


def states(view: View, links: Sequence[Link], entities: Iterable[str]) -> dict[str, State | None]:
    """The state that the chain shows for each entity; None for one that was never written."""
    found: dict[str, State | None] = dict.fromkeys(entities)
    unsettled: dict[str, Rows] = {entity: [] for entity in found}
    for link in links:
        if not unsettled:
            break
        for entity, state in _on_branch(view, link, unsettled).items():
            found[entity] = state
            del unsettled[entity]
    for entity, rows in unsettled.items():
        found[entity] = fold.fold(None, rows)
    return found


def _on_branch(view: View, link: Link, unsettled: dict[str, Rows]) -> dict[str, State]:
    """The entities that one branch settles. The patches of the others join those that follow."""
    settled: dict[str, State] = {}
    resting: list[tuple[str, int, Rows]] = []
    for entity, since, rows in _replays(view, link, unsettled):
        whole = _last_whole(rows)
        if whole is not None:
            # Earlier operations of the same commit came along; what they built on did not.
            settled[entity] = _folded(rows[whole], rows[whole + 1 :] + unsettled[entity])
        elif since:
            resting.append((entity, since, rows))
        else:
            unsettled[entity] = rows + unsettled[entity]
    if resting:
        documents = _snapshots(view, link.branch, resting)
        for entity, since, rows in resting:
            # A snapshot holds all operations of its commit, which came along for their seq.
            later = [row for row in rows if row[0] > since] + unsettled[entity]
            base = State(documents[entity], "patch", since)
            settled[entity] = fold.patched(base, later)
    return settled


def _replays(view: View, link: Link, entities: Iterable[str]) -> Iterator[tuple[str, int, Rows]]:
    """For each entity that a branch knows: the seq of its snapshot, and its rows from there on or
    from a later whole document.
    """
    asked = (link.branch, link.cap, trusted(list(entities)))
    found = [row for row in view.all(view.sql.replays, asked) if row[2] is not None]
    for (entity, since, _), (count, *rows) in zip(found, _values(found), strict=True):
        if count != len(rows) or 3 * count != sum(map(len, rows)):
            raise CorruptData(f"a stored text of {entity!r} is more than one value")
        yield entity, since, rows


def _last_whole(rows: Rows) -> int | None:
    """Which of the rows is the last that is no patch."""
    for at in range(len(rows) - 1, -1, -1):
        if rows[at][1] != "patch":
            return at
    return None


def _snapshots(
    view: View, branch: str, resting: Iterable[tuple[str, int, Rows]]
) -> dict[str, Document]:
    pairs = trusted([(entity, since) for entity, since, _ in resting])
    found = view.all(view.sql.snapshots_at, (branch, pairs))
    return {row[0]: document for row, document in zip(found, _values(found), strict=True)}


def _values(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The value of the text at the end of each row; all texts are read as one, which costs half as
    much.
    """
    texts = ",".join([row[-1] for row in rows])
    values: list[Any] = stored(f"[{texts}]")
    if len(values) != len(rows):
        # A damaged text can look like two.
        return [stored(row[-1]) for row in rows]
    return values


def _folded(whole: fold.Row, patches: Rows) -> State:
    """The state after a whole document and the patches behind it."""
    seq, op, document = whole
    if op == "set" and type(document) is dict:
        return fold.patched(State(document, "set", seq), patches)
    base = fold.fold(None, (whole,))
    assert base is not None
    return fold.patched(base, patches)

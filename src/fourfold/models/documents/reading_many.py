"""Reading many entities at one point, in a number of statements that does not depend on how many.

Branch by branch along the chain, three questions are asked for all entities at once: what is the
last word on each, which snapshot stands before it, and which revisions lie between. An entity whose
patches on a child have no whole document below them stays open, and takes its base from the next
branch of the chain. The result is what single reads of the same chain give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    patched: dict[str, int] = {}
    wanted = trusted(list(unsettled))
    for entity, seq, op, data in view.all(
        view.sql.newest_revisions, (link.branch, link.cap, wanted)
    ):
        if op == "patch":
            patched[entity] = seq
        else:
            row = (seq, op, None if data is None else stored(data))
            settled[entity] = _folded(None, [row, *unsettled[entity]])
    if patched:
        settled.update(_replayed(view, link.branch, patched, unsettled))
    return settled


def _replayed(
    view: View, branch: str, patched: dict[str, int], unsettled: dict[str, Rows]
) -> dict[str, State]:
    """Entities whose last word on a branch is a patch."""
    bases: dict[str, State] = {}
    for entity, seq, text in view.all(
        view.sql.newest_snapshots, (branch, trusted(list(patched.items())))
    ):
        document: Document = stored(text)
        bases[entity] = State(document, "patch", seq)
    reach = [
        (entity, bases[entity].seq if entity in bases else 0, upto)
        for entity, upto in patched.items()
    ]
    replays: dict[str, list[tuple[int, str, str | None]]] = {entity: [] for entity in patched}
    for entity, seq, op, data in view.all(view.sql.replays, (branch, trusted(reach))):
        replays[entity].append((seq, op, data))
    settled: dict[str, State] = {}
    for entity, replay in replays.items():
        rows = _decoded(replay)
        base = bases.get(entity)
        whole = max((at for at, row in enumerate(rows) if row[1] != "patch"), default=None)
        if whole is not None:
            # Earlier operations of the same commit came along; what they built on did not.
            base, rows = None, rows[whole:]
        if whole is None and base is None:
            unsettled[entity] = rows + unsettled[entity]
        else:
            settled[entity] = _folded(base, rows + unsettled[entity])
    return settled


def _decoded(rows: list[tuple[int, str, str | None]]) -> Rows:
    """The rows with their values: all texts are read as one, which costs half as much."""
    texts = ",".join([text or "null" for _, _, text in rows])
    values = stored(f"[{texts}]")
    if len(values) != len(rows):
        # A damaged text can look like two.
        values = [None if text is None else stored(text) for _, _, text in rows]
    return [(seq, op, value) for (seq, op, _), value in zip(rows, values, strict=True)]


def _folded(base: State | None, rows: Rows) -> State:
    state = fold.fold(base, rows)
    assert state is not None
    return state

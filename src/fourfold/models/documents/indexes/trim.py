"""Removal of index entries below the horizon, as part of garbage collection."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.kernel import Transaction
from fourfold.models.documents.gc.horizon import horizon
from fourfold.models.documents.gc.plan import stored_points
from fourfold.models.documents.indexes import declaration, text_upkeep, vector
from fourfold.models.documents.indexes.declaration import SQL, Index
from fourfold.models.documents.indexes.entries import readable_intervals

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


def trim(space: Space) -> int:
    """Delete the past entries that no reader can see any more; return how many.

    In short transactions: an entry of the past never changes, and the horizon never moves back.
    """
    with space.background_view() as view:
        indexes = declaration.load(view.snapshot)
        least, points = horizon(view), stored_points(view)
    retained = {branch: [*seqs, least] for branch, seqs in points.items()}
    return sum(_TRIMS[index.kind](space, index, retained, least) for index in indexes)


def _trim(space: Space, index: Index, retained: dict[str, list[int]], least: int) -> int:
    count = 0
    place: tuple[str, bytes, str, int] = ("", b"", "", 0)
    while True:
        with space.background_view() as view:
            page = view.all(SQL.past_page, (index.ix, *place, limits.MAINTENANCE_PAGE_ROWS))
        doomed = [
            (index.ix, branch, value, entity, end)
            for branch, value, entity, end, begin in page
            if not readable_intervals([(begin, end)], retained.get(branch, [least]))
        ]
        if doomed:
            space.database.transact(partial(_delete, rows=doomed))
            count += len(doomed)
            space.database.pauses.pause()
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return count
        place = page[-1][:4]


def _delete(txn: Transaction, rows: list[tuple[int, str, bytes, str, int]]) -> None:
    txn.execute_many(SQL.delete_past, rows)


_TRIMS: Final = {"value": _trim, "text": text_upkeep.trim, "vector": vector.trim}

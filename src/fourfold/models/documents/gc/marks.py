"""Dry run of gc: what it would remove, without changing anything.

The same functions decide here and in the collection itself. A mark is only as good as the moment at
which it was made: the collection looks again, in its own transactions, and takes nothing that came
to be needed in between. It may take more than was marked, namely the facts and values that only the
rows it takes refer to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.models.documents import snapshots
from fourfold.models.documents.gc import sweep
from fourfold.models.documents.gc.plan import GcPlan, Window, make_plan
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.records import Tally

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


def mark(space: Space, policy: GcPolicy) -> tuple[int, Tally]:
    """Return the horizon that gc by `policy` would set now, and what it would remove.

    The space may be open for reading only.
    """
    tally = Tally()
    with space.background_view() as view:
        plan = make_plan(view, policy, policy.pins)
        _, shortened, loose, _ = view.all(view.sql.gc_state)[0]
        if policy.requests:
            parameters = (shortened, plan.horizon, limits.GC_REQUEST_BYTES_MIN, -1)
            for row in view.rows(view.sql.requests_page, parameters):
                tally.note("requests", 1, len(row[3]))
    for window in plan.windows:
        _mark_window(space, plan, window, tally)
    if policy.snapshots != "all":
        for page in snapshots.superfluous(space, policy.snapshots, policy.pins):
            tally.note("snapshots", len(page), 0)
    if loose:
        for refs in space.history_kind.collecting.unreferred(space.background_view):
            tally.note("values", len(refs), 0)
    if policy.blobs:
        moment = sweep.time_before(policy.blob_age_s)
        blobs = sweep.list_unreferenced(space, moment)
        with space.background_view() as view:
            for digits in blobs:
                tally.note("blobs", 1, view.value(view.sql.old_blob, (digits, moment)) or 0)
    return plan.horizon, tally


def _mark_window(space: Space, plan: GcPlan, window: Window, tally: Tally) -> None:
    retained = [*plan.points.get(window.branch, ()), plan.horizon]
    place = (window.after, "\U0010ffff")
    done: set[str] = set()
    while True:
        with space.background_view() as view:
            page = view.all(
                view.sql.window_page,
                (window.branch, *place, window.until, limits.MAINTENANCE_PAGE_ROWS),
            )
        entities = dict.fromkeys(entity for _, entity in page if entity not in done)
        done.update(entities)
        for doomed in sweep.doomed_in(space, window.branch, entities, retained):
            tally.note("revisions", doomed.rows, 0)
        if len(page) < limits.MAINTENANCE_PAGE_ROWS:
            return
        place = page[-1]
        if len(done) > limits.GC_ENTITIES_REMEMBERED:
            done.clear()

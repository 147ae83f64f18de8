"""Parked rows: they are applied once what they refer to is here and in their domain."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from fourfold.errors import LimitExceeded
from fourfold.kernel import load_queries
from fourfold.models.graphs.rules import REASON
from fourfold.models.graphs.sync.envelope import decode_row
from fourfold.models.graphs.sync.ingest import Import
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
_SLICE_ROWS: Final = 200
"""Parked rows that one transaction applies."""


def apply_ready(graphs: Graphs) -> int:
    """Apply parked rows whose targets have arrived, in slices; return how many rows were.

    The rows of an app that the domain does not accept now, or that are beyond the limit of the app,
    stay parked, and are tried again by the next call. They delay no other app.
    """
    added = 0
    blocked: list[tuple[str, int]] = []
    while True:
        with graphs.database.read_current() as snapshot:
            if not snapshot.value(_SQL.has_parked):
                return added
            found = snapshot.one(_SQL.ready_app, (json.dumps(blocked),))
        if found is None:
            return added
        domain, app_id = str(found[0]), int(found[1])
        added += _apply_app(graphs, domain, app_id)
        blocked.append((domain, app_id))


def apply_rules(graphs: Graphs, app_id: int) -> int:
    """Apply rows of an app that broke a rule which changed; return how many rows were."""
    added, place = 0, (b"", "")
    while True:
        written, place = graphs.with_transaction(partial(_apply_broken, graphs, app_id, place))
        added += written
        if not place[0]:
            return added + (apply_ready(graphs) if added else 0)


def _apply_broken(
    graphs: Graphs, app_id: int, after: tuple[bytes, str], handle: GraphTransaction
) -> tuple[int, tuple[bytes, str]]:
    """Try the rows after a place; return how many were applied, and the last one or no row."""
    work = Import(graphs, handle)
    params = (app_id, *after, REASON, _SLICE_ROWS)
    rows = [
        (bytes(row_id), str(domain)) for row_id, domain in handle.txn.all(_SQL.broken_rules, params)
    ]
    written = sum(
        _apply_row(work, handle, domain, row_id)
        for row_id, domain in rows
        if work.checks.accepts(domain, app_id)
    )
    return written, rows[-1] if rows else (b"", "")


def _apply_app(graphs: Graphs, domain: str, app_id: int) -> int:
    """Apply the ready rows of an app, fewer at a time where its limit is near."""
    added, size = 0, _SLICE_ROWS
    while size:
        try:
            seen, written = graphs.with_transaction(
                partial(_apply_slice, graphs, domain, app_id, size)
            )
        except LimitExceeded:
            size //= 2
            continue
        if not seen:
            break
        added += written
    return added


def _apply_slice(
    graphs: Graphs, domain: str, app_id: int, size: int, handle: GraphTransaction
) -> tuple[int, int]:
    """Return the number of rows that were tried, and of those that were applied."""
    work = Import(graphs, handle)
    if not work.checks.accepts(domain, app_id):
        return 0, 0
    ready = handle.txn.all(_SQL.ready, (domain, app_id, size))
    written = sum(_apply_row(work, handle, domain, bytes(row_id)) for row_id, _ in ready)
    return len(ready), written


def _apply_row(work: Import, handle: GraphTransaction, domain: str, row_id: bytes) -> bool:
    txn = handle.txn
    app_id, kind, local_id, data, _ = txn.one(_SQL.row_in_domain, (row_id, domain)) or ()
    body = decode_row(bytes(data))
    plan = work.plan_targets(domain, body, {})
    if not plan.is_applied:
        work.park(domain, row_id, body.owner, plan)
        return False
    txn.execute(_SQL.unpark, (row_id, domain))
    if local_id is not None:
        # Another domain has it already.
        work.share(domain, int(app_id), kind, int(local_id))
        return False
    work.write(domain, row_id, body, 0, None)
    return True

"""The lineage of sessions as a tree: which session was forked from which, or worked for it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.errors import Forbidden, NotFound
from fourfold.explorer.page import Visit
from fourfold.wire.sessions import EdgeRecord, LineageRecord, SessionRecord

SHOWN_MAX: Final = 24
DEPTH_MAX: Final = 6
_LABELS: Final = {"derivation": "fork", "invocation": "child"}


async def read_tree(visit: Visit, sid: str, lineage: LineageRecord) -> dict[str, Any]:
    """Return the sessions that are connected to one, parents before children."""
    parents = {
        edge.to_session: edge for edge in lineage.edges if edge.to_session != edge.from_session
    }
    children: dict[str, list[EdgeRecord]] = {}
    for edge in parents.values():
        children.setdefault(edge.from_session, []).append(edge)
    ends = {head.id: head.event_range[1] for head in lineage.heads}
    rows: list[dict[str, Any]] = []
    _walk(_root(parents, sid), None, 0, children, ends, rows)
    shown = _window(rows, sid)
    await asyncio.gather(*(_describe(visit, row) for row in shown))
    return {
        "rows": shown,
        "sessions": len(rows),
        "forks": sum(row["type"] == "derivation" for row in rows),
        "complete": lineage.complete and len(shown) == len(rows),
    }


def _root(parents: dict[str, EdgeRecord], sid: str) -> str:
    seen = {sid}
    while sid in parents and parents[sid].from_session not in seen:
        sid = parents[sid].from_session
        seen.add(sid)
    return sid


def _walk(  # noqa: PLR0917 - the arguments of a recursion
    sid: str,
    edge: EdgeRecord | None,
    depth: int,
    children: dict[str, list[EdgeRecord]],
    ends: dict[str, int],
    rows: list[dict[str, Any]],
) -> None:
    extra = {} if edge is None else msgspec.json.decode(edge.extra)
    at = None if edge is None else ends.get(edge.from_head or "")
    rows.append(
        {
            "sid": sid,
            "depth": min(depth, DEPTH_MAX),
            "type": None if edge is None else edge.type,
            "label": "" if edge is None else _LABELS.get(edge.type, edge.type),
            "at": extra.get("from_event_id", at) if isinstance(extra, dict) else at,
            "status": None,
            "events": None,
        }
    )
    # Sessions that worked for this one come first, then what was forked from it.
    below = sorted(children.pop(sid, ()), key=_order)
    for next_edge in below:
        _walk(next_edge.to_session, next_edge, depth + 1, children, ends, rows)


def _order(edge: EdgeRecord) -> tuple[bool, str]:
    return edge.type != "invocation", edge.to_session


def _window(rows: list[dict[str, Any]], sid: str) -> list[dict[str, Any]]:
    """Return as many rows as a page shows, with the session among them."""
    place = next((number for number, row in enumerate(rows) if row["sid"] == sid), 0)
    start = max(0, min(place - SHOWN_MAX // 2, len(rows) - SHOWN_MAX))
    return rows[start : start + SHOWN_MAX]


async def _describe(visit: Visit, row: dict[str, Any]) -> None:
    try:
        path = f"/v1/session/{row['sid']}"
        record = await visit.api.get(path, SessionRecord, at=visit.time)
    except (NotFound, Forbidden):
        return
    row |= {"status": record.status or "not started", "events": record.events}

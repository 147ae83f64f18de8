"""The page of a pattern: the objects and edges of an app that match it, drawn and listed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.explorer.graph_paths import edge_of_drawing, placed_node
from fourfold.explorer.graphs import ObjectReader, read_types
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.graph_patterns import MatchPage, PatternRow
from fourfold.wire.graphs import EdgeRow, ObjectState

MATCHES_SHOWN: Final = 50
"""Matches of a page."""
DRAWN_MAX: Final = 40
"""Objects, and edges, that are drawn."""
EXAMPLE: Final = '{"nodes": {"a": {}}, "steps": [{"from": "a", "to": "b"}]}'


class MatchPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a pattern."""

    app: str
    pattern: str = ""
    """The pattern as JSON; without one the page shows the form only."""
    cursor: str = ""


async def match_page(visit: Visit, query: MatchPageQuery) -> dict[str, Any]:
    """Show the matches of a pattern at a point."""
    types = await read_types(visit, query.app)
    data: dict[str, Any] = {
        "app": query.app,
        "pattern": query.pattern,
        "example": EXAMPLE,
        "types": [{"kind": kind, "key": name} for kind, name in types.values()],
        "page": None,
        "names": [],
        "rows": [],
        "graph": None,
    }
    if not query.pattern:
        return data
    at = format_at(visit.at)
    body = {
        "pattern": _decode(query.pattern),
        "limit": MATCHES_SHOWN,
        **({"at": at} if at else {}),
        **({"cursor": query.cursor} if query.cursor else {}),
    }
    page = await visit.api.post(f"/v1/apps/{query.app}/match", MatchPage, body)
    reader, seq = ObjectReader(visit, query.app, types), str(page.seq)
    ids = [number for row in page.items for number in row.objects.values()]
    ids += [number for row in page.items for path in row.paths for number in path.objects]
    nodes = {info.object.object_id: reader.node(info, None) for info in await reader.many(ids, seq)}
    rows = [
        {
            "objects": {name: nodes[number] for name, number in row.objects.items()},
            "edges": [path.edges for path in row.paths],
        }
        for row in page.items
    ]
    columns = _columns(page.items)
    shown = {"page": page, "names": list(page.items[0].objects) if page.items else []}
    if not columns:
        return {**data, **shown}
    edges = await _read_edges(visit, query.app, page.items, set(columns), seq)
    graph = {
        "center": 0,
        "label": f"{len(columns)} objects of the first matches",
        "nodes": [placed_node(nodes[number], column) for number, column in columns.items()],
        "edges": [edge_of_drawing(row, reader, columns) for row in edges],
        "further": [],
    }
    return {**data, **shown, "rows": rows, "graph": graph}


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"pattern must be JSON: {error}") from None


def _columns(rows: list[PatternRow]) -> dict[int, int]:
    """Return the column of each object that is drawn: paths go from left to right."""
    columns: dict[int, int] = {}
    for row in rows:
        for path in row.paths:
            start = columns.get(path.objects[0], 0)
            for place, number in enumerate(path.objects):
                if len(columns) < DRAWN_MAX:
                    columns.setdefault(number, start + place)
        for number in row.objects.values():
            if len(columns) < DRAWN_MAX:
                columns.setdefault(number, 0)
    return columns


async def _read_edges(
    visit: Visit, app: str, rows: list[PatternRow], drawn: set[int], at: str
) -> list[EdgeRow]:
    """Return the edges between drawn objects."""
    numbers = dict.fromkeys(
        edge
        for row in rows
        for path in row.paths
        for place, edge in enumerate(path.edges)
        if drawn.issuperset(path.objects[place : place + 2])
    )
    edges = []
    for number in list(numbers)[:DRAWN_MAX]:
        state = await visit.api.get(
            f"/v1/apps/{app}/objects/{number}", ObjectState, kind="edge", at=at
        )
        assert isinstance(state.object, EdgeRow)
        edges.append(state.object)
    return edges


PAGES: Final = (
    ExplorerPage(
        "/match", "match.html", match_page, MatchPageQuery, "Show the matches of a pattern."
    ),
)

"""The page of a path: a shortest path between two objects of an app, drawn from left to right."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs, to_builtins

from fourfold.explorer.graphs import ObjectReader, Types, read_types
from fourfold.explorer.links import format_at
from fourfold.explorer.neighbourhood import GraphNode
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.graphs import EdgeRow, ObjectState, PathInfo

DRAWN_MAX: Final = 40
"""Objects of a path that are shown."""
DIRECTIONS: Final = ("out", "in", "both")


class PathPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a path."""

    app: str
    start: str = ""
    end: str = ""
    """Ids of the two objects; without them the page shows the form only."""
    direction: str = "both"
    type: str = ""
    """Id of a type, to follow its edges only."""


async def path_page(visit: Visit, query: PathPageQuery) -> dict[str, Any]:
    """Show a shortest path between two objects at a point."""
    types = await read_types(visit, query.app)
    data: dict[str, Any] = {
        "app": query.app,
        "start": query.start,
        "end": query.end,
        "direction": query.direction,
        "type": query.type,
        "directions": DIRECTIONS,
        "edge_types": [(number, name) for number, (kind, name) in types.items() if kind == "edge"],
        "graph": None,
        "route": None,
        "seq": None,
        "more": 0,
    }
    if not (query.start and query.end):
        return data
    path = await visit.api.get(
        *(f"/v1/apps/{query.app}/path", PathInfo),
        start=query.start,
        end=query.end,
        direction=query.direction,
        type=query.type,
        at=format_at(visit.at),
    )
    more = max(0, len(path.objects) - DRAWN_MAX)
    graph = await _read_graph(visit, query.app, types, path)
    return {**data, "route": path, "seq": path.seq, "graph": graph, "more": more}


async def _read_graph(
    visit: Visit, app: str, types: Types, path: PathInfo
) -> dict[str, Any] | None:
    """Return the first objects and edges of a path for the drawing; None without a path."""
    if not path.objects:
        return None
    reader, at = ObjectReader(visit, app, types), str(path.seq)
    numbers = path.objects[:DRAWN_MAX]
    nodes = {
        info.object.object_id: reader.node(info, None) for info in await reader.many(numbers, at)
    }
    rows = []
    for number in path.edges[: len(numbers) - 1]:
        state = await visit.api.get(
            f"/v1/apps/{app}/objects/{number}", ObjectState, kind="edge", at=at
        )
        assert isinstance(state.object, EdgeRow)
        rows.append(state.object)
    places = {number: column for column, number in enumerate(numbers)}
    return {
        "center": path.objects[0],
        "label": f"a path over {len(path.edges)} edges",
        "nodes": [placed_node(nodes[number], places[number]) for number in numbers],
        "edges": [edge_of_drawing(row, reader, places) for row in rows],
        "further": [],
    }


def placed_node(node: GraphNode, column: int) -> dict[str, Any]:
    """Return an object in a column of a drawing."""
    placed: dict[str, Any] = to_builtins(structs.replace(node, column=column))
    return placed


def edge_of_drawing(row: EdgeRow, reader: ObjectReader, places: dict[int, int]) -> dict[str, Any]:
    """Return an edge of a drawing, from left to right."""
    source, target = row.src_parent_id, row.dst_parent_id or 0
    forward = places[source] <= places[target]
    name = reader.type_name(row)
    return {
        "name": f"{name} →" if forward else f"← {name}",
        "source": source if forward else target,
        "target": target if forward else source,
        "seq": row.global_seq,
        "state": "",
        "hop": 1,
    }


PAGES: Final = (
    ExplorerPage("/path", "path.html", path_page, PathPageQuery, "Show a path between objects."),
)

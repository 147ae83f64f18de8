"""The neighbourhood of an object as a drawing: what points at it left, what it points at right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

from markupsafe import Markup
from msgspec import Struct, structs, to_builtins

from fourfold.wire.graphs import AttrRow, EdgeRow, NeighboursInfo

NODE_WIDTH: Final = 118
NODE_HEIGHT: Final = 36
GAP: Final = 24
"""Room between two columns."""
LABEL_GAP: Final = 58
"""Room between two columns whose edges have labels: enough for five columns in a page of 1200."""
WIDE_LABEL_GAP: Final = 84
"""The same in a drawing of few columns."""
COLUMNS_FEW: Final = 3
ROW: Final = 50
SIDE_MAX: Final = 12
"""Neighbours that are drawn on each side; the table has the others."""
SECOND_MAX: Final = 12
"""Neighbours of neighbours that are drawn on each side."""


class GraphNode(Struct, frozen=True, kw_only=True):
    """An object, or the value of an attribute that an edge points at."""

    id: int
    kind: str
    """Name of its type."""
    type: str
    """The type with the id, if the label is a name."""
    label: str
    state: str = ""
    """`new`, `changed` or `gone` since the seq to compare with."""
    url: str = ""
    """Page of the object; empty if it has none."""
    column: int = 0
    """0 for the object; negative for what points at it, positive for what it points at."""


class GraphEdge(Struct, frozen=True, kw_only=True):
    """An edge that starts or ends at the object, or at a neighbour."""

    name: str
    source: int
    target: int
    seq: int
    state: str = ""
    hop: int = 1


class Neighbourhood:
    """Collect the nodes and edges around one object, as many as a drawing has room for."""

    def __init__(self, center: GraphNode) -> None:
        self._center = center
        self._nodes: dict[int, GraphNode] = {center.id: center}
        self._edges: list[GraphEdge] = []
        self._chosen: dict[int, int] = {}
        self._second: dict[int, int] = {}

    def choose(self, center: int, edges: Iterable[EdgeRow]) -> list[int]:
        """Return the ids of the neighbours to draw: the first ones of each side."""
        sides = {-1: 0, 1: 0}
        for edge in edges:
            column = 1 if edge.src_parent_id == center else -1
            number = edge.dst_parent_id if column == 1 else edge.src_parent_id
            if number is None or number == center or number in self._chosen:
                continue
            if sides[column] < SIDE_MAX:
                sides[column] += 1
                self._chosen[number] = column
        return list(self._chosen)

    def connect(self, edge: EdgeRow, name: str, state: str, nodes: dict[int, GraphNode]) -> None:
        """Add an edge of the object with its other end."""
        target = edge.dst_parent_id
        number = target if edge.src_parent_id == self._center.id else edge.src_parent_id
        if number in nodes:
            node = nodes[number]
            kind = "gone" if state == "gone" else node.state
            self._nodes[number] = structs.replace(node, column=self._chosen[number], state=kind)
        self._edges.append(
            GraphEdge(
                name=name,
                source=edge.src_parent_id,
                target=target if target is not None else -(edge.dst_attr_id or 0),
                seq=edge.global_seq,
                state=state,
            )
        )

    def choose_second(self, hops: Iterable[tuple[NeighboursInfo, EdgeRow]]) -> list[int]:
        """Return the ids of neighbours of neighbours to draw, further out on the same side."""
        sides = {-2: 0, 2: 0}
        for info, edge in hops:
            near = self._chosen[info.object.object_id]
            far = edge.dst_parent_id if near > 0 else edge.src_parent_id
            start = edge.src_parent_id if near > 0 else edge.dst_parent_id
            if start != info.object.object_id or far is None:
                continue
            if far in self._nodes or far in self._second or sides[2 * near] >= SECOND_MAX:
                continue
            sides[2 * near] += 1
            self._second[far] = 2 * near
        return list(self._second)

    def extend(
        self, near: int, edge: EdgeRow, name: str, nodes: dict[int, GraphNode], start: int
    ) -> None:
        """Add an edge between a neighbour and one of its own."""
        ends = edge.src_parent_id, edge.dst_parent_id
        far = ends[1] if ends[0] == near else ends[0]
        if far is None or far not in nodes:
            return
        column = self._second[far]
        if (ends[0] == near) != (column > 0):
            return
        self._nodes[far] = structs.replace(nodes[far], column=column)
        state = "new" if start and edge.global_seq > start else ""
        self._edges.append(
            GraphEdge(
                name=name,
                source=ends[0],
                target=ends[1] or 0,
                seq=edge.global_seq,
                state=state,
                hop=2,
            )
        )

    def values(
        self,
        around: NeighboursInfo,
        type_name: Callable[[AttrRow], str],
        value_of: Callable[[AttrRow], Any],
    ) -> None:
        """Add the values of attributes that edges of the object point at."""
        for row in around.objects:
            if isinstance(row, AttrRow):
                kind = type_name(row)
                self._nodes[-row.object_id] = GraphNode(
                    id=-row.object_id, kind=kind, type=kind, label=str(value_of(row)), column=1
                )

    def data(self, kind: str = "") -> dict[str, Any]:
        """Return the nodes, and the edges of the object and of its neighbours.

        With `kind`, only the objects of that type are drawn; `kinds` counts those of each type.
        """
        nodes = {number: to_builtins(node) for number, node in self._nodes.items()}
        around = [node.kind for number, node in self._nodes.items() if number != self._center.id]
        edges = sorted(self._edges, key=lambda edge: (edge.source == self._center.id, edge.seq))
        return {
            "center": self._center.id,
            "kinds": {name: around.count(name) for name in sorted(set(around))},
            "nodes": [
                node
                for node in nodes.values()
                if not kind or kind == node["kind"] or node["id"] == self._center.id
            ],
            "edges": [
                {
                    **to_builtins(edge),
                    "is_from": edge.source == self._center.id,
                    "other": nodes.get(_other(edge, self._center.id)),
                    "other_id": _other(edge, self._center.id),
                }
                for edge in edges
                if edge.hop == 1
            ],
            "further": [to_builtins(edge) for edge in edges if edge.hop == 2],
        }


def _other(edge: GraphEdge, center: int) -> int:
    return edge.target if edge.source == center else edge.source


def draw(graph: dict[str, Any]) -> Markup:
    """Return the drawing of an object and its neighbourhood, or of a path; a node is a link."""
    columns: dict[int, list[dict[str, Any]]] = {}
    for node in graph["nodes"]:
        columns.setdefault(node["column"], []).append(node)
    order = sorted(columns)
    height = 16 + ROW * max(len(nodes) for nodes in columns.values())
    lefts = _left_edges(graph, order)
    places: dict[int, tuple[int, int]] = {}
    for column in order:
        nodes = columns[column]
        top = (height - ROW * len(nodes)) // 2 + (ROW - NODE_HEIGHT) // 2
        for number, node in enumerate(nodes):
            places[node["id"]] = lefts[column], top + ROW * number
    parts = [
        _edge(edge, places)
        for edge in [*graph["further"], *graph["edges"]]
        if edge["source"] in places and edge["target"] in places
    ]
    parts += [_node(node, places[node["id"]], graph["center"]) for node in graph["nodes"]]
    width = lefts[order[-1]] + NODE_WIDTH + 8
    points = sum(len(columns[column]) for column in order if column < 0)
    points_at = len(graph["nodes"]) - points - 1
    label = graph.get("label", f"{points} objects point at it, it points at {points_at}")
    return Markup(
        '<svg class="neighbourhood wide-{}" viewBox="0 0 {} {}" role="group" aria-label="{}">'
        "{}</svg>"
    ).format(len(order), width, height, label, Markup("").join(parts))


def _left_edges(graph: dict[str, Any], order: list[int]) -> dict[int, int]:
    """Return where each column begins; there is more room where edges have labels."""
    column_of = {node["id"]: node["column"] for node in graph["nodes"]}
    ends = [
        {column_of[edge["source"]], column_of[edge["target"]]}
        for edge in graph["edges"]
        if edge["source"] in column_of and edge["target"] in column_of
    ]
    label_gap = WIDE_LABEL_GAP if len(order) <= COLUMNS_FEW else LABEL_GAP
    lefts = {order[0]: 8}
    for column, following in pairwise(order):
        gap = label_gap if {column, following} in ends else GAP
        lefts[following] = lefts[column] + NODE_WIDTH + gap
    return lefts


def _node(node: dict[str, Any], place: tuple[int, int], center: int) -> Markup:
    x, y = place
    kind = "chosen" if node["id"] == center else node["state"]
    drawing = Markup(
        '<g class="node {}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text x="{}" y="{}">{}</text><text class="strong" x="{}" y="{}">{}</text></g>'
    ).format(
        *(kind, f"{node['type']}: {node['label']}" + (f", {kind}" if kind else "")),
        *(x, y, NODE_WIDTH, NODE_HEIGHT),
        *(x + 9, y + 15, _short(node["type"]), x + 9, y + 29, _short(node["label"])),
    )
    if node["id"] == center or not node["url"]:
        return drawing
    return Markup('<a href="{}">{}</a>').format(node["url"], drawing)


def _edge(edge: dict[str, Any], places: dict[int, tuple[int, int]]) -> Markup:
    (x1, y1), (x2, y2) = places[edge["source"]], places[edge["target"]]
    x1, y1, y2 = x1 + NODE_WIDTH, y1 + NODE_HEIGHT // 2, y2 + NODE_HEIGHT // 2
    bend = (x1 + x2) // 2
    near = y2 if edge.get("is_from") else y1
    start = y1 if edge.get("is_from") else y2
    label = Markup("")
    if edge["hop"] == 1:
        label = Markup('<text class="on-edge" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            bend, (start + near) // 2 + 3, _short(edge["name"], 14)
        )
    return Markup('<path class="edge {}" d="M{} {}C{} {} {} {} {} {}"/>{}').format(
        *(edge["state"], x1, y1, bend, y1, bend, y2, x2, y2, label)
    )


def _short(text: str, limit: int = 16) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

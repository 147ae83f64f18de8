"""The neighbourhood of an object as a drawing: what points at it left, what it points at right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup
from msgspec import Struct

WIDTH: Final = 780
NODE_WIDTH: Final = 150
NODE_HEIGHT: Final = 36
ROW: Final = 50
SHOWN_MAX: Final = 20
"""Neighbours that are drawn on each side; the table has the others."""


class Neighbour(Struct, frozen=True, kw_only=True):
    """The other end of an edge."""

    edge: str
    is_from: bool
    """True if the edge starts at the object."""
    type: str
    id: int
    label: str
    seq: int
    url: str
    """Page of the other end; empty if it has none."""


def draw(type_name: str, label: str, neighbours: Sequence[Neighbour]) -> Markup:
    """Return the drawing of an object and its neighbours."""
    left = [neighbour for neighbour in neighbours if not neighbour.is_from][:SHOWN_MAX]
    right = [neighbour for neighbour in neighbours if neighbour.is_from][:SHOWN_MAX]
    height = 20 + ROW * max(1, len(left), len(right))
    middle = height // 2
    x = (WIDTH - NODE_WIDTH) // 2
    parts = []
    for side, x_node in ((left, 10), (right, WIDTH - NODE_WIDTH - 10)):
        top = middle - ROW * len(side) // 2 + (ROW - NODE_HEIGHT) // 2
        for number, neighbour in enumerate(side):
            y = top + ROW * number
            ends = (
                (x_node + NODE_WIDTH, y + NODE_HEIGHT // 2, x, middle)
                if x_node < x
                else (x + NODE_WIDTH, middle, x_node, y + NODE_HEIGHT // 2)
            )
            parts.append(_edge(neighbour.edge, ends))
            node = _node(x_node, y, neighbour.type, neighbour.label)
            parts.append(
                Markup('<a href="{}">{}</a>').format(neighbour.url, node) if neighbour.url else node
            )
    parts.append(_node(x, middle - NODE_HEIGHT // 2, type_name, label, "chosen"))
    title = f"{len(left)} objects point at {label}, it points at {len(right)}"
    return Markup(
        '<svg class="neighbourhood" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>'
    ).format(WIDTH, height, title, Markup("").join(parts))


def _node(x: int, y: int, type_name: str, label: str, kind: str = "") -> Markup:
    return Markup(
        '<g class="node {}"><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text x="{}" y="{}">{}</text><text class="strong" x="{}" y="{}">{}</text></g>'
    ).format(
        *(kind, x, y, NODE_WIDTH, NODE_HEIGHT),
        *(x + 9, y + 15, _short(type_name), x + 9, y + 29, _short(label)),
    )


def _edge(name: str, ends: tuple[int, int, int, int]) -> Markup:
    x1, y1, x2, y2 = ends
    bend = (x1 + x2) // 2
    return Markup(
        '<path class="edge" d="M{} {}C{} {} {} {} {} {}"/>'
        '<text class="on-edge" x="{}" y="{}" text-anchor="middle">{}</text>'
    ).format(
        *(x1, y1, bend, y1, bend, y2, x2, y2),
        *(bend, (y1 + y2) // 2 + 3, _short(name)),
    )


def _short(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:19]}…"

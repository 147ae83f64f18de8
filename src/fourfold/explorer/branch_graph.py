"""The branches of a space as a graph: a lane per branch, a dot per commit, a diamond per merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup
from msgspec import Struct

LANE: Final = 46
TOP: Final = 58
LEFT: Final = 120
WIDTH_MIN: Final = 1160
COLORS: Final = 4
BEND: Final = 70
"""Width of the curve between two lanes."""


class Lane(Struct, frozen=True):
    """A branch: where it starts, and its name as people see it."""

    name: str
    label: str
    parent: str | None
    fork_seq: int | None
    note: str = ""


class Node(Struct, frozen=True):
    """A commit on a branch; a merge names its source and the seq that was merged."""

    seq: int
    branch: str
    url: str
    title: str
    source: str | None = None


class Proposal(Struct, frozen=True):
    """A merge that is previewed: dashed in the graph."""

    source: str
    target: str
    base_seq: int
    seq: int


def draw(lanes: Sequence[Lane], nodes: Sequence[Node], proposal: Proposal | None) -> Markup:
    """Return the graph of some commits, which are in the order of their seqs."""
    return _BranchGraph(lanes, nodes, proposal).draw()


class _BranchGraph:
    def __init__(
        self, lanes: Sequence[Lane], nodes: Sequence[Node], proposal: Proposal | None
    ) -> None:
        self._lanes = lanes
        self._nodes = nodes
        self._proposal = proposal
        self._rows = {lane.name: number for number, lane in enumerate(lanes)}
        count = len(nodes) + (1 if proposal else 0)
        self._step = max(22, min(44, 1080 // max(1, count)))
        self._columns = {node.seq: number for number, node in enumerate(nodes)}
        self._width = max(WIDTH_MIN, LEFT + self._step * count + 70)
        self._height = TOP + LANE * len(lanes)

    def draw(self) -> Markup:
        """Return the whole drawing."""
        parts = [*self._grid(), *self._links(), *self._lines(), *self._dots(), *self._names()]
        label = f"{len(self._lanes)} branches, {len(self._nodes)} commits"
        return Markup(
            '<svg viewBox="0 0 {w} {h}" role="group" aria-label="{label}">{parts}</svg>'
        ).format(w=self._width, h=self._height, label=label, parts=Markup("").join(parts))

    def _x(self, seq: int) -> int:
        """Return the column of a seq, or of the next one that is shown."""
        column = self._columns.get(seq)
        if column is None:
            column = sum(1 for node in self._nodes if node.seq < seq)
            return LEFT + self._step * column - self._step // 2
        return LEFT + self._step * column

    def _y(self, branch: str) -> int:
        return TOP - 18 + LANE * self._rows[branch]

    def _color(self, branch: str) -> int:
        return self._rows[branch] % COLORS

    def _of(self, branch: str) -> list[Node]:
        return [node for node in self._nodes if node.branch == branch]

    def _grid(self) -> list[Markup]:
        parts = []
        every = max(1, len(self._nodes) // 8)
        bottom = self._height - 18
        for number, node in enumerate(self._nodes):
            if number % every and number != len(self._nodes) - 1:
                continue
            x = self._x(node.seq)
            parts.append(
                Markup(
                    '<line class="grid" x1="{x}" x2="{x}" y1="22" y2="{y}"/>'
                    '<text x="{x}" y="{t}" text-anchor="middle">{seq}</text>'
                ).format(x=x, y=bottom - 8, t=bottom + 6, seq=node.seq)
            )
        return parts

    def _names(self) -> list[Markup]:
        parts = []
        for lane in self._lanes:
            y = self._y(lane.name)
            parts.append(
                Markup('<text class="label name-{}" x="10" y="{}">{}</text>').format(
                    self._color(lane.name), y + 4, _short(lane.label)
                )
            )
            nodes = self._of(lane.name)
            if lane.note and nodes:
                parts.append(
                    Markup('<text x="{}" y="{}">{}</text>').format(
                        self._x(nodes[-1].seq) - 4, y + 18, lane.note
                    )
                )
        return parts

    def _lines(self) -> list[Markup]:
        """Return the lines along the lanes."""
        parts = []
        for lane in self._lanes:
            nodes = self._of(lane.name)
            if not nodes:
                continue
            start = LEFT - 14 if lane.parent is None else self._x(nodes[0].seq)
            parts.append(
                _path(
                    f"M{start} {self._y(lane.name)}H{self._x(nodes[-1].seq)}",
                    self._color(lane.name),
                )
            )
        return parts

    def _links(self) -> list[Markup]:
        """Return the curves of forks, merges, and of the merge that is previewed."""
        parts = []
        for lane in self._lanes:
            nodes = self._of(lane.name)
            if lane.parent is None or not nodes or lane.parent not in self._rows:
                continue
            fork = self._x(lane.fork_seq or 0)
            x = self._x(nodes[0].seq)
            parts.append(self._curve((fork, lane.parent), (x, lane.name), self._color(lane.name)))
        for node in self._nodes:
            if node.source is None or node.source not in self._rows:
                continue
            before = [other for other in self._of(node.source) if other.seq < node.seq]
            if before:
                start = self._x(before[-1].seq), node.source
                end = self._x(node.seq), node.branch
                parts.append(self._curve(start, end, self._color(node.source)))
        return [*parts, *self._proposed()]

    def _proposed(self) -> list[Markup]:
        proposal = self._proposal
        if (
            proposal is None
            or proposal.source not in self._rows
            or proposal.target not in self._rows
        ):
            return []
        x = LEFT + self._step * len(self._nodes) + 8
        y = self._y(proposal.target)
        parts = []
        for branch in (proposal.target, proposal.source):
            nodes = self._of(branch)
            start = self._x(nodes[-1].seq) if nodes else LEFT
            parts.append(
                self._curve((start, branch), (x, proposal.target), self._color(branch), "dashed")
            )
        base = self._x(proposal.base_seq)
        parts.append(
            Markup('<circle class="halo" cx="{}" cy="{}" r="10"/>').format(base, y)
            + Markup(
                '<text class="strong" x="{}" y="16" text-anchor="middle">base {}</text>'
            ).format(base, proposal.base_seq)
            + Markup('<path class="would" d="M{x} {t}l8 8 -8 8 -8 -8z"/>').format(x=x, t=y - 8)
            + Markup(
                '<text class="strong" x="{}" y="16" text-anchor="middle">{}, if merged</text>'
            ).format(x, proposal.seq)
        )
        return parts

    def _dots(self) -> list[Markup]:
        parts = []
        for node in self._nodes:
            if node.branch not in self._rows:
                continue
            x, y, color = self._x(node.seq), self._y(node.branch), self._color(node.branch)
            shape = (
                Markup('<circle class="dot-{}" cx="{}" cy="{}" r="5"/>').format(color, x, y)
                if node.source is None
                else Markup('<path class="merge dot-{}" d="M{} {}l7 7 -7 7 -7 -7z"/>').format(
                    color, x, y - 7
                )
            )
            parts.append(
                Markup('<a href="{}" aria-label="{}"><title>{}</title>{}</a>').format(
                    node.url, node.title, node.title, shape
                )
            )
        return parts

    def _curve(
        self, start: tuple[int, str], end: tuple[int, str], color: int, kind: str = ""
    ) -> Markup:
        """Return a curve between two points, each a column and a branch."""
        (x1, y1), (x2, y2) = (start[0], self._y(start[1])), (end[0], self._y(end[1]))
        # Along the lane of the branch, and between the lanes only near the other end.
        bend = min(x2 - x1, BEND)
        if self._rows[start[1]] > self._rows[end[1]]:
            x3 = x2 - bend
            line = f"M{x1} {y1}H{x3}C{x3 + bend // 2} {y1} {x2 - bend // 3} {y2} {x2} {y2}"
        else:
            x3 = x1 + bend
            line = f"M{x1} {y1}C{x1 + bend // 3} {y1} {x3 - bend // 2} {y2} {x3} {y2}H{x2}"
        return _path(line, color, kind)


def _path(data: str, color: int, kind: str = "") -> Markup:
    return Markup('<path class="lane lane-{} {}" d="{}"/>').format(color, kind, data)


def _short(label: str) -> str:
    return label if len(label) <= 15 else f"{label[:14]}…"

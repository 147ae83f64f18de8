"""Lines over time as an SVG: one small panel for each series, with its own scale from zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 360, 150
_LEFT, _TOP, _BOTTOM, _RIGHT = 46, 26, 22, 10
_COLUMNS = 2
_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #444 } .title { font-weight: 600; fill: #111 }
.grid { stroke: #ddd; stroke-width: 1 } .line { fill: none; stroke: #2456a6; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #bbb } .title { fill: #eee } .grid { stroke: #444 } .line { stroke: #7aa7f0 } }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """A series and its title."""

    title: str
    values: Sequence[float]


def draw(times: Sequence[float], panels: Sequence[Panel], unit: str) -> str:
    """Return an SVG with a panel for each series over the same times."""
    rows = math.ceil(len(panels) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">'
        ),
        f"<style>{_STYLE}</style>",
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, _COLUMNS)
        parts.append(f'<g transform="translate({column * _WIDTH} {row * _HEIGHT})">')
        parts += _panel(times, panel, unit)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(times: Sequence[float], panel: Panel, unit: str) -> list[str]:
    top = _round_up(max(panel.values, default=0))
    last = max(times, default=0) or 1
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(time: float) -> float:
        return round(_LEFT + (right - _LEFT) * time / last, 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - _TOP) * value / top, 1)

    parts = [f'<text class="title" x="{_LEFT}" y="15">{escape(panel.title)}</text>']
    for share in (0, 0.5, 1):
        height = y(top * share)
        parts += [
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{height}" y2="{height}"/>',
            f'<text x="{_LEFT - 5}" y="{height + 4}" text-anchor="end">{top * share:g}</text>',
        ]
    parts += [
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">0</text>',
        f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">{last:.0f} {escape(unit)}</text>',
    ]
    points = " ".join(
        f"{x(time)},{y(value)}" for time, value in zip(times, panel.values, strict=True)
    )
    parts.append(f'<polyline class="line" points="{points}"/>')
    return parts


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 and so on."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value)

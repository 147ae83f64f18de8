"""Drawings as SVG. They have classes and no styles, and a label that states the finding."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final

from markupsafe import Markup
from msgspec import Struct

MODELS: Final = ("documents", "streams", "graphs", "sessions")
_SQUARES: Final = ("M0 0h7v7H0z", "M9 0h7v7H9z", "M0 9h7v7H0z", "M9 9h7v7H9z")
BARS_MAX: Final = 120


def mark(model: str) -> Markup:
    """Return the mark of a model: four squares with one filled."""
    others = "".join(square for name, square in zip(MODELS, _SQUARES, strict=True) if name != model)
    return Markup(
        '<svg class="mark" viewBox="0 0 16 16" aria-hidden="true"><path d="{}"/>'
        '<path class="on" d="{}"/></svg>'
    ).format(others, _SQUARES[MODELS.index(model)] if model in MODELS else "")


def sparkline(values: Sequence[int], label: str) -> Markup:
    """Return bars without an axis; the newest, which comes last, is darker."""
    top = max(values, default=0) or 1
    shapes = [
        f"M{3 * index} {21 - 20 * value / top:.3g}h2V22h-2z" if value else ""
        for index, value in enumerate(values)
    ]
    width = 3 * max(1, len(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 {} 22" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><path class="rest" d="M0 21h{}v1H0z"/><path d="{}"/><path d="{}"/></svg>'
    ).format(width, label, width, "".join(shapes[:-1]), "".join(shapes[-1:]))


def bars(values: Sequence[int], label: str) -> Markup:
    """Return a wide row of bars; the newest, which comes last, is darker."""
    top = max(values, default=0) or 1
    shapes = Markup("").join(
        Markup('<rect class="{}" x="{}" y="{:.1f}" width="8" height="{:.1f}"/>').format(
            "last" if index == len(values) - 1 else "",
            index * 10,
            47 - 46 * value / top,
            1 + 46 * value / top,
        )
        for index, value in enumerate(values)
    )
    return Markup(
        '<svg class="bars" viewBox="0 0 {} 48" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>'
    ).format(10 * max(1, len(values)), label, shapes)


CHART_WIDTH: Final = 440
CHART_HEIGHT: Final = 240
CHART_LEFT: Final = 44
CHART_LABELS: Final = 10
"""Size of a chart, the room for the numbers of its axis, and labels below it at most."""


def columns(values: Sequence[float], labels: Sequence[str], label: str) -> Markup:
    """Return one bar for each value, from zero, with an axis; a tooltip has label and value."""
    top, step = _axis(max(values, default=0))
    width = (CHART_WIDTH - CHART_LEFT) / max(1, len(values))
    highest = max(range(len(values)), key=values.__getitem__, default=-1)
    every = -(-len(values) // CHART_LABELS) or 1
    parts = [
        Markup(
            '<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text x="{}" y="{:.1f}" class="tick">'
            "{}</text>"
        ).format(
            *(CHART_LEFT, CHART_WIDTH, *[_height(number, top)] * 2),
            *(CHART_LEFT - 6, _height(number, top) + 3, short_number(number)),
        )
        for number in (step * index for index in range(round(top / step) + 1))
    ]
    for index, (value, name) in enumerate(zip(values, labels, strict=True)):
        x, y = CHART_LEFT + width * (index + 0.14), _height(value, top)
        parts.append(
            Markup(
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}: {}</title></rect>"
            ).format(
                *("highest" if index == highest else "", x, y, width * 0.72),
                *(max(0.5, _height(0, top) - y), name, value),
            )
        )
        if index % every == 0:
            room = int(width * every / 6)
            text = name if len(name) <= room else f"{name[: max(1, room - 1)]}…"
            parts.append(
                Markup('<text class="label" x="{:.1f}" y="{}">{}</text>').format(
                    x + width * 0.36, CHART_HEIGHT - 4, text
                )
            )
    return Markup(
        '<svg class="columns-chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(CHART_WIDTH, CHART_HEIGHT, label, Markup("").join(parts))


def _height(value: float, top: float) -> float:
    """Return the y of a value on the axis of a chart."""
    return CHART_HEIGHT - 20 - (CHART_HEIGHT - 32) * value / top


def _axis(highest: float) -> tuple[float, float]:
    """Return the top of an axis and the step between its numbers: 1, 2 or 5 times a power of 10."""
    if not 0 < highest < float("inf"):
        return 1, 1
    power = 10.0 ** floor(log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 5 >= highest)
    return step * ceil(highest / step), step


def short_number(value: float) -> str:
    """Return a number of an axis, such as 15k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


THROUGHPUT_WIDTH: Final = 660
THROUGHPUT_HEIGHT: Final = 128
THROUGHPUT_RIGHT: Final = 44
"""Size of a chart of throughput, and the room for the numbers of its axis."""


def throughput(values: Sequence[float], label: str, *, is_live: bool) -> Markup:
    """Return a line over a filled area, oldest first, with an axis; a dot is the current value."""
    top, step = _axis(max(values, default=0))
    right, bottom = THROUGHPUT_WIDTH - THROUGHPUT_RIGHT, THROUGHPUT_HEIGHT - 6

    def height(value: float) -> float:
        return bottom - (bottom - 8) * value / top

    distance = right / max(1, len(values) - 1)
    points = " ".join(
        f"{distance * index:.1f},{height(value):.1f}" for index, value in enumerate(values)
    )
    lines = Markup("").join(
        Markup(
            '<line x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text x="{}" y="{:.1f}">{}</text>'
        ).format(
            *(right, height(number), height(number)),
            *(right + 8, height(number) + 4, short_number(number)),
        )
        for number in (step * index for index in range(round(top / step) + 1))
    )
    dot = Markup("")
    if is_live and values:
        dot = Markup('<circle cx="{}" cy="{:.1f}" r="3.5"/>').format(right, height(values[-1]))
    return Markup(
        '<svg class="throughput" viewBox="0 0 {} {}" role="img" aria-label="{}">{}'
        '<polygon points="0,{} {} {},{}"/><polyline points="{}"/>{}</svg>'
    ).format(
        *(THROUGHPUT_WIDTH, THROUGHPUT_HEIGHT, label, lines, bottom, points, right, bottom),
        *(points, dot),
    )


def histogram(times_ms: Sequence[int], start_ms: int, end_ms: int, buckets: int) -> list[int]:
    """Count times in equal intervals from `start_ms` to `end_ms`."""
    counts = [0] * buckets
    width = max(1, end_ms - start_ms + 1)
    for time_ms in times_ms:
        index = (time_ms - start_ms) * buckets // width
        if 0 <= index < buckets:
            counts[index] += 1
    return counts


class Bar(Struct, frozen=True):
    """A bar of a time bar: a revision, or several that are next to each other."""

    seq: int
    """Newest seq of the bar."""
    op: str
    size: int
    url: str
    title: str


def timebar(bars: Sequence[Bar], start: int, end: int, label: str) -> Markup:
    """Return the bars of a document's revisions, each a link to the state that it made.

    The span between the seqs `start` and `end` is tinted.
    """
    if not bars:
        return Markup("")
    top = max(bar.size for bar in bars) or 1
    # A few bars stay slim: each is at most a fiftieth of the width.
    width = min(8.0, len(bars) / 5)
    parts = []
    first = next((index for index, bar in enumerate(bars) if bar.seq >= start), len(bars) - 1)
    last = next((index for index, bar in enumerate(bars) if bar.seq >= end), len(bars) - 1)
    parts.append(
        Markup('<rect class="span" x="{}" y="0" width="{}" height="56"/>').format(
            10 * first + 5, 10 * (last - first)
        )
    )
    for index, bar in enumerate(bars):
        height = 6 + 48 * bar.size / top if bar.op != "delete" else 8
        parts.append(
            Markup(
                '<a href="{}" data-seq="{}" aria-label="{}"><title>{}</title>'
                '<rect class="hit" x="{}" y="0" width="10" height="56"/>'
                '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></a>'
            ).format(
                *(bar.url, bar.seq, bar.title, bar.title, 10 * index),
                *(bar.op, 10 * index + 5 - width / 2, 56 - height, width, height),
            )
        )
    return Markup(
        '<svg viewBox="0 0 {} 56" preserveAspectRatio="none" role="group" aria-label="{}">{}</svg>'
    ).format(10 * len(bars), label, Markup("").join(parts))

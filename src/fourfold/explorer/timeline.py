"""The timeline of a session: turns, steps and calls as spans, with idle time left out."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

WIDTH: Final = 1_100
LEFT: Final = 80
ROWS: Final = ("turns", "steps", "calls")
GAP_MS: Final = 2_000
"""Time between two events after which the rest counts as idle."""
IDLE_SHOWN_MS: Final = 200
LABEL_MIN: Final = 34
"""Width of a span that has room for its name."""


def spans(events: list[dict[str, Any]], now_ms: int) -> dict[str, Any]:
    """Return the spans of some events, with times on an axis without idle time.

    A turn that has not ended lasts until now, if its last event is recent.
    """
    events = [event for event in events if event["turn"]]
    axis = _Axis([event["at_ms"] for event in events])
    rows: list[dict[str, Any]] = []
    open_spans: dict[tuple[str, int], dict[str, Any]] = {}
    heads = []
    previous_ms = events[0]["at_ms"] if events else now_ms
    for event in events:
        at = axis.at(event["at_ms"])
        kind, _, change = event["type"].partition("/")
        row = {"turn": "turns", "step": "steps"}.get(kind)
        if row is not None and change == "started":
            span = {"row": row, "name": _name(event), "start": at, "end": None, "failed": False}
            open_spans[kind, event["entity"] or 0] = span
            rows.append(span)
        elif row is not None:
            place = kind, event["entity"] or 0
            if place in open_spans:
                open_spans.pop(place)["end"] = at
        elif event["type"] == "eval/added":
            start = axis.at(previous_ms)
            rows.append(
                {
                    "row": "calls",
                    "name": event["name"],
                    "start": start,
                    "end": at,
                    "failed": event["failed"],
                }
            )
        elif event["type"] == "head/published":
            heads.append({"at": at, "event": event["id"]})
        previous_ms = event["at_ms"]
    for span in open_spans.values():
        span["end"] = axis.total
    return {"total_ms": axis.total, "idle_ms": axis.idle, "spans": rows, "heads": heads}


def _name(event: dict[str, Any]) -> str:
    kind = event["type"].partition("/")[0]
    number = event["name"] or event["entity"] or ""
    return f"{kind} {number}"


class _Axis:
    """Map times to an axis on which long pauses are short."""

    def __init__(self, times_ms: list[int]) -> None:
        self._marks: dict[int, int] = {}
        self.total = self.idle = 0
        before: int | None = None
        for time_ms in times_ms:
            gap = 0 if before is None else max(0, time_ms - before)
            if gap > GAP_MS:
                self.idle += gap - IDLE_SHOWN_MS
                gap = IDLE_SHOWN_MS
            self.total += gap
            self._marks[time_ms] = self.total
            before = time_ms

    def at(self, time_ms: int) -> int:
        """Return the place of a time of an event."""
        return self._marks[time_ms]


def draw(timeline: dict[str, Any], heads: list[dict[str, Any]]) -> Markup:
    """Return a timeline as SVG."""
    total = max(1, timeline["total_ms"])
    scale = (WIDTH - LEFT - 20) / total
    parts = [
        Markup('<text x="0" y="{}">{}</text>').format(32 + 24 * number, row)
        for number, row in enumerate(ROWS)
    ]
    for span in timeline["spans"]:
        x = LEFT + span["start"] * scale
        width = max(2.0, ((span["end"] or span["start"]) - span["start"]) * scale)
        kind = "failed" if span["failed"] else span["row"]
        y = 20 + 24 * ROWS.index(span["row"])
        parts.append(
            Markup(
                '<g><title>{}</title><rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="17"'
                ' rx="2"/>{}</g>'
            ).format(
                *(_title(span), f"span-{kind}", x, y, width, _label(span, x, y, width)),
            )
        )
    for head in timeline["heads"]:
        x = LEFT + head["at"] * scale
        parts.append(Markup('<path class="span-head" d="M{:.1f} 4l5 5 -5 5 -5 -5z"/>').format(x))
    for number in range(6):
        x = LEFT + (WIDTH - LEFT - 20) * number / 5
        parts.append(
            Markup('<text x="{:.0f}" y="106" text-anchor="middle">{}</text>').format(
                x, seconds(total * number // 5)
            )
        )
    label = f"{len(timeline['spans'])} spans in {seconds(total)}, {len(heads)} heads"
    return Markup(
        '<svg class="timeline" viewBox="0 0 {} 112" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, label, Markup("").join(parts))


def _label(span: dict[str, Any], x: float, y: int, width: float) -> Markup:
    if width < LABEL_MIN:
        return Markup("")
    text = span["name"]
    room = int(width / 6.5) - 1
    shown = text if len(text) <= room else f"{text[: max(1, room - 1)]}…"
    return Markup('<text class="in" x="{:.1f}" y="{}">{}</text>').format(x + 5, y + 12, shown)


def _title(span: dict[str, Any]) -> str:
    return f"{span['name']}, {seconds((span['end'] or span['start']) - span['start'])}"


def seconds(time_ms: int) -> str:
    """Return a duration in the unit that fits."""
    if time_ms < 1000:
        return f"{time_ms} ms"
    if time_ms < 120_000:
        return f"{time_ms / 1000:.1f} s"
    return f"{time_ms // 60_000} min"

"""The timeline of a session: turns, steps, tools and children as spans; idle time is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup

from fourfold.explorer import values
from fourfold.explorer.transcript import decode_data, is_child, turn_of
from fourfold.wire.sessions import EventRecord

WIDTH: Final = 1_200
LEFT: Final = 74
RIGHT: Final = 26
TOP: Final = 26
ROW: Final = 22
BAR: Final = 16
ROWS: Final = ("turns", "steps", "tools", "children")
PAUSE_MS: Final = 800
"""Maximum time between two turns that is drawn to scale."""
INTERRUPTION_MS: Final = 3_000
"""Maximum time of an interruption that is drawn to scale."""
LABEL_MIN: Final = 30
"""Width of a span that has room for its name."""
TICKS_MAX: Final = 8


def spans(
    events: list[EventRecord], stops: Sequence[dict[str, Any]] = (), now_ms: int | None = None
) -> dict[str, Any]:
    """Return the spans of some events, with times on an axis without idle time.

    Args:
        events: In the order of the log.
        stops: Interruptions, as `read_interruptions` returns them.
        now_ms: Current time, if a worker is in a turn; the axis then ends now.
    """
    marks = _marks(events, stops, now_ms)
    axis = _Axis(marks)
    rows: list[dict[str, Any]] = []
    open_spans: dict[tuple[str, int], dict[str, Any]] = {}
    heads: list[dict[str, int]] = []
    gaps: list[dict[str, Any]] = []
    before = 0
    for number, mark in enumerate(marks):
        at = axis.times[number]
        kind, _, change = mark["type"].partition("/")
        row = {"turn": "turns", "step": "steps"}.get(kind)
        place = kind, mark["entity"] or 0
        if row is not None and change == "started":
            open_spans[place] = _span(row, _name(mark), at, None, mark)
            rows.append(open_spans[place])
        elif row is not None and mark["ended"] and place in open_spans:
            span = open_spans.pop(place)
            span |= {"end": at, "failed": mark["failed"]}
        elif mark["type"] == "eval/added":
            rows.append(_span("tools", mark["name"], before, at, mark))
        elif mark["child"]:
            rows.append(_span("children", mark["name"], before, at, mark))
        elif mark["type"] == "resumed":
            gaps.append({"start": before, "end": at, **mark["stop"]})
        elif mark["type"] == "head/published":
            heads.append({"at": at, "event": mark["id"], "number": len(heads) + 1})
        before = at
    timeline = {"total_ms": axis.total, "idle_ms": axis.idle, "spans": rows, "heads": heads}
    return timeline | {"gaps": gaps, "has_now": now_ms is not None and bool(marks)}


def _marks(
    events: list[EventRecord], stops: Sequence[dict[str, Any]], now_ms: int | None
) -> list[dict[str, Any]]:
    """Return the marks of the events of turns, with those of interruptions and of now."""
    marks = [mark for mark in map(_mark, events) if mark["turn"]]
    for stop in stops:
        place = sum(mark["id"] <= stop["after"] for mark in marks)
        if place:
            point = _point("resumed", stop["after"], stop["at_ms"], stop["turn"])
            marks.insert(place, point | {"stop": stop})
    if now_ms is not None and marks:
        marks.append(_point("now", marks[-1]["id"], now_ms, marks[-1]["turn"]))
    return marks


def _mark(event: EventRecord) -> dict[str, Any]:
    """Return the fields of an event that the timeline draws."""
    data = decode_data(event)
    part: dict[str, Any] = next(
        (data[name] for name in ("step", "eval", "turn") if name in data), {}
    )
    edge = data.get("edge") or {}
    child = is_child(edge, event.session)
    name = part.get("name") or part.get("number") or ""
    if child:
        name = str(edge["to_session"]).removeprefix(f"{event.session}/")
    status = part.get("status")
    return {
        "id": event.id,
        "type": event.type,
        "at_ms": values.to_ms(event.at),
        "turn": turn_of(event, data),
        "entity": event.entity_id,
        "name": str(name),
        "child": child,
        "ended": status not in {"running", "suspended", None},
        "failed": status not in {"ok", "final", "done", "running", "suspended", "stopped", None},
    }


def _point(kind: str, event: int, at_ms: int, turn: int) -> dict[str, Any]:
    """Return a mark that is not an event."""
    return {
        "id": event,
        "type": kind,
        "at_ms": at_ms,
        "turn": turn,
        "entity": None,
        "name": "",
        "child": False,
        "ended": False,
        "failed": False,
    }


def _span(row: str, name: str, start: int, end: int | None, mark: dict[str, Any]) -> dict[str, Any]:
    return {
        "row": row,
        "name": name,
        "start": start,
        "end": end,
        "failed": end is not None and mark["failed"],
        "event": mark["id"],
    }


def _name(mark: dict[str, Any]) -> str:
    kind = mark["type"].partition("/")[0]
    return f"{kind} {mark['name'] or mark['entity'] or ''}"


class _Axis:
    """Times of marks on an axis on which the pauses between turns are short."""

    def __init__(self, marks: list[dict[str, Any]]) -> None:
        self.times: list[int] = []
        self.total = self.idle = 0
        before: dict[str, Any] | None = None
        for mark in marks:
            gap = 0 if before is None else max(0, mark["at_ms"] - before["at_ms"])
            if before is not None and mark["turn"] != before["turn"] and gap > PAUSE_MS:
                self.idle += gap - PAUSE_MS
                gap = PAUSE_MS
            if mark["type"] == "resumed" and gap > INTERRUPTION_MS:
                self.idle += gap - INTERRUPTION_MS
                gap = INTERRUPTION_MS
            self.total += gap
            self.times.append(self.total)
            before = mark


def draw(timeline: dict[str, Any], link: Any, sid: str) -> Markup:
    """Return a timeline as SVG; each span is a link to the event that ended it."""
    total = max(1, timeline["total_ms"])
    scale = (WIDTH - LEFT - RIGHT) / total
    rows = [row for row in ROWS if any(span["row"] == row for span in timeline["spans"])]
    bottom = TOP + ROW * len(rows)
    parts = _ticks(total, scale, bottom)
    parts += [
        Markup('<text x="0" y="{}">{}</text>').format(TOP + ROW * number + 13, row)
        for number, row in enumerate(rows)
    ]
    parts += [_gap(gap, link, sid, scale, bottom) for gap in timeline["gaps"]]
    for span in timeline["spans"]:
        url = link("/session", sid=sid, at=span["event"])
        y = TOP + ROW * rows.index(span["row"])
        parts.append(_bar(span, url, y, scale, total))
    for head in timeline["heads"]:
        x = LEFT + head["at"] * scale
        url, number = link("/session", sid=sid, at=head["event"]), head["number"]
        parts.append(
            Markup(
                '<a href="{}" aria-label="head {}"><path class="span-head" d="M{:.1f} 7l5 5 -5 5 -5'
                ' -5z"/><text x="{:.1f}" y="16" text-anchor="end">head {}</text></a>'
            ).format(url, number, x, x - 9, number)
        )
    if timeline["has_now"]:
        x = LEFT + total * scale
        parts.append(
            Markup(
                '<line class="now" x1="{x:.1f}" x2="{x:.1f}" y1="{y1}" y2="{y2}"/>'
                '<text class="now" x="{x:.1f}" y="12" text-anchor="end">now</text>'
            ).format(x=x, y1=TOP - 8, y2=bottom)
        )
    tools = sum(span["row"] == "tools" for span in timeline["spans"])
    label = f"{len(timeline['spans'])} spans in {seconds(total)}, {tools} of them tools"
    if timeline["gaps"]:
        label += f", interrupted {len(timeline['gaps'])} times"
    return Markup(
        '<svg class="timeline" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>'
    ).format(WIDTH, bottom + 22, label, Markup("").join(parts))


def _gap(gap: dict[str, Any], link: Any, sid: str, scale: float, bottom: int) -> Markup:
    """Return an interruption: a line where the worker stopped, and the time without a worker."""
    x = LEFT + gap["start"] * scale
    ended = "ended" if gap["was_ended"] else "resumed"
    text = f"interrupted, {ended} after {seconds(gap['waited_ms'])}"
    is_left = x > WIDTH - RIGHT - 220
    return Markup(
        '<a href="{}" aria-label="{}"><title>{}, by {}</title><rect class="interrupted" x="{:.1f}"'
        ' y="{}" width="{:.1f}" height="{}"/><line class="interrupted" x1="{:.1f}" x2="{:.1f}"'
        ' y1="{}" y2="{}"/><text class="interrupted" x="{:.1f}" y="12" text-anchor="{}">{}</text>'
        "</a>"
    ).format(
        *(link("/session", sid=sid, at=gap["after"]), text, text, gap["by"]),
        *(x, TOP - 6, max(2.0, (gap["end"] - gap["start"]) * scale), bottom - TOP + 6),
        *(x, x, TOP - 8, bottom, x, "end" if is_left else "start", text),
    )


def _ticks(total: int, scale: float, bottom: int) -> list[Markup]:
    """Return lines at round times."""
    step = next(
        unit * factor
        for unit in (1, 10, 100, 1_000, 10_000, 100_000, 10**6, 10**7, 10**8, 10**9)
        for factor in (1, 2, 5)
        if total // (unit * factor) < TICKS_MAX
    )
    return [
        Markup(
            '<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y1}" y2="{y2}"/>'
            '<text x="{x:.1f}" y="{t}" text-anchor="middle">{label}</text>'
        ).format(
            x=LEFT + time_ms * scale,
            y1=TOP - 4,
            y2=bottom,
            t=bottom + 16,
            label=_tick(time_ms, step),
        )
        for time_ms in range(0, total + 1, step)
    ]


def _tick(time_ms: int, step: int) -> str:
    if step < 1_000:
        return f"{time_ms} ms" if time_ms else "0"
    if step < 120_000:
        return f"{time_ms // 1000} s"
    return f"{time_ms // 60_000} min"


def _bar(span: dict[str, Any], url: str, y: int, scale: float, total: int) -> Markup:
    end = total if span["end"] is None else span["end"]
    x = LEFT + span["start"] * scale
    width = max(2.0, (end - span["start"]) * scale - 1)
    duration = seconds(end - span["start"]) + (" so far" if span["end"] is None else "")
    title = f"{span['name']}, {duration}" + (", failed" if span["failed"] else "")
    kind = "failed" if span["failed"] and span["row"] != "turns" else span["row"]
    text = f"{span['name']} · {duration}" if span["row"] == "turns" else span["name"]
    return Markup(
        '<a href="{}" aria-label="{}"><title>{}</title><rect class="span-{}" x="{:.1f}" y="{}"'
        ' width="{:.1f}" height="{}" rx="2"/>{}</a>'
    ).format(url, title, title, kind, x, y, width, BAR, _label(span, text, x, y, width))


def _label(span: dict[str, Any], text: str, x: float, y: int, width: float) -> Markup:
    if width < LABEL_MIN or span["row"] == "steps":
        return Markup("")
    room = int((width - 8) / 6.2)
    shown = text if len(text) <= room else f"{text[: max(1, room - 1)]}…"
    return Markup('<text class="in" x="{:.1f}" y="{}">{}</text>').format(x + 5, y + 12, shown)


def seconds(time_ms: int) -> str:
    """Return a duration in the unit that fits."""
    if time_ms < 1000:
        return f"{time_ms} ms"
    if time_ms < 60_000:
        return f"{time_ms / 1000:.1f} s"
    if time_ms < 3_600_000:
        return f"{time_ms // 60_000} min {time_ms // 1000 % 60} s"
    return f"{time_ms // 3_600_000} h {time_ms // 60_000 % 60} min"

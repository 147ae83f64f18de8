"""Values as text and HTML: counts, sizes, times, and JSON with its parts marked by class."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape

_TOKEN: Final = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=\s*:)'
    r'|(?P<string>"(?:[^"\\]|\\.)*"?)'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\b(?:true|false|null)\b)"
)
_CLASSES: Final = {"key": "k", "string": "s", "number": "n"}
LINE_MAX: Final = 240
"""Characters of a value that is shown on one line."""
MESSAGE_SPACED_MAX: Final = 4_000
"""Characters of a message that is parsed to be shown on one line."""
BLOCK_LINES_MAX: Final = 2_000
"""Lines of a value that is shown in full."""
_WEEK_S: Final = 7 * 86400
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def count(number: int) -> str:
    """Return a number with separators."""
    return f"{number:,}"


def count_up_to(number: int, limit: int = 1_000) -> str:
    """Return a number that was counted up to a limit."""
    return f"{number:,}+" if number >= limit else str(number)


def rate(counts: list[int], unit: str) -> str:
    """Return how often something happened in the minutes of `counts`, in the unit that fits."""
    total = sum(counts)
    if not total:
        return ""
    per_minute = total / len(counts)
    for factor, name in ((1 / 60, "s"), (1, "min"), (60, "h")):
        if per_minute * factor >= 1 or name == "h":
            amount = per_minute * factor
            text = f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}".removesuffix(".0")
            return f"{text} {unit}{'' if text == '1' else 's'}/{name}"
    return ""


def size(number: int) -> str:
    """Return a number of bytes in the unit that fits."""
    amount = float(number)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def clock(at_ms: int | None) -> str:
    """Return a time in UTC to the second; empty for None."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock_ms(at_ms: int, now_ms: int) -> str:
    """Return a time in UTC to the millisecond, without the date if it is today."""
    time = datetime.fromtimestamp(at_ms / 1000, UTC)
    today = time.date() == datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return time.strftime("%H:%M:%S.%f" if today else "%Y-%m-%d %H:%M:%S.%f")[:-3]


def minute(at_ms: int, now_ms: int) -> str:
    """Return a time in UTC to the minute, without the date if it is today."""
    return clock_ms(at_ms, now_ms)[:-7]


def age(at_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was, in one unit; a date after a week."""
    if at_ms is None:
        return "never"
    seconds = max(0, (now_ms - at_ms) // 1000)
    if seconds < 2:
        return "now"
    return f"{_span(seconds)} ago" if seconds < _WEEK_S else clock(at_ms)[:10]


def until(at_ms: int, now_ms: int) -> str:
    """Return how long it is until a time, in one unit; a date after a week."""
    seconds = (at_ms - now_ms) // 1000
    if seconds <= 0:
        return "expired"
    return f"in {_span(seconds)}" if seconds < _WEEK_S else clock(at_ms)[:10]


def _span(seconds: int) -> str:
    """Return a number of seconds in one unit, rounded down."""
    for limit, unit, divisor in ((60, "s", 1), (3600, "min", 60), (86400, "h", 3600)):
        if seconds < limit:
            return f"{seconds // divisor} {unit}"
    days = seconds // 86400
    return f"{days} day{'s' if days > 1 else ''}"


def duration(seconds: int | None) -> str:
    """Return a number of seconds in the largest unit that divides it; empty for None."""
    if seconds is None:
        return ""
    for unit, divisor in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= divisor and seconds % divisor == 0:
            amount = seconds // divisor
            return f"{amount} {unit}{'s' if amount > 1 else ''}"
    return f"{seconds} s"


def to_ms(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since the epoch."""
    time = datetime.fromisoformat(text)
    return int((time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp() * 1000)


def highlight(text: str) -> Markup:
    """Return JSON text with keys, strings and numbers marked; other text stays as it is."""
    parts: list[Markup] = []
    end = 0
    for match in _TOKEN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        parts.append(
            Markup('<span class="{}">{}</span>').format(
                _CLASSES[match.lastgroup or ""], match.group()
            )
        )
        end = match.end()
    parts.append(escape(text[end:]))
    return Markup("").join(parts)


def dump(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def line(value: Any, limit: int = LINE_MAX) -> Markup:
    """Return a value as JSON on one line, shortened and marked."""
    text = dump(value)
    return highlight(text if len(text) <= limit else f"{text[:limit]}…")


def message(text: str, limit: int = LINE_MAX) -> Markup:
    """Return the text of a record on one line, shortened; spaced and marked if it is JSON."""
    if text[:1] in {"{", "["} and len(text) <= MESSAGE_SPACED_MAX:
        with contextlib.suppress(ValueError, RecursionError):
            text = dump(json.loads(text))
    shown = text if len(text) <= limit else f"{text[:limit]}…"
    return highlight(shown) if text[:1] in {"{", "[", '"'} else escape(shown)


def prose(text: str) -> Markup:
    """Return a sentence with the parts between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    shown = [
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    ]
    return Markup("").join(shown)


def lens_text(lens: Any) -> str:
    """Return the operations of a lens in words."""
    operations = lens.get("ops", []) if isinstance(lens, dict) else lens
    return ", ".join(map(_lens_operation, operations if isinstance(operations, list) else []))


def _lens_operation(operation: Any) -> str:
    if not isinstance(operation, dict):
        return dump(operation)
    kind, name = operation.get("op"), operation.get("name", "")
    if kind == "rename":
        return f"rename {operation.get('from')} → {operation.get('to')}"
    if kind == "add" and "value" in operation:
        return f"add {name} = {dump(operation['value'])}"
    if kind == "convert":
        return f"convert {name} to {operation.get('to')}"
    rest = {key: value for key, value in operation.items() if key not in {"op", "name"}}
    return " ".join(filter(None, (str(kind), str(name), dump(rest) if rest else "")))


def pretty(text: str) -> Markup:
    """Return the text of a record as indented JSON if it is JSON, and unchanged if it is not."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return escape(text)
    return block(value)


def block(
    value: Any, changed: Collection[str] = (), authors: Mapping[str, int] | None = None
) -> Markup:
    """Return a value as indented JSON.

    Args:
        changed: JSON pointers of values to mark.
        authors: For each JSON pointer the seq of the commit that last set it.
    """
    lines: list[Markup] = []
    for depth, pointer, text in _lines(value, 0, "", "", ""):
        if len(lines) == BLOCK_LINES_MAX:
            lines.append(Markup('<span class="line gone">… more lines</span>'))
            break
        shown = highlight(text)
        if pointer in changed:
            shown = Markup('<span class="changed">{}</span>').format(shown)
        if authors is not None and pointer in authors:
            shown += Markup('<span class="by">{}</span>').format(authors[pointer])
        lines.append(Markup('<span class="line">{}{}</span>').format("  " * depth, shown))
    return Markup("").join(lines)


def _lines(
    value: Any, depth: int, pointer: str, before: str, after: str
) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a value: depth, JSON pointer and text."""
    if not isinstance(value, dict | list) or not value:
        yield depth, pointer, f"{before}{dump(value)}{after}"
        return
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    yield depth, pointer, before + opening
    entries = (
        [(key, f"{dump(key)}: ", item) for key, item in value.items()]
        if isinstance(value, dict)
        else [(str(index), "", item) for index, item in enumerate(value)]
    )
    for number, (key, prefix, item) in enumerate(entries, start=1):
        comma = "," if number < len(entries) else ""
        yield from _lines(item, depth + 1, f"{pointer}/{escape_key(key)}", prefix, comma)
    yield depth, "", closing + after


def escape_key(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")

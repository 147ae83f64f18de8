"""Transcript of a session: messages, calls and answers, with the contents of their payloads."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from fourfold.cli.output import Output, size
from fourfold.content import PayloadRef, encode
from fourfold.content.canonical import integer_text
from fourfold.errors import PayloadMissing
from fourfold.models.sessions import Event, Sessions, SessionView

_INTEGER_BITS_MAX: Final = 8_192
"""Integers with more digits are printed as strings: most JSON parsers cannot read them."""
_TEXT_CHARS: Final = 2_000
"""Characters of one entry that are printed without `--full`."""
_PAYLOAD_BYTES: Final = 1024 * 1024
"""A larger payload is not read without `--full`."""
_PAGE_EVENTS: Final = 200
_BODY_INDENT: Final = 8
_TURN_RUNNING: Final = "running"
_OUTSIDE_CONTENT: Final = frozenset({"id", "role", "turn_id", "step_id", "below", "index"})
"""Fields of a message that place it in the log."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "function"})
_RESULTS: Final = frozenset({"tool_result", "function_call_output"})

_TEXT_FIELDS: Final = frozenset({"type", "text", "annotations"})
_MESSAGE_FIELDS: Final = frozenset(
    {"id", "type", "role", "content", "tool_calls", "tool_call_id", "name", "status"}
)


class TranscriptEntry(NamedTuple):
    """One part of a transcript."""

    event: int
    at: str
    kind: str
    """message, call, turn, summary, error or status."""
    title: str
    content: Any

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "content": to_json(self.content)}


def to_json(value: Any) -> Any:
    """Convert a value to JSON; a reference becomes a dict, other tags stay."""
    if isinstance(value, PayloadRef):
        return value.as_dict()
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if type(value) is int and value.bit_length() > _INTEGER_BITS_MAX:
        return integer_text(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return json.loads(encode(value))


def activity(view: SessionView) -> str:
    """Return what the session does now.

    Its stored status is `running` from its start until it is stopped; in between, a session whose
    newest turn has ended is idle, unless it waits for a person.
    """
    status = (view.session or {}).get("status", _TURN_RUNNING)
    if status != _TURN_RUNNING:
        return str(status)
    if not view.counters.turn:
        return "idle" if view.counters.event else "not started"
    ended = view.turns[-1].get("status")
    if ended in {_TURN_RUNNING, "waiting"}:
        return str(ended)
    return "idle" if ended == "final" else f"idle (the last turn: {ended})"


def read_transcript(
    sessions: Sessions, view: SessionView, limit: int, *, full: bool
) -> tuple[list[TranscriptEntry], bool]:
    """Return the newest entries, oldest first, and True if there are earlier ones.

    Entries before the newest compaction are left out, as for the agent itself. Without `full`, a
    payload over 1 MiB stays a reference.
    """
    entries: list[TranscriptEntry] = []
    ended: set[int] = set()
    for event in _events_backwards(view):
        entry = _entry(sessions, event, ended, full=full)
        if entry is None:
            continue
        if len(entries) == limit:
            return entries[::-1], True
        entries.append(entry)
    return entries[::-1], False


def _events_backwards(view: SessionView) -> Iterator[Event]:
    first = (view.compact_from_event_id or 1) - 1
    stop = len(view.events)
    while stop > first:
        start = max(first, stop - _PAGE_EVENTS)
        yield from reversed(view.events[start:stop])
        stop = start


def _entry(
    sessions: Sessions, event: Event, ended: set[int], *, full: bool
) -> TranscriptEntry | None:
    data = event.data
    kind, title, content = "status", event.type.removeprefix("session/"), None
    if event.type in {"message/appended", "session/compacted"}:
        message = data["message"]
        kind = "message" if event.type == "message/appended" else "summary"
        title = str(message.get("role") or kind)
        content = _message_content(message)
    elif event.type == "eval/added":
        call = data["eval"]
        kind, title = "call", f"call {call.get('name', '')}: {call.get('status', '')}"
        content = call.get("error") if "error" in call else call.get("result_ref")
    elif event.type == "turn/put" and data["turn"].get("status") != _TURN_RUNNING:
        turn = data["turn"]
        ended.add(turn["id"])
        kind, title = "turn", f"turn {turn['id']}: {turn.get('status', '')}"
        content = turn.get("error") if "error" in turn else turn.get("final_ref")
    elif event.type == "turn/started":
        number = event.entity_id or 0
        status = data["turn"].get("status", _TURN_RUNNING)
        kind, title = "turn", f"turn {number}" + ("" if number in ended else f": {status}")
    elif event.type == "session/error":
        kind, title, content = "error", "error", data["error"]
    elif event.type not in {"session/stop-requested", "session/stopped"}:
        return None
    return TranscriptEntry(event.id, event.at, kind, title, _resolve(sessions, content, full=full))


def _message_content(message: dict[str, Any]) -> Any:
    """Return the text of a message: its content or item, or all its fields if it has more."""
    fields = {name: value for name, value in message.items() if name not in _OUTSIDE_CONTENT}
    for name in ("content", "item"):
        if set(fields) == {name}:
            return fields[name]
    return fields


def _resolve(sessions: Sessions, value: Any, *, full: bool) -> Any:
    """Replace references by their payloads."""
    if isinstance(value, dict):
        return {name: _resolve(sessions, item, full=full) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve(sessions, item, full=full) for item in value]
    if not isinstance(value, PayloadRef) or (value.size > _PAYLOAD_BYTES and not full):
        return value
    try:
        return sessions.read_payload(value)
    except PayloadMissing:
        return value


def print_transcript(out: Output, entries: list[TranscriptEntry], *, full: bool) -> None:
    """Print entries as text: a line with event, time and title, then the content, indented.

    The content is wrapped to the width of a terminal, and shortened unless `full` is True.
    """
    for entry in entries:
        out.line(f"{entry.event:>6}  {entry.at}  {entry.title}", "cyan")
        text = to_text(entry.content)
        for line in _wrapped(text if full else _shortened(text), out.width):
            out.line(" " * _BODY_INDENT + line if line else "")


def _shortened(text: str) -> str:
    left = len(text) - _TEXT_CHARS
    return text if left <= 0 else f"{text[:_TEXT_CHARS]}\n[{left} more characters: --full]"


def _wrapped(text: str, width: int | None) -> list[str]:
    lines = text.splitlines()
    if width is None:
        return lines
    room = max(width - _BODY_INDENT, 20)
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, replace_whitespace=False, break_on_hyphens=False)
        or [""]
    ]


def to_text(content: Any) -> str:
    """Format a content for people: texts as they are, calls and results of tools, or JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, PayloadRef):
        return f"[payload {content.id}, {size(content.size)}: not read, or not in this store]"
    if isinstance(content, list) and content and all(map(_is_part, content)):
        return "\n".join(map(to_text, content))
    text = _part_text(content) if isinstance(content, dict) else None
    return json.dumps(to_json(content), indent=2, ensure_ascii=False) if text is None else text


def _part_text(part: dict[str, Any]) -> str | None:
    """Format a text, call, result or message as the common model APIs write them."""
    kind = part.get("type")
    if kind in _CALLS:
        return _call_text(part)
    if kind in _RESULTS:
        return f"result: {to_text(part.get('content', part.get('output')))}"
    if isinstance(part.get("text"), str) and set(part) <= _TEXT_FIELDS:
        return str(part["text"])
    if ("content" in part or "tool_calls" in part) and set(part) <= _MESSAGE_FIELDS:
        parts = [part.get("content"), *(part.get("tool_calls") or ())]
        return "\n".join(text for text in map(to_text, parts) if text)
    return None


def _is_part(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and "type" in value)


def _call_text(call: dict[str, Any]) -> str:
    """Format the call of a tool: `call search {"q": "x"}`."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = function.get("arguments", function.get("input", function.get("args")))
    if not isinstance(arguments, str):
        arguments = json.dumps(to_json(arguments), ensure_ascii=False)
    return f"call {function.get('name', '')} {arguments}"

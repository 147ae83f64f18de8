"""The transcript of a session: its events as entries, grouped by turn, with payloads opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from fourfold.errors import Forbidden, PayloadMissing
from fourfold.explorer import values
from fourfold.explorer.page import Visit
from fourfold.wire.sessions import EventRecord

PAYLOADS_READ: Final = 40
PAYLOAD_BYTES_MAX: Final = 16 * 1024
TEXT_MAX: Final = 6_000
"""Characters of one entry; the rest is counted."""
TITLE_MAX: Final = 70
_PLACES: Final = frozenset({"id", "role", "turn_id", "step_id", "below", "index"})
"""Fields of a message that place it in the log."""


async def read_transcript(visit: Visit, events: list[EventRecord]) -> list[dict[str, Any]]:
    """Return the entries of some events, which are in the order of the log, grouped by turn."""
    turns: dict[int, dict[str, Any]] = {}
    before_ms = values.to_ms(events[0].at) if events else 0
    for event in events:
        data = decode_data(event)
        turn = turns.setdefault(turn_of(event, data), _new_turn(event, data))
        turn["end"] = event.at
        if event.type in {"turn/started", "turn/put"}:
            turn |= {"status": data["turn"].get("status", ""), "usage": data["turn"].get("usage")}
        elif event.type == "step/put" and turn["status"] == "running":
            turn["usage"] = add_usage(turn["usage"], data["step"].get("usage"))
        entry = _entry(event, data)
        if entry is not None:
            entry["duration_ms"] = values.to_ms(event.at) - before_ms if entry["is_call"] else None
            turn["entries"].append(entry)
        before_ms = values.to_ms(event.at)
    await read_payloads(visit, [entry for turn in turns.values() for entry in turn["entries"]])
    for turn in turns.values():
        _finish(turn)
    return [turn for turn in turns.values() if turn["entries"]]


def add_interruptions(turns: list[dict[str, Any]], stops: list[dict[str, Any]]) -> None:
    """Insert where workers stopped into the entries of the turns."""
    for stop in stops:
        turn = next((turn for turn in turns if turn["id"] == stop["turn"]), None)
        if turn is None:
            continue
        entries = turn["entries"]
        place = sum(entry["event"] <= stop["after"] for entry in entries)
        entries.insert(
            place, {"kind": "interrupted", "event": stop["after"], "repeats": False, "stop": stop}
        )


def _new_turn(event: EventRecord, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": turn_of(event, data),
        "status": "",
        "start": event.at,
        "end": event.at,
        "usage": None,
        "entries": [],
    }


def _finish(turn: dict[str, Any]) -> None:
    """Add what follows from the entries of a turn, and make their contents text or values."""
    turn["duration_ms"] = values.to_ms(turn["end"]) - values.to_ms(turn["start"])
    turn["steps"] = len({entry["step"] for entry in turn["entries"] if entry["step"]})
    said: Any = None
    for entry in turn["entries"]:
        content = entry.pop("content")
        # A final turn repeats what was said last.
        entry["repeats"] = entry["kind"] == "end" and content is not None and content == said
        said = content
        entry["text"] = show(content)
    texts = (entry["text"].get("text") for entry in turn["entries"] if entry["kind"] == "message")
    title = next(filter(None, texts), "")
    turn["title"] = title if len(title) <= TITLE_MAX else f"{title[:TITLE_MAX]}…"


def add_usage(one: dict[str, Any] | None, other: Any) -> dict[str, Any]:
    """Return the sums of two usages, each an amount by name."""
    total = dict(one or {})
    for name, amount in (other or {}).items() if isinstance(other, dict) else ():
        if isinstance(amount, int | float):
            total[name] = total.get(name, 0) + amount
    return total


def decode_data(event: EventRecord) -> dict[str, Any]:
    """Return the fields of an event."""
    data = msgspec.json.decode(event.data)
    return data if isinstance(data, dict) else {}


def turn_of(event: EventRecord, data: dict[str, Any]) -> int:
    """Return the turn of an event; 0 for those of the session itself."""
    if event.type in {"turn/started", "turn/put"}:
        return event.entity_id or 0
    for part in ("message", "step", "eval", "head", "edge"):
        if isinstance(data.get(part), dict):
            return data[part].get("turn_id") or 0
    return 0


def _entry(event: EventRecord, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the entry of an event; None for those that a transcript does not show."""
    role, kind, content, note, step, child = "session", "status", None, "", None, None
    if event.type in {"message/appended", "session/compacted"}:
        message = data["message"]
        kind = "message" if event.type == "message/appended" else "summary"
        role = str(message.get("role") or kind)
        content, step = content_of(message), message.get("step_id")
    elif event.type == "eval/added":
        call = data["eval"]
        kind, role, step = "tool", "tool", call.get("step_id")
        note = str(call.get("name", ""))
        content = call["error"] if "error" in call else call.get("result_ref")
        if call.get("status") not in {"ok", None}:
            kind = "failed"
    elif event.type == "lineage/edge-added" and is_child(data["edge"], event.session):
        kind, role, child = "child", "child", str(data["edge"]["to_session"])
        step = data["edge"].get("step_id")
    elif event.type == "turn/put":
        turn = data["turn"]
        if turn.get("status") == "running":
            return None
        kind, role, note = "end", "turn", str(turn.get("status", ""))
        asked = turn.get("question_ref", turn.get("question"))
        content = turn["error"] if "error" in turn else turn.get("final_ref", asked)
    elif event.type == "session/error":
        kind, role, content = "failed", "error", data["error"]
    elif event.type in {"session/started", "session/stop-requested", "session/stopped"}:
        note = event.type.partition("/")[2].replace("-", " ")
    else:
        return None
    return {
        "event": event.id,
        "at": event.at,
        "kind": kind,
        "role": role,
        "note": note,
        "step": step,
        "child": child,
        "is_call": role in {"tool", "child"},
        "content": content,
    }


def is_child(edge: dict[str, Any], sid: str) -> bool:
    """Return True for the edge to a session that worked for this one."""
    return edge.get("type") == "invocation" and edge.get("from_session") == sid


def content_of(message: dict[str, Any]) -> Any:
    """Return the content of a message, without the fields that place it."""
    fields = {name: value for name, value in message.items() if name not in _PLACES}
    for name in ("content", "item"):
        if set(fields) == {name}:
            return fields[name]
    return fields


async def read_payloads(visit: Visit, entries: Iterable[dict[str, Any]]) -> None:
    """Replace references to small payloads by what they refer to; only some of many."""
    left = PAYLOADS_READ
    for entry in reversed(list(entries)):
        reference = _reference(entry["content"])
        if reference is None:
            continue
        entry["size"] = reference.get("size", 0)
        if entry["size"] > PAYLOAD_BYTES_MAX or not left:
            continue
        left -= 1
        try:
            response = await visit.api.call("GET", f"/v1/sessions/payloads/{reference['id']}")
        except (PayloadMissing, Forbidden):
            continue
        try:
            entry["content"] = msgspec.json.decode(response.body)
        except msgspec.DecodeError:
            entry["content"] = response.body.decode("utf-8", "replace")


def _reference(content: Any) -> dict[str, Any] | None:
    if isinstance(content, dict) and set(content) == {"~ref"}:
        reference = content["~ref"]
        return reference if isinstance(reference, dict) and "id" in reference else None
    return None


def show(content: Any) -> dict[str, Any]:
    """Return a content for a page: text, or a value that is shown as JSON."""
    reference = _reference(content)
    if reference is not None:
        return {"text": f"payload {reference['id']}, {values.size(reference.get('size', 0))}"}
    if isinstance(content, dict) and set(content) == {"type", "message", "data"}:
        # An error as the runtime records it.
        return {"text": f"{content['type']}: {content['message']}"}
    if isinstance(content, list) and content and all(map(_is_text_part, content)):
        content = "\n".join(part if isinstance(part, str) else part["text"] for part in content)
    if isinstance(content, str):
        left = len(content) - TEXT_MAX
        return {"text": content if left <= 0 else f"{content[:TEXT_MAX]}… ({left:,} more)"}
    return {} if content is None else {"value": content}


def _is_text_part(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )

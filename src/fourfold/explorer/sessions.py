"""Pages of sessions: the list, and a session with its transcript, timeline, heads and lineage."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from fourfold.errors import Forbidden, InvalidInput, NotFound
from fourfold.explorer import timeline, values
from fourfold.explorer.links import format_at
from fourfold.explorer.page import Form, Fragment, Page, PageQuery, Visit
from fourfold.wire.sessions import (
    EventCounters,
    EventPage,
    EventRecord,
    HeadPage,
    LineageRecord,
    SessionPage,
    SessionRecord,
)

PAGE_ROWS: Final = 50
EVENTS_SHOWN: Final = 300
PAYLOADS_READ: Final = 40
PAYLOAD_BYTES_MAX: Final = 16 * 1024
TEXT_MAX: Final = 6_000
"""Characters of one entry; the rest is counted."""
_PLACES: Final = frozenset({"id", "role", "turn_id", "step_id", "below", "index"})
"""Fields of a message that place it in the log."""


class SessionsPageQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of sessions."""

    prefix: str = ""
    status: str = ""
    cursor: str = ""


class SessionQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a session."""

    sid: str


class SessionState(Struct, kw_only=True, frozen=True):
    """What the page needs of a view."""

    event_id: int
    counters: EventCounters
    session: Any
    """Fields of the session; None before it was started."""


class ForkFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that forks a session."""

    sid: str
    name: str
    event: str


async def sessions_page(visit: Visit, query: SessionsPageQuery) -> dict[str, Any]:
    """List sessions by prefix and status, newest first."""
    page = await visit.api.get(
        *("/v1/sessions", SessionPage),
        prefix=query.prefix,
        status=query.status,
        cursor=query.cursor,
        order="-created",
        limit=PAGE_ROWS,
    )
    until_ms = visit.time_ms
    return {
        "prefix": query.prefix,
        "status": query.status,
        "cursor": query.cursor,
        "sessions": [
            row
            for row in page.items
            if until_ms is None or values.to_ms(row.created_at) <= until_ms
        ],
        "next_cursor": page.next_cursor,
    }


async def session_page(visit: Visit, query: SessionQuery) -> dict[str, Any]:
    """Show a session at a point: transcript, timeline, heads and lineage."""
    at = format_at(visit.at)
    record, view, heads, lineage = await asyncio.gather(
        visit.api.get(f"/v1/session/{query.sid}", SessionRecord),
        visit.api.get(f"/v1/sessions/view/{query.sid}", SessionState, at=at),
        visit.api.get(f"/v1/sessions/heads/{query.sid}", HeadPage, at=at),
        visit.api.get(f"/v1/sessions/lineage/{query.sid}", LineageRecord, limit=200),
    )
    events = await _events(visit, query.sid, view.event_id)
    turns = await _transcript(visit, events)
    return {
        "session": record,
        "event_id": view.event_id,
        "counters": view.counters,
        "fields": view.session,
        "is_live": visit.at is None and record.deleted_at is None,
        "turns": turns,
        "earlier": events[0].id - 1 if events and events[0].id > 1 else None,
        "timeline": timeline.spans([_plain(event) for event in events], visit.now_ms),
        "heads": [_head_row(head) for head in reversed(heads.items)],
        "edges": [msgspec.to_builtins(_edge_row(edge)) for edge in lineage.edges],
        "lineage_complete": lineage.complete,
    }


async def session_part(visit: Visit, query: SessionQuery) -> dict[str, Any]:
    """Show the transcript again after new events."""
    return await session_page(visit, query)


async def _events(visit: Visit, sid: str, until: int) -> list[EventRecord]:
    """Return the newest events up to one, oldest first."""
    if not until:
        return []
    path = f"/v1/sessions/events/{sid}"
    after = max(0, until - EVENTS_SHOWN)
    events: list[EventRecord] = []
    while True:
        page = await visit.api.get(path, EventPage, after=after, until=until, limit=EVENTS_SHOWN)
        events += page.items
        # A page is bounded in bytes, too.
        if page.next_cursor is None or not page.items:
            return events
        after = page.items[-1].id


async def _transcript(visit: Visit, events: list[EventRecord]) -> list[dict[str, Any]]:
    """Return the entries of some events, grouped by turn."""
    turns: dict[int, dict[str, Any]] = {}
    for event in events:
        data = _decode(event.data) or {}
        number = _turn_of(event, data)
        turn = turns.setdefault(
            number,
            {
                "id": number,
                "status": "",
                "start": event.at,
                "end": event.at,
                "usage": None,
                "entries": [],
            },
        )
        turn["end"] = event.at
        if event.type in {"turn/started", "turn/put"}:
            turn |= {"status": data["turn"].get("status", ""), "usage": data["turn"].get("usage")}
        entry = _entry(event, data)
        if entry is not None:
            turn["entries"].append(entry)
    await _read_payloads(visit, [entry for turn in turns.values() for entry in turn["entries"]])
    for turn in turns.values():
        turn["duration_ms"] = values.to_ms(turn["end"]) - values.to_ms(turn["start"])
        turn["steps"] = len({entry["step"] for entry in turn["entries"] if entry["step"]})
        for entry in turn["entries"]:
            entry["text"] = _text(entry.pop("content"))
    return [turn for turn in turns.values() if turn["entries"]]


def _turn_of(event: EventRecord, data: dict[str, Any]) -> int:
    """Return the turn of an event; 0 for those of the session itself."""
    if event.type in {"turn/started", "turn/put"}:
        return event.entity_id or 0
    for part in ("message", "step", "eval", "head"):
        if isinstance(data.get(part), dict):
            return data[part].get("turn_id") or 0
    return 0


def _entry(event: EventRecord, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the entry of an event; None for those that a transcript does not show."""
    role, kind, content, note, step = "session", "status", None, "", None
    if event.type in {"message/appended", "session/compacted"}:
        message = data["message"]
        kind = "message" if event.type == "message/appended" else "summary"
        role = str(message.get("role") or kind)
        content, step = _content_of(message), message.get("step_id")
    elif event.type == "eval/added":
        call = data["eval"]
        kind, role, step = "tool", "tool", call.get("step_id")
        note = str(call.get("name", ""))
        content = call["error"] if "error" in call else call.get("result_ref")
        if call.get("status") not in {"ok", None}:
            kind = "failed"
    elif event.type == "turn/put":
        turn = data["turn"]
        if turn.get("status") == "running":
            return None
        kind, role, note = "end", "turn", str(turn.get("status", ""))
        content = turn["error"] if "error" in turn else turn.get("final_ref")
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
        "content": content,
    }


def _content_of(message: dict[str, Any]) -> Any:
    fields = {name: value for name, value in message.items() if name not in _PLACES}
    for name in ("content", "item"):
        if set(fields) == {name}:
            return fields[name]
    return fields


async def _read_payloads(visit: Visit, entries: list[dict[str, Any]]) -> None:
    """Replace references to small payloads by what they refer to; only some of many."""
    left = PAYLOADS_READ
    for entry in reversed(entries):
        reference = _reference(entry["content"])
        if reference is None or reference.get("size", 0) > PAYLOAD_BYTES_MAX or not left:
            continue
        left -= 1
        try:
            response = await visit.api.call("GET", f"/v1/payloads/{reference['id']}")
        except (NotFound, Forbidden):
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


def _text(content: Any) -> dict[str, Any]:
    """Return a content for a page: text, or a value that is shown as JSON."""
    reference = _reference(content)
    if reference is not None:
        return {"text": f"payload {reference['id']}, {values.size(reference.get('size', 0))}"}
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


def _decode(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _plain(event: EventRecord) -> dict[str, Any]:
    """Return what the timeline needs of an event."""
    data = _decode(event.data) or {}
    step, call, head = data.get("step") or {}, data.get("eval") or {}, data.get("head") or {}
    return {
        "id": event.id,
        "type": event.type,
        "at_ms": values.to_ms(event.at),
        "turn": _turn_of(event, data),
        "entity": event.entity_id,
        "name": str(call.get("name") or step.get("number") or head.get("kind") or ""),
        "failed": call.get("status") not in {"ok", None},
    }


def _head_row(head: Any) -> dict[str, Any]:
    return {
        "id": head.id,
        "kind": head.kind,
        "first": head.event_range[0],
        "last": head.event_range[1],
        "turn": head.turn_id,
    }


def _edge_row(edge: Any) -> dict[str, Any]:
    return {"type": edge.type, "from": edge.from_session, "to": edge.to_session}


async def fork(visit: Visit, fields: ForkFields) -> str:
    """Fork a session at an event."""
    if not fields.name or not fields.event.isdecimal():
        raise InvalidInput("fork: needs a name and an event", hint="Enter a name.")
    body = {"session": {"id": fields.name}, "at": int(fields.event)}
    await visit.api.call("POST", f"/v1/sessions/forks/{fields.sid}", body)
    return visit.link("/session", sid=fields.name)


PAGES: Final = (
    Page("/sessions", "sessions.html", sessions_page, SessionsPageQuery, "List sessions."),
    Page("/session", "session.html", session_page, SessionQuery, "Show a session."),
)
FRAGMENTS: Final = (
    Fragment("/session.part", "session_part.html", session_part, SessionQuery, "New events."),
)
FORMS: Final = (Form("/fork", fork, ForkFields, "Fork a session."),)

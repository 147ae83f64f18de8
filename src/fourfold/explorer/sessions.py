"""Pages of sessions: the list, a session, a comparison of two heads, and the preview of a fork."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec
from msgspec import Struct

from fourfold.errors import Busy, InvalidInput
from fourfold.explorer import (
    interruptions,
    lineage,
    timeline,
    transcript,
    usage,
    waiting,
)
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Fragment, Visit
from fourfold.explorer.stream_search import split_highlights
from fourfold.wire.search import SearchSnippet
from fourfold.wire.sessions import (
    EntityPage,
    EventCounters,
    EventPage,
    EventRecord,
    HeadDifference,
    HeadPage,
    HeadRecord,
    LeasePage,
    LineageRecord,
    PolicyList,
    SessionHitPageRecord,
    SessionHitRecord,
    SessionLease,
    SessionPage,
    SessionRecord,
)

PAGE_ROWS: Final = 50
EVENTS_SHOWN: Final = 300
TURNS_COUNTED: Final = 200
"""Newest turns whose usage is added up."""
HEADS_SHOWN: Final = 12
HEADS_READ: Final = 200
LINEAGE_READ: Final = 200
HITS_SHOWN: Final = 50
NO_SEARCH: Final[dict[str, Any]] = {"hits": None, "hits_after": None, "search_problem": ""}
MESSAGES_SHOWN: Final = 20
"""Messages of each side of a comparison, and of the preview of a fork."""


_WAITING_FILTER: Final = msgspec.json.encode({"turn_status": waiting.WAITING}).decode()


class SessionsPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of sessions."""

    prefix: str = ""
    status: str = ""
    """A status of sessions, or `waiting` for those whose newest turn waits for a person."""
    cursor: str = ""
    q: str = ""
    """Words to search for in the sessions of the prefix."""
    hits: str = ""
    """Where a further page of hits begins."""


class LeasesPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of leases and retention policies."""

    cursor: str = ""


class SessionQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a session."""

    sid: str


class CompareQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the comparison of two heads."""

    sid: str
    one: str = ""
    """Head to compare with; by default the one before `other`."""
    other: str = ""
    """By default the newest head."""


class ForkQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the preview of a fork."""

    sid: str
    event: int | None = None
    """Event after which the fork continues; by default that of `at`, or the newest."""


class SessionState(Struct, kw_only=True, frozen=True):
    """The part of a view that the page shows."""

    event_id: int
    counters: EventCounters
    session: Any
    """Fields of the session; None before it was started."""
    vars_ref: Any = None
    current_head: str | None = None
    kept_after: int = 0


class ForkFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that forks a session."""

    sid: str
    name: str
    event: str
    token: str
    """Idempotency key: sending the form again creates no second session."""


async def sessions_page(visit: Visit, query: SessionsPageQuery) -> dict[str, Any]:
    """List sessions by prefix and status, newest first."""
    prefix = await visit.list_prefix("sessions", query.prefix)
    page = await visit.api.get(
        *("/v1/sessions", SessionPage),
        prefix=prefix,
        status="" if query.status == waiting.WAITING else query.status,
        where=_WAITING_FILTER if query.status == waiting.WAITING else "",
        cursor=query.cursor,
        # The past has no index of updates.
        order="-updated" if visit.time is None else "-created",
        limit=PAGE_ROWS,
        at=visit.time,
    )
    return {
        "prefix": prefix,
        "status": query.status,
        "cursor": query.cursor,
        "sessions": page.items,
        "next_cursor": page.next_cursor,
        "q": query.q,
        **await _search(visit, query.q, prefix, query.hits),
    }


async def _search(visit: Visit, q: str, prefix: str, after: str) -> dict[str, Any]:
    """Return the hits of what a visitor searches for, or why there are none."""
    if not q:
        return NO_SEARCH
    try:
        page = await visit.api.get(
            *("/v1/sessions/search", SessionHitPageRecord),
            q=q,
            prefix=prefix,
            cursor=after,
            limit=HITS_SHOWN,
            at=visit.time,
        )
    except (InvalidInput, Busy) as error:
        return {**NO_SEARCH, "hits": [], "search_problem": f"{error.message}. {error.hint}"}
    return {**NO_SEARCH, "hits": list(map(_hit_row, page.items)), "hits_after": page.next_cursor}


def _hit_row(hit: SessionHitRecord) -> dict[str, Any]:
    snippet = SearchSnippet(text=hit.text, highlights=hit.highlights)
    return {
        "session": hit.session,
        "event": hit.event,
        "at": hit.at,
        "title": hit.title,
        "parts": split_highlights(snippet),
    }


async def session_page(visit: Visit, query: SessionQuery) -> dict[str, Any]:
    """Show a session at a point: transcript, timeline, usage, heads and lineage."""
    at = format_at(visit.at)
    record, view, heads, graph, owner = await asyncio.gather(
        visit.api.get(f"/v1/session/{query.sid}", SessionRecord),
        _view(visit, query.sid, at),
        _heads(visit, query.sid, at),
        _lineage(visit, query.sid),
        visit.api.get(f"/v1/sessions/lease/{query.sid}", SessionLease),
    )
    events = await _events(visit, query.sid, view.event_id)
    stops = interruptions.read_interruptions(owner.resumptions, events, visit.time_ms)
    lease = interruptions.lease_row(owner.lease, visit.now_ms) if visit.at is None else None
    turns, used, tree, question = await asyncio.gather(
        transcript.read_transcript(visit, events),
        _usage(visit, query.sid, view),
        lineage.read_tree(visit, query.sid, graph),
        waiting.read_question(visit, query.sid, view.event_id, view.counters),
    )
    is_running = bool(turns) and turns[-1]["status"] == "running"
    transcript.add_interruptions(turns, stops)
    is_worked_on = is_running and lease is not None and lease["is_in_force"]
    spans = timeline.spans(events, stops, visit.now_ms if is_worked_on else None)
    return {
        "session": record,
        "event_id": view.event_id,
        "counters": view.counters,
        "fields": view.session,
        "question": question,
        "interruptions": stops,
        "lease": lease,
        "is_interrupted": is_running and lease is not None and not lease["is_in_force"],
        "is_live": visit.at is None and record.deleted_at is None,
        "turns": turns,
        "earlier": events[0].id - 1 if events and events[0].id > 1 else None,
        "timeline": spans,
        "usage": used,
        "heads": [_head_row(head, heads) for head in reversed(heads[-HEADS_SHOWN:])],
        "head_count": len(heads),
        "lineage": tree,
    }


async def _lineage(visit: Visit, sid: str) -> LineageRecord:
    path = f"/v1/sessions/lineage/{sid}"
    return await visit.api.get(path, LineageRecord, limit=LINEAGE_READ, at=visit.time)


async def _view(visit: Visit, sid: str, at: str) -> SessionState:
    return await visit.api.get(f"/v1/sessions/view/{sid}", SessionState, at=at)


async def _heads(visit: Visit, sid: str, at: str) -> list[HeadRecord]:
    """Return the heads of a session, oldest first; at most one page."""
    page = await visit.api.get(f"/v1/sessions/heads/{sid}", HeadPage, at=at, limit=HEADS_READ)
    return page.items


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


async def _usage(visit: Visit, sid: str, view: SessionState) -> dict[str, Any]:
    """Return what the newest turns used up; for a turn that runs, what its steps did."""
    at = str(view.event_id)
    after = max(0, view.counters.turn - TURNS_COUNTED)
    turns = await _entities(visit, sid, "turns", at, after)
    if turns and turns[-1].get("status") == "running":
        steps = await _entities(visit, sid, "steps", at, max(0, view.counters.step - TURNS_COUNTED))
        own = [step for step in steps if step.get("turn_id") == turns[-1].get("id")]
        total: dict[str, Any] = {}
        for step in own:
            total = transcript.add_usage(total, step.get("usage"))
        turns[-1] = {**turns[-1], "steps": len(own), "usage": total}
    return {**usage.usage_table(turns), "complete": after == 0, "turns": len(turns)}


async def _entities(visit: Visit, sid: str, kind: str, at: str, after: int) -> list[dict[str, Any]]:
    if at == "0":
        return []
    page = await visit.api.get(
        *(f"/v1/sessions/{kind}/{sid}", EntityPage), at=at, after=after, limit=TURNS_COUNTED
    )
    return [msgspec.json.decode(item) for item in page.items]


def _head_row(head: HeadRecord, heads: list[HeadRecord]) -> dict[str, Any]:
    return {
        "id": head.id,
        "number": heads.index(head) + 1,
        "kind": head.kind,
        "first": head.event_range[0],
        "last": head.event_range[1],
        "turn": head.turn_id,
        "basis": head.basis,
    }


# Leases and retention


async def leases_page(visit: Visit, query: LeasesPageQuery) -> dict[str, Any]:
    """List who may write which session now, and the stored retention policies."""
    leases, policies = await asyncio.gather(
        visit.api.get("/v1/sessions/leases", LeasePage, cursor=query.cursor, limit=PAGE_ROWS),
        visit.api.get("/v1/sessions/retention", PolicyList),
    )
    rows = [
        {"session": lease.session, **(interruptions.lease_row(lease, visit.now_ms) or {})}
        for lease in leases.items
    ]
    return {
        "leases": rows,
        "cursor": query.cursor,
        "next_cursor": leases.next_cursor,
        "policies": policies.items,
    }


# Comparing heads


async def compare_page(visit: Visit, query: CompareQuery) -> dict[str, Any]:
    """Compare two heads: variables, and the messages that only one of them has."""
    record, own, graph = await asyncio.gather(
        visit.api.get(f"/v1/session/{query.sid}", SessionRecord),
        _heads(visit, query.sid, format_at(visit.at)),
        _lineage(visit, query.sid),
    )
    known = {head.id: head for head in [*graph.heads, *own]}
    other = known.get(query.other) or (own[-1] if own else None)
    basis = None if other is None else known.get(other.basis or "")
    one = known.get(query.one) or basis or (own[0] if own else None)
    difference = None
    if one is not None and other is not None:
        path = f"/v1/sessions/compare/{one.id}/{other.id}"
        difference = await visit.api.get(path, HeadDifference)
    return {
        "session": record,
        "one": None if one is None else _head_name(one),
        "other": None if other is None else _head_name(other),
        "heads": [_head_name(head) for head in known.values()],
        "common": _common(known, difference),
        "variables": _variables(difference),
        "only": await _messages(visit, difference),
    }


def _head_name(head: HeadRecord) -> dict[str, Any]:
    return {"id": head.id, "sid": head.session, "kind": head.kind, "last": head.event_range[1]}


def _common(
    known: dict[str, HeadRecord], difference: HeadDifference | None
) -> dict[str, Any] | None:
    head = None if difference is None else known.get(difference.common or "")
    return None if head is None else _head_name(head)


def _variables(difference: HeadDifference | None) -> list[dict[str, str]]:
    if difference is None:
        return []
    groups = (("+", difference.added), ("-", difference.removed), ("~", difference.changed))
    return [{"sign": sign, "name": name} for sign, names in groups for name in names]


async def _messages(visit: Visit, difference: HeadDifference | None) -> dict[str, Any]:
    """Return the messages that only one side has, newest first, with their payloads."""
    sides: dict[str, Any] = {}
    for name in ("gone_messages", "new_messages"):
        raw = [] if difference is None else getattr(difference, name)
        sides[name] = {
            "count": len(raw),
            "rows": await _message_rows(visit, [msgspec.json.decode(item) for item in raw]),
        }
    return {"one": sides["gone_messages"], "other": sides["new_messages"]}


async def _message_rows(visit: Visit, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [
        {"role": str(message.get("role") or "message"), "content": transcript.content_of(message)}
        for message in messages[-MESSAGES_SHOWN:]
    ]
    await transcript.read_payloads(visit, rows)
    return [{"role": row["role"], "text": transcript.show(row["content"])} for row in rows]


# Forking


async def fork_page(visit: Visit, query: ForkQuery) -> dict[str, Any]:
    """Show what a fork would start with: the transcript and the variables at an event."""
    at = format_at(visit.at) if query.event is None else str(query.event)
    record, view = await asyncio.gather(
        visit.api.get(f"/v1/session/{query.sid}", SessionRecord), _view(visit, query.sid, at)
    )
    first = max(view.kept_after, view.counters.message - MESSAGES_SHOWN)
    messages = await _entities(visit, query.sid, "messages", str(view.event_id), first)
    return {
        "session": record,
        "event": view.event_id,
        "kept": view.counters.message - view.kept_after,
        "messages": await _message_rows(visit, messages),
        "variables": _names(view.vars_ref),
        "model": (view.session or {}).get("model"),
        "name": f"{query.sid}-fork",
        "token": secrets.token_hex(16),
    }


def _names(vars_ref: Any) -> list[str] | None:
    """Return the names of variables; None if they are in a payload, or there are none."""
    if not isinstance(vars_ref, dict) or "~ref" in vars_ref:
        return None
    variables = vars_ref.get("vars", vars_ref)
    return sorted(variables) if isinstance(variables, dict) else None


async def fork(visit: Visit, fields: ForkFields) -> str:
    """Fork a session at an event."""
    if not fields.name or not fields.event.isdecimal():
        raise InvalidInput("fork: needs a name and an event", hint="Enter a name.")
    body = {"session": {"id": fields.name}, "at": int(fields.event)}
    headers = {"idempotency-key": fields.token}
    await visit.api.call("POST", f"/v1/sessions/forks/{fields.sid}", body, headers)
    return visit.link("/session", sid=fields.name)


PAGES: Final = (
    ExplorerPage("/sessions", "sessions.html", sessions_page, SessionsPageQuery, "List sessions."),
    ExplorerPage("/session", "session.html", session_page, SessionQuery, "Show a session."),
    ExplorerPage("/leases", "leases.html", leases_page, LeasesPageQuery, "List leases."),
    ExplorerPage("/compare", "compare.html", compare_page, CompareQuery, "Compare two heads."),
    ExplorerPage("/fork", "fork.html", fork_page, ForkQuery, "Preview a fork."),
)
FRAGMENTS: Final = (
    Fragment("/session.part", "session_live.html", session_page, SessionQuery, "New events."),
)
FORMS: Final = (Form("/fork", fork, ForkFields, "Fork a session."),)

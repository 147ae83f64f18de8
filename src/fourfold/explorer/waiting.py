"""Sessions that wait for a person: the question of the newest turn, and how it is answered."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from fourfold.errors import FourfoldError
from fourfold.explorer import transcript
from fourfold.explorer.page import Visit
from fourfold.wire.sessions import EntityPage, EventCounters, SessionPage, SessionRecord

WAITING: Final = "waiting"
SESSIONS_READ: Final = 50
"""Newest sessions among which the home looks for those that wait."""
SESSIONS_SHOWN: Final = 4
LINE_MAX: Final = 120


async def read_question(
    visit: Visit, sid: str, event_id: int, counters: EventCounters
) -> dict[str, Any] | None:
    """Return what a session asks a person at an event, or None if it does not wait."""
    if not counters.turn:
        return None
    page = await visit.api.get(
        *(f"/v1/sessions/turns/{sid}", EntityPage),
        at=str(event_id),
        after=counters.turn - 1,
        limit=1,
    )
    turn = msgspec.json.decode(page.items[0]) if page.items else {}
    if turn.get("status") != WAITING:
        return None
    row = {"content": turn.get("question_ref", turn.get("question"))}
    await transcript.read_payloads(visit, [row])
    call = f"runtime.run_turn({_quote(sid)}, answer)"
    return {"turn": turn["id"], "text": transcript.show(row["content"]), "call": call}


async def list_waiting(visit: Visit) -> dict[str, Any] | None:
    """Return those of the newest sessions that wait; None if the key does not allow to list them.

    Only some sessions are read: the home costs the same for any number of them.
    """
    page = await visit.api.find(
        *("/v1/sessions", SessionPage), order="-created", limit=SESSIONS_READ, at=visit.time
    )
    if page is None:
        return None
    waiting = [record for record in page.items if record.turn_status == WAITING]
    waiting = [record for record in waiting if record.deleted_at is None]
    rows = await asyncio.gather(*(_row(visit, record) for record in waiting[:SESSIONS_SHOWN]))
    return {"count": len(waiting), "rows": rows, "complete": page.next_cursor is None}


async def _row(visit: Visit, record: SessionRecord) -> dict[str, Any]:
    view = await visit.api.get(f"/v1/sessions/view/{record.id}", _EventCount, at=str(record.events))
    try:
        question = await read_question(visit, record.id, record.events, view.counters)
    except FourfoldError:
        # It was deleted, or its answer arrived, since it was listed.
        question = None
    return {"id": record.id, "updated_at": record.updated_at, "question": _line(question)}


class _EventCount(msgspec.Struct, kw_only=True, frozen=True):
    """The part of a view that leads to its newest turn."""

    counters: EventCounters


def _line(question: dict[str, Any] | None) -> str:
    """Return a question in one line."""
    text = {} if question is None else question["text"]
    if "value" in text:
        line = msgspec.json.encode(text["value"]).decode()
    else:
        line = " ".join(str(text.get("text", "")).split())
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…"


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()

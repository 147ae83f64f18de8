"""Interrupted turns of a session: where a worker stopped, who resumed the turn, what was replayed.

Leases say so: a claim of a session whose newest turn is recorded as running replaces a worker that
had stopped. The log itself has no trace of it.
"""

from __future__ import annotations

from typing import Any

from fourfold.explorer import values
from fourfold.explorer.transcript import decode_data, turn_of
from fourfold.wire.sessions import EventRecord, LeaseRecord, ResumptionRecord


def read_interruptions(
    resumptions: list[ResumptionRecord], events: list[EventRecord], until_ms: int | None
) -> list[dict[str, Any]]:
    """Return the interruptions among some events, which are in the order of the log."""
    places = {event.id: place for place, event in enumerate(events)}
    rows = []
    for resumption in resumptions:
        at_ms, place = values.to_ms(resumption.at), places.get(resumption.after)
        if place is None or (until_ms is not None and at_ms > until_ms):
            continue
        event = events[place]
        following = events[place + 1] if place + 1 < len(events) else None
        turn = turn_of(event, decode_data(event))
        rows.append(
            {
                "after": resumption.after,
                "next": None if following is None else following.id,
                "turn": turn,
                "at_ms": at_ms,
                "waited_ms": max(0, at_ms - values.to_ms(event.at)),
                "by": worker_name(resumption.holder),
                "replayed": _count_replayed(events[: place + 1]),
                "was_ended": following is not None and _is_end(following),
            }
        )
    return rows


def _count_replayed(events: list[EventRecord]) -> int:
    """Return the number of recorded calls of the step that was interrupted after some events."""
    calls = 0
    for event in reversed(events):
        if event.type == "step/put":
            status = decode_data(event)["step"].get("status")
            if status != "running":
                return 0
        elif event.type in {"step/started", "turn/started"}:
            break
        calls += event.type == "eval/added"
    return calls


def _is_end(event: EventRecord) -> bool:
    """Return True if the next worker recorded the turn as an error, and did not resume it."""
    if event.type != "turn/put":
        return False
    error = decode_data(event)["turn"].get("error")
    return isinstance(error, dict) and error.get("type") == "interrupted"


def worker_name(holder: str) -> str:
    """Return the name of a worker; those of the runtime are machine, process and a token."""
    parts = holder.split("/")
    if len(parts) == 3 and parts[1].isdecimal():
        return f"process {parts[1]} on {parts[0][:12]}"
    return holder


def lease_row(lease: LeaseRecord | None, now_ms: int) -> dict[str, Any] | None:
    """Return the lease of a session for its page."""
    if lease is None:
        return None
    until_ms = values.to_ms(lease.expires_at)
    return {
        "holder": lease.holder,
        "by": worker_name(lease.holder),
        "epoch": lease.epoch,
        "until_ms": until_ms,
        "is_in_force": until_ms > now_ms,
    }

"""`fourfold session list`, `show` and `log`: sessions, their views, and the events behind them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from fourfold.cli.options import command, root_argument
from fourfold.cli.output import Output, counted
from fourfold.cli.session.arguments import (
    RootMayBeLeftOut,
    brief,
    plain,
    session_command,
    sessions_of,
)
from fourfold.content import PayloadRef, parse_content_id
from fourfold.errors import PayloadMissing
from fourfold.models.sessions import Event, Sessions, SessionView


@command("list")
@root_argument(required=True)
@click.option("--after", metavar="SID", help="Begin behind this session.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most.")
@click.option("--deleted", is_flag=True, help="Show deleted sessions too.")
def list_sessions(out: Output, root: Path, after: str | None, limit: int, *, deleted: bool) -> None:
    """List the sessions of ROOT, in the order of their creation."""
    with sessions_of(root) as sessions:
        found = sessions.list_sessions(after=after, limit=limit, deleted=deleted)
        more = bool(found) and bool(
            sessions.list_sessions(after=found[-1].id, limit=1, deleted=deleted)
        )
    if out.as_json:
        out.document(
            {
                "root": str(root),
                "sessions": [msgspec.to_builtins(each) for each in found],
                "next_after": found[-1].id if more else None,
            }
        )
        return
    out.table(
        ("session", "events", "created", "deleted"),
        [(each.id, each.events, each.created_at, each.deleted_at or "") for each in found],
    )
    if more:
        out.line(f"There are more: --after {found[-1].id}")


@session_command("show")
@click.option("--at", metavar="EVENT|HEAD", help="As of this event, or of this head.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Turns and messages at most, the newest.",
)
def show(out: Output, sessions: Sessions, sid: str, at: str | None, limit: int) -> None:
    """Show the session SID, now or at a point in the past."""
    if at is None:
        view = sessions.current_view(sid)
    else:
        view = sessions.view_at(sid, int(at) if at.isdecimal() and len(at) < 19 else at)
    kept = list(view.kept_messages())[-limit:]
    if out.as_json:
        out.document(_facts(view, limit, kept))
        return
    status = (view.session or {}).get("status", "not started")
    out.line(f"{sid}: {status}, {counted(view.counters.event, 'event')}")
    out.line(f"current head: {view.current_head or 'none'}")
    for turn in view.turns[-limit:]:
        out.line(f"turn {turn['id']}: {turn.get('status', '')}")
    for message in kept:
        out.line(f"message {message['id']}: {message.get('role', '')}: {brief(message)}")


def _facts(view: SessionView, limit: int, kept: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": view.id,
        "session": plain(view.session),
        "counters": msgspec.to_builtins(view.counters),
        "current_head": view.current_head,
        "vars_ref": plain(view.vars_ref),
        "compact_from_event_id": view.compact_from_event_id,
        "error": plain(view.error),
        "turns": plain(view.turns[-limit:]),
        "kept_messages": plain(kept),
    }


@session_command("log")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="EVENT",
    help="Begin behind this event; without it, the newest are shown.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most.")
@click.option("--follow", is_flag=True, help="Go on with those that come, until interrupted.")
def log(
    out: Output, sessions: Sessions, sid: str, after: int | None, limit: int, *, follow: bool
) -> None:
    """List the events of the session SID, the newest last.

    With --follow, --json prints one JSON document a line.
    """
    newest = sessions.peek_next_id(sid) - 1
    start = max(0, newest - limit) if after is None else after
    if follow:
        for item in sessions.follow(sid, after=min(start, newest)):
            if isinstance(item, Event):
                out.line(json.dumps(_event(item)) if out.as_json else _line(item))
                # Whoever reads a pipe wants each event when it comes.
                sys.stdout.flush()
        return
    events = sessions.events_since(sid, start, limit=limit)
    if out.as_json:
        more = bool(events) and events[-1].id < newest
        out.document(
            {
                "id": sid,
                "events": [_event(event) for event in events],
                "next_after": events[-1].id if more else None,
            }
        )
        return
    for event in events:
        out.line(_line(event))


def _event(event: Event) -> dict[str, Any]:
    return {**plain(event.as_dict()), "position": event.position}


def _line(event: Event) -> str:
    return f"{event.id:>6}  {event.at}  {event.type}  {brief(event.data)}"


@command("payload", RootMayBeLeftOut)
@root_argument(required=True)
@click.argument("payload")
def read_payload(out: Output, root: Path, payload: str) -> None:
    """Print the value of PAYLOAD, an id that `show` and `log` give as `payload_id`."""
    digest = bytes.fromhex(parse_content_id(payload))
    with sessions_of(root) as sessions:
        with sessions.log.read() as reading:
            size = reading.payload_size(digest)
        if size is None:
            raise PayloadMissing(f"payload {payload} is not in this store")
        value = plain(sessions.read_payload(PayloadRef(payload, "message", size)))
    if out.as_json:
        out.document({"id": payload, "size": size, "value": value})
    else:
        out.line(value if isinstance(value, str) else json.dumps(value, indent=2))

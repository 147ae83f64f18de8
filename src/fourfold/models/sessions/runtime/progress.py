"""A running turn in memory, and its recovery from the log.

Everything in here is either passed again (the step function, the deadline) or stands in the log. So
what `continued` makes of the log of a dead process is what that process had, as of its last record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fourfold.content import content_id, encode
from fourfold.errors import ReplayMismatch
from fourfold.limits import SESSION_PAGE_EVENTS
from fourfold.models.sessions.reader import SessionView
from fourfold.models.sessions.records import Event
from fourfold.models.sessions.runtime.ports import SessionStore
from fourfold.models.sessions.runtime.records import (
    RUNNING,
    SUSPENDED,
    Capability,
    TurnSettings,
)
from fourfold.models.sessions.runtime.variables import Vars, restored

ATTEMPT: Final = "attempt/failed"
SIGNAL: Final = "signal/sent"
RECEIVED: Final = "signal/received"


@dataclass(slots=True)
class TurnProgress:
    """One turn. `records` is what the interrupted step recorded, by its index."""

    sid: str
    turn_id: int
    basis: str | None
    session: dict[str, Any]
    task: Any
    vars: Vars
    settings: TurnSettings
    until: float | None
    steps: int = 0
    step_id: int | None = None
    records: dict[int, Event] = field(default_factory=dict)
    attempts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The newest failed attempt of each call that the interrupted step repeats, by its index."""
    usage: Counter[str] = field(default_factory=Counter)

    @property
    def capability(self) -> Capability:
        """Capability that the turn was given."""
        return self.session.get("capability")

    @property
    def depth(self) -> int:
        """Number of parents."""
        return int(self.session.get("depth", 0))


def begun(sessions: SessionStore, sid: str, turn_id: int, settings: TurnSettings) -> TurnProgress:
    """Return a turn at its beginning, with the variables of the current head."""
    view = sessions.current_view(sid)
    message = view.messages[view.turns[turn_id - 1]["user_message_id"] - 1]
    return TurnProgress(
        sid,
        turn_id,
        view.current_head,
        dict(view.session or {}),
        sessions.read_payload(message["content"]),
        restored(sessions, starting_vars(sessions, view)),
        settings,
        None,
    )


def continued(
    sessions: SessionStore, sid: str, turn_id: int, settings: TurnSettings
) -> TurnProgress:
    """Return an interrupted turn, as far as it was recorded."""
    progress = begun(sessions, sid, turn_id, settings)
    for event in since_head(sessions, sid):
        about = event.data.get(event.type.split("/")[0])
        if not isinstance(about, dict) or about.get("turn_id") != turn_id:
            continue
        if event.type == "step/started":
            progress.step_id = about["id"]
            progress.steps += 1
            progress.records, progress.attempts = {}, {}
        elif event.type == "step/put" and about.get("status") != RUNNING:
            progress.step_id = None
            progress.usage.update(about.get("usage", {}))
            if "vars_ref" in about:
                progress.vars = restored(sessions, about["vars_ref"])
        elif event.type == ATTEMPT and about.get("step_id") == progress.step_id:
            progress.attempts[about["index"]] = about
        elif about.get("step_id") == progress.step_id and "index" in about:
            progress.records[about["index"]] = event
    return progress


def starting_vars(sessions: SessionStore, view: SessionView) -> Any:
    """Return the variables that a turn starts from: those of the current head, or of the origin.

    A later snapshot belongs to a turn that was never finished, and does not count.
    """
    if view.current_head is not None:
        return sessions.head(view.current_head).vars_ref
    session = view.session or {}
    if session.get("source_head") is not None:
        return sessions.head(session["source_head"]).vars_ref
    return session.get("vars_ref", view.vars_ref)


def interrupted(view: SessionView) -> dict[str, Any] | None:
    """Return the turn that is running or suspended, or was running when its process died."""
    if view.counters.turn == 0:
        return None
    newest = view.turns[-1]
    return newest if newest.get("status") in {RUNNING, SUSPENDED} else None


def since_head(sessions: SessionStore, sid: str) -> Iterator[Event]:
    """Yield the events that no head covers yet."""
    after = sessions.current_view(sid).covered
    while page := sessions.events_since(sid, after, limit=SESSION_PAGE_EVENTS):
        yield from page
        after = page[-1].id


def turn_of_key(sessions: SessionStore, sid: str, key: str, task: Any) -> int | None:
    """Return the turn that was opened under a key, or None; it must be for the same task."""
    events = sessions.events_of_key(sid, key)
    if not events:
        return None
    message, turn = events[0].data.get("message"), events[-1]
    if turn.type != "turn/started" or message is None or not same(message["content"], task):
        raise ReplayMismatch(
            f"another request of session {sid!r} was sent with the key {key!r} before",
            hint="Give each new task a key of its own.",
        )
    assert turn.entity_id is not None
    return turn.entity_id


def same(stored: Any, value: Any) -> bool:
    """Return True if a stored value, inline or by reference, equals this one."""
    data = encode(value)
    return encode(stored) == data or getattr(stored, "id", None) == content_id(data)


def find_signal(sessions: SessionStore, sid: str, name: str) -> tuple[Event | None, int]:
    """Return the first signal of a name that no turn has received, and the newest event.

    Signals count from the newest head on, so one that is sent between two turns is for the next.
    """
    signals: list[Event] = []
    received: set[Any] = set()
    last = 0
    for event in since_head(sessions, sid):
        last = event.id
        if event.type == SIGNAL and event.data["signal"].get("name") == name:
            signals.append(event)
        elif event.type == RECEIVED:
            received.add(event.data["signal"].get("event"))
    return next((event for event in signals if event.id not in received), None), last


def is_due(sessions: SessionStore, sid: str, turn: dict[str, Any], now: datetime) -> bool:
    """Return True if a suspended turn can go on: its time has come, or its signal or child."""
    due_at = turn.get("due_at")
    if due_at is not None and datetime.fromisoformat(due_at) <= now:
        return True
    for child in turn.get("waits_for", ()):
        newest = sessions.current_view(child).turns[-1]
        if newest.get("status") != SUSPENDED or is_due(sessions, child, newest, now):
            return True
    name, after = turn.get("signal"), turn.get("signal_after", 0)
    while name is not None and (
        page := sessions.events_since(sid, after, limit=SESSION_PAGE_EVENTS)
    ):
        if any(e.type == SIGNAL and e.data["signal"].get("name") == name for e in page):
            return True
        after = page[-1].id
    return False

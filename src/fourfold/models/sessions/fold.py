"""The fold of sessions: the view after a log of events.

    event                        effect
    session/started              sets the session
    turn/started, step/started   add a turn, a step
    turn/put, step/put           replace the one with the same id; add it if there is none
    message/appended             adds a message
    eval/added                   adds an eval
    session/vars-snapshotted     sets vars_ref
    session/compacted            sets vars_ref and compact_from_event_id, and adds one message
    head/published               adds a head and makes it the current one
    lineage/edge-added           adds an edge
    session/stop-requested       sets the session's status: stop-requested
    session/stopped              the same: stopped
    session/error                the same: error; and keeps the error
    anything else                nothing: newer writers may add types

Every event is added to the events and counted. Ids are counted too, never made up here.

It comes in two sizes. A *State* is the part that does not grow with the log; `advance` takes it one
event further. A *View* is a State with all the lists; `fold` builds it. Both are folds in the
strict sense: `fold(fold(base, some), more) == fold(base, some + more)`, wherever the events are
cut. Nothing that comes in is changed, and nothing here has a clock, a disk or a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.sessions.records import ENTITY_OF, Event, Head, LineageEdge, edge_of, head_of

MINTING: Final = frozenset(ENTITY_OF) - {"turn/put", "step/put"}
"""Events that create an entity, whose id the store assigns."""
STATUS_OF: Final = {
    "session/stop-requested": "stop-requested",
    "session/stopped": "stopped",
    "session/error": "error",
}
HELD: Final = {
    "session/started": ("session",),
    "session/vars-snapshotted": ("vars_ref",),
    "session/compacted": ("vars_ref", "message"),
    "session/error": ("error",),
    "head/published": ("head",),
    "lineage/edge-added": ("edge",),
    **{kind: (entity,) for kind, entity in ENTITY_OF.items() if kind != "session/compacted"},
}
"""Fields that an event of a known type must have."""


class Counters(msgspec.Struct, frozen=True):
    """The greatest id of each kind so far."""

    event: int = 0
    message: int = 0
    turn: int = 0
    step: int = 0
    eval: int = 0


_PLACES: Final = {
    kind: Counters.__struct_fields__.index(entity) - 1 for kind, entity in ENTITY_OF.items()
}
"""The counter that an event increments, besides that of the events."""


class FoldState(msgspec.Struct, frozen=True):
    """State of a session without its lists. `covered` is the last event that the current
    head covers, `digest` that of the newest event.
    """

    session: dict[str, Any] | None = None
    counters: Counters = Counters()
    current_head: str | None = None
    covered: int = 0
    vars_ref: Any = None
    compact_from_event_id: int | None = None
    error: Any = None
    digest: bytes = b""


class View(msgspec.Struct, frozen=True):
    """A session in full."""

    state: FoldState = FoldState()
    messages: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    evals: list[dict[str, Any]] = []
    heads: list[Head] = []
    edges: list[LineageEdge] = []
    events: list[Event] = []

    @property
    def session(self) -> dict[str, Any] | None:
        """The session, or None before it was started."""
        return self.state.session

    @property
    def counters(self) -> Counters:
        """The newest ids."""
        return self.state.counters

    @property
    def current_head(self) -> str | None:
        """Id of the newest head, or None."""
        return self.state.current_head

    @property
    def vars_ref(self) -> Any:
        """Reference to the variables, or None."""
        return self.state.vars_ref

    @property
    def compact_from_event_id(self) -> int | None:
        """The first event that a compaction keeps, or None."""
        return self.state.compact_from_event_id

    @property
    def error(self) -> Any:
        """The error of the session, or None."""
        return self.state.error


LISTS: Final = ("messages", "turns", "steps", "evals", "heads", "edges", "events")


def advance(state: FoldState, *events: Event) -> FoldState:
    """Return the state after these events, which follow `state`."""
    if not events:
        return state
    last, *counts = msgspec.structs.astuple(state.counters)
    changes: dict[str, Any] = {}
    for event in events:
        if event.id != last + 1:
            raise InvalidInput(
                f"event {event.id} of {event.session!r} does not follow event {last}",
                hint="Fold the events of one session, without a gap, in the order of their ids.",
            )
        last += 1
        kind = event.type
        place = _PLACES.get(kind)
        if place is not None:
            if event.entity_id is None:
                raise CorruptData(
                    f"event {last} of {event.session!r} is about no {ENTITY_OF[kind]}"
                )
            counts[place] = max(counts[place], event.entity_id)
        effect = _EFFECTS.get(kind)
        if effect is not None:
            _check_held(event)
            changes.update(effect(changes.get("session", state.session), event))
    counters, digest = Counters(last, *counts), events[-1].digest
    return msgspec.structs.replace(state, counters=counters, digest=digest, **changes)


def counted(state: FoldState, counts: dict[str, int], digest: bytes) -> FoldState:
    """Return the state after events that are only counted, like `advance`."""
    return msgspec.structs.replace(state, counters=Counters(**counts), digest=digest)


def fold(base: View | None, events: Iterable[Event]) -> View:
    """Return the view after these events, which follow `base`."""
    folding = _Fold(base or View())
    for event in events:
        folding.take(event)
    return folding.view()


def apply_event(view: View, event: Event) -> View:
    """Return the view after one more event. Use `fold` for many: it is faster."""
    return fold(view, (event,))


def kept_messages(view: View) -> list[dict[str, Any]]:
    """Return the current transcript: messages at or after the compaction boundary.

    The frame of a compaction is in the event of the boundary, so it is the first of them.
    """
    return list(messages_since(view.events, view.compact_from_event_id))


def messages_since(events: Iterable[Event], boundary: int | None) -> Iterator[dict[str, Any]]:
    """Yield the messages of events from a boundary on."""
    for event in events:
        if ENTITY_OF.get(event.type) == "message" and event.id >= (boundary or 0):
            yield event.data["message"]


def _check_held(event: Event) -> None:
    for name in HELD.get(event.type, ()):
        if name not in event.data:
            raise CorruptData(
                f"event {event.id} of {event.session!r}, a {event.type}, carries no {name}"
            )


def _started(_session: Any, event: Event) -> dict[str, Any]:
    return {"session": event.data["session"]}


def _status(session: Any, event: Event) -> dict[str, Any]:
    changes: dict[str, Any] = {"session": {**(session or {}), "status": STATUS_OF[event.type]}}
    if event.type == "session/error":
        changes["error"] = event.data["error"]
    return changes


def _vars(_session: Any, event: Event) -> dict[str, Any]:
    return {"vars_ref": event.data["vars_ref"]}


def _compacted(_session: Any, event: Event) -> dict[str, Any]:
    # Without a boundary it is the event itself.
    boundary = event.data.get("compact_from_event_id")
    return {
        "vars_ref": event.data["vars_ref"],
        "compact_from_event_id": event.id if boundary is None else boundary,
    }


def _published(_session: Any, event: Event) -> dict[str, Any]:
    head = event.data["head"]
    return {"current_head": head["id"], "covered": head["event_range"][1]}


_EFFECTS: Final = {
    "session/started": _started,
    "session/vars-snapshotted": _vars,
    "session/compacted": _compacted,
    "head/published": _published,
    **dict.fromkeys(STATUS_OF, _status),
}
"""Handlers of the events that change more in the State than its counters."""
EFFECTIVE: Final = frozenset(_EFFECTS)


class _Fold:
    """A running fold: its own lists, and an index of what can be replaced or repeated."""

    def __init__(self, base: View) -> None:
        self._state = base.state
        self._waiting: list[Event] = []
        self._lists = {name: list(getattr(base, name)) for name in LISTS}
        self._places = {
            name: {item["id"]: at for at, item in enumerate(getattr(base, name))}
            for name in ("turns", "steps")
        }
        self._known = {head.id for head in base.heads} | {edge.id for edge in base.edges}

    def take(self, event: Event) -> None:
        _check_held(event)
        self._waiting.append(event)
        entity = ENTITY_OF.get(event.type)
        if entity in {"turn", "step"}:
            self._replace(f"{entity}s", event.data[entity])
        elif entity is not None:
            self._lists[f"{entity}s"].append(event.data[entity])
        elif event.type == "head/published":
            self._add("heads", head_of(event.data["head"]))
        elif event.type == "lineage/edge-added":
            self._add("edges", edge_of(event.data["edge"]))
        self._lists["events"].append(event)

    def _replace(self, name: str, item: dict[str, Any]) -> None:
        items, places = self._lists[name], self._places[name]
        at = places.setdefault(item["id"], len(items))
        items[at : at + 1] = [item]

    def _add(self, name: str, item: Head | LineageEdge) -> None:
        if item.id not in self._known:
            self._known.add(item.id)
            self._lists[name].append(item)

    def view(self) -> View:
        return View(advance(self._state, *self._waiting), **self._lists)
